"""Prioritized replay: frequencies follow priorities, which are those of a slow reference, in runs and after resume."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies
from scripted import SMALL
from torch import nn

import td3
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.config import resolve
from td3.errors import ConfigError
from td3.run.checkpoints import Checkpoints
from td3.settings import TD3Config
from td3.variants import prioritized
from variants.priorities import SETTINGS, Learner, zeros

FIELDS = {**SMALL, "device": "cpu", "variant": "prioritized"}


@settings(deadline=None, max_examples=30)
@given(
    strategies.integers(0, 2**32),
    strategies.integers(1, 4),
    strategies.sampled_from([7, 64, 65, 130, 5_000]),
    strategies.sampled_from([1.0, 0.4, 2.0, 0.1]),
    strategies.integers(0, 40),
    strategies.integers(0, 2),
)
def test_priorities_are_those_of_a_slow_reference(seed, envs, capacity, ratio, first, copies):
    """`copies`: as hindsight stores them beside each transition."""
    learner = Learner(capacity, envs, seed, TD3Config(priority_exponent=0.4, utd_ratio=ratio), copies)
    due = 0.0
    learner.store(envs * (1 + copies) + first)
    learner.sample(3)
    for _ in range(20):
        learner.store(envs * (1 + copies))
        due += envs * ratio
        while due >= 1:
            due -= 1
            batch = learner.sample(6)
            assert ((batch.indices >= 0) & (batch.indices < len(learner.buffer))).all()
            learner.learn(batch, 4 * torch.randn(2, 1, 6, generator=learner.generator))
            assert learner.priorities == pytest.approx(learner.expected, rel=1e-5)
    state = {name: tensor[0].double() for name, tensor in learner.state.items()}
    for below, above in (("excess", "sums"), ("sums", "sums_of_sums")):
        blocks = torch.stack([block.sum() for block in state[below].split(64)])
        torch.testing.assert_close(state[above][: len(blocks)], blocks, rtol=1e-5, atol=1e-6)
        assert not state[above][len(blocks) :].any()


def test_rows_that_arrive_together_are_all_new_however_far_apart_an_environments_are():
    """Collectors of Ray send rows of one environment, several at a time."""
    learner = Learner(64, envs=8)
    learner.buffer.stride = 1
    learner.store(8)
    learner.learn(learner.sample(6), torch.full((2, 1, 6), 9.0))
    learner.store(8)
    learner.sample(6)
    assert learner.priorities == pytest.approx(learner.expected, rel=1e-5)


def test_frequencies_follow_priorities_each_members_its_own():
    """Chi-square: with 149 degrees of freedom, above 236 once in 100,000 times."""
    members, filled, draws = 2, 150, 200
    buffer, state = ReplayBuffer(members, 5_000, 1, 1), zeros(members, 5_000)
    buffer.add_(torch.zeros(members, filled, 5))
    generator = torch.Generator().manual_seed(0)
    excess = 5 * torch.rand(members, filled, generator=generator) ** 4
    prioritized._set(state, torch.arange(filled).expand(members, -1), excess)
    state["entered"][:] = filled
    random, counts = MemberStreams((0, 1)), torch.zeros(members, filled)
    for _ in range(draws):
        indices = prioritized.sample_by_priority(buffer, random, 256, state, SETTINGS).indices
        counts.scatter_add_(1, indices, torch.ones(indices.shape))
    expected = (1 + excess) / (1 + excess).sum(-1, keepdim=True) * draws * 256
    found = ((counts - expected) ** 2 / expected).sum(-1)
    assert (found < 236).all(), found
    assert (counts[0] != counts[1]).any()


@pytest.mark.parametrize(("capacity", "filled"), [(50, 50), (300, 170), (9_000, 9_000), (20_000, 5_001)])
def test_rows_are_those_of_a_search_through_all_priorities(capacity, filled):
    """In the order of rows: only a number that falls within rounding of a border may lead to its other side."""
    learner = Learner(capacity)
    learner.store(filled)
    excess = 9 * torch.rand(1, filled, generator=learner.generator) ** 8
    prioritized._set(learner.state, torch.arange(filled).unsqueeze(0), excess)
    learner.state["entered"][:] = filled
    before = learner.generator.get_state()
    batch = prioritized.sample_by_priority(learner.buffer, learner, 2_000, learner.state, SETTINGS)
    learner.generator.set_state(before)
    fraction = learner.rows(torch.tensor(1 << 53), 2_000).double() / (1 << 53)
    ends = (1 + excess).double().cumsum(-1)
    expected = torch.searchsorted(ends, fraction * ends[:, -1:], right=True)
    apart = (batch.indices - expected).abs()
    assert apart.max() <= 1
    assert apart.count_nonzero() <= 4


@pytest.mark.parametrize("error", [torch.nan, torch.inf])
def test_a_seed_that_diverges_still_draws_rows_that_exist(error):
    """On a GPU its updates go on, without effect, beside those of the others."""
    learner = Learner(5_000)
    learner.store(70)
    for _ in range(3):
        batch = learner.sample(64)
        assert ((batch.indices >= 0) & (batch.indices < 70)).all()
        prioritized.prioritized_loss(torch.full((2, 1, 64), error), batch.reward, learner.state, SETTINGS, batch)


def test_with_no_exponent_every_row_is_drawn_alike():
    learner = Learner(100, settings=TD3Config(priority_exponent=0.0))
    learner.store(100)
    for _ in range(3):
        learner.learn(learner.sample(50), torch.full((2, 1, 50), 9.0))
    assert learner.priorities == [1.0] * 100


def test_the_loss_is_hubers_and_its_gradient_too():
    learner = Learner(10)
    learner.store(10)
    batch = learner.sample(6)
    q_values = torch.tensor([[[0.1, -0.5, 2.0, -3.0, 1.0, 0.0]]] * 2).requires_grad_()
    loss = learner.learn(batch, q_values)
    expected = 2 * nn.functional.huber_loss(q_values[0, 0], torch.zeros(6))
    torch.testing.assert_close(loss[0], expected)
    (gradient,) = torch.autograd.grad(loss.sum(), q_values)
    torch.testing.assert_close(gradient[0, 0], torch.tensor([0.1, -0.5, 1.0, -1.0, 1.0, 0.0]) / 6)


def tensors_of(run):
    return Checkpoints(run.path).newest()[0].tensors


def same(one, other, names=("agent.", "updates")):
    found = tensors_of(other)
    return all(np.array_equal(found[name], value) for name, value in tensors_of(one).items() if name.startswith(names))


def trained(tmp_path, name, **changed):
    return td3.train("Rail-v0", out=tmp_path / name, **{**FIELDS, "steps": 80, "buffer_size": 50, **changed})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("changed", [{}, {"envs": 3, "seeds": 2, "normalize_observations": True}, {"utd_ratio": 0.3}])
def test_recorded_updates_are_eager_ones_when_the_ring_wraps(tmp_path, changed):
    recorded, eager = (trained(tmp_path, engine, engine=engine, **changed) for engine in ("recorded", "eager"))
    assert same(recorded, eager)
    assert tensors_of(recorded)["agent.step_4.0.excess"].any()
    assert tensors_of(recorded)["agent.step_4.0.excess"].shape == (recorded.config.seeds, 64)


@pytest.mark.usefixtures("unchecked")
def test_a_seeds_priorities_are_its_own(tmp_path):
    alone, both = trained(tmp_path, "alone", seed=1), trained(tmp_path, "both", seeds=2)
    assert np.array_equal(tensors_of(both)["agent.step_4.0.excess"][1], tensors_of(alone)["agent.step_4.0.excess"][0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("buffer_size", [50, 1_000])
def test_a_run_that_is_made_longer_is_the_longer_run(tmp_path, buffer_size):
    whole = trained(tmp_path, "whole", steps=140, buffer_size=buffer_size)
    cut = trained(tmp_path, "cut", buffer_size=buffer_size)
    assert same(whole, td3.resume(cut.path, steps=140))


@pytest.mark.usefixtures("unchecked")
def test_together_with_n_step_returns_in_any_order(tmp_path):
    runs = [trained(tmp_path, name, variant=name) for name in ("n-step,prioritized", "prioritized,n-step")]
    assert same(*runs)
    assert not same(runs[0], trained(tmp_path, "alone"), ("agent.critics",))


def test_what_does_not_go_with_it_is_refused():
    with pytest.raises(ConfigError, match=r"variant prioritized needs train_freq step .*: give --td3.train-freq step"):
        resolve("Rail-v0", "paper", variant="prioritized")
    with pytest.raises(ConfigError, match="only the variant prioritized reads it"):
        resolve("Rail-v0", priority_exponent=0.5)
