"""What lies in docs, README and notebooks is what the code makes."""

import json
import re
from pathlib import Path

import pytest

from td3.algorithm.registry import STEPS
from td3_lessons.explain import export
from td3_lessons.explain.breaks import MEASURES, RACES
from td3_lessons.explain.story import QUESTIONS
from td3_lessons.ladder import recorded

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def drawn(chromium):
    from td3_lessons.explain.page import page
    from td3_lessons.explain.trace import lesson_trace

    return export.opened(chromium, page(lesson_trace()))


def test_drawings_docs_page_readme_and_notebook_are_as_they_would_be_made_now(drawn):
    for path, text in export.texts(ROOT, drawn).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is out of date: make steps"


def test_the_film_is_made_of_the_frames_that_would_be_drawn_now(drawn):
    from PIL import Image

    frames = export.film_frames(drawn)
    for scheme in ("light", "dark"):
        path = ROOT / f"docs/steps/film_{scheme}.webp"
        assert path.stat().st_size < 600_000
        with Image.open(path) as film:
            assert film.n_frames > 80
            assert film.info["xmp"].decode() == export.digest(frames), f"{path.name} is out of date: make steps"
    assert sum(milliseconds for _, milliseconds in frames) == 12_000


def test_every_drawing_stands_alone_in_light_and_dark(drawn):
    from xml.etree import ElementTree

    for name, svg in export.drawings(drawn).items():
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg", name
        assert "prefers-color-scheme: dark" in svg
        assert not re.search(r"(href|src)=|url\((?!#)", svg)
        assert len(svg) < 160_000


def test_the_docs_show_code_drawing_and_words_of_every_step():
    text = (ROOT / "docs/fifteen_steps.md").read_text(encoding="utf-8")
    for number, step in STEPS.items():
        section = text[text.index(f"### {number}. {step.title}") :].split("\n### ")[0]
        assert f"steps/step_{number:02}.svg" in section
        assert f"def {step.function.__name__}(" in section
        for part in ("**What.**", "**Why.**", "**If you leave it out.**", "**Common misreading.**"):
            assert part in section
    assert text.count("<!-- site: [Show me](fifteen_steps.html#") == text.count("`td3 explain --at") == len(QUESTIONS)
    assert "Deep Reinforcement Learning 2.0" in text
    assert "https://github.com/sfujim/TD3" in text
    assert "steps/map.svg" in text


def test_every_link_of_the_docs_leads_somewhere():
    for file in (ROOT / "docs/fifteen_steps.md", ROOT / "README.md"):
        text = file.read_text(encoding="utf-8")
        for target in re.findall(r'(?:\]\(|src="|srcset=")(?!https?:)([^)"#]+)', text):
            assert (file.parent / target).exists(), f"{file.name}: {target}"


def test_without_chromium_one_sentence_says_so(monkeypatch):
    from td3.errors import MissingExtra

    monkeypatch.setattr(export, "find_chromium", lambda: None)
    with pytest.raises(MissingExtra, match="apt-get install chromium"), export.browser():
        pass


SOURCE = """# %% [markdown]
# # TD3 in fifteen steps
#
# Words.

# %%
REPOSITORY = ""
print(1)

# %%
print(2)
"""


def test_one_address_gives_the_notebook_its_badge_and_its_source(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[project.urls]\nRepository = "https://github.com/a/b"\n'
    )
    address = export.repository(tmp_path)
    made = export.notebook(SOURCE, address)
    assert "colab.research.google.com/github/a/b/blob/main/notebooks/td3_in_15_steps.ipynb" in made
    assert 'REPOSITORY = \\"https://github.com/a/b\\"' in made
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert export.repository(tmp_path) == ""
    assert "colab" not in export.notebook(SOURCE, "")


def test_the_readme_opens_with_the_film():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("film_light.webp") < text.index("pendulum.webp") < text.index("## ")


def test_the_changed_versions_can_be_recorded_again(drawn):
    made = json.loads(export.record_races(drawn, updates=500, seeds=(1,)))
    assert set(made) == {"td3", *RACES}
    assert set(made["td3"]) == {*MEASURES, "earned"}
    assert len(made["max"]["return"][0]) == 2


def test_the_page_of_the_ladder_prints_its_recorded_runs():
    text = (ROOT / "docs/ladder.md").read_text(encoding="utf-8")
    assert recorded.with_tables(text, export.ladder_sentences()) == text
    assert all(len(values) >= 5 for run in recorded.recorded().values() for values in run.values())
