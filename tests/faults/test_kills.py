"""kill -9 or SIGTERM at any moment, resume: the finished run is the uninterrupted one, bit for bit."""

import random

import pytest

from faults.fingerprint import fingerprint
from faults.killing import killed_often, preload, stopped_often, train_until_killed

FIELDS = {
    "env": "Rail-v0",
    "steps": 1_200,
    "random_steps": 150,
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "memory_size": 500,
    "eval_every": 400,
    "eval_episodes": 1,
    "save_every": 100,
    "threads": 1,
    "device": "cpu",
}
POPULATIONS = {"one seed": {}, "two seeds with two environments each": {"seeds": 2, "envs": 2, "steps": 1_600}}


def kill_until(enough: int, fields, tmp_path, seed: int) -> dict[str, int]:
    """Kill run after run, each of which must end as the one that nobody killed."""
    preload()
    train_until_killed({**fields, "out": tmp_path / "whole"}, None)
    expected = fingerprint(tmp_path / "whole")
    generator = random.Random(seed)
    total = {"in a save": 0, "at any moment": 0, "runs": 0}
    while total["in a save"] + total["at any moment"] < enough:
        out = tmp_path / f"killed_{total['runs']}"
        kills = killed_often({**fields, "out": out}, generator)
        found = fingerprint(out)
        assert [name for name in expected if found.get(name) != expected[name]] == [], kills
        assert {*found} == {*expected}
        total = {name: total[name] + kills.get(name, 1) for name in total}
    return total


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path, population):
    total = kill_until(12, {**FIELDS, **POPULATIONS[population]}, tmp_path, seed=1)
    assert total["in a save"] >= 6


@pytest.mark.long
def test_two_hundred_kills(tmp_path):
    total = kill_until(200, FIELDS, tmp_path, seed=2)
    assert total["in a save"] >= 100
    print(total)


PLACES = {
    "in process": {"workers": "none"},
    "in threads": {"workers": "threads", "envs": 2},
    "in processes": {"workers": "processes", "envs": 2},
}


def stop_runs(count: int, fields, tmp_path, seed: int) -> int:
    """SIGTERM to the process group of run after run, each of which must end as the one that was not stopped."""
    preload()
    train_until_killed({**fields, "out": tmp_path / "whole"}, None)
    expected, generator, stops = fingerprint(tmp_path / "whole"), random.Random(seed), 0
    for number in range(count):
        out = tmp_path / f"stopped_{number}"
        stops += stopped_often({**fields, "out": out}, generator)
        found = fingerprint(out)
        assert [name for name in {*expected, *found} if found.get(name) != expected.get(name)] == [], number
    return stops


@pytest.mark.parametrize("place", PLACES)
def test_a_run_whose_process_group_is_stopped_ends_as_if_nothing_had_happened(tmp_path, place):
    assert stop_runs(2, {**FIELDS, "steps": 400, **PLACES[place]}, tmp_path, seed=3) >= 4


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_fifty_runs_whose_process_group_is_stopped(tmp_path, place):
    stops = stop_runs(50, {**FIELDS, "steps": 600, **PLACES[place]}, tmp_path, seed=4)
    print(f"{place}: {stops} stops in 50 runs")
    assert stops >= 100
