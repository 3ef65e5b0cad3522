"""Make what the docs show from the same page: fifteen drawings, the film, the texts, the README's block, the notebook.

    python -m td3_lessons.explain.export [--record] [--races]

needs Chromium and the packages of the extra `dev`. Everything but the pixels of the film depends on the trace and the
sources alone, to the last byte; the film carries the digest of the drawings that it was made of.
"""

import argparse
import hashlib
import io
import json
import re
import shutil
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from td3.algorithm.registry import STEPS
from td3.errors import MissingExtra
from td3_lessons.explain.breaks import MEASURES, RACE_UPDATES, RACES
from td3_lessons.explain.claims import told
from td3_lessons.explain.evidence import EVERY_UPDATES
from td3_lessons.explain.lessons import ACTING, CREDITS, FILM, LESSONS, words
from td3_lessons.explain.page import Source, page, read
from td3_lessons.explain.rail_run import record_rail
from td3_lessons.explain.story import FILMED, HOW_TO_READ, IN_README, INTRODUCTION, LADDER, QUESTIONS
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.recorded import with_tables

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DRAWN_AT = dict.fromkeys(range(16), 1.0) | {6: 0.5, 9: 0.74}
"""The moment of each step that says most when it stands still."""
DRAWN_ROW = {9: "&row=2"}
"""Rows that show a step better than the one at which the page opens."""
WIDTH = 640
FRAMES_PER_SECOND = 10
ON_SITE = "<!-- site: [Open the interactive page](fifteen_steps.html) -->"
"""What only the docs site shows (docs/_hooks.py): GitHub shows an HTML page as its source."""
BEGIN, END = "<!-- made by `make steps`: begin -->", "<!-- made by `make steps`: end -->"


