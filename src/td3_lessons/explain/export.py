"""Make what the docs show from the same page: fifteen drawings, the film, the texts, the README's block, the notebook.

    python -m td3_lessons.explain.export [--record] [--races] [--execute]

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
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from td3.algorithm.registry import STEPS
from td3.errors import MissingExtra
from td3_lessons.explain.breaks import MEASURES, RACES
from td3_lessons.explain.lessons import CREDITS, FILM, LESSONS, QUESTIONS, words
from td3_lessons.explain.page import Source, page, read
from td3_lessons.explain.rail_run import record_rail
from td3_lessons.explain.trace import lesson_trace

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
DRAWN_AT = dict.fromkeys(range(1, 16), 1.0) | {6: 0.5, 9: 0.74, 11: 0.66}
"""The moment of each step that says most when it stands still."""
DRAWN_ROW = {9: "&row=2"}
"""Rows that show a step better than the one at which the page opens."""
WIDTH = 640
FRAMES_PER_SECOND = 10
INTRODUCTION = """Every line of code here is the one that runs, every drawing shows real numbers: TD3 learning to hold a
cart in the middle of a rail (`Rail-v0`, networks of 16 and 16 units). `td3 explain` opens the page that these drawings
come from: there each step moves, can be changed and broken, and TD3 can be trained broken for 5,000 updates beside the
unchanged algorithm. `td3 explain --run RUN` makes it from a run of your own; of a run with [replaced
steps](modify.md) it shows the functions that replaced them, and their numbers (with `--trust`, since that executes
their file)."""
ON_SITE = "<!-- site: [Open the interactive page](fifteen_steps.html) -->"
"""What only the docs site shows (docs/_hooks.py): GitHub shows an HTML page as its source."""
HOW_TO_READ = """Above each drawing is the same map: six networks drawn as their weights (purple above zero, gray below;
targets dashed), and what a step reads and makes on its edges. What a step does not use is faded. Below it the chosen
transition: the cart before, the force, the cart after. This file, the drawings and the film are made by `make steps`; a
test fails when they differ from the code."""
IN_README = """*One update of a real run, steps 11 to 15.* `td3 explain` opens the page it comes from: drive the task,
step through an update with the code that ran, change it, break it. [All drawings](docs/fifteen_steps.md)."""
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


def standalone(tab: Any, moment: str, caption: bool = False) -> str:
    """One drawing as an SVG file of its own, in light or dark as the reader has it."""
    svg = tab.evaluate(
        """([moment, width, caption]) => {
            const scene = explain.stage(moment, width, { heading: true, caption });
            return explain.svg(scene, `width="${scene.width}" height="${scene.height}"`, "%STYLE%");
        }""",
        [moment, WIDTH, caption],
    )
    return str(svg).replace("%STYLE%", f"<style>{_style()}</style>") + "\n"


def drawings(tab: Any) -> dict[str, str]:
    """The fifteen drawings by file name."""
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
        svg = standalone(tab, f"film={index / (count - 1):.6f}", caption=True)
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
        "## One update as a film, from the loss to the targets",
        "",
        _picture("Steps 11 to 15 as a film", "steps/film"),
        "",
    ]
    groups = {1: "Before training", 4: "One update", 13: "Every second update"}
    for number, step in sorted(STEPS.items()):
        if number in groups:
            parts += [f"## {groups[number]}", ""]
        source, said, lesson = Source(number), words(number), LESSONS[number]
        parts += [
            f"### {number}. {step.title}",
            "",
            f"![{lesson.drawing}](steps/step_{number:02}.svg)",
            "",
            *_wrapped(f"**What.** {_md(said.what)}"),
            *_wrapped(f"**Why.** {_md(said.why)}"),
            *_wrapped(f"**If you leave it out.** {_md(said.without)}"),
            *_wrapped(f"**Common misreading.** {_md(lesson.misreading)}"),
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
    return re.sub(r"[^\w -]", "", f"{number}. {STEPS[number].title}".lower()).replace(" ", "-")


def readme_block() -> str:
    """The README's part: the film, and the way to the rest."""
    return "\n".join(
        [
            BEGIN,
            _picture("One update of TD3 as a film, from the loss to the target networks", "docs/steps/film"),
            "",
            *_wrapped(IN_README)[:-1],
            END,
        ]
    )


def with_block(readme: str) -> str:
    """The README with its part made anew."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: readme_block(), readme, flags=re.DOTALL)


def repository(root: Path) -> str:
    """The project's address, from `[project.urls]` in pyproject.toml: the one place where it is set; "" until then."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", "")).rstrip("/").removesuffix(".git")


