"""README and docs use the field's terms and American spelling."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INSTEAD = {
    r"replay memory": "replay buffer",
    r"the memory size|memory_size": "buffer_size",
    r"\bslopes?\b": "gradient",
    r"\bblur\w*": "target policy smoothing",
    r"\brivals?\b": "baseline",
    r"\bnewborn\b": "newly initialized",
    r"\b(?:somebody|nobody|whoever)\b": "the actor's name",
    r"\bstrangers?\b": "untrusted",
    r"\b(?:opinion|smaller_score|target_score)s?\b": "Q-value",
    r"\b\w*(?:normalis|optimisation|optimise|initialis|behaviour|colour|favour|neighbour)\w*": "American spelling",
    r"pip install 'td3\[": "pip install --editable '.[...]' in a checkout",
}
"""Words that are private or of another spelling, and what to write."""
ALLOWED = {("glossary.md", "replay memory")}
"""The glossary says once that the lessons have another word."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_private_words(page):
    text = page.read_text(encoding="utf-8")
    for pattern, instead in INSTEAD.items():
        for found in re.finditer(pattern, text, re.IGNORECASE):
            line = text[: found.start()].count("\n") + 1
            allowed = (page.name, found[0].lower()) in ALLOWED
            assert allowed, f"{page.name}:{line}: {found[0]!r}; write {instead}"
