"""Every method of an environment x every way to fail x every place to step it: what docs/reliability.md promises."""

import multiprocessing
import re
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from faults.collecting import ENVS, WHERE, collected, placed, scripted_seed
from faults.planted import planted
from td3.environments import in_process as vectorise
from td3.environments import processes as pool

METHODS, KINDS = ("construct", "reset", "step", "close"), ("raise", "hang", "die", "invalid data")
ENDS_RUN, WAITS, REPLACED, TOLD, LEFT = "ends the process", "waits", "replaced", "warning", "left behind"


def promise(method: str, kind: str, where: str) -> str:
    """What happens in a cell of the matrix."""
    if kind == "die" and where != "processes":
        return ENDS_RUN
    if kind == "hang" and where == "in process":
        return WAITS
    if method != "close":
        return REPLACED
    return {"raise": TOLD, "invalid data": "ignored"}.get(kind, LEFT)


CELLS = list(product(METHODS, KINDS, WHERE))
PROMISED = [cell for cell in CELLS if promise(*cell) not in (ENDS_RUN, WAITS)]
"""The others cannot be promised: no process can stop its own code from ending it, nor leave a call that hangs."""


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory) -> np.ndarray:
    make = partial(planted, tmp_path_factory.mktemp("unharmed"), "none", "none")
    rows, *_ = collected(placed(make, "in process"))
    return rows[:, 0]


@pytest.mark.parametrize(("method", "kind", "where"), [cell for cell in PROMISED if cell[0] != "close"])
def test_a_faulty_environment_is_replaced_and_the_others_do_not_notice(tmp_path, unharmed, method, kind, where):
    environments = placed(partial(planted, tmp_path, method, kind, (scripted_seed(0), scripted_seed(1))), where)
    rows, episodes, collector = collected(environments)
    environments.close()
    assert (tmp_path / method).exists(), "it went wrong"
    assert multiprocessing.active_children() == []
    found = [(fault.environment, fault.reason) for fault in collector.faults]
    assert len(found) == (2 if method == "construct" else 1)
    assert {environment for environment, _ in found} == {0}
    said = {"raise": "planted", "hang": "took longer than 2 s", "die": "died (exit code 3)", "invalid data": ""}
    assert said[kind] in found[-1][1]
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows[:, 0, 1:], unharmed[:, 1:])
    # Environment 0 is what it was before the fault, and then begins an episode of its own in the same round.
    own, expected = rows[:, 0, 0], unharmed[:, 0]
    faulty = int(np.flatnonzero((own != expected).any(1))[0])
    assert own[faulty, 2] == 0
    assert own[faulty, 0] == scripted_seed({"construct": 2, "step": 1, "reset": 2}[method])
    # Every row is a transition of one episode.
    np.testing.assert_array_equal(rows[..., 0], rows[..., 5])
    assert (rows[..., 7] > rows[..., 2]).all()
    assert sum(episode.length for episode in episodes) <= ENVS * len(rows)


@pytest.mark.parametrize(("method", "kind", "where"), [cell for cell in PROMISED if cell[0] == "close"])
def test_an_environment_that_fails_to_close_does_not_keep_the_run_from_its_end(
    tmp_path, monkeypatch, method, kind, where
):
    for module in (pool, vectorise):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 0.5)
    environments = placed(partial(planted, tmp_path / "made later", method, kind), where)
    collected(environments, rounds=3)
    (tmp_path / "made later").mkdir()
    if promise(method, kind, where) == TOLD:
        with pytest.warns(UserWarning, match=r"an environment failed in close\(\): RuntimeError: planted"):
            environments.close()
    elif kind == "hang" and where == "threads":
        with pytest.warns(UserWarning, match=r"took longer than 0.5 s and its thread was abandoned"):
            environments.close()
    else:
        environments.close()
    assert multiprocessing.active_children() == []


def test_the_documentation_has_this_matrix():
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    for method, kind in product(METHODS, KINDS):
        cells = [promise(method, kind, where) for where in WHERE]
        row = rf"\| {method} \| {kind} \| " + r" \| ".join(rf"{re.escape(cell)}[^|]*" for cell in cells) + r" \|"
        assert re.search(row, text), (method, kind, cells)
