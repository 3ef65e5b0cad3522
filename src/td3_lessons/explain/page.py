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
from td3_lessons.explain import evidence, story
from td3_lessons.explain.breaks import race_setup
from td3_lessons.explain.claims import marked
from td3_lessons.explain.lessons import CREDITS, SYMBOLS, for_page
from td3_lessons.explain.rail_run import SETTINGS
from td3_lessons.explain.trace import Trace

RUN_STORY = """The six networks are the run's own; the transitions are new, collected by its actor with exploration
noise, and the optimizers start from zero."""
SCRIPTS = ("model.js", "draw.js", "map.js", "train.js", "extras.js", "story.js", "exercises.js", "app.js")


class Source:
    """The lines of a step, `whole` or what they compute alone, or of the function that a run has in its place."""

    def __init__(self, number: int, replaced: Mapping[str, Any] | None = None, whole: bool = False) -> None:
        function = inspect.unwrap(STEPS[number].function)
        if replaced is None:
            lines, self.line = inspect.getsourcelines(function)
            path = Path(inspect.getsourcefile(function) or "")
            self.file = path.relative_to(Path(td3.__file__).parent.parent).as_posix()
        else:
            lines, self.line, self.file = [replaced["source"]], replaced["line"], replaced["file"]
        self.numbers, self.text = _mathematics(
            textwrap.dedent("".join(lines)).rstrip("\n"), self.line, replaced is None and not whole
        )

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


def _mathematics(source: str, first: int, ours: bool) -> tuple[list[int], str]:
    """The lines of a function that say what is computed, and their numbers in the file.

    Left out are the docstring, which stands beside it as text; of our own steps also types, decorators and checks.
    """
    dropped: set[int] = set()
    cut: list[tuple[int, int, int]] = []
    with contextlib.suppress(SyntaxError):  # a replacement may have no source
        for function in ast.parse(source).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            if ast.get_docstring(function) is not None:
                dropped |= _lines(function.body[0])
            if not ours:
                continue
            dropped |= {line for decorator in function.decorator_list for line in _lines(decorator)}
            dropped |= {
                line for each in function.body if "require_finite" in ast.unparse(each) for line in _lines(each)
            }
            for argument in (*function.args.args, *function.args.kwonlyargs):
                if argument.annotation is not None:
                    end = argument.col_offset + len(argument.arg)
                    cut.append((argument.lineno, end, argument.annotation.end_col_offset or end))
            if function.returns is not None:
                line = source.splitlines()[function.returns.lineno - 1]
                cut.append((function.returns.lineno, line.index(" ->"), function.returns.end_col_offset or 0))
    lines = source.splitlines()
    for number, start, end in sorted(cut, reverse=True):
        lines[number - 1] = lines[number - 1][:start] + lines[number - 1][end:]
    kept = [(number, line) for number, line in enumerate(lines, 1) if number not in dropped]
    if ours and kept and not kept[0][1].endswith(":"):  # the signature on one line
        end = next(index for index, (_, line) in enumerate(kept) if line.rstrip().endswith(":"))
        joined = (
            " ".join(line.strip() for _, line in kept[: end + 1])
            .replace("( ", "(")
            .replace(", )", ")")
            .replace(" )", ")")
        )
        kept = [(kept[0][0], joined), *kept[end + 1 :]]
    return [first + number - 1 for number, _ in kept], "\n".join(line for _, line in kept)


def _lines(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


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
        made["facts"] = {
            **made["facts"],
            "race": race_setup(SETTINGS),
            "races": json.loads(read("race.json")),
            "verdicts": evidence.verdicts(),
            "said": evidence.SAID,
            "rail": evidence.rail(),
            "bodies": evidence.stored_bodies(),
        }
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
    lead = story.PROMISE
    if loaded:
        lead = f"Your run <code>{escape(loaded)}</code>: {escape(facts['env'])}, seed {facts['seed']}. {RUN_STORY}"
        lead += "".join(_replaced_story(number, one) for number, one in replaced.items())
    parts = {
        "TITLE": "TD3 in fifteen steps" + (f": {escape(facts['env'])}" if loaded else ""),
        "STORY": lead,
        **story.parts(),
        "EVIDENCE": "".join(f"<li>{marked(text)}</li>" for _, text in story.EVIDENCE),
        "STYLE": read("style.css") + read("svg.css"),
        "SVGSTYLE": json.dumps(read("svg.css")).replace("<", "\\u003c"),
        "CODES": codes,
        "LESSONS": json.dumps(for_page() | {"screens": story.screens()}, ensure_ascii=False).replace("<", "\\u003c"),
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
