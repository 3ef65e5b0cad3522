"""What a run prints in a notebook: one output of a cell, which is updated in place."""

from html import escape
from typing import Any


class NotebookOutput:
    """Lines, and below them a bar while training goes on."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._handle: Any = None
        self._share, self._facts = 0.0, ""

    def say(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)
        self._update()

    def show(self, share: float, facts: str) -> None:
        """Move the bar to this share of the run."""
        self._share, self._facts = share, facts
        self._update()

    def end(self) -> None:
        """Take the bar away; the lines stay."""
        if self._facts:
            self._facts = ""
            self._update()

    def _update(self) -> None:
        from IPython.display import display

        text = "\n".join([*self._lines, *([self._facts] if self._facts else [])])
        bar = f"<progress value={self._share:.4f}></progress> " if self._facts else ""
        html = "".join(f"{escape(line)}\n" for line in self._lines)
        html = f"<pre style='white-space: pre-wrap'>{html}{bar}{escape(self._facts)}</pre>"
        bundle = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
