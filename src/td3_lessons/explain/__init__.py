"""The fifteen steps explained: a recorded run, a page that replays it, drawings, a film and a notebook."""

import os
import sys
import webbrowser
from pathlib import Path


def explain(
    out: Path,
    run: Path | None = None,
    seed: int | None = None,
    at: str = "",
    open_it: bool = True,
    trust: bool = False,
) -> tuple[Path, bool]:
    """Write the page, of the lesson or of a user's own run; returns its path and whether a browser opened it."""
    from td3.errors import ConfigError
    from td3_lessons.explain.own_run import record_run
    from td3_lessons.explain.page import write_page
    from td3_lessons.explain.trace import lesson_trace

    if out.suffix != ".html":
        raise ConfigError(f"the page is written as .html, but {out} was given: give another --out.")
    if seed is not None and run is None:
        raise ConfigError("--seed chooses among the seeds of a run: give --run as well, or leave it out.")
    page = write_page(lesson_trace() if run is None else record_run(run, seed, trust=trust), out)
    address = page.resolve().as_uri() + (f"#{at.lstrip('#')}" if at else "")
    return page, open_it and _has_screen() and webbrowser.open(address)


def _has_screen() -> bool:
    """Whether a browser would be seen; without one, a text browser could take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
