"""What a claim is: a sentence with gaps, and what recomputes it from recorded data.

A sentence with a number or a comparison outside of a claim fails tests/lessons/explain/test_claims.py, and so does a
claim that the data contradict. What is measured needs at least five seeds; what follows from a definition, from the
code or from the one update that is drawn needs none.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from td3.errors import RunError
from td3.statistics import FEWEST_SEEDS

Computed = tuple[bool, Mapping[str, Any]]


class Claim(NamedTuple):
    """A sentence, how many seeds it rests on (None: it follows from code or definition), and what recomputes it."""

    text: str
    seeds: int | None
    compute: Callable[[], Computed]

    def said(self) -> str:
        """The sentence with its numbers; refused if the data do not bear it out."""
        holds, values = self.compute()
        if not holds:
            raise RunError(f"the recorded data contradict: {self.text}")
        if self.seeds is not None and self.seeds < FEWEST_SEEDS:
            raise RunError(f"{self.seeds} seeds bear out nothing: {self.text}")
        return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", self.text.format(**values))


CLAIMS: dict[str, Claim] = {}


def claim(name: str, text: str, seeds: int | None = None) -> Callable[[Callable[[], Computed]], Callable[[], Computed]]:
    """Register a sentence with the function that recomputes it."""

    def kept(compute: Callable[[], Computed]) -> Callable[[], Computed]:
        CLAIMS[name] = Claim(" ".join(text.split()), seeds, compute)
        return compute

    return kept