def find_chromium() -> str | None:
    """Where Chromium is, if it is installed."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium, with an empty profile of its own."""
    executable = find_chromium()
    if executable is None:
        raise MissingExtra("the drawings are made in Chromium, which is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


def standalone(tab: Any, moment: str) -> str:
    """One drawing as an SVG file of its own, in light or dark as the reader has it."""
    svg = tab.evaluate(
        """([moment, width]) => {
            const scene = explain.stage(moment, width, { heading: true });
            return explain.svg(scene, `width="${scene.width}" height="${scene.height}"`, "%STYLE%");
        }""",
        [moment, WIDTH],
    )
    return str(svg).replace("%STYLE%", f"<style>{_style()}</style>") + "\n"


def drawings(tab: Any) -> dict[str, str]:
    """The drawings by file name: acting, the fifteen steps, and the map."""
    made = {}
    for number, at in DRAWN_AT.items():
        row = DRAWN_ROW.get(number, "")
        made[f"step_{number:02}.svg"] = standalone(tab, f"step={number}&t={at:g}{row}")
    return made | {"map.svg": whole_map(tab)}


def whole_map(tab: Any) -> str:
    """The map of the whole algorithm, nothing faded, as an SVG file of its own."""
    svg = tab.evaluate(
        """width => { const scene = explain.wholeMap(width);
            return explain.svg(scene, `width="${scene.width}" height="${scene.height}"`, "%STYLE%", "whole"); }""",
        WIDTH,
    )
    return str(svg).replace("%STYLE%", f"<style>{_style()}</style>") + "\n"


def _style() -> str:
    return " ".join(read("svg.css").split()) + " svg { background: var(--paper); }"


def film_frames(tab: Any) -> list[tuple[str, int]]:
    """The film as drawings, each with the milliseconds for which it stands."""
    seconds = sum(shot.seconds for shot in FILM)
    count = round(seconds * FRAMES_PER_SECOND)
    frames: list[tuple[str, int]] = []
    for index in range(count):
        svg = standalone(tab, f"film={index / (count - 1):.6f}")
        if frames and frames[-1][0] == svg:
            frames[-1] = svg, frames[-1][1] + 1000 // FRAMES_PER_SECOND
        else:
            frames.append((svg, 1000 // FRAMES_PER_SECOND))
    return frames


def digest(frames: list[tuple[str, int]]) -> str:
    """What the film was made of."""
    return hashlib.sha256("".join(f"{milliseconds} {svg}" for svg, milliseconds in frames).encode()).hexdigest()


def film(running: Any, frames: list[tuple[str, int]], scheme: str) -> bytes:
    """The film as an animated WebP, which carries the digest of its frames."""
    from PIL import Image

    context = running.new_context(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    images = []
    for svg, _ in frames:
        tab.set_content(f'<body style="margin:0">{svg}</body>')
        taken = tab.locator("svg").screenshot()
        images.append(Image.open(io.BytesIO(taken)).convert("RGB"))
    context.close()
    written = io.BytesIO()
    images[0].save(
        written,
        "WEBP",
        save_all=True,
        append_images=images[1:],
        duration=[milliseconds for _, milliseconds in frames],
        loop=0,
        quality=60,
        method=4,
        xmp=digest(frames).encode(),
    )
    return written.getvalue()


def markdown() -> str:
    """docs/fifteen_steps.md."""
    parts = [
        "# The fifteen steps of TD3",
        "",
        "*Tutorial, for students and everyone who reads the code: each step with its drawing and its lines.*",
        "",
        *_wrapped(INTRODUCTION),
        *(ON_SITE, ""),
        *_wrapped(CREDITS),
        "![The whole of TD3 as one map: environment, replay buffer, six networks, y and the loss](steps/map.svg)",
        "",
        *_wrapped(HOW_TO_READ),
        "## The film",
        "",
        _picture("A critic is fitted to y, its target follows, an actor climbs", "steps/film"),
        "",
        *_wrapped(FILMED),
        "## Acting",
        "",
        "![Exploration noise on the action, beside the smoothing noise of step 6](steps/step_00.svg)",
        "",
        *(line for part in (ACTING.what, ACTING.why, ACTING.misreading) for line in _wrapped(_md(part))),
    ]
    groups = {1: "Before training", 4: "One update", 13: "Every second update"}
    for number, step in sorted(STEPS.items()):
        if number in groups:
            parts += [f"## {groups[number]}", ""]
        source, said, lesson = Source(number, whole=True), words(number), LESSONS[number]
        parts += [
            f"### {number}. {step.title}",
            "",
            f"![{told(lesson.drawing)}](steps/step_{number:02}.svg)",
            "",
            *_wrapped(f"**What.** {_md(said.what)}"),
            *_wrapped(f"**Why.** {_md(said.why)}"),
            *_wrapped(f"**If you leave it out.** {_md(said.without)}"),
            *_wrapped(f"**Common misreading.** {_md(lesson.misreading)}"),
            *(_wrapped(f"**Measured.** {_md(lesson.measured)}") if lesson.measured else ()),
            f"[`{source.place}`](../src/{source.file}#L{source.line})",
            "",
            "```python",
            source.text,
            "```",
            "",
        ]
    parts += [
        "## Questions",
        "",
        "Answer first, then look: each links to its drawing, and names the moment of the page that shows it.",
        "",
    ]
    for index, (question, answer, moment) in enumerate(QUESTIONS, 1):
        parts += [
            f'<details markdown="1"><summary>{index}. {question}</summary>',  # the site's name for Markdown inside
            "",
            *_wrapped(_md(answer)),
            f"See [step {_number(moment)}](#{_anchor(_number(moment))}), or run `td3 explain --at '{moment}'`.",
            f"<!-- site: [Show me](fifteen_steps.html#{moment}) -->",
            "",
            "</details>",
            "",
        ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _number(moment: str) -> int:
    return int(moment.partition("step=")[2].partition("&")[0])


def _anchor(number: int) -> str:
    """The anchor of a step's heading on GitHub and on the docs site."""
    if number == 0:
        return "acting"
    return re.sub(r"[^\w -]", "", f"{number}. {STEPS[number].title}".lower()).replace(" ", "-")


def readme_block() -> str:
    """The README's part: the film, and the way to the rest."""
    return "\n".join(
        [
            BEGIN,
            _picture("A critic is fitted to y, its target follows late, and the actor climbs", "docs/steps/film"),
            "",
            *_wrapped(IN_README)[:-1],
            END,
        ]
    )


def with_block(readme: str) -> str:
    """The README with its part made anew."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: readme_block(), readme, flags=re.DOTALL)


def ladder_sentences() -> dict[str, str]:
    """What docs/ladder.md says under its tables, from the same recorded runs."""
    said = {name: "\n".join(_wrapped(_md(text))[:-1]) for name, text in LADDER.items()}
    return {name: text.replace("\N{MINUS SIGN}", "-") for name, text in said.items()}


def repository(root: Path) -> str:
    """The project's address, from `[project.urls]` in pyproject.toml: the one place where it is set; "" until then."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", "")).rstrip("/").removesuffix(".git")


def notebook(source: str, address: str = "") -> str:
    """The notebook from its source, without outputs: its cells are exercises.

    With the address of a GitHub repository it has a Colab badge, and installs itself from there.
    """
    import jupytext
    import nbformat

    source = re.sub(r"^# .*\{\{.*$", lambda line: _told_comment(line[0]), source, flags=re.MULTILINE)
    if address:
        place = address.removeprefix("https://github.com/")
        link = f"https://colab.research.google.com/github/{place}/blob/main/notebooks/td3_in_15_steps.ipynb"
        badge = f"# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"
        source = source.replace("# # TD3 in fifteen steps\n#\n", f"# # TD3 in fifteen steps\n#\n{badge}\n#\n", 1)
        source = source.replace('REPOSITORY = ""', f'REPOSITORY = "{address}"', 1)
    book = jupytext.reads(source, fmt="py:percent")
    for index, cell in enumerate(book.cells):
        cell["id"] = f"cell-{index:02}"
        cell["metadata"] = {}
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return str(nbformat.writes(book)) + "\n"  # type: ignore[no-untyped-call]  # nbformat leaves it untyped


def _told_comment(line: str) -> str:
    """A line of a Markdown cell with its claims written out."""
    return "\n".join(f"# {part}" for part in textwrap.wrap(told(line.removeprefix("# ")), 118))


def texts(root: Path, tab: Any) -> dict[Path, str]:
    """Every text that is made, by where it belongs."""
    made = {root / "docs/steps" / name: svg for name, svg in drawings(tab).items()}
    source = root / "notebooks/td3_in_15_steps.py"
    return made | {
        root / "docs/fifteen_steps.md": markdown(),
        root / "docs/fifteen_steps.html": page(lesson_trace()),
        root / "docs/ladder.md": with_tables((root / "docs/ladder.md").read_text(encoding="utf-8"), ladder_sentences()),
        root / "README.md": with_block((root / "README.md").read_text(encoding="utf-8")),
        source.with_suffix(".ipynb"): notebook(source.read_text(encoding="utf-8"), repository(root)),
    }


def record_races(tab: Any, updates: int = RACE_UPDATES, seeds: Iterable[int] = range(1, 31)) -> str:
    """TD3 and each of its changes trained in the page: what `data/race.json` holds (minutes)."""
    script = """([name, seed, updates, each]) => {
        const T = explain.makeTrainer(explain.raceSetup(), name === "td3" ? [] : [name], seed), made = [T.measure()];
        for (let u = 1; u <= updates; u++) { T.step(); if (u % each === 0) made.push(T.measure()); }
        return made; }"""
    made = {}
    for name in ("td3", *RACES):
        runs = [tab.evaluate(script, [name, seed, updates, EVERY_UPDATES]) for seed in seeds]
        made[name] = {
            measure: [[float(f"{moment[measure]:.4g}") for moment in run] for run in runs]
            for measure in (*MEASURES, "earned")
        }
    return json.dumps(made, separators=(",", ":"), sort_keys=True)


def main() -> None:
    """Write everything into a checkout."""
    parser = argparse.ArgumentParser(prog="python -m td3_lessons.explain.export", description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="train and record the lesson's run again first")
    parser.add_argument("--races", action="store_true", help="train the changed versions of TD3 again first (minutes)")
    parser.add_argument("--no-film", action="store_true", help="keep the film as it is")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout")
    options = parser.parse_args()
    root: Path = options.root
    data = Path(str(resources.files("td3_lessons.explain").joinpath("data")))
    if options.record:
        record_rail().save(data / "rail.npz")
        lesson_trace.cache_clear()
    with browser() as running:
        tab = opened(running, page(lesson_trace()))
        if options.races:
            (data / "race.json").write_text(record_races(tab), encoding="utf-8")
            tab = opened(running, page(lesson_trace()))
        (root / "docs/steps").mkdir(parents=True, exist_ok=True)
        for path, text in texts(root, tab).items():
            path.write_text(text, encoding="utf-8")
        if not options.no_film:
            frames = film_frames(tab)
            for scheme in ("light", "dark"):
                (root / f"docs/steps/film_{scheme}.webp").write_bytes(film(running, frames, scheme))


def opened(running: Any, text: str) -> Any:
    """A tab with this page in it."""
    tab = running.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
    tab.set_content(text)
    return tab


def _picture(alt: str, stem: str) -> str:
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{stem}_dark.webp">'
        f'<img src="{stem}_light.webp" alt="{alt}" width="{WIDTH}"></picture>'
    )


def _md(text: str) -> str:
    text = told(text)
    if "`" in text:
        return text
    return text.replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;")


def _wrapped(text: str) -> list[str]:
    return [*textwrap.wrap(" ".join(told(text).split()), 118, break_long_words=False, break_on_hyphens=False), ""]


if __name__ == "__main__":
    main()
