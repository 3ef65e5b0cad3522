"""Every link, image and anchor of README and docs leads somewhere, on GitHub as on the site."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("docs_links", ROOT / "docs" / "links.py")
assert SPEC is not None
links = importlib.util.module_from_spec(SPEC)
assert SPEC.loader is not None
SPEC.loader.exec_module(links)


@pytest.mark.parametrize("page", links.pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert links.broken_links(page) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](nowhere.md)", "nowhere.md does not exist"),
        ("![a](images/nothing.png)", "images/nothing.png does not exist"),
        ('<img src="nothing.webp">', "nothing.webp does not exist"),
        ("[a](other.md#no-such-heading)", "has no heading for its anchor"),
        ("[a](#two)", "has no heading for its anchor"),
        ("[a](page.html#step=1)", "is shown as source on GitHub"),
        ("[`code`](nowhere.py#L3)", "nowhere.py#L3 does not exist"),
        ("[a](other.md#one-heading), [b](other.md#the-same-1), [c](https://x.org/y), `[d](e.md)`", ""),
        ("```text\n[a](nowhere.md)\n```\n<!-- [b](page.html) -->", ""),
    ],
)
def test_a_broken_link_is_found(tmp_path, text, fault):
    (tmp_path / "other.md").write_text("# One `heading`\n\n## The same\n\n## The same\n")
    (tmp_path / "page.html").write_text("")
    (tmp_path / "here.md").write_text(f"# Here\n\n{text}\n")
    found = links.broken_links(tmp_path / "here.md")
    assert [fault in sentence for sentence in found] == [True] * bool(fault)


def test_make_docs_checks_them():
    target = (ROOT / "Makefile").read_text().partition("\ndocs:")[2].partition("\n\n")[0]
    assert "docs/links.py" in target
    assert "mkdocs build --strict" in target
    assert subprocess.run([sys.executable, ROOT / "docs" / "links.py"], check=False).returncode == 0
