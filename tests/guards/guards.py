"""One small function per truth, in the order of the fifteen steps; each raises AssertionError where it does not hold.

Nothing here is told how the code works inside. Steps are looked up in their modules at the moment of the call, so that
the same guards can be run on the code as it is and on the code with a fault planted in it.
"""

import csv
import importlib
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings
from jaxtyping import TypeCheckError
from shapes import unchecked
from torch import Tensor
from vectors import ScriptedVector

from td3 import config, evaluate, training
from td3.algorithm import agent as agents
from td3.algorithm import normalizer as normalizers
from td3.algorithm import optimizer as optimizers
from td3.algorithm import step_01_replay_buffer as buffers
from td3.algorithm import step_02_actor as actors
from td3.algorithm import step_04_to_09_bellman_target as bellman
from td3.algorithm import step_10_to_12_critic_update as critic_update
from td3.algorithm import step_13_actor_update as actor_update
from td3.algorithm import step_14_to_15_polyak as polyak
from td3.algorithm import streams
from td3.algorithm.agent import Task
from td3.collect import collector as collect
from td3.collect import tensor_collector as tensor_collect
from td3.engine import live_policy, update_once
from td3.environments import check_environment, vector_episodes
from td3.errors import ConfigError, EnvironmentFault
from td3.run import agent_file
from td3.settings import TD3Config
from td3.variant_settings import OWN_SETTINGS

from . import worlds
from .worlds import ACTION_SIZE, AUTORESET_MODES, HALF, HIGH, LOW, MIDDLE, SETTINGS, STATE_SIZE, small_agent

# The package gives the name `update` to the function; here the module is meant.
updates = importlib.import_module("td3.algorithm.update")

Guard = Callable[[], None]
GUARDS: dict[str, Guard] = {}


def guard(function: Guard) -> Guard:
    """Enter a guard in the list."""
    GUARDS[function.__name__] = function
    return function


