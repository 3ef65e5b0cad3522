"""The page: one HTML file with style, script, lessons and trace inside, which opens from disk and asks for nothing."""

import ast
import contextlib
import inspect
import json
import re
import textwrap
from collections.abc import Mapping
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
from td3.files import write_atomically
from td3_lessons.explain.breaks import race_setup
from td3_lessons.explain.lessons import CREDITS, SYMBOLS, for_page
from td3_lessons.explain.trace import Trace

LESSON_STORY = """Twin Delayed DDPG, one update at a time: a recorded run on a small task, with the code that ran and
every number it computed. Step through it, change it, break it, and train it broken."""
RUN_STORY = """The six networks are the run's own; the transitions are new, collected by its actor with exploration
noise, and the optimizers start from zero."""
SCRIPTS = ("model.js", "draw.js", "map.js", "train.js", "extras.js", "app.js")


class Source:
    """The lines of a step as they stand in its file, or of the function that a run has in its place."""

    def __init__(self, number: int, replaced: Mapping[str, Any] | None = None) -> None:
        function = inspect.unwrap(STEPS[number].function)
        if replaced is None:
            lines, self.line = inspect.getsourcelines(function)
            path = Path(inspect.getsourcefile(function) or "")
            self.file = path.relative_to(Path(td3.__file__).parent.parent).as_posix()
        else:
            lines, self.line, self.file = [replaced["source"]], replaced["line"], replaced["file"]
        self.numbers, self.text = _without_docstring(textwrap.dedent("".join(lines)).rstrip("\n"), self.line)

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def html(self) -> str:
        """The lines, colored, each with its number; names that are symbols carry them."""
        lines = [""]
        for kind, value in PythonLexer().get_tokens(self.text):
            for index, part in enumerate(value.split("\n")):
                if index:
                    lines.append("")
                if part:
                    lines[-1] += _colored(kind, part)
        while lines and not lines[-1]:
            lines.pop()
        rows = zip(self.numbers, lines, strict=True)
        return "".join(f'<span class="l" data-n="{number}">{line}\n</span>' for number, line in rows)


def _without_docstring(source: str, first: int) -> tuple[list[int], str]:
    """The lines of a function but for its docstring, which stands beside it as text, and their numbers in the file."""
    dropped: range = range(0)
    with contextlib.suppress(SyntaxError):  # a replacement may have no source
        for function in ast.parse(source).body:
            if isinstance(function, ast.FunctionDef) and ast.get_docstring(function) is not None:
                said = function.body[0]
                dropped = range(said.lineno, (said.end_lineno or said.lineno) + 1)
    kept = [(number, line) for number, line in enumerate(source.splitlines(), 1) if number not in dropped]
    return [first + number - 1 for number, _ in kept], "\n".join(line for _, line in kept)


def _colored(kind: Any, text: str) -> str:
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
    return resources.files("td3_lessons.explain").joinpath("data", name).read_text(encoding="utf-8")


def _linked(text: str) -> str:
    """Markdown's links and emphasis as HTML."""
    plain = escape(" ".join(text.split()), quote=False)
    plain = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2" rel="noopener">\1</a>', plain)
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", plain)


def _payload(trace: Trace) -> dict[str, Any]:
    """What the script reads; the lesson also gets the settings and the recorded curves of the runs that are broken."""
    made = trace.payload()
    if trace.facts["truth"]:
        made["facts"] = {**made["facts"], "race": race_setup(), "races": json.loads(read("race.json"))}
    return made


def _replaced_story(number: str, replaced: Mapping[str, Any]) -> str:
    changed = ", which has changed since the run was trained" if replaced["changed"] else ""
    function, step = (f"<code>{escape(replaced[name])}</code>" for name in ("function", "step"))
    return f" Step {number} is {function} ({escape(replaced['file'])}{changed}) instead of {step}."


def page(trace: Trace) -> str:
    """The whole page as text."""
    facts = trace.facts
    replaced = facts.get("replaced", {})
    sources = {number: Source(number, replaced.get(str(number))) for number in sorted(STEPS)}
    codes = "".join(
        f'<figure class="code" id="code-{number}" hidden><figcaption>{escape(source.place)}</figcaption>'
        f'<pre tabindex="0"><code>{source.html()}</code></pre></figure>'
        for number, source in sources.items()
    )
    loaded = facts.get("loaded")
    story = LESSON_STORY
    if loaded:
        story = f"Your run <code>{escape(loaded)}</code>: {escape(facts['env'])}, seed {facts['seed']}. {RUN_STORY}"
        story += "".join(_replaced_story(number, one) for number, one in replaced.items())
    parts = {
        "TITLE": "TD3 in fifteen steps" + (f": {escape(facts['env'])}" if loaded else ""),
        "STORY": story,
        "STYLE": read("style.css") + read("svg.css"),
        "SVGSTYLE": json.dumps(read("svg.css")).replace("<", "\\u003c"),
        "CODES": codes,
        "LESSONS": json.dumps(for_page(), ensure_ascii=False).replace("<", "\\u003c"),
        "TRACE": json.dumps(_payload(trace)).replace("<", "\\u003c"),
        "SCRIPT": "\n".join(read(name) for name in SCRIPTS),
        "CREDITS": _linked(CREDITS),
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