def notebook(source: str, address: str = "", before: str = "") -> str:
    """The notebook from its source; cells that are unchanged keep the outputs that they had `before`.

    With the address of a GitHub repository it has a Colab badge, and installs itself from there.
    """
    import jupytext
    import nbformat

    if address:
        place = address.removeprefix("https://github.com/")
        link = f"https://colab.research.google.com/github/{place}/blob/main/notebooks/td3_in_15_steps.ipynb"
        badge = f"# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"
        source = source.replace("# # TD3 in fifteen steps\n#\n", f"# # TD3 in fifteen steps\n#\n{badge}\n#\n", 1)
        source = source.replace('REPOSITORY = ""', f'REPOSITORY = "{address}"', 1)
    book = jupytext.reads(source, fmt="py:percent")
    old = nbformat.reads(before, 4).cells if before else []  # type: ignore[no-untyped-call]  # nbformat leaves it untyped
    known = {cell["source"]: cell for cell in old if cell["cell_type"] == "code"}
    for index, cell in enumerate(book.cells):
        cell["id"] = f"cell-{index:02}"
        cell["metadata"] = {}
        if cell["cell_type"] == "code" and cell["source"] in known:
            kept = known[cell["source"]]
            cell["outputs"], cell["execution_count"] = kept["outputs"], kept["execution_count"]
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return str(nbformat.writes(book)) + "\n"  # type: ignore[no-untyped-call]  # as above


def executed(text: str, folder: Path) -> str:
    """The notebook run from the first cell to the last, with its outputs (minutes)."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.reads(text, 4)  # type: ignore[no-untyped-call]  # as above
    NotebookClient(book, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    for cell in book.cells:
        cell["metadata"] = {}
    return str(nbformat.writes(book)) + "\n"  # type: ignore[no-untyped-call]  # as above


def texts(root: Path, tab: Any) -> dict[Path, str]:
    """Every text that is made, by where it belongs."""
    made = {root / "docs/steps" / name: svg for name, svg in drawings(tab).items()}
    source = root / "notebooks/td3_in_15_steps.py"
    return made | {
        root / "docs/fifteen_steps.md": markdown(),
        root / "docs/fifteen_steps.html": page(lesson_trace()),
        root / "README.md": with_block((root / "README.md").read_text(encoding="utf-8")),
        source.with_suffix(".ipynb"): _notebook_of(root, source),
    }


def _notebook_of(root: Path, source: Path) -> str:
    made = source.with_suffix(".ipynb")
    before = made.read_text(encoding="utf-8") if made.exists() else ""
    return notebook(source.read_text(encoding="utf-8"), repository(root), before)


def record_races(tab: Any, updates: int = 5_000, every: int = 250, seeds: tuple[int, ...] = (1, 2, 3)) -> str:
    """TD3 and each of its changes trained in the page: what `data/race.json` holds (minutes)."""
    script = """([name, seed, updates, every]) => {
        const T = explain.makeTrainer(explain.raceSetup(), name === "td3" ? [] : [name], seed), made = [T.measure()];
        for (let u = 1; u <= updates; u++) { T.step(); if (u % every === 0) made.push(T.measure()); }
        return made; }"""
    kept = ("update", *MEASURES)
    made = {
        name: [
            [
                {
                    measure: moment[measure] if measure == "update" else float(f"{moment[measure]:.4g}")
                    for measure in kept
                }
                for moment in tab.evaluate(script, [name, seed, updates, every])
            ]
            for seed in seeds
        ]
        for name in ("td3", *RACES)
    }
    return json.dumps(made, separators=(",", ":"), sort_keys=True)


def main() -> None:
    """Write everything into a checkout."""
    parser = argparse.ArgumentParser(prog="python -m td3_lessons.explain.export", description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="train and record the lesson's run again first")
    parser.add_argument("--races", action="store_true", help="train the changed versions of TD3 again first (minutes)")
    parser.add_argument("--execute", action="store_true", help="run the notebook and store its outputs (minutes)")
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
            if options.execute and path.suffix == ".ipynb":
                text = executed(text, path.parent)
            path.write_text(text, encoding="utf-8")
        if not options.no_film:
            frames = film_frames(tab)
            for scheme in ("light", "dark"):
                (root / f"docs/steps/film_{scheme}.webp").write_bytes(film(running, frames, scheme))


def opened(running: Any, text: str) -> Any:
    """A tab with this page in it."""
    tab = running.new_context(viewport={"width": 1440, "height": 900}).new_page()
    tab.set_content(text)
    return tab


def _picture(alt: str, stem: str) -> str:
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{stem}_dark.webp">'
        f'<img src="{stem}_light.webp" alt="{alt}" width="{WIDTH}"></picture>'
    )


def _md(text: str) -> str:
    if "`" in text:
        return text
    return text.replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;")


def _wrapped(text: str) -> list[str]:
    return [*textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False), ""]


if __name__ == "__main__":
    main()
