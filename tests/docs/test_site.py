"""The docs site builds strictly, has every page, and loads nothing from other hosts."""

import html
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from td3.cli import COMMANDS
from td3.config import TrainConfig
from td3.settings import TD3Config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "GITHUB_REPOSITORY"} | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr  # --quiet would hide the warnings that strict counts
    return out


def module_of(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks():
    return module_of("_hooks")


@pytest.fixture(scope="module")
def reference():
    return module_of("reference")


@pytest.mark.parametrize("page", ["configuration.md", "api.md"])
def test_generated_pages_are_what_the_code_makes(reference, page):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == reference.with_block(page), "run `python docs/reference.py`"


def text_of(page):
    plain = re.sub(r"<[^>]+>", "", page.read_text())
    return " ".join(html.unescape(plain).split())


def test_every_page_is_built_and_in_the_navigation(site):
    home = (site / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        if page.stem != "index":
            assert (site / page.stem / "index.html").exists()
            assert f'href="{page.stem}/"' in home, page.name
    assert not list(site.glob("*.py"))


def test_every_setting_is_told_with_its_default(site, reference):
    told = text_of(site / "configuration" / "index.html")
    for kind in (TrainConfig, TD3Config):
        said = reference.field_docs(kind)
        assert set(said) == {f.name for f in fields(kind)}
        for f in fields(kind):
            if f.name == "td3":
                continue
            assert f.name in told
            assert said[f.name].replace("`", "") in told, f.name
            if f.name not in ("env", "env_kwargs"):
                prefix = "--" if kind is TrainConfig else "--td3."
                assert f"{prefix}{f.name.replace('_', '-')} {reference._shown(f.default)}" in told, f.name


def test_every_command_is_told_of(site):
    told = " ".join(text_of(page) for page in site.glob("**/index.html"))
    for name in COMMANDS:
        assert f"td3 {name}" in told, name


def test_every_step_of_the_algorithm_is_in_the_python_page(site):
    from td3.algorithm.registry import STEPS

    told = text_of(site / "api" / "index.html")
    assert len(STEPS) == 15
    for step in STEPS.values():
        assert step.function.__name__ in told


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.glob("**/*.html"):
        fetched = re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", page.read_text()
        )
        assert not fetched, page
    for sheet in site.glob("**/*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_every_image_of_the_site_loads(site):
    seen = 0
    for page in site.glob("**/*.html"):
        text = re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
        for source in re.findall(r"<(?:img|source|video)\b[^>]*?\b(?:src|srcset)=\"?([^\"\s>]+)", text):
            if not source.startswith("data:"):
                at = site / source[1:] if source.startswith("/") else page.parent / html.unescape(source)
                assert at.resolve().exists(), f"{page.relative_to(site)}: {source}"
                seen += 1
    assert seen >= 20


def test_the_interactive_page_and_the_film_are_part_of_the_site(site):
    assert (site / "fifteen_steps.html").stat().st_size > 500_000
    assert (site / "steps" / "film_light.webp").exists()
    told = (site / "fifteen_steps" / "index.html").read_text()
    assert 'src="../steps/film_light.webp"' in told
    assert "../fifteen_steps.html" in told
    for page in (site / "index.html", site / "concepts" / "index.html"):
        assert "<img" in page.read_text(), page


def test_no_markdown_is_left_unread(site):
    for page in site.glob("*/index.html"):
        text = re.sub(r"<(script|style|pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"\]\([\w.#/-]", text), page.parent.name
        assert "<!-- site:" not in text, page.parent.name


def test_every_question_opens_the_interactive_page_at_its_moment(site):
    from td3_lessons.explain.lessons import QUESTIONS

    told = html.unescape((site / "fifteen_steps" / "index.html").read_text())
    for _, _, moment in QUESTIONS:
        assert f'href="../fifteen_steps.html#{moment}"' in told, moment


def test_pages_that_come_later_find_their_place(hooks, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    for name in ("index.md", "report.md", "train.md", "something_new.md"):
        (tmp_path / name).write_text("# A page\n")
    nav = hooks.on_config({"docs_dir": str(tmp_path)})["nav"]
    assert nav == [
        {"Start": ["index.md", "train.md", "report.md"]},
        {"Student": []},
        {"SB3 user": []},
        {"Roboticist": []},
        {"Researcher": []},
        {"Reference": []},
        {"Contributor": []},
        {"More": ["something_new.md"]},
    ]


def test_what_is_for_the_site_alone_is_a_comment_on_github(hooks):
    assert hooks.on_page_markdown("a\n<!-- site: [b](c.html) -->", None, None, None) == "a\n[b](c.html)"


def test_every_page_opens_with_whom_it_is_for():
    for page in (ROOT / "docs").glob("*.md"):
        opening = page.read_text(encoding="utf-8").split("\n\n")[1]
        assert opening.startswith("*"), page.name
        assert re.search(r"\bfor\b", opening, re.IGNORECASE), f"{page.name} does not say whom it is for"


def test_a_link_to_a_file_of_the_repository_becomes_its_name(hooks):
    def shown(text):
        return hooks.on_page_markdown(text, None, None, None)

    assert shown("[rail.py](../src/td3/environments/rail.py)") == "`src/td3/environments/rail.py`"
    assert (
        shown("[exact values](../src/td3_lessons/ladder/exact.py)")
        == "exact values (`src/td3_lessons/ladder/exact.py`)"
    )
    assert shown("[line 3](../src/td3_lessons/ladder/exact.py#L3)") == "line 3 (`src/td3_lessons/ladder/exact.py`)"
    assert shown("[gone](../src/td3/gone.py)") == "[gone](../src/td3/gone.py)"
    assert shown("[other page](train.md)") == "[other page](train.md)"


def test_every_page_has_a_reader(hooks):
    listed = [page for pages in hooks.ORDER.values() for page in pages]
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_site_links_to_a_repository_only_if_it_has_an_address(hooks, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    without = hooks.on_config({"docs_dir": str(tmp_path)})
    assert "edit_uri" not in without
    assert "Repository" not in str(without["nav"])
    monkeypatch.setenv("GITHUB_REPOSITORY", "Owner/td3")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    config = hooks.on_config({"docs_dir": str(tmp_path)})
    assert config["nav"][-1] == {"Repository": "https://github.com/Owner/td3"}
    assert config["edit_uri"] == "https://github.com/Owner/td3/edit/main/docs/"
    assert config["site_url"] == "https://owner.github.io/td3/"


def test_home_shows_one_picture_and_one_command_and_the_only_quick_start_is_the_readmes(site):
    home = (site / "index.html").read_text()
    assert home.index("images/pendulum.webp") < home.index('<h2 id="where-to-go-next">')
    assert (ROOT / "docs" / "index.md").read_text().count("```sh") == 1
    shown = text_of(site / "quick_start" / "index.html")
    readme = (ROOT / "README.md").read_text()
    for heading in ("Install", "Sixty seconds", "An environment of your own", "Python"):
        assert f"## {heading}\n" in readme
        assert heading in shown
    assert "class Reach(gym.Env):" in shown
    assert "## " not in (ROOT / "docs" / "quick_start.md").read_text()


def test_one_palette_and_one_mark_in_site_report_and_drawings(site):
    sources = ("docs/style.css", "src/td3/report/templates/report.css", "src/td3_lessons/explain/data/svg.css")
    sources += ("src/td3_lessons/ladder/templates/ladder.css", "docs/images/results.svg")
    for name in ("ink", "paper", "soft", "faint", "wash"):
        seen = {tuple(re.findall(rf"--{name}: ?(#\w+)", (ROOT / source).read_text())) for source in sources}
        assert len(seen) == 1, (name, seen)
        assert len(seen.pop()) == 2, name  # light and dark
    mark = (ROOT / "docs" / "images" / "mark.svg").read_text()
    assert (ROOT / "src" / "td3" / "report" / "templates" / "mark.svg").read_text() == mark
    assert (site / "images" / "mark.svg").read_text() == mark
    assert 'src="docs/images/mark.svg"' in (ROOT / "README.md").read_text()


def test_badges_say_what_the_package_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shown = {path.stem: path.read_text() for path in (ROOT / "docs" / "images").glob("badge_*.svg")}
    assert f"<title>Python: {project['requires-python'].removeprefix('>=')}+</title>" in shown["badge_python"]
    assert f"<title>license: {project['license']}</title>" in shown["badge_license"]
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/images/{name}.svg" in readme for name in shown)
    assert "shields.io" not in readme
