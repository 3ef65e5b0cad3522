"""A replaced step that does more than tensor operations is found out before the run, and executed eagerly."""

import itertools
import random as python_random

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.replacing import replace_step
from td3.engine.watching import watched
from td3.errors import ConfigError

COUNT, LIST = 0, []
MEAN, SUMS, CALLS = torch.zeros(1), np.zeros(1), itertools.count()
GENERATOR, NUMBERS = torch.Generator().manual_seed(0), np.random.default_rng(0)


class Counter:
    count = 0

    def __init__(self):
        self.count = 0


COUNTER = Counter()


def counts(q_values):
    global COUNT
    COUNT += 1
    return q_values * COUNT


def appends(q_values):
    LIST.append(0)
    return q_values * len(LIST)


def asks(q_values):
    return q_values if q_values.mean() > 0 else -q_values


def counts_in_an_object(q_values):
    COUNTER.count += 1
    return q_values


@torch.no_grad()
def counts_under_a_decorator(q_values):
    return counts(q_values)


def counts_in_a_class(q_values):
    Counter.count += 1
    return q_values


def averages(q_values):
    MEAN.mul_(0.9).add_(q_values.mean())
    return q_values - MEAN


def sums(q_values):
    SUMS[0] += 1
    return q_values * SUMS[0]


def masks(q_values):
    return q_values - q_values[q_values < 8].mean()


def looks_up(q_values):
    return q_values[torch.tensor([1, 0])]


def multiplies(q_values):
    return torch.where(q_values > COUNT, q_values, 0.5 * q_values) * Counter.count


def within():
    calls = 0

    def counts_outside(q_values):
        nonlocal calls
        calls += 1
        return q_values

    return counts_outside


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (multiplies, None),
        (counts, "changes COUNT, which is not in step_state"),
        (appends, "changes LIST, which is not in step_state"),
        (counts_in_an_object, "changes COUNTER, which is not in step_state"),
        (looks_up, None),
        (counts_under_a_decorator, "changes COUNT, which"),
        (counts_in_a_class, "changes Counter, which"),
        (averages, "changes MEAN, which"),
        (sums, "changes SUMS, which"),
        (lambda q_values: q_values * next(CALLS), "changes CALLS, which"),
        (lambda q_values: q_values * python_random.random(), "changes the state of the module random"),
        (lambda q_values: q_values * torch.rand(1, generator=GENERATOR), "changes GENERATOR, which"),
        (lambda q_values: q_values * NUMBERS.random(), "changes NUMBERS, which"),
        (lambda q_values: q_values * float(q_values.numpy().max()), "reads numbers out of a tensor (`.numpy()`"),
        (lambda q_values: q_values * max(q_values.flatten().tolist()), "reads numbers out of a tensor (`.numpy()`"),
        (masks, "has a tensor whose size depends on numbers"),
        (within(), "changes calls, which is not in step_state"),
        (asks, "reads a number out of a tensor"),
        (lambda q_values: q_values * q_values.mean().item(), "reads a number out of a tensor"),
        (lambda q_values: q_values + torch.randn_like(q_values), "draws random numbers that do not come from `random`"),
        (lambda q_values: q_values * float(np.random.rand()), "draws random numbers"),  # as a user might
    ],
)
def test_what_would_not_be_repeated_is_seen(function, said):
    found = set()
    with watched(function, found):
        function(torch.ones(2, 1, 3))
    assert len(found) == (said is not None)
    assert said is None or found.pop().what.startswith(said)


@replace_step(12)
def improves_as_before(critics, optimizer, loss, original):
    """The step of the package asks whether the loss is finite."""
    original(critics, optimizer, loss)


@replace_step(9, state={"seen": 1})
def adds_in_place(reward, terminated, next_q, gamma, original, step_state):
    step_state["seen"] += 1
    return original(reward, terminated, next_q, gamma)


@replace_step(9, state={"seen": 1})
def rebinds(reward, terminated, next_q, gamma, original, step_state):
    step_state["seen"] = step_state["seen"] + 1
    return original(reward, terminated, next_q, gamma)


@replace_step(8)
def smaller_by_an_if(q_values):
    return q_values[0] if q_values.mean() > 1e9 else q_values.amin(0)


def test_steps_of_the_package_may_ask_and_state_is_changed_in_place(tmp_path):
    run = td3.train(
        "Rail-v0", out=tmp_path / "run", steps=60, replace_steps=[improves_as_before, adds_in_place], **SMALL
    )
    assert '"recorded updates' in (run.path / "status.json").read_text()


def test_another_tensor_in_step_state_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"step_state\['seen'\] is another tensor now: change it in place"):
        td3.train("Rail-v0", out=tmp_path / "run", steps=60, replace_steps=[rebinds], **SMALL)


def test_a_step_that_asks_runs_eagerly_and_says_so(tmp_path):
    fields = {"steps": 60, "replace_steps": [smaller_by_an_if], **SMALL}
    with pytest.raises(
        ConfigError, match="engine recorded was asked for, but step 8, replaced by smaller_by_an_if, reads"
    ):
        td3.train("Rail-v0", out=tmp_path / "refused", engine="recorded", **fields)
    with pytest.warns(UserWarning, match="reads a number out of a tensor .* this run uses eager execution"):
        run = td3.train("Rail-v0", out=tmp_path / "run", **fields)
    assert '"eager updates' in (run.path / "status.json").read_text()


@replace_step(9)
def counted(reward, terminated, next_q, gamma, original):
    counts(reward)
    return original(reward, terminated, next_q, gamma)


@replace_step(4)
def newest_half(buffer, random, batch_size):
    ages = random.rows(buffer.filled, batch_size) % (len(buffer) // 2)
    return buffer.gather((buffer.total - 1 - ages) % buffer.capacity)


def test_a_number_of_the_replay_buffer_is_noticed(tmp_path):
    with pytest.warns(UserWarning, match=r"newest_half, reads len\(buffer\), a Python number .* eager execution"):
        td3.train("Rail-v0", out=tmp_path / "run", steps=60, replace_steps=[newest_half], **SMALL)


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_what_no_checkpoint_has_is_named_for_every_engine(tmp_path, engine):
    with pytest.warns(UserWarning, match="changes COUNT, which is not in step_state; a resumed run will differ"):
        td3.train("Rail-v0", out=tmp_path / "run", steps=60, replace_steps=[counted], engine=engine, **SMALL)


@replace_step(9)
def centered(reward, terminated, next_q, gamma, original):
    return original(reward - reward.mean(), terminated, next_q, gamma)


def test_a_step_that_mixes_the_seeds_is_named(tmp_path):
    with pytest.warns(UserWarning, match=r"replaced by centered mixes the seeds .*: reduce over the last axis"):
        td3.train("Rail-v0", out=tmp_path / "run", steps=60, seeds=2, replace_steps=[centered], **SMALL)


@replace_step(11)
def for_one_seed(q_values, target_q):
    return (q_values - target_q).square().mean().reshape(1)


def test_a_step_for_one_seed_alone_is_named_and_trains_on_a_cpu(tmp_path):
    with pytest.warns(UserWarning, match="replaced by for_one_seed mixes the seeds"):
        td3.train("Rail-v0", out=tmp_path / "run", steps=60, seeds=2, replace_steps=[for_one_seed], **SMALL)
