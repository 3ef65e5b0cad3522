"""Texts name their claims in double braces: here they are written out, for the docs and for the page."""

import re
from html import escape

from td3_lessons.explain import claims_defined, claims_measured
from td3_lessons.explain.claim import CLAIMS

NAMED = re.compile(r"\{\{([a-z0-9._-]+)\}\}")
SOURCES = (claims_defined, claims_measured)
"""They fill `CLAIMS` when they are imported."""


def told(text: str) -> str:
    """The text with its claims written out."""
    return NAMED.sub(lambda found: CLAIMS[found[1]].said(), text)


def marked(text: str) -> str:
    """The same as HTML, in which every claim keeps its name."""
    return NAMED.sub(
        lambda found: f'<span data-claim="{found[1]}">{escape(CLAIMS[found[1]].said(), quote=False)}</span>',
        escape(text, quote=False),
    )
