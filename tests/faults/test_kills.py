"""kill -9 or SIGTERM at any moment, resume: the finished run is the uninterrupted one, bit for bit."""

import random

import pytest

from faults.fingerprint import fingerprint
from faults.killing import killed_often, preload, terminated_often, train_until_killed
from td3.variant_settings import VARIANTS

FIELDS = {
    "env": "Rail-v0",
    "steps": 1_200,
    "learning_starts": 150,
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "buffer_size": 500,
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
        kills = killed_often({**fields, "out": out}, generator, most=enough)
        found = fingerprint(out)
        assert [name for name in expected if found.get(name) != expected[name]] == [], kills
        assert {*found} == {*expected}
        total = {name: total[name] + kills.get(name, 1) for name in total}
    return total


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path, population):
    total = kill_until(6, {**FIELDS, **POPULATIONS[population]}, tmp_path, seed=1)
    assert total["in a save"] >= 3


STEP_FILE = """
import torch
import td3


@td3.replace_step(9, state={"largest": 1})
def scaled_target(reward, terminated, next_q, gamma, original, step_state):
    largest = step_state["largest"]
    largest.copy_(torch.maximum(largest, reward.abs().amax(-1, keepdim=True)))
    return original(reward / largest.clamp(min=1e-6), terminated, next_q, gamma)
"""
SHARED_STATE = """
import torch
import td3

STATE = {"excess": "capacity", "largest": 1, "entered": 1}


@td3.replace_step(4, state=STATE)
def sample_by_priority(buffer, random, batch_size, step_state):
    excess, entered = step_state["excess"], step_state["entered"]
    places = torch.arange(excess.shape[1], device=excess.device)
    new = (buffer.total - 1 - places) % buffer.capacity < buffer.total - entered
    excess.copy_(torch.where(new, step_state["largest"], excess))
    entered.copy_(buffer.total.expand_as(entered))
    ends = ((1 + excess) * (places < buffer.filled)).double().cumsum(-1)
    fraction = random.rows(torch.full_like(buffer.filled, 1 << 53), batch_size).double() / (1 << 53)
    indices = torch.searchsorted(ends, fraction * ends[:, -1:], right=True)
    return buffer.gather(torch.minimum(indices, buffer.filled - 1))


@td3.replace_step(11, state=STATE)
def prioritized_loss(q_values, target_q, step_state, batch):
    error = (q_values - target_q).abs()
    with torch.no_grad():
        excess = error.amax(0).clamp(min=1) ** 0.4 - 1
        largest = step_state["largest"]
        largest.copy_(torch.maximum(largest, excess.amax(-1, keepdim=True)))
        step_state["excess"].scatter_(1, batch.indices, excess)
    return torch.where(error < 1, 0.5 * error**2, error - 0.5).mean(-1).sum(0)
"""
STEPS = {
    "replaced step": (STEP_FILE, ("scaled_target",), {}),
    "replaced steps that share a number for each row": (
        *(SHARED_STATE, ("sample_by_priority", "prioritized_loss"), {"seeds": 2}),
    ),
}
CHANGES = [*STEPS, "layer-norm,n-step,prioritized", "hindsight"]
CHANGES += [pytest.param(variant, marks=pytest.mark.long) for variant in VARIANTS if variant not in CHANGES]


@pytest.mark.parametrize("change", CHANGES)
def test_a_killed_run_with_changed_steps_ends_as_if_nothing_had_happened(tmp_path, change):
    """The buffer wraps before the end, and a checkpoint holds what the replaced steps keep."""
    changed = {"variant": change}
    if change in STEPS:
        source, functions, changed = STEPS[change]
        (tmp_path / "mine.py").write_text(source)
        changed = {**changed, "replace_steps": tuple(f"{tmp_path / 'mine.py'}:{name}" for name in functions)}
    if change == "hindsight":
        changed["env"] = "RailGoal-v0"
    fields = {**FIELDS, "steps": 400, "buffer_size": 200, "eval_every": 200, "save_every": 60, **changed}
    total = kill_until(4, fields, tmp_path, seed=4)
    assert total["in a save"] >= 2


def test_a_killed_run_whose_saves_merge_files_ends_as_if_nothing_had_happened(tmp_path):
    fields = {**FIELDS, "steps": 300, "buffer_size": 120, "eval_every": 150, "save_every": 2, "most_shards": 4}
    total = kill_until(6, fields, tmp_path, seed=6)
    assert total["in a save"] >= 3


@pytest.mark.long
def test_two_hundred_kills(tmp_path):
    total = kill_until(200, FIELDS, tmp_path, seed=2)
    assert total["in a save"] >= 100
    print(total)


LONG = [pytest.param(workers, marks=pytest.mark.long) for workers in ("none", "threads")]


@pytest.mark.parametrize("workers", ["processes", *LONG])
def test_a_run_whose_process_group_is_told_to_stop_ends_as_if_nothing_had_happened(tmp_path, workers):
    """In the middle of episodes: a worker that died of the signal would have lost its own."""
    preload()
    fields = {**FIELDS, "envs": 2, "steps": 800, "eval_every": 400, "workers": workers}
    train_until_killed({**fields, "out": tmp_path / "whole"}, None)
    codes = terminated_often({**fields, "out": tmp_path / "cut"}, [(0, 230), (0, 510)])
    assert codes == [130, 130, 0]
    assert fingerprint(tmp_path / "cut") == fingerprint(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("workers", ["none", "threads", "processes"])
def test_fifty_times_at_any_moment(tmp_path, workers):
    preload()
    fields = {**FIELDS, "envs": 2, "workers": workers}
    train_until_killed({**fields, "out": tmp_path / "whole"}, None)
    expected, generator = fingerprint(tmp_path / "whole"), random.Random(3)
    for number in range(50):
        out = tmp_path / f"cut_{number}"
        codes = terminated_often({**fields, "out": out}, [(generator.uniform(0.1, 4), 0)])
        # It may have done its last step before it was told to stop: then there is nothing to resume.
        assert codes[0] in (130, 0), codes
        assert codes[1] in (0, 1), codes
        assert fingerprint(out) == expected, number