def refuses(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a call is turned down because its types or shapes are wrong."""
    try:
        function(*arguments)
    except TypeCheckError:
        return True
    return False


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors are equal, bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def snapshot(agent: agents.Agent) -> dict[str, Tensor]:
    """The four stacks of networks as they are now."""
    names = ("actor", "actor_target", "critics", "critics_target")
    return {name: agent.tensors()[name].clone() for name in names}


def moved(before: dict[str, Tensor], agent: agents.Agent) -> set[str]:
    """Which networks have changed since."""
    after = snapshot(agent)
    return {name for name in before if not torch.equal(before[name], after[name])}


def learn(agent: agents.Agent, count: int, seeds: tuple[int, ...] = (0,), settings: config.TD3Config = SETTINGS):
    """Update an agent on random rows; returns the losses of each update."""
    buffer, random = worlds.filled_buffer(len(seeds), dtype=agent.actor.parameters.dtype), streams.MemberStreams(seeds)
    return [update_once(agent, buffer, random, settings) for _ in range(count)]


# Step 1: the replay buffer


@guard
def the_newest_rows_survive_wrap_around() -> None:
    @hypothesis_settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
    @given(strategies.integers(1, 7), strategies.integers(1, 3), strategies.lists(strategies.integers(0, 17)))
    def holds(capacity: int, members: int, counts: list[int]) -> None:
        buffer = buffers.make_replay_buffer(members, capacity, 1, 1)
        kept: list[deque[list[float]]] = [deque(maxlen=capacity) for _ in range(members)]
        numbers = iter(range(1_000_000))
        for count in counts:
            rows = [[[float(next(numbers)) for _ in range(5)] for _ in range(count)] for _ in range(members)]
            buffer.add_(torch.tensor(rows).reshape(members, count, 5))
            for member in range(members):
                kept[member].extend(rows[member])
            assert len(buffer) == int(buffer.filled) == len(kept[0])
        if len(buffer) == 0:
            return
        indices = torch.arange(len(buffer)).expand(members, -1)
        for member in range(members):
            for part in (buffer.gather(indices), buffer.member(member).gather(indices[:1])):
                batch = [column[member if len(column) > 1 else 0] for column in part[:5]]
                state, action, reward, next_state, terminated = (column.reshape(-1).tolist() for column in batch)
                found = sorted(zip(state, action, next_state, reward, terminated, strict=True))
                assert found == sorted(map(tuple, kept[member]))

    holds()


@guard
def sampled_rows_have_the_type_and_device_of_stored_ones() -> None:
    for dtype in (torch.float32, torch.float64):
        buffer = buffers.make_replay_buffer(1, 10, STATE_SIZE, ACTION_SIZE, dtype=dtype)
        assert buffer.rows.dtype == dtype
        assert buffer.rows.device == torch.device("cpu")
        buffer.add_(worlds.random_rows(1, 10, dtype))
        for column in buffer.gather(torch.arange(10).unsqueeze(0))[:5]:
            assert column.dtype == buffer.rows.dtype
            assert column.device == buffer.rows.device


@guard
def a_memory_is_in_single_precision_unless_told_otherwise() -> None:
    assert buffers.make_replay_buffer(1, 10, STATE_SIZE, ACTION_SIZE).rows.dtype == torch.float32


@guard
def a_batch_holds_whole_transitions() -> None:
    buffer = buffers.make_replay_buffer(1, 4, 2, 1)
    buffer.add_(torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0], [11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 1.0]]]))
    batch = buffer.gather(torch.tensor([[1, 0, 1]]))
    assert batch.state.tolist() == [[[11, 12], [1, 2], [11, 12]]]
    assert batch.action.tolist() == [[[13], [3], [13]]]
    assert batch.next_state.tolist() == [[[14, 15], [4, 5], [14, 15]]]
    assert batch.reward.tolist() == [[16, 6, 16]]
    assert batch.terminated.tolist() == [[1, 0, 1]]


# Step 2: the actor


@guard
def actions_span_exactly_the_box() -> None:
    agent = small_agent()
    states = 100 * torch.randn(1, 500, STATE_SIZE, generator=torch.Generator().manual_seed(0))
    actions = agent.actor(states)
    assert bool((actions >= torch.tensor(LOW)).all())
    assert bool((actions <= torch.tensor(HIGH)).all())
    _, bias = agent.actor.network.layers()[-1]
    for sign, bound in ((1, HIGH), (-1, LOW)):
        bias.detach().fill_(sign * 1e6)
        assert agent.actor(states)[0, 0].tolist() == list(bound)


@guard
def the_policy_that_acts_is_the_actor() -> None:
    agent, states = small_agent((0, 1)), torch.randn(2, 20, STATE_SIZE, generator=torch.Generator().manual_seed(0))
    found = live_policy(agent)(states.numpy())
    np.testing.assert_allclose(found, agent.actor(states).detach().numpy(), atol=1e-5)


@guard
def the_actors_target_begins_as_a_copy() -> None:
    agent = small_agent((0, 1))
    assert torch.equal(agent.actor.parameters, agent.actor_target.parameters)
    assert agent.actor.parameters.data_ptr() != agent.actor_target.parameters.data_ptr()
    assert agent.actor.parameters.requires_grad
    assert not agent.actor_target.parameters.requires_grad


# Step 3: the twin critics


@guard
def twins_differ_at_birth() -> None:
    for weight, bias in small_agent((0, 1)).critics.network.layers():
        assert not torch.any(weight[0] == weight[1])
        assert not torch.any(bias[0] == bias[1])


@guard
@unchecked()
def twins_still_differ_after_a_hundred_updates() -> None:
    agent = small_agent()
    learn(agent, 100)
    batch = worlds.filled_buffer().gather(torch.arange(50).unsqueeze(0))
    q_values = agent.critics(batch.state, batch.action).detach()
    assert not torch.any(q_values[0] == q_values[1])
    assert not torch.equal(agent.critics_target.parameters[0], agent.critics_target.parameters[1])


@guard
def the_critics_targets_begin_as_copies() -> None:
    agent = small_agent((0, 1))
    assert torch.equal(agent.critics.parameters, agent.critics_target.parameters)
    assert agent.critics.parameters.data_ptr() != agent.critics_target.parameters.data_ptr()
    assert agent.critics.parameters.requires_grad
    assert not agent.critics_target.parameters.requires_grad


# Step 4: the batch, and seeds


@guard
def two_seeds_are_born_different() -> None:
    agent = small_agent((0, 1))
    assert not torch.any(agent.actor.parameters[0] == agent.actor.parameters[1])
    assert not torch.any(agent.critics.parameters[:, 0] == agent.critics.parameters[:, 1])
    assert not torch.equal(small_agent((5,)).actor.parameters, small_agent((6,)).actor.parameters)


@guard
def two_seeds_live_differently() -> None:
    random = streams.MemberStreams((0, 1))
    rows, normal = random.rows(torch.tensor(1_000), 20), random.normal(20, 2)
    assert not torch.equal(rows[0], rows[1])
    assert not torch.any(normal[0] == normal[1])
    row = worlds.scripted_row(AutoresetMode.DISABLED)
    collector = collect.Collector(row, (0, 1), LOW, HIGH, 0.1)
    for policy in (None, worlds.resting_policy(2)):
        actions = collector.act(policy)
        assert not np.any(actions[0] == actions[1])
    assert row.environments[0].seeds != row.environments[1].seeds


@guard
def one_seed_repeats_bit_for_bit() -> None:
    assert worlds.short_run(seed=4) == worlds.short_run(seed=4)


@guard
def another_seed_learns_something_else() -> None:
    assert worlds.short_run(seed=4) != worlds.short_run(seed=5)


@guard
def streams_of_different_purpose_differ() -> None:
    seeds = {streams.derive_seed(0, purpose, index) for purpose in ("actor", "critics", "a") for index in range(5)}
    assert len(seeds) == 15


@guard
def numbers_do_not_repeat() -> None:
    random = streams.MemberStreams((0,))
    normals = [random.normal(2, 2) for _ in range(3 * streams.BLOCK)]
    rows = [random.rows(torch.tensor(10**9), 4) for _ in range(3 * streams.BLOCK)]
    assert len({number for normal in normals for number in normal.flatten().tolist()}) > 0.99 * 4 * len(normals)
    assert len({number for row in rows for number in row.flatten().tolist()}) > 0.99 * 4 * len(rows)


@guard
def every_stored_row_is_as_likely_as_another_and_no_other_is_drawn() -> None:
    buffer, random = buffers.make_replay_buffer(2, 50, 1, 1), streams.MemberStreams((0, 1))
    buffer.rows.fill_(torch.nan)
    buffer.add_(torch.arange(20.0).reshape(1, 20, 1).expand(2, 20, 5).clone())
    drawn = torch.cat([bellman.sample_batch(buffer, random, 64).reward for _ in range(150)], 1)
    assert not drawn.isnan().any()
    for member in drawn:
        counts = torch.bincount(member.long(), minlength=20)
        assert len(counts) == 20
        # 480 are expected of each, with a standard deviation of 21.
        assert bool((counts - 480).abs().max() < 5 * 21)


@guard
def members_draw_rows_of_their_own() -> None:
    buffer, random = buffers.make_replay_buffer(2, 50, 1, 1), streams.MemberStreams((0, 1))
    buffer.add_(torch.arange(100.0).reshape(2, 50, 1).expand(2, 50, 5).clone())
    reward = bellman.sample_batch(buffer, random, 64).reward
    assert bool((reward[0] < 50).all())
    assert bool((reward[1] >= 50).all())
    assert not torch.equal(reward[0], reward[1] - 50)


# Step 5: the next action


@guard
def the_online_actor_has_no_say_in_the_bellman_target() -> None:
    agent, other = small_agent(), small_agent()
    other.actor.parameters.detach().add_(0.5)
    assert torch.equal(learn(agent, 1)[0].critic, learn(other, 1)[0].critic)
    assert torch.equal(agent.critics.parameters, other.critics.parameters)


@guard
def the_target_actor_plays_the_next_action() -> None:
    agent, other = small_agent(), small_agent()
    other.actor_target.parameters.add_(0.5)
    assert not torch.equal(learn(agent, 1)[0].critic, learn(other, 1)[0].critic)
    states = torch.randn(1, 5, STATE_SIZE, generator=torch.Generator().manual_seed(0))
    assert torch.equal(bellman.target_action(other.actor_target, states), other.actor_target(states))


# Step 6: smoothing

BOX = actors.ActionRange(torch.tensor(LOW), torch.tensor(HIGH))


def smoothed(action: Tensor, noise: float, clip: float) -> Tensor:
    """Actions after step 6, with random numbers of seed 0."""
    return bellman.smooth_target_action(action, streams.MemberStreams((0,)), noise, clip, BOX)


@guard
def smoothing_by_hand() -> None:
    # Half ranges are 1.5 and 3.375: 0.2 * 1 * 1.5 = 0.3; 0.2 * 4 is cut to 0.5, and 0.5 * 3.375 = 1.6875.
    action = torch.tensor([[[-0.5, 3.875], [0.9, 0.6], [-0.5, 3.875]]])
    normal = torch.tensor([[[1.0, -4.0], [1.0, -1.0], [-0.5, 0.5]]])
    numbers = worlds.FixedNumbers(torch.tensor([[0]]), normal)
    found = bellman.smooth_target_action(action, numbers, 0.2, 0.5, BOX)
    torch.testing.assert_close(found, torch.tensor([[[-0.2, 2.1875], [1.0, 0.5], [-0.65, 4.2125]]]))


@guard
def smoothing_noise_keeps_to_its_bound_in_each_dimension() -> None:
    middle = BOX.middle.expand(1, 1_000, 2)
    away = (smoothed(middle, 0.4, 0.5) - middle).abs()
    bound = 0.5 * BOX.half
    assert bool((away <= bound * (1 + 1e-6)).all())
    torch.testing.assert_close(away.amax((0, 1)), bound)


@guard
def smoothed_actions_stay_in_the_box() -> None:
    for edge in (BOX.low, BOX.high):
        found = smoothed(edge.expand(1, 1_000, 2), 0.4, 0.5)
        assert bool((found >= BOX.low).all())
        assert bool((found <= BOX.high).all())


@guard
def smoothing_differs_from_row_to_row() -> None:
    found = smoothed(BOX.middle.expand(1, 50, 2), 0.1, 0.5)
    assert len({tuple(row) for row in found[0].tolist()}) == 50


@guard
def smoothing_differs_from_update_to_update() -> None:
    random = streams.MemberStreams((0,))
    first, second = (bellman.smooth_target_action(BOX.middle.expand(1, 50, 2), random, 0.1, 0.5, BOX) for _ in range(2))
    assert not torch.any(first == second)


@guard
def smoothing_without_noise_changes_nothing() -> None:
    action = BOX.low + (BOX.high - BOX.low) * torch.rand(1, 50, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(smoothed(action, 0.0, 0.5), action)


@guard
def both_twins_score_the_same_smoothed_action() -> None:
    agent, buffer = small_agent(dtype=torch.float64), worlds.filled_buffer(dtype=torch.float64)
    agent.critics_target.parameters[1] = agent.critics_target.parameters[0]
    agent.critics.parameters.detach().zero_()
    rows, zero = torch.arange(8).unsqueeze(0), torch.zeros(1, 8, 2, dtype=torch.float64)
    # A second draw of noise would give these large numbers to one of the twins.
    numbers = worlds.FixedNumbers(rows, zero, zero + 9)
    loss = update_once(agent, buffer, numbers, replace(SETTINGS, policy_delay=2)).critic
    fresh, batch = small_agent(dtype=torch.float64), buffer.gather(rows)
    score = fresh.critics_target(batch.next_state, fresh.actor_target(batch.next_state))[0]
    expected = batch.reward + 0.99 * (1 - batch.terminated) * score
    torch.testing.assert_close(loss, 2 * expected.square().mean(-1))


# Steps 7 and 8: scores of the targets


@guard
def target_scores_by_hand() -> None:
    state, action = (torch.tensor(x, dtype=torch.float64) for x in ([[[2.0], [-3.0]]], [[[3.0], [1.0]]]))
    q_values = bellman.q_values_of_targets(worlds.critics_by_hand(), state, action)
    # Q1: 2 + 6 + 0.5 and relu(-0.5); Q2: 2 * 8 - 10 and 2 * 7 - 10.
    assert q_values.tolist() == [[[8.5, 0.0]], [[6.0, 4.0]]]
    assert bellman.min_q(q_values).tolist() == [[6.0, 0.0]]


@guard
def the_smaller_score_is_kept() -> None:
    q_values = torch.tensor([[[1.0, 5.0, -2.0]], [[3.0, 4.0, -7.0]]])
    assert bellman.min_q(q_values).tolist() == [[1.0, 4.0, -7.0]]
    q_values = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0))
    kept = bellman.min_q(q_values)
    assert bool((kept <= q_values[0]).all())
    assert bool((kept <= q_values[1]).all())
    assert bool(((kept == q_values[0]) | (kept == q_values[1])).all())


@guard
def the_online_critics_have_no_say_in_the_bellman_target() -> None:
    agent, buffer = small_agent(dtype=torch.float64), worlds.filled_buffer(dtype=torch.float64)
    # With critics that always say 0 the loss is twice the mean square of the Bellman target.
    agent.critics.parameters.detach().zero_()
    rows = torch.arange(8).unsqueeze(0)
    numbers = worlds.FixedNumbers(rows, torch.zeros(1, 8, 2, dtype=torch.float64))
    loss = update_once(agent, buffer, numbers, SETTINGS).critic
    batch = buffer.gather(rows)
    score = agent.critics_target(batch.next_state, agent.actor_target(batch.next_state)).amin(0)
    expected = batch.reward + 0.99 * (1 - batch.terminated) * score
    torch.testing.assert_close(loss, 2 * expected.square().mean(-1))


@guard
def no_gradient_passes_through_a_target() -> None:
    agent, buffer = small_agent(), worlds.filled_buffer()
    agent.actor_target.parameters.requires_grad_()
    agent.critics_target.parameters.requires_grad_()
    random = streams.MemberStreams((0,))
    batch = bellman.sample_batch(buffer, random, 8)
    action = bellman.target_action(agent.actor_target, batch.next_state)
    blurred = bellman.smooth_target_action(action, random, 0.2, 0.5, agent.actor.action_range)
    q_values = bellman.q_values_of_targets(agent.critics_target, batch.next_state, blurred)
    smaller = bellman.min_q(q_values)
    target = bellman.bellman_target(batch.reward, batch.terminated, smaller, 0.99)
    assert not any(found.requires_grad for found in (action, blurred, q_values, smaller, target))


# Step 9: the Bellman target


@guard
def terminated_rows_do_not_bootstrap() -> None:
    reward, terminated, score = (torch.tensor([x]) for x in ([1.0, -2.0, 3.0], [1.0, 1.0, 1.0], [100.0, 200.0, 300.0]))
    assert torch.equal(bellman.bellman_target(reward, terminated, score, 0.5), reward)


@guard
def running_rows_bootstrap_by_gamma() -> None:
    reward, terminated, score = (torch.tensor([x]) for x in ([1.0, -2.0, 3.0], [0.0, 1.0, 0.0], [10.0, 20.0, -30.0]))
    assert bellman.bellman_target(reward, terminated, score, 0.5).tolist() == [[6.0, -2.0, -12.0]]
    assert torch.equal(bellman.bellman_target(reward, terminated, score, 0.0), reward)


@guard
def every_autoreset_mode_stores_the_same_transitions() -> None:
    for mode in AUTORESET_MODES:
        collected = worlds.collect(mode)
        for place in (0, 1):
            found = collected.transitions(place)
            assert len(found) >= 10
            assert found == worlds.script_transitions(place, len(found))
        if mode != AutoresetMode.NEXT_STEP:
            assert sum(map(len, collected.rows.values())) == 32


@guard
def a_time_out_is_not_a_termination() -> None:
    for mode in AUTORESET_MODES:
        at_time_out = [t for t in worlds.collect(mode).transitions(0) if t.next_state[1:] in ((0, 3), (3, 3))]
        assert len(at_time_out) == 2
        assert all(transition.terminated == 0 for transition in at_time_out)


@guard
def an_end_that_is_both_is_a_termination() -> None:
    for mode in AUTORESET_MODES:
        at_both = [t for t in worlds.collect(mode).transitions(0) if t.next_state[1:] == (2, 2)]
        assert [transition.terminated for transition in at_both] == [1]


@guard
def a_reset_is_never_stored_as_a_transition() -> None:
    for mode in AUTORESET_MODES:
        for place in (0, 1):
            for state, next_state, _, _ in worlds.collect(mode).transitions(place):
                assert next_state == (place, state[1], state[2] + 1)


@guard
def the_next_episode_begins_with_its_reset() -> None:
    for mode in AUTORESET_MODES:
        found = worlds.collect(mode).transitions(0)
        assert [t.state for t in found if t.state[2] == 0][:4] == [(0, episode, 0) for episode in range(4)]


@guard
def a_time_out_bootstraps_from_the_true_last_observation() -> None:
    agent = small_agent()
    for mode in AUTORESET_MODES:
        row = next(row for row in worlds.collect(mode).rows[0] if row[0:3].tolist() == [0, 0, 2])
        buffer = buffers.make_replay_buffer(1, 1, STATE_SIZE, ACTION_SIZE)
        buffer.add_(torch.from_numpy(row).reshape(1, 1, -1))
        batch = buffer.gather(torch.tensor([[0]]))
        last_observation = torch.tensor([[[0.0, 0.0, 3.0]]])
        action = bellman.target_action(agent.actor_target, batch.next_state)
        score = bellman.min_q(bellman.q_values_of_targets(agent.critics_target, batch.next_state, action))
        found = bellman.bellman_target(batch.reward, batch.terminated, score, 0.9)
        true_score = agent.critics_target(last_observation, agent.actor_target(last_observation)).amin(0)
        torch.testing.assert_close(found, 3.0 + 0.9 * true_score)


@guard
def finished_episodes_are_counted_in_full() -> None:
    # Episode e of n moments pays 10 * e * n + 1 + 2 + ... + n.
    scripted = {
        (ending.length, 10.0 * episode * ending.length + sum(range(ending.length + 1)))
        for script in worlds.SCRIPTS
        for episode in range(16)
        for ending in [script[episode % len(script)]]
    }
    for mode in AUTORESET_MODES:
        collected = worlds.collect(mode)
        found = list(zip(collected.lengths, collected.returns, strict=True))
        # Place 1 dies after two moments, then place 0 is timed out after three.
        assert found[:2] == [(2, 3.0), (3, 6.0)]
        assert len(found) >= 8
        assert set(found) <= scripted


# The same in a vector environment of the user's own


@guard
def a_users_vector_environment_stores_the_same_transitions() -> None:
    for mode in AUTORESET_MODES:
        for tensors in (False, True):
            collected = worlds.collect_own(mode, tensors)
            for place in (0, 1):
                found = collected.transitions(place)
                assert len(found) >= 10
                assert found == worlds.script_transitions(place, len(found))


@guard
def episodes_of_a_users_vector_environment_are_counted_in_full() -> None:
    for mode in AUTORESET_MODES:
        expected = worlds.collect(mode)
        for tensors in (False, True):
            collected = worlds.collect_own(mode, tensors)
            assert (collected.lengths, collected.returns) == (expected.lengths, expected.returns)


@guard
def nan_from_a_users_vector_environment_is_never_stored() -> None:
    class Broken(ScriptedVector):
        def step(self, actions):
            observations, *rest = super().step(np.asarray(actions))
            observations[1, 0] = np.nan
            return torch.from_numpy(observations), *map(torch.from_numpy, rest[:3]), {}

    for tensors in (False, True):
        environments = worlds.own_vector(AutoresetMode.DISABLED, tensors, Broken)
        kind = tensor_collect.TensorCollector if tensors else collect.Collector
        collector = kind(environments, (0, 1), LOW, HIGH, 0.1)
        rows, _ = collector.step(collector.act(None))
        assert np.isfinite(np.asarray(rows)).all()
        assert set(collector.failed) == {1}


@guard
def without_its_final_observation_an_episodes_end_is_refused() -> None:
    class Forgetful(ScriptedVector):
        def step(self, actions):
            return *super().step(actions)[:4], {}

    environments = worlds.own_vector(AutoresetMode.SAME_STEP, False, Forgetful)
    collector = collect.Collector(environments, (0,), LOW, HIGH, 0.1)
    with pytest.raises(EnvironmentFault, match="final_obs"):
        worlds.collected_by(collector, 4)


@guard
def a_reset_of_other_environments_is_refused() -> None:
    class Eager(ScriptedVector):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    environments = worlds.own_vector(AutoresetMode.DISABLED, False, Eager)
    collector = collect.Collector(environments, (0,), LOW, HIGH, 0.1)
    with pytest.raises(EnvironmentFault, match="outside the mask"):
        worlds.collected_by(collector, 4)


@guard
def an_evaluation_in_a_vector_environment_counts_one_episode_each() -> None:
    for mode in AUTORESET_MODES:
        episodes = vector_episodes.VectorEpisodes(worlds.own_vector(mode, False))
        found = evaluate.play(episodes, worlds.resting_policy(1), [[0, 0]])
        assert found.lengths.tolist() == [[3, 2]]  # a time-out after three, a death after two
        assert found.returns.tolist() == [[6.0, 3.0]]
        assert found.visits[0, :, -3:].tolist() == [[0, 0, 3], [1, 0, 2]]


@guard
def a_resumed_vector_environment_begins_new_episodes() -> None:
    collector = collect.Collector(worlds.own_vector(AutoresetMode.SAME_STEP, False), (0,), LOW, HIGH, 0.1)
    collector.step(collector.act(None))
    again = collect.Collector(worlds.own_vector(AutoresetMode.SAME_STEP, False), (0,), LOW, HIGH, 0.1)
    assert again.restore(collector.state()) == [0, 1]
    assert again.round == collector.round
    episodes = [episode for _ in range(3) for episode in again.step(again.act(None))[1]]
    assert [episode.length for episode in episodes] == [2, 2, 1]  # of the second episodes, which are whole


# Step 10: shapes


@guard
def wrong_shapes_are_refused() -> None:
    column, row, pair = torch.zeros(1, 4, 1), torch.zeros(1, 4), torch.zeros(2, 1, 4)
    assert refuses(bellman.bellman_target, column, row, row, 0.99)
    assert refuses(bellman.bellman_target, row, column, row, 0.99)
    assert refuses(bellman.bellman_target, row, row, column, 0.99)
    assert refuses(critic_update.critic_loss, pair.unsqueeze(-1), row)
    assert refuses(critic_update.critic_loss, pair, column)
    assert refuses(critic_update.critic_loss, pair, torch.zeros(1, 5))
    assert refuses(bellman.min_q, pair.unsqueeze(-1))
    critics = small_agent().critics
    states, actions = torch.zeros(1, 4, STATE_SIZE), torch.zeros(1, 4, ACTION_SIZE)
    assert refuses(critic_update.q_values_of_critics, critics, states[0], actions[0])
    assert refuses(critic_update.q_values_of_critics, critics, states, actions[:, :3])


@guard
def each_row_has_one_score_of_each_critic() -> None:
    agent, batch = small_agent((0, 1)), worlds.filled_buffer(2).gather(torch.arange(8).expand(2, 8))
    q_values = critic_update.q_values_of_critics(agent.critics, batch.state, batch.action)
    assert q_values.shape == (2, 2, 8)
    alone = agent.critics(batch.state[:, 3:4], batch.action[:, 3:4])
    torch.testing.assert_close(q_values[..., 3:4], alone)


@guard
def the_stored_action_is_scored() -> None:
    state, action = (torch.tensor(x, dtype=torch.float64) for x in ([[[2.0], [-3.0]]], [[[3.0], [1.0]]]))
    q_values = critic_update.q_values_of_critics(worlds.critics_by_hand(), state, action)
    assert q_values.tolist() == [[[8.5, 0.0]], [[6.0, 4.0]]]
    agent, other = small_agent(), small_agent()
    buffer, changed = worlds.filled_buffer(), worlds.filled_buffer()
    changed.rows[..., STATE_SIZE : STATE_SIZE + ACTION_SIZE] += 1
    means = [
        update_once(a, m, streams.MemberStreams((0,)), SETTINGS).mean_q for a, m in ((agent, buffer), (other, changed))
    ]
    assert not torch.equal(*means)


# Step 11: the loss


@guard
def the_loss_is_the_sum_of_two_mean_squares() -> None:
    q_values = torch.tensor([[[1.0, 2.0], [5.0, 5.0]], [[0.0, 4.0], [5.0, 8.0]]], requires_grad=True)
    target = torch.tensor([[2.0, 3.0], [5.0, 4.0]])
    loss = critic_update.critic_loss(q_values, target)
    # Member 0: (1 + 1) / 2 + (4 + 1) / 2. Member 1: (0 + 1) / 2 + (0 + 16) / 2.
    assert loss.tolist() == [3.5, 8.5]
    (gradient,) = torch.autograd.grad(loss.sum(), q_values)
    # 2 (q - y) / rows.
    assert gradient.tolist() == [[[-1.0, -1.0], [0.0, 1.0]], [[-2.0, 1.0], [0.0, 4.0]]]


# Step 12: the critics


@guard
def the_critics_take_one_step_downhill_by_hand() -> None:
    critics = worlds.critics_by_hand()
    state, action = (torch.tensor([[[x]]], dtype=torch.float64) for x in (2.0, 3.0))
    loss = critic_update.critic_loss(critics(state, action), torch.tensor([[8.0]], dtype=torch.float64))
    critic_update.improve_critics_(critics, optimizers.SGD(critics.parameters, 0.1), loss)
    (hidden_weight, hidden_bias), (weight, bias) = critics.network.layers()
    # Slopes of the loss in the scores: 2 (8.5 - 8) = 1 and 2 (6 - 8) = -4. Hidden units: 8.5 and 8.
    expected = [[[1 - 0.2, 2 - 0.3], [0.5 - 0.1], [1 - 0.85], [-0.1]], [[-1 + 1.6, 3 + 2.4], [1.8], [2 + 3.2], [-9.6]]]
    for twin in range(2):
        found = [part[twin, 0].flatten().tolist() for part in (hidden_weight, hidden_bias, weight, bias)]
        for one, other in zip(found, expected[twin], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@guard
def an_update_without_its_turn_moves_both_critics_and_nothing_else() -> None:
    agent = small_agent()
    before = snapshot(agent)
    (losses,) = learn(agent, 1)
    assert moved(before, agent) == {"critics"}
    for twin in range(2):
        assert not torch.equal(agent.critics.parameters[twin], before["critics"][twin])
    assert losses.actor is None


@guard
def members_learn_as_if_alone() -> None:
    together, buffer = small_agent((3, 4), "sgd", torch.float64), worlds.filled_buffer(2, dtype=torch.float64)
    random = streams.MemberStreams((3, 4), dtype=torch.float64)
    for _ in range(6):
        update_once(together, buffer, random, SETTINGS)
    for member, seed in enumerate((3, 4)):
        alone, own_memory = small_agent((seed,), "sgd", torch.float64), buffer.member(member)
        own_random = streams.MemberStreams((seed,), dtype=torch.float64)
        for _ in range(6):
            update_once(alone, own_memory, own_random, SETTINGS)
        whole = together.member(member).tensors()
        for name, tensor in alone.tensors().items():
            torch.testing.assert_close(tensor, whole[name], rtol=1e-12, atol=1e-13)


# Step 13: the actor


def improve_actor(agent: agents.Agent, states: Tensor) -> Tensor:
    """Step 13."""
    return actor_update.improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, states)


STATES = torch.randn(1, 32, STATE_SIZE, generator=torch.Generator().manual_seed(1))


@guard
def critic_2_has_no_influence_on_the_actor() -> None:
    agent, other = small_agent(), small_agent()
    other.critics.parameters.detach()[1] += 0.5
    assert torch.equal(improve_actor(agent, STATES), improve_actor(other, STATES))
    assert torch.equal(agent.actor.parameters, other.actor.parameters)


@guard
def critic_1_leads_the_actor() -> None:
    agent, other = small_agent(), small_agent()
    other.critics.parameters.detach()[0] += 0.5
    improve_actor(agent, STATES)
    improve_actor(other, STATES)
    assert not torch.equal(agent.actor.parameters, other.actor.parameters)


@guard
def the_actors_turn_leaves_the_critics_alone() -> None:
    agent = small_agent()
    before = snapshot(agent)
    improve_actor(agent, STATES)
    assert moved(before, agent) == {"actor"}
    assert agent.critics.parameters.grad is None
    assert agent.critics.parameters.requires_grad


@guard
def no_gradient_is_made_for_the_frozen_critic() -> None:
    agent = small_agent()
    action = torch.zeros(1, 32, ACTION_SIZE)
    assert not agent.critics.first_frozen(STATES, action).requires_grad
    assert agent.critics.first_frozen(STATES, action.requires_grad_()).requires_grad
    torch.testing.assert_close(agent.critics.first_frozen(STATES, action), agent.critics(STATES, action)[0])


@guard
def the_score_of_critic_1_rises_by_a_small_step() -> None:
    agent = small_agent(optimizer="sgd", dtype=torch.float64, learning_rate=1e-4)
    states = STATES.double()
    before = agent.critics(states, agent.actor(states))[0].detach().mean(-1)
    loss = improve_actor(agent, states)
    after = agent.critics(states, agent.actor(states))[0].detach().mean(-1)
    assert float(after) > float(before)
    torch.testing.assert_close(loss, -before)


@guard
def the_stored_action_has_no_influence_on_the_actor() -> None:
    agent, other = small_agent(), small_agent()
    settings = replace(SETTINGS, policy_delay=1, gamma=0.0)
    buffer, changed = worlds.filled_buffer(), worlds.filled_buffer()
    changed.rows[..., STATE_SIZE : STATE_SIZE + ACTION_SIZE] += 1
    # Critics that cannot learn: only the actor's own turn is seen.
    for one in (agent, other):
        one.critics_optimizer = optimizers.SGD(one.critics.parameters, 0.0)
    update_once(agent, buffer, streams.MemberStreams((0,)), settings)
    update_once(other, changed, streams.MemberStreams((0,)), settings)
    assert torch.equal(agent.actor.parameters, other.actor.parameters)


# Steps 14 and 15: the targets


@guard
def targets_move_by_exactly_tau() -> None:
    agent = small_agent(dtype=torch.float64)
    agent.actor.parameters.detach().fill_(3.0)
    agent.actor_target.parameters.fill_(1.0)
    agent.critics.parameters.detach()[0], agent.critics.parameters.detach()[1] = 5.0, -7.0
    agent.critics_target.parameters.fill_(1.0)
    polyak.polyak_actor_target_(agent.actor_target, agent.actor, 0.25)
    polyak.polyak_critics_target_(agent.critics_target, agent.critics, 0.25)
    # 1 + (3 - 1) / 4, 1 + (5 - 1) / 4 and 1 + (-7 - 1) / 4; the online networks stay.
    assert agent.actor_target.parameters.unique().tolist() == [1.5]
    assert agent.critics_target.parameters[0].unique().tolist() == [2.0]
    assert agent.critics_target.parameters[1].unique().tolist() == [-1.0]
    assert agent.actor.parameters.unique().tolist() == [3.0]
    assert agent.critics.parameters.unique().tolist() == [-7.0, 5.0]


@guard
def tau_0_holds_the_targets_and_tau_1_copies() -> None:
    for tau, source in ((0.0, "target"), (1.0, "online")):
        agent = small_agent()
        agent.actor.parameters.detach().add_(0.3)
        agent.critics.parameters.detach().sub_(0.3)
        before = snapshot(agent)
        polyak.polyak_actor_target_(agent.actor_target, agent.actor, tau)
        polyak.polyak_critics_target_(agent.critics_target, agent.critics, tau)
        for name in ("actor", "critics"):
            expected = before[name if source == "online" else f"{name}_target"]
            torch.testing.assert_close(agent.tensors()[f"{name}_target"], expected)


@guard
def the_actor_and_the_targets_move_only_in_their_turn() -> None:
    for delay in (1, 2, 3):
        agent = small_agent()
        buffer, random = worlds.filled_buffer(), streams.MemberStreams((0,))
        for number in range(1, 7):
            before = snapshot(agent)
            losses = update_once(agent, buffer, random, replace(SETTINGS, policy_delay=delay))
            turn = number % delay == 0
            everything = {"actor", "actor_target", "critics", "critics_target"}
            assert moved(before, agent) == (everything if turn else {"critics"})
            assert (losses.actor is not None) == turn
            assert agent.updates.tolist() == [number]


@guard
def a_restored_agent_goes_on_bit_for_bit() -> None:
    buffer, settings = worlds.filled_buffer(2), SETTINGS
    steady, random = small_agent((0, 1)), streams.MemberStreams((0, 1))
    for _ in range(9):
        update_once(steady, buffer, random, settings)
    seek = small_agent((7, 8))
    for name, tensor in seek.tensors().items():
        tensor.copy_(steady.tensors()[name])
    seek.updates[:] = steady.updates
    resumed_random = streams.MemberStreams((0, 1), position=9)
    for _ in range(9):
        update_once(steady, buffer, random, settings)
        update_once(seek, buffer, resumed_random, settings)
    assert same(steady.tensors(), seek.tensors())


@guard
def a_copied_agent_goes_on_bit_for_bit_in_memory_of_its_own() -> None:
    buffer, agent = worlds.filled_buffer(2), small_agent((0, 1))
    learn(agent, 9, (0, 1))
    copy, before = agent.copied(), {name: tensor.clone() for name, tensor in agent.tensors().items()}
    for _ in range(4):
        update_once(copy, buffer, streams.MemberStreams((0, 1), position=9), SETTINGS)
    assert same(agent.tensors(), before)
    assert agent.updates.tolist() == [9, 9]
    for _ in range(4):
        update_once(agent, buffer, streams.MemberStreams((0, 1), position=9), SETTINGS)
    assert same(agent.tensors(), copy.tensors())


@guard
def saved_targets_are_the_targets() -> None:
    agent = small_agent((0, 1))
    learn(agent, 9, (0, 1))
    saved = agent_file.network_tensors(agent, 1)
    for name, network in (("actor_target", agent.actor_target.network), ("actor", agent.actor.network)):
        for depth, (weight, bias) in enumerate(network.layers()):
            assert np.array_equal(saved[f"{name}.{depth}.weight"], weight[1].detach().T.numpy())
            assert np.array_equal(saved[f"{name}.{depth}.bias"], bias[1].detach().numpy())
    for twin in (0, 1):
        for name, network in (("critic_target", agent.critics_target.network), ("critic", agent.critics.network)):
            for depth, (weight, bias) in enumerate(network.layers()):
                assert np.array_equal(saved[f"{name}_{twin + 1}.{depth}.weight"], weight[twin, 1].detach().T.numpy())
                assert np.array_equal(saved[f"{name}_{twin + 1}.{depth}.bias"], bias[twin, 1].detach().numpy())


# Acting


def explored(noise: float, rounds: int, seeds: tuple[int, ...] = (0,), places: int = 4) -> np.ndarray:
    """Actions `[round, member, environment, action]` around the middle of the range, in half ranges."""
    environments = worlds.scripted_row(AutoresetMode.DISABLED, places)
    collector, policy = collect.Collector(environments, seeds, LOW, HIGH, noise), worlds.resting_policy(len(seeds))
    found = []
    for _ in range(rounds):
        found.append(collector.act(policy))
        collector.step(found[-1])
    return (np.stack(found) - MIDDLE) / HALF


@guard
def environments_have_exploration_noise_of_their_own() -> None:
    noise = explored(0.1, 3, (0, 1))
    numbers = noise.reshape(-1, ACTION_SIZE)
    assert len(np.unique(numbers[:, 0])) == len(np.unique(numbers[:, 1])) == 3 * 2 * 2


@guard
def exploration_noise_is_a_share_of_each_dimensions_half_range() -> None:
    # 2,000 numbers of each dimension: their standard deviation is known to 1.6 %, their mean to 0.0022.
    noise = explored(0.1, 500).reshape(-1, ACTION_SIZE)
    np.testing.assert_allclose(noise.std(0), 0.1, rtol=0.08)
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.012)


@guard
def exploring_actions_stay_in_the_box() -> None:
    actions = explored(1.0, 100) * HALF + MIDDLE
    assert np.all(actions >= np.float32(LOW) - 1e-6)
    assert np.all(actions <= np.float32(HIGH) + 1e-6)


@guard
def noise_of_0_plays_the_policy_itself() -> None:
    assert np.all(explored(0.0, 3) == 0)


@guard
def exploration_noise_is_on_by_default() -> None:
    assert config.TD3Config().exploration_noise > 0
    for preset in get_args(config.Preset):
        assert config.resolve("Pendulum-v1", preset).td3.exploration_noise > 0
    noise = explored(config.TD3Config().exploration_noise, 1)
    assert np.all(noise != 0)


@guard
def warm_up_actions_fill_the_whole_box() -> None:
    collector = collect.Collector(worlds.scripted_row(AutoresetMode.DISABLED, 4), (0,), LOW, HIGH, 0.1)
    found = []
    for _ in range(500):
        found.append(collector.act(None))
        collector.step(found[-1])
    shares = (np.stack(found).reshape(-1, ACTION_SIZE) - np.float32(LOW)) / (np.float32(HIGH) - np.float32(LOW))
    assert np.all((shares >= 0) & (shares <= 1))
    for dimension in range(ACTION_SIZE):
        counts, _ = np.histogram(shares[:, dimension], 10, (0, 1))
        # 200 are expected of each tenth, with a standard deviation of 13.4.
        assert np.abs(counts - 200).max() < 5 * 13.4
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.1


@guard
def evaluation_plays_the_policy_itself() -> None:
    made: list[worlds.ScriptedTask] = []

    def make() -> worlds.ScriptedTask:
        made.append(worlds.ScriptedTask(place=len(made)))
        return made[-1]

    policy = worlds.lively_policy(2)
    evaluation = evaluate.Evaluator(make, (0, 1), 2)(policy)
    assert evaluation.lengths.tolist() == [[3, 3], [3, 3]]
    assert evaluation.returns.tolist() == [[6.0, 6.0], [6.0, 6.0]]
    for place, task in enumerate(made):
        states = np.zeros((2, len(task.states), STATE_SIZE), np.float32)
        states[:] = task.states
        np.testing.assert_allclose(task.actions, policy(states)[place // 2], atol=1e-5)


@guard
def evaluation_repeats_exactly() -> None:
    evaluator, policy = evaluate.Evaluator(worlds.ShortTask, (0, 1), 3), worlds.lively_policy(2)
    first, second = evaluator(policy), evaluator(policy)
    assert np.array_equal(first.returns, second.returns)
    assert np.array_equal(first.lengths, second.lengths)
    assert len(np.unique(first.returns)) == 6


@guard
def training_and_evaluation_share_no_environment_and_no_seed() -> None:
    made: list[worlds.ScriptedTask] = []

    def make() -> worlds.ScriptedTask:
        made.append(worlds.ScriptedTask())
        return made[-1]

    run = config.TrainConfig("scripted", envs=2, workers="none", eval_episodes=2, threads=1, device="cpu", td3=SETTINGS)
    spaces = check_environment(worlds.ScriptedTask(), "scripted")
    whole = training.Trainer(run, spaces, make, torch.device("cpu"), 100)
    own = whole.collector.environments.environments
    seeds = {seed for task in own for seed in task.seeds}
    whole.evaluator(worlds.resting_policy())
    whole.close()
    assert not any(task.actions for task in own)
    others = [task for task in made if task not in own]
    assert len(own) == len(others) == 2
    assert all(task.actions for task in others)
    assert len(seeds) == 2
    assert seeds.isdisjoint({seed for task in others for seed in task.seeds})


@guard
def how_often_one_evaluates_changes_nothing_that_is_learned() -> None:
    assert worlds.short_run(eval_every=3) == worlds.short_run(eval_every=0)


# A run, and its settings


@guard
def a_short_run_really_learns() -> None:
    watcher = worlds.Watcher()
    settings = replace(SETTINGS, learning_starts=10)
    last = worlds.short_run(settings, watcher)
    row = watcher.rows[-1]
    assert row["env_steps"] == 40
    assert row["updates"] == 30
    assert all(np.isfinite(row[name]) for name in ("critic_loss", "actor_loss", "mean_q", "episode_return"))
    assert row["critic_loss"] > 0
    never = worlds.short_run(replace(settings, learning_starts=1_000))
    assert last != never
    learned, new_learner = (agent_file.load_tensors(raw) for raw in (last, never))
    assert all(not np.array_equal(learned[name], new_learner[name]) for name in new_learner)


@guard
def a_run_that_would_never_update_says_so() -> None:
    never = config.resolve("Hopper-v5", steps=1_000, learning_starts=1_000)
    assert "No update" in " ".join(never.warnings())
    with pytest.raises(ConfigError, match="no update would happen"):
        never.require_updates()
    assert config.resolve("Hopper-v5", steps=1_000).warnings() == []


@guard
@unchecked()
def the_files_of_a_run_show_its_updates() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = training.train(
            worlds.SHORT_TASK,
            steps=40,
            learning_starts=10,
            hidden_sizes=(16, 16),
            batch_size=8,
            eval_every=0,
            eval_episodes=1,
            threads=1,
            device="cpu",
            out=Path(folder) / "run",
        )
        with (run.folder(0) / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
    assert rows[-1]["updates"] == "30"
    assert np.isfinite(float(rows[-1]["critic_loss"]))


CHANGED: dict[str, Any] = {
    "hidden_sizes": (16, 8),
    "actor_hidden_sizes": (16, 8),
    "critic_hidden_sizes": (8, 16),
    "activation": "tanh",
    "initialization": "orthogonal",
    "critic_layer_norm": True,
    "actor_learning_rate": 2e-3,
    "critic_learning_rate": 2e-3,
    "learning_rate_schedule": "linear",
    "optimizer": "sgd",
    "batch_size": 9,
    "buffer_size": 12,
    "learning_starts": 11,
    "exploration_noise": 0.2,
    "target_policy_noise": 0.1,
    "target_noise_clip": 0.1,
    "policy_delay": 3,
    "gamma": 0.9,
    "tau": 0.01,
    "utd_ratio": 0.5,
    "train_freq": "episode",
    "timeouts": "terminate",
    "n_step": 2,
    "priority_exponent": 0.7,
    "image_features": 7,
    "random_shift": 1,
    "bc_alpha": 1.0,
    "hindsight_goals": 2,
}
"""Another value of every setting of the algorithm."""


def setting_reaches_the_learner(name: str) -> None:
    """A run with this one setting changed learns something else."""
    assert name in CHANGED, f"{name} is new: say in CHANGED what else it can be"
    assert getattr(SETTINGS, name) != CHANGED[name]
    usual, seen = SETTINGS, dict[str, Any]()
    if name in ("image_features", "random_shift"):  # which only a run from pictures knows
        seen = {"env": "Rail-v0", "pixels": True, "image_size": 40, "frames": 1}
    if name in OWN_SETTINGS:
        seen = {"variant": (OWN_SETTINGS[name],)}
    if name == "hindsight_goals":
        usual = replace(SETTINGS, buffer_size=50)  # whatever the number of rows
        seen |= {"env": "RailGoal-v0", "env_kwargs": {"max_episode_steps": 5}}
    changed = replace(usual, **{name: CHANGED[name]})
    assert worlds.short_run(changed, **seen) != worlds.short_run(usual, **seen)


for _field in fields(config.TD3Config):
    GUARDS[f"the_setting_{_field.name}_reaches_the_learner"] = partial(setting_reaches_the_learner, _field.name)


@guard
def learning_rates_go_to_their_own_networks() -> None:
    agent = agents.Agent.create(
        Task(STATE_SIZE, LOW, HIGH),
        TD3Config(hidden_sizes=(16, 16), actor_learning_rate=1e-30, critic_learning_rate=1e-3),
        (0,),
    )
    before = snapshot(agent)
    learn(agent, 4)
    assert moved(before, agent) == {"critics", "critics_target"}
    agent = agents.Agent.create(
        Task(STATE_SIZE, LOW, HIGH),
        TD3Config(hidden_sizes=(16, 16), actor_learning_rate=1e-3, critic_learning_rate=1e-30),
        (0,),
    )
    before = snapshot(agent)
    learn(agent, 4)
    assert moved(before, agent) == {"actor", "actor_target"}


@guard
def a_frozen_member_keeps_its_transitions_and_the_statistics_of_its_observations() -> None:
    normalizer = normalizers.Normalizer(2, 1)
    buffer = normalizers.NormalizedReplayBuffer(buffers.make_replay_buffer(2, 4, 1, 1), normalizer)
    buffer.add_(torch.full((2, 3, 5), 7.0))
    buffer.frozen = {1: "a reason"}
    for _ in range(3):
        buffer.add_(torch.tensor([9.0, 0.0])[:, None, None].expand(2, 2, 5))
    assert buffer.rows[0, :, 0].tolist() == [9.0] * 4
    assert buffer.rows[1, :3, 0].tolist() == [7.0] * 3
    assert normalizer.count.flatten().tolist() == [9.0, 3.0]
    assert normalizer.mean[1].item() == 7.0
