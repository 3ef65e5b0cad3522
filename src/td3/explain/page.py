"""The page: one HTML file with style, script, lessons and trace inside, which opens from disk and asks for nothing."""

import inspect
import json
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from pygments.lexers import PythonLexer
from pygments.token import Token

import td3
from td3 import __version__
from td3.algorithm.registry import STEPS
from td3.errors import RunError
from td3.explain.lessons import SYMBOLS, for_page
from td3.explain.trace import Trace
from td3.files import write_atomically

LESSON_STORY = """A cart on a rail, recorded while TD3 trained it: every number is real, every line of code is the one
that ran. Step through an update, poke it, break it."""
RUN_STORY = """The six networks are the run's own; the transitions were played anew by its actor with exploration noise,
and the optimisers start afresh."""
SCRIPTS = ("model.js", "draw.js", "app.js")


class Source:
    """The lines of a step as they stand in its file."""

    def __init__(self, number: int) -> None:
        function = inspect.unwrap(STEPS[number].function)
        lines, self.line = inspect.getsourcelines(function)
        self.text = "".join(lines).rstrip("\n")
        path = Path(inspect.getsourcefile(function) or "")
        self.file = path.relative_to(Path(td3.__file__).parent.parent).as_posix()

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def html(self) -> str:
        """The lines, coloured, each with its number; names that are symbols carry them."""
        lines = [""]
        for kind, value in PythonLexer().get_tokens(self.text):
            for index, part in enumerate(value.split("\n")):
                if index:
                    lines.append("")
                if part:
                    lines[-1] += _coloured(kind, part)
        while lines and not lines[-1]:
            lines.pop()
        rows = (f'<span class="l" data-n="{self.line + n}">{line}\n</span>' for n, line in enumerate(lines))
        return "".join(rows)


def _coloured(kind: Any, text: str) -> str:
    groups = (
        (Token.Literal.String.Doc, "doc"),
        (Token.Comment, "com"),
        (Token.Keyword, "kw"),
        (Token.Literal.String, "str"),
        (Token.Literal.Number, "num"),
        (Token.Name.Decorator, "dec"),
        (Token.Name.Function, "fun"),
    )
    name = next((name for group, name in groups if kind in group), "")
    symbol = SYMBOLS.get(text) if kind in Token.Name else None
    if not name and symbol is None:
        return escape(text, quote=False)
    marks = (f' class="{name}"' if name else "") + (f' data-sym="{symbol}"' if symbol else "")
    return f"<span{marks}>{escape(text, quote=False)}</span>"


def read(name: str) -> str:
    """A file of the page's own."""
    return resources.files("td3.explain").joinpath("data", name).read_text(encoding="utf-8")


def page(trace: Trace) -> str:
    """The whole page as text."""
    facts = trace.facts
    sources = {number: Source(number) for number in sorted(STEPS)}
    codes = "".join(
        f'<figure class="code" id="code-{number}" hidden><figcaption>{escape(source.place)}</figcaption>'
        f'<pre tabindex="0"><code>{source.html()}</code></pre></figure>'
        for number, source in sources.items()
    )
    loaded = facts.get("loaded")
    story = LESSON_STORY
    if loaded:
        story = f"Your run <code>{escape(loaded)}</code>: {escape(facts['env'])}, seed {facts['seed']}. {RUN_STORY}"
    parts = {
        "TITLE": "TD3 in fifteen steps" + (f": {escape(facts['env'])}" if loaded else ""),
        "STORY": story,
        "STYLE": read("style.css") + read("svg.css"),
        "SVGSTYLE": json.dumps(read("svg.css")).replace("<", "\\u003c"),
        "CODES": codes,
        "LESSONS": json.dumps(for_page(), ensure_ascii=False).replace("<", "\\u003c"),
        "TRACE": json.dumps(trace.payload()).replace("<", "\\u003c"),
        "SCRIPT": "\n".join(read(name) for name in SCRIPTS),
        "MADE": f"Made by <code>td3 explain{f' --run {escape(loaded)}' if loaded else ''}</code>, td3 {__version__}.",
    }
    text = read("page.html")
    for name, part in parts.items():
        text = text.replace(f"%%{name}%%", part)
    return text


def write_page(trace: Trace, out: Path) -> Path:
    """Write the page, the folder too if it is missing."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page(trace).encode())
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None
    return out
