"""Every planted bug is caught by each guard that is named beside it: one that passes on faulty code guards nothing."""

import pytest

from . import goals_and_data, variants  # noqa: F401  # enters its guards and bugs
from .bugs import BUGS, Plant
from .guards import GUARDS

CAUGHT = [pytest.param(bug, guard, id=f"{bug}-by-{guard}") for bug in BUGS for guard in BUGS[bug].caught_by]


@pytest.mark.filterwarnings("ignore:updates by recordings differ")  # which the self-check says of some
@pytest.mark.parametrize(("bug", "guard"), CAUGHT)
def test_it_is_caught_that(bug, guard, monkeypatch):
    BUGS[bug].plant(Plant(monkeypatch))
    with pytest.raises(BUGS[bug].raises):
        GUARDS[guard]()


@pytest.mark.long  # test_guards.py has each of them by itself
def test_with_nothing_planted_every_guard_holds():
    for holds in GUARDS.values():
        holds()


def test_every_guard_catches_at_least_one_bug():
    assert {guard for planted in BUGS.values() for guard in planted.caught_by} == set(GUARDS)


def test_at_least_thirty_bugs_are_planted():
    assert len(BUGS) >= 30
