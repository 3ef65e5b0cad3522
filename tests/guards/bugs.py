"""Faults to be put in on purpose, each of them seen in real code or lessons, in the order of the fifteen steps.

A planted bug is a faulty version of one function, written plainly, that takes the place of the right one wherever it is
used; beside it stand the guards that must catch it.
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from jaxtyping import TypeCheckError

from td3 import config, evaluate, policy, training
from td3.algorithm import agent as agents
from td3.algorithm import normalizer as normalizers
from td3.algorithm import step_01_replay_buffer as buffers
from td3.algorithm import step_02_actor as actors
from td3.algorithm import step_03_twin_critics as twins
from td3.algorithm import step_04_to_09_bellman_target as bellman
from td3.algorithm import step_10_to_12_critic_update as critic_update
from td3.algorithm import step_13_actor_update as actor_update
from td3.algorithm import step_14_to_15_polyak as polyak
from td3.algorithm import streams
from td3.algorithm.networks import StackedMLP
from td3.collect import collector as collect
from td3.collect import tensor_collector as tensor_collect
from td3.environments import checked_vector, vector_episodes
from td3.run import agent_file

from .guards import updates
from .worlds import SETTINGS


class Plant:
    """Puts faulty code in the place of right code, until the test is over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, right: Callable[..., Any], faulty: Callable[..., Any]) -> None:
        """In every module that knows the function, by whatever name."""
        places = 0
        for module_name, module in list(sys.modules.items()):
            if module_name.partition(".")[0] == "td3" or module_name == f"{__package__}.worlds":
                for name, value in list(vars(module).items()):
                    if value is right:
                        self._monkeypatch.setattr(module, name, faulty)
                        places += 1
        assert places, f"{right} is used nowhere"

    def method(self, owner: type, name: str, faulty: Any) -> None:
        """In a class."""
        assert name in vars(owner)
        self._monkeypatch.setattr(owner, name, faulty)


Fault = Callable[[Plant], None]


class PlantedBug(NamedTuple):
    """A fault, and the guards that must see it."""

    plant: Fault
    caught_by: tuple[str, ...]
    raises: type[Exception] = AssertionError


BUGS: dict[str, PlantedBug] = {}


def bug(*caught_by: str, raises: type[Exception] = AssertionError) -> Callable[[Fault], Fault]:
    """Enter a fault in the list."""

    def enter(plant: Fault) -> Fault:
        BUGS[plant.__name__] = PlantedBug(plant, caught_by, raises)
        return plant

    return enter


# Step 1: the replay buffer


@bug("sampled_rows_have_the_type_and_device_of_stored_ones", "a_memory_is_in_single_precision_unless_told_otherwise")
def rows_are_stored_in_double_and_converted_when_drawn(plant: Plant) -> None:
    class Doubled(buffers.ReplayBuffer):
        def __init__(self, members, capacity, state_size, action_size, device="cpu", dtype=torch.float32):
            super().__init__(members, capacity, state_size, action_size, device, torch.float64)
            self.drawn_as = dtype

        def gather(self, indices):
            return buffers.Batch(*(column.to(self.drawn_as) for column in super().gather(indices)[:5]), indices)

    plant(buffers.make_replay_buffer, Doubled)


@bug("the_newest_rows_survive_wrap_around")
def a_full_memory_takes_nothing_new(plant: Plant) -> None:
    right = buffers.ReplayBuffer.add_

    def add_(self, rows):
        right(self, rows[:, : self.capacity - len(self)])

    plant.method(buffers.ReplayBuffer, "add_", add_)


@bug("the_newest_rows_survive_wrap_around")
def rows_past_the_end_are_dropped(plant: Plant) -> None:
    def add_(self, rows):
        start = self.added % self.capacity
        fitting = rows[:, : self.capacity - start]
        self.rows[:, start : start + fitting.shape[1]] = fitting
        self._added += rows.shape[1]
        self.filled.fill_(len(self))

    plant.method(buffers.ReplayBuffer, "add_", add_)


@bug("the_newest_rows_survive_wrap_around")
def of_many_rows_at_once_the_oldest_are_kept(plant: Plant) -> None:
    right = buffers.ReplayBuffer.add_

    def add_(self, rows):
        right(self, rows[:, : self.capacity])

    plant.method(buffers.ReplayBuffer, "add_", add_)


@bug("the_newest_rows_survive_wrap_around", "members_draw_rows_of_their_own")
def every_member_reads_the_first_members_memory(plant: Plant) -> None:
    right = buffers.ReplayBuffer.gather

    def gather(self, indices):
        first_rows = torch.arange(len(self.rows)).unsqueeze(1) * self.capacity
        return right(self, indices - first_rows)

    plant.method(buffers.ReplayBuffer, "gather", gather)


@bug("a_batch_holds_whole_transitions")
def reward_and_terminated_are_exchanged(plant: Plant) -> None:
    right = buffers.ReplayBuffer.gather

    def gather(self, indices):
        batch = right(self, indices)
        return batch._replace(reward=batch.terminated, terminated=batch.reward)

    plant.method(buffers.ReplayBuffer, "gather", gather)


@bug("a_batch_holds_whole_transitions")
def the_columns_of_a_batch_come_from_different_rows(plant: Plant) -> None:
    right = buffers.ReplayBuffer.gather

    def gather(self, indices):
        return right(self, indices)._replace(reward=right(self, indices.roll(1, -1)).reward)

    plant.method(buffers.ReplayBuffer, "gather", gather)


# Step 2: the actor


@bug("actions_span_exactly_the_box", "the_policy_that_acts_is_the_actor")
def the_bound_of_dimension_0_is_used_for_all(plant: Plant) -> None:
    def call(self, state):
        return self.action_range.high[0] * torch.tanh(self.network(state))

    plant.method(actors.Actor, "__call__", call)


@bug("actions_span_exactly_the_box")
def bounds_are_cut_to_whole_numbers(plant: Plant) -> None:
    right = actors.ActionRange.__init__

    def initialize(self, low, high):
        right(self, low.int().to(low.dtype), high.int().to(high.dtype))

    plant.method(actors.ActionRange, "__init__", initialize)


@bug("actions_span_exactly_the_box", "the_policy_that_acts_is_the_actor")
def the_range_is_taken_to_be_symmetric(plant: Plant) -> None:
    def call(self, state):
        return self.action_range.high * torch.tanh(self.network(state))

    plant.method(actors.Actor, "__call__", call)


@bug("the_policy_that_acts_is_the_actor")
def the_policy_on_disk_forgets_the_tanh(plant: Plant) -> None:
    def call(self, states):
        hidden = states
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return np.clip(hidden @ weight + bias, self.low, self.high)

    plant.method(policy.Policy, "__call__", call)


@bug("the_actors_target_begins_as_a_copy")
def the_actors_target_is_the_actor_itself(plant: Plant) -> None:
    right = actors.make_actor_and_target

    def make_actor_and_target(seeds, state_size, action_range, *kind):
        actor, _ = right(seeds, state_size, action_range, *kind)
        return actor, actors.Actor(StackedMLP(actor.network.sizes, actor.parameters.detach()), action_range)

    plant(right, make_actor_and_target)


@bug("the_actors_target_begins_as_a_copy")
def the_actors_target_is_born_with_weights_of_its_own(plant: Plant) -> None:
    right = actors.make_actor_and_target

    def make_actor_and_target(seeds, *sizes):
        actor, _ = right(seeds, *sizes)
        _, target = right([seed + 1_000 for seed in seeds], *sizes)
        return actor, target

    plant(right, make_actor_and_target)


# Step 3: the twin critics


@bug("twins_differ_at_birth", "twins_still_differ_after_a_hundred_updates")
def the_second_critic_is_a_copy_of_the_first(plant: Plant) -> None:
    right = twins.make_twin_critics_and_targets

    def make_twin_critics_and_targets(*sizes, **named):
        critics, target = right(*sizes, **named)
        for pair in (critics, target):
            pair.parameters.detach()[1] = pair.parameters.detach()[0]
        return critics, target

    plant(right, make_twin_critics_and_targets)


@bug("the_critics_targets_begin_as_copies")
def the_critics_targets_are_the_critics_themselves(plant: Plant) -> None:
    right = twins.make_twin_critics_and_targets

    def make_twin_critics_and_targets(*sizes, **named):
        critics, _ = right(*sizes, **named)
        return critics, twins.TwinCritics(StackedMLP(critics.network.sizes, critics.parameters.detach()))

    plant(right, make_twin_critics_and_targets)


@bug("the_critics_targets_begin_as_copies")
def the_critics_targets_are_born_with_weights_of_their_own(plant: Plant) -> None:
    right = twins.make_twin_critics_and_targets

    def make_twin_critics_and_targets(seeds, *sizes, **named):
        return right(seeds, *sizes, **named)[0], right([seed + 1_000 for seed in seeds], *sizes, **named)[1]

    plant(right, make_twin_critics_and_targets)


# Step 4: the batch, and seeds


@bug("two_seeds_are_born_different", "two_seeds_live_differently", "another_seed_learns_something_else")
def the_seed_is_overwritten_so_that_all_are_alike(plant: Plant) -> None:
    right = streams.derive_seed

    def derive_seed(seed, purpose, index=0):
        return right(0, purpose, index)

    plant(right, derive_seed)


@bug("streams_of_different_purpose_differ", "training_and_evaluation_share_no_environment_and_no_seed")
def all_purposes_draw_from_one_stream(plant: Plant) -> None:
    right = streams.derive_seed

    def derive_seed(seed, purpose, index=0):
        return right(seed, "everything", index)

    plant(right, derive_seed)


@bug("streams_of_different_purpose_differ", "numbers_do_not_repeat", "twins_differ_at_birth")
def the_same_numbers_come_back_block_after_block(plant: Plant) -> None:
    right = streams.derive_seed

    def derive_seed(seed, purpose, index=0):
        return right(seed, purpose)

    plant(right, derive_seed)


@bug("one_seed_repeats_bit_for_bit", "a_restored_agent_goes_on_bit_for_bit")
def numbers_come_from_the_global_generator(plant: Plant) -> None:
    def draw_member_(self, purpose, block, index, own):
        return own.normal_() if own.is_floating_point() else own.random_()

    plant.method(streams.MemberStreams, "draw_member_", draw_member_)


@bug("every_stored_row_is_as_likely_as_another_and_no_other_is_drawn")
def only_the_newest_rows_are_drawn(plant: Plant) -> None:
    def sample_batch(buffer, random, batch_size):
        newest = torch.clamp(buffer.filled, max=8)
        return buffer.gather(buffer.filled - 1 - random.rows(newest, batch_size))

    plant(bellman.sample_batch, sample_batch)


@bug("every_stored_row_is_as_likely_as_another_and_no_other_is_drawn")
def empty_places_of_the_memory_are_drawn(plant: Plant) -> None:
    def sample_batch(buffer, random, batch_size):
        return buffer.gather(random.rows(torch.tensor(buffer.capacity), batch_size))

    plant(bellman.sample_batch, sample_batch)


@bug("every_stored_row_is_as_likely_as_another_and_no_other_is_drawn")
def early_rows_are_drawn_more_often(plant: Plant) -> None:
    def sample_batch(buffer, random, batch_size):
        rows = [random.rows(buffer.filled, batch_size) for _ in range(2)]
        return buffer.gather(torch.minimum(*rows))

    plant(bellman.sample_batch, sample_batch)


@bug("members_draw_rows_of_their_own", "two_seeds_live_differently")
def all_members_draw_the_same_rows(plant: Plant) -> None:
    right = streams.MemberStreams.rows

    def rows(self, filled, count):
        return right(self, filled, count)[:1].expand(len(self.seeds), -1)

    plant.method(streams.MemberStreams, "rows", rows)


# The update as a whole, with one thing wrong


def update_with(
    next_actor: str = "actor_target",
    next_critics: str = "critics_target",
    stored_next_action: bool = False,
    noise_per_critic: bool = False,
    scored: str = "stored",
    actor_at_every_update: bool = False,
    targets_at_every_update: bool = False,
    targets_never: bool = False,
) -> Callable[..., updates.Losses]:
    """The update, with faults to choose from."""

    def update(agent, batch, random, settings, move_actor):
        smoothing = (random, settings.target_policy_noise, settings.target_noise_clip, agent.actor.action_range)
        next_action = bellman.target_action(getattr(agent, next_actor), batch.next_state)
        if stored_next_action:
            next_action = batch.action
        smoothed = bellman.smooth_target_action(next_action, *smoothing)
        critics = getattr(agent, next_critics)
        q_values = bellman.q_values_of_targets(critics, batch.next_state, smoothed)
        if noise_per_critic:
            other = bellman.smooth_target_action(next_action, *smoothing)
            q_values = torch.stack((q_values[0], bellman.q_values_of_targets(critics, batch.next_state, other)[1]))
        smaller = bellman.min_q(q_values)
        target = bellman.bellman_target(batch.reward, batch.terminated, smaller, settings.gamma)

        action = batch.action if scored == "stored" else agent.actor(batch.state).detach()
        q = critic_update.q_values_of_critics(agent.critics, batch.state, action)
        loss = critic_update.critic_loss(q, target)
        critic_update.improve_critics_(agent.critics, agent.critics_optimizer, loss)

        actor_loss = None
        if move_actor or actor_at_every_update:
            actor_loss = actor_update.improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
        if (move_actor or targets_at_every_update) and not targets_never:
            polyak.polyak_actor_target_(agent.actor_target, agent.actor, settings.tau)
            polyak.polyak_critics_target_(agent.critics_target, agent.critics, settings.tau)
        return updates.Losses(loss.detach(), actor_loss, q.detach().mean((0, 2)))

    return update


# Step 5: the next action


@bug("the_online_actor_has_no_say_in_the_bellman_target", "the_target_actor_plays_the_next_action")
def the_online_actor_plays_the_next_action(plant: Plant) -> None:
    plant(updates.update, update_with(next_actor="actor"))


@bug("the_target_actor_plays_the_next_action")
def the_stored_action_is_taken_for_the_next_one(plant: Plant) -> None:
    plant(updates.update, update_with(stored_next_action=True))


# Step 6: smoothing


@bug("smoothed_actions_stay_in_the_box", "smoothing_by_hand")
def smoothed_actions_are_not_clamped(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        return next_action + (random.normal(count, size) * noise).clamp(-noise_clip, noise_clip) * action_range.half

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("smoothing_differs_from_row_to_row", "smoothing_by_hand")
def one_noise_serves_the_whole_batch(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        normal = random.normal(count, size)[:, :1]
        blur = (normal * noise).clamp(-noise_clip, noise_clip) * action_range.half
        return (next_action + blur).clamp(action_range.low, action_range.high)

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("smoothing_differs_from_update_to_update")
def one_noise_serves_all_updates(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        normal = torch.randn(1, count, size, generator=torch.Generator().manual_seed(0))
        blur = (normal * noise).clamp(-noise_clip, noise_clip) * action_range.half
        return (next_action + blur).clamp(action_range.low, action_range.high)

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("both_twins_score_the_same_smoothed_action")
def each_critic_gets_noise_of_its_own(plant: Plant) -> None:
    plant(updates.update, update_with(noise_per_critic=True))


@bug("smoothed_actions_stay_in_the_box", "smoothing_by_hand", "smoothing_without_noise_changes_nothing")
def smoothing_clamps_by_the_bounds_of_dimension_0(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        blur = (random.normal(count, size) * noise).clamp(-noise_clip, noise_clip) * action_range.half
        return (next_action + blur).clamp(action_range.low[0], action_range.high[0])

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("smoothing_noise_keeps_to_its_bound_in_each_dimension", "smoothing_by_hand")
def smoothing_noise_is_not_clipped(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        blur = random.normal(count, size) * noise * action_range.half
        return (next_action + blur).clamp(action_range.low, action_range.high)

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("smoothing_noise_keeps_to_its_bound_in_each_dimension", "smoothing_by_hand")
def smoothing_noise_ignores_the_range(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        _, count, size = next_action.shape
        blur = (random.normal(count, size) * noise).clamp(-noise_clip, noise_clip)
        return (next_action + blur).clamp(action_range.low, action_range.high)

    plant(bellman.smooth_target_action, smooth_target_action)


@bug("smoothing_by_hand", "smoothing_differs_from_row_to_row")
def there_is_no_smoothing(plant: Plant) -> None:
    def smooth_target_action(next_action, random, noise, noise_clip, action_range):
        return next_action

    plant(bellman.smooth_target_action, smooth_target_action)


# Steps 7 and 8: scores of the targets


@bug("the_smaller_score_is_kept", "target_scores_by_hand")
def the_mean_of_both_scores_is_taken(plant: Plant) -> None:
    plant(bellman.min_q, lambda q_values: q_values.mean(0))


@bug("the_smaller_score_is_kept", "target_scores_by_hand")
def the_larger_score_is_kept(plant: Plant) -> None:
    plant(bellman.min_q, lambda q_values: q_values.amax(0))


@bug("the_smaller_score_is_kept")
def the_smaller_score_of_the_whole_batch_is_kept(plant: Plant) -> None:
    plant(bellman.min_q, lambda q_values: q_values[q_values.mean((1, 2)).argmin()])


@bug("target_scores_by_hand")
def one_target_critic_speaks_for_both(plant: Plant) -> None:
    def q_values_of_targets(critics_target, next_state, next_action):
        return critics_target(next_state, next_action).detach()[:1].expand(2, -1, -1)

    plant(bellman.q_values_of_targets, q_values_of_targets)


@bug("the_online_critics_have_no_say_in_the_bellman_target")
def the_online_critics_score_the_next_action(plant: Plant) -> None:
    plant(updates.update, update_with(next_critics="critics"))


@bug("no_gradient_passes_through_a_target")
def gradient_passes_through_the_target_critics(plant: Plant) -> None:
    def q_values_of_targets(critics_target, next_state, next_action):
        return critics_target(next_state, next_action)

    plant(bellman.q_values_of_targets, q_values_of_targets)


@bug("no_gradient_passes_through_a_target")
def gradient_passes_through_the_target_actor(plant: Plant) -> None:
    def target_action(actor_target, next_state):
        return actor_target(next_state)

    plant(bellman.target_action, target_action)


# Step 9: the Bellman target


@bug("terminated_rows_do_not_bootstrap", "running_rows_bootstrap_by_gamma")
def the_end_of_the_task_is_forgotten(plant: Plant) -> None:
    def bellman_target(reward, terminated, next_q, gamma):
        return reward + gamma * next_q

    plant(bellman.bellman_target, bellman_target)


@bug("terminated_rows_do_not_bootstrap", "running_rows_bootstrap_by_gamma")
def only_ended_rows_bootstrap(plant: Plant) -> None:
    def bellman_target(reward, terminated, next_q, gamma):
        return reward + gamma * terminated * next_q

    plant(bellman.bellman_target, bellman_target)


@bug("running_rows_bootstrap_by_gamma")
def the_reward_is_discounted_as_well(plant: Plant) -> None:
    def bellman_target(reward, terminated, next_q, gamma):
        return gamma * (reward + (1 - terminated) * next_q)

    plant(bellman.bellman_target, bellman_target)


def finish_with(
    time_out_is_death: bool = False,
    time_out_wins: bool = False,
    keep_reset_observation: bool = False,
    keep_reset_steps: bool = False,
    stay_in_the_old_episode: bool = False,
) -> Callable[..., Any]:
    """The second half of the collector's step, with faults to choose from."""

    def finish(self):
        flat_actions = self._actions
        observations, rewards, terminated, truncated, infos = self.environments.step(flat_actions)
        ended = terminated | truncated
        current = np.array(observations, np.float32)
        next_states = current.copy()
        if self.autoreset == AutoresetMode.SAME_STEP:
            for index in np.flatnonzero(ended):
                next_states[index] = infos["final_obs"][index]
        elif self.autoreset == AutoresetMode.DISABLED and ended.any():
            current = np.array(self.environments.reset(options={"reset_mask": ended})[0])
        if keep_reset_observation:
            next_states = current
        if stay_in_the_old_episode:
            current = next_states
        real = ~self._awaits_reset | keep_reset_steps
        if self.autoreset == AutoresetMode.NEXT_STEP:
            self._awaits_reset = ended
        stored_end = ended if time_out_is_death else terminated & ~truncated if time_out_wins else terminated
        columns = (self.states, flat_actions, next_states, rewards[:, None], stored_end[:, None])
        rows = np.concatenate(columns, axis=1, dtype=np.float32)[real]
        self.states = current
        return rows.reshape(len(self.seeds), -1, rows.shape[1]), self._finished(rewards, ended, real)

    return finish


@bug(
    "a_time_out_is_not_a_termination",
    "every_autoreset_mode_stores_the_same_transitions",
    "a_time_out_bootstraps_from_the_true_last_observation",
)
def a_time_out_is_treated_as_death(plant: Plant) -> None:
    plant.method(collect.Collector, "finish", finish_with(time_out_is_death=True))


@bug(
    "a_time_out_bootstraps_from_the_true_last_observation",
    "a_reset_is_never_stored_as_a_transition",
    "every_autoreset_mode_stores_the_same_transitions",
)
def the_reset_observation_is_stored_as_the_next_state(plant: Plant) -> None:
    plant.method(collect.Collector, "finish", finish_with(keep_reset_observation=True))


@bug(
    "a_reset_is_never_stored_as_a_transition",
    "every_autoreset_mode_stores_the_same_transitions",
    "finished_episodes_are_counted_in_full",
)
def steps_that_only_reset_are_stored(plant: Plant) -> None:
    plant.method(collect.Collector, "finish", finish_with(keep_reset_steps=True))


@bug("an_end_that_is_both_is_a_termination", "every_autoreset_mode_stores_the_same_transitions")
def an_end_that_is_both_is_taken_for_a_time_out(plant: Plant) -> None:
    plant.method(collect.Collector, "finish", finish_with(time_out_wins=True))


@bug("the_next_episode_begins_with_its_reset")
def a_new_episode_begins_where_the_old_one_ended(plant: Plant) -> None:
    plant.method(collect.Collector, "finish", finish_with(stay_in_the_old_episode=True))


@bug("finished_episodes_are_counted_in_full")
def the_last_reward_of_an_episode_is_not_counted(plant: Plant) -> None:
    def _finished(self, rewards, ended, real):
        self._returns[real & ~ended] += rewards[real & ~ended]
        self._lengths[real] += 1
        episodes = []
        for index in np.flatnonzero(ended & real):
            member = int(index) // self.envs_per_member
            episodes.append(collect.Episode(member, float(self._returns[index]), int(self._lengths[index])))
            self._returns[index], self._lengths[index] = 0, 0
        return episodes

    plant.method(collect.Collector, "_finished", _finished)


# The same in a vector environment of the user's own


def finish_tensors_with(
    time_out_is_death: bool = False,
    keep_reset_observation: bool = False,
    keep_reset_steps: bool = False,
    keep_nan: bool = False,
) -> Callable[..., Any]:
    """The second half of the step of a collector of tensors, with faults to choose from."""

    def finish(self):
        step = self.environments.step(self._shaped(self._actions.clone()))
        current, rewards, terminated, truncated, infos = step
        over, next_states = terminated | truncated, current
        if "final_obs" in infos:
            next_states = torch.where(over[:, None], infos["final_obs"], current)
        if self.autoreset == AutoresetMode.DISABLED and over.any():
            current = self._reset(over.numpy())
        if keep_reset_observation:
            next_states = current
        real = ~self._awaits_reset | keep_reset_steps
        columns = (self.states, self._actions, next_states, rewards, over if time_out_is_death else terminated)
        rows = torch.cat([column.reshape(len(over), -1).float() for column in columns], 1)
        if not keep_nan and not rows.isfinite().all():
            self._fail_members(rows.isfinite().all(1))
            rows[~torch.from_numpy(self._active)] = 0
        if self.autoreset == AutoresetMode.NEXT_STEP:
            rows, self._awaits_reset = rows[real], over
        self._returns += torch.where(real, rewards, 0)
        self._lengths += real
        episodes = self._ended(over & real, truncated & ~terminated, infos)
        self.states = current
        return rows.reshape(len(self.seeds), -1, rows.shape[1]), episodes

    return finish


@bug("a_users_vector_environment_stores_the_same_transitions")
def a_time_out_in_tensors_is_treated_as_death(plant: Plant) -> None:
    plant.method(tensor_collect.TensorCollector, "finish", finish_tensors_with(time_out_is_death=True))


@bug("a_users_vector_environment_stores_the_same_transitions")
def the_reset_observation_is_the_next_state_in_tensors(plant: Plant) -> None:
    plant.method(tensor_collect.TensorCollector, "finish", finish_tensors_with(keep_reset_observation=True))


@bug(
    "a_users_vector_environment_stores_the_same_transitions",
    "episodes_of_a_users_vector_environment_are_counted_in_full",
)
def steps_that_only_reset_are_stored_in_tensors(plant: Plant) -> None:
    plant.method(tensor_collect.TensorCollector, "finish", finish_tensors_with(keep_reset_steps=True))


@bug("nan_from_a_users_vector_environment_is_never_stored")
def nan_in_tensors_is_stored(plant: Plant) -> None:
    plant.method(tensor_collect.TensorCollector, "finish", finish_tensors_with(keep_nan=True))


@bug("nan_from_a_users_vector_environment_is_never_stored")
def nan_in_arrays_is_stored(plant: Plant) -> None:
    plant.method(collect.RecoverableEnvironments, "_faults", lambda self, states, rewards: {})


@bug("without_its_final_observation_an_episodes_end_is_refused", raises=pytest.fail.Exception)
def the_reset_observation_stands_in_for_a_missing_last_one(plant: Plant) -> None:
    plant.method(checked_vector.CheckedVectorEnv, "_final", lambda self, infos, ended: self._latest)


@bug("a_reset_of_other_environments_is_refused", raises=pytest.fail.Exception)
def a_reset_may_reach_beyond_its_mask(plant: Plant) -> None:
    plant.method(
        checked_vector.CheckedVectorEnv,
        "_observations",
        lambda self, given, mask: self._vectors(given, "reset()"),
    )


@bug("an_evaluation_in_a_vector_environment_counts_one_episode_each")
def an_evaluation_takes_the_reset_observation_for_the_last(plant: Plant) -> None:
    right = vector_episodes.VectorEpisodes.step_some

    def step_some(self, actions, indices):
        plain = self._environments.step

        def step(given):
            observations, *rest, _ = plain(given)
            return observations, *rest, {"final_obs": observations}

        self._environments.step = step
        try:
            return right(self, actions, indices)
        finally:
            self._environments.step = plain

    plant.method(vector_episodes.VectorEpisodes, "step_some", step_some)


@bug("an_evaluation_in_a_vector_environment_counts_one_episode_each")
def an_evaluation_counts_rewards_after_the_end(plant: Plant) -> None:
    right = vector_episodes.VectorEpisodes.step_some

    def step_some(self, actions, indices):
        return right(self, actions, range(self.num_envs))

    plant.method(vector_episodes.VectorEpisodes, "step_some", step_some)


@bug("a_resumed_vector_environment_begins_new_episodes")
def a_resumed_vector_environment_goes_on_counting_lost_episodes(plant: Plant) -> None:
    right = collect.RecoverableEnvironments.restore

    def restore(self, state):
        lost = right(self, state)
        self._returns, self._lengths = state["returns"].copy(), state["lengths"].copy()
        return lost

    plant.method(collect.RecoverableEnvironments, "restore", restore)


# Step 10: scores of the critics


@bug("each_row_has_one_score_of_each_critic", "the_stored_action_is_scored", raises=TypeCheckError)
def scores_come_as_a_column(plant: Plant) -> None:
    def call(self, state, action):
        return self.network(torch.cat((state, action), -1))

    plant.method(twins.TwinCritics, "__call__", call)


@bug("the_loss_is_the_sum_of_two_mean_squares")
def the_loss_compares_every_row_with_every_other(plant: Plant) -> None:
    def critic_loss(q_values, target_q):
        return (q_values.unsqueeze(-1) - target_q.unsqueeze(-2)).square().mean((-1, -2)).sum(0)

    plant(critic_update.critic_loss, critic_loss)


@bug("wrong_shapes_are_refused")
def the_loss_takes_any_shape(plant: Plant) -> None:
    def critic_loss(q_values, target_q):
        return (q_values - target_q).square().mean(-1).sum(0)

    plant(critic_update.critic_loss, critic_loss)


@bug("wrong_shapes_are_refused")
def the_bellman_target_takes_any_shape(plant: Plant) -> None:
    def bellman_target(reward, terminated, next_q, gamma):
        return reward + gamma * (1 - terminated) * next_q

    plant(bellman.bellman_target, bellman_target)


@bug("each_row_has_one_score_of_each_critic")
def the_critics_look_at_the_batch_as_a_whole(plant: Plant) -> None:
    def q_values_of_critics(critics, state, action):
        return critics(state - state.mean(1, keepdim=True), action)

    plant(critic_update.q_values_of_critics, q_values_of_critics)


@bug("the_stored_action_is_scored")
def the_actors_action_is_scored_instead_of_the_stored_one(plant: Plant) -> None:
    plant(updates.update, update_with(scored="the actor's own"))


# Step 11: the loss


@bug("the_loss_is_the_sum_of_two_mean_squares")
def the_squared_error_is_halved(plant: Plant) -> None:
    plant(critic_update.critic_loss, lambda q_values, target: 0.5 * (q_values - target).square().mean(-1).sum(0))


@bug("the_loss_is_the_sum_of_two_mean_squares")
def the_loss_is_a_mean_over_the_twins(plant: Plant) -> None:
    plant(critic_update.critic_loss, lambda q_values, target: (q_values - target).square().mean(-1).mean(0))


@bug("the_loss_is_the_sum_of_two_mean_squares")
def the_loss_is_a_sum_over_the_batch(plant: Plant) -> None:
    plant(critic_update.critic_loss, lambda q_values, target: (q_values - target).square().sum(-1).sum(0))


@bug("the_loss_is_the_sum_of_two_mean_squares")
def the_error_is_not_squared(plant: Plant) -> None:
    plant(critic_update.critic_loss, lambda q_values, target: (q_values - target).abs().mean(-1).sum(0))


# Step 12: the critics


@bug("an_update_without_its_turn_moves_both_critics_and_nothing_else", "the_critics_take_one_step_downhill_by_hand")
def only_the_first_critic_learns(plant: Plant) -> None:
    def improve_critics_(critics, optimizer, loss):
        (gradient,) = torch.autograd.grad(loss.sum(), critics.parameters)
        gradient[1] = 0
        optimizer.step_(gradient)

    plant(critic_update.improve_critics_, improve_critics_)


@bug("the_critics_take_one_step_downhill_by_hand")
def the_critics_go_uphill(plant: Plant) -> None:
    def improve_critics_(critics, optimizer, loss):
        (gradient,) = torch.autograd.grad(-loss.sum(), critics.parameters)
        optimizer.step_(gradient)

    plant(critic_update.improve_critics_, improve_critics_)


@bug("the_critics_take_one_step_downhill_by_hand", "a_short_run_really_learns")
def the_critics_never_learn(plant: Plant) -> None:
    plant(critic_update.improve_critics_, lambda critics, optimizer, loss: None)


@bug("members_learn_as_if_alone")
def the_step_is_shared_among_the_members(plant: Plant) -> None:
    def improve_critics_(critics, optimizer, loss):
        (gradient,) = torch.autograd.grad(loss.mean(), critics.parameters)
        optimizer.step_(gradient)

    plant(critic_update.improve_critics_, improve_critics_)


@bug("an_update_without_its_turn_moves_both_critics_and_nothing_else")
def the_actor_moves_with_the_critics(plant: Plant) -> None:
    plant(updates.update, update_with(actor_at_every_update=True))


# Step 13: the actor


def improve_actor_by(score: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Step 13, uphill on something else."""

    def improve_actor_(actor, critics, optimizer, state):
        loss = -score(critics, state, actor(state)).mean(-1)
        (gradient,) = torch.autograd.grad(loss.sum(), actor.parameters)
        optimizer.step_(gradient)
        return loss.detach()

    return improve_actor_


@bug("critic_2_has_no_influence_on_the_actor", "the_score_of_critic_1_rises_by_a_small_step")
def the_actor_climbs_the_mean_of_both_critics(plant: Plant) -> None:
    plant(actor_update.improve_actor_, improve_actor_by(lambda critics, s, a: critics(s, a).mean(0)))


@bug("critic_2_has_no_influence_on_the_actor")
def the_actor_climbs_the_smaller_score(plant: Plant) -> None:
    plant(actor_update.improve_actor_, improve_actor_by(lambda critics, s, a: critics(s, a).amin(0)))


@bug("critic_2_has_no_influence_on_the_actor", "critic_1_leads_the_actor")
def the_actor_climbs_critic_2(plant: Plant) -> None:
    plant(actor_update.improve_actor_, improve_actor_by(lambda critics, s, a: critics(s, a)[1]))


@bug("the_score_of_critic_1_rises_by_a_small_step")
def the_actor_goes_downhill(plant: Plant) -> None:
    plant(actor_update.improve_actor_, improve_actor_by(lambda critics, s, a: -critics(s, a)[0]))


@bug("no_gradient_is_made_for_the_frozen_critic")
def gradients_of_the_frozen_critics_are_made_and_thrown_away(plant: Plant) -> None:
    plant.method(twins.TwinCritics, "first_frozen", lambda self, state, action: self(state, action)[0])


@bug("the_actors_turn_leaves_the_critics_alone")
def the_actors_turn_leaves_a_gradient_on_the_critics(plant: Plant) -> None:
    def improve_actor_(actor, critics, optimizer, state):
        loss = -critics(state, actor(state))[0].mean(-1)
        loss.sum().backward()
        optimizer.step_(actor.parameters.grad)
        actor.parameters.grad = None
        return loss.detach()

    plant(actor_update.improve_actor_, improve_actor_)


@bug("the_actors_turn_leaves_the_critics_alone")
def the_critics_climb_with_the_actor(plant: Plant) -> None:
    def improve_actor_(actor, critics, optimizer, state):
        loss = -critics(state, actor(state))[0].mean(-1)
        own, theirs = torch.autograd.grad(loss.sum(), (actor.parameters, critics.parameters))
        optimizer.step_(own)
        critics.parameters.detach().sub_(theirs, alpha=1e-3)
        return loss.detach()

    plant(actor_update.improve_actor_, improve_actor_)


@bug("the_stored_action_has_no_influence_on_the_actor")
def the_actor_imitates_the_stored_actions(plant: Plant) -> None:
    def update(agent, batch, random, settings, move_actor):
        losses = update_with()(agent, batch, random, settings, move_actor)
        slip = (agent.actor(batch.state) - batch.action).square().mean()
        (gradient,) = torch.autograd.grad(slip, agent.actor.parameters)
        agent.actor.parameters.detach().sub_(gradient, alpha=1e-3)
        return losses

    plant(updates.update, update)


# Steps 14 and 15: the targets


@bug(
    "the_actor_and_the_targets_move_only_in_their_turn",
    "an_update_without_its_turn_moves_both_critics_and_nothing_else",
)
def the_targets_move_at_every_update(plant: Plant) -> None:
    plant(updates.update, update_with(targets_at_every_update=True))


@bug("the_actor_and_the_targets_move_only_in_their_turn")
def the_targets_never_move(plant: Plant) -> None:
    plant(updates.update, update_with(targets_never=True))


@bug("the_actor_and_the_targets_move_only_in_their_turn")
def the_first_update_is_already_the_actors_turn(plant: Plant) -> None:
    plant(updates.moves_actor, lambda updates, settings: updates % settings.policy_delay == 0)


@bug("targets_move_by_exactly_tau", "tau_0_holds_the_targets_and_tau_1_copies")
def tau_is_the_share_that_stays(plant: Plant) -> None:
    def polyak_actor_target_(actor_target, actor, tau):
        actor_target.parameters.lerp_(actor.parameters.detach(), 1 - tau)

    plant(polyak.polyak_actor_target_, polyak_actor_target_)


@bug("targets_move_by_exactly_tau", "tau_0_holds_the_targets_and_tau_1_copies")
def the_targets_are_copied_whole(plant: Plant) -> None:
    def polyak_critics_target_(critics_target, critics, tau):
        critics_target.parameters.copy_(critics.parameters.detach())

    plant(polyak.polyak_critics_target_, polyak_critics_target_)


@bug("targets_move_by_exactly_tau", "tau_0_holds_the_targets_and_tau_1_copies")
def the_second_critics_target_is_forgotten(plant: Plant) -> None:
    def polyak_critics_target_(critics_target, critics, tau):
        critics_target.parameters[0].lerp_(critics.parameters.detach()[0], tau)

    plant(polyak.polyak_critics_target_, polyak_critics_target_)


@bug("targets_move_by_exactly_tau")
def the_online_network_is_drawn_to_its_target(plant: Plant) -> None:
    def polyak_actor_target_(actor_target, actor, tau):
        actor.parameters.detach().lerp_(actor_target.parameters, tau)

    plant(polyak.polyak_actor_target_, polyak_actor_target_)


@bug("a_copied_agent_goes_on_bit_for_bit_in_memory_of_its_own")
def targets_of_a_copy_are_reset_to_the_online_networks(plant: Plant) -> None:
    right = agents.Agent.copied

    def copied(self, device="cpu"):
        copy = right(self, device)
        copy.actor_target.parameters.copy_(copy.actor.parameters.detach())
        copy.critics_target.parameters.copy_(copy.critics.parameters.detach())
        return copy

    plant.method(agents.Agent, "copied", copied)


@bug("a_copied_agent_goes_on_bit_for_bit_in_memory_of_its_own")
def a_copy_learns_in_the_memory_of_the_first(plant: Plant) -> None:
    plant.method(agents.Agent, "copied", lambda self, device="cpu": replace(self))


@bug("a_restored_agent_goes_on_bit_for_bit")
def the_targets_are_not_restored(plant: Plant) -> None:
    right = agents.Agent.tensors

    def tensors(self):
        found = right(self)
        return {**found, "actor_target": found["actor"], "critics_target": found["critics"]}

    plant.method(agents.Agent, "tensors", tensors)


@bug("a_restored_agent_goes_on_bit_for_bit")
def the_optimizers_memory_is_not_restored(plant: Plant) -> None:
    right = agents.Agent.tensors

    def tensors(self):
        return {name: tensor for name, tensor in right(self).items() if "optimizer" not in name}

    plant.method(agents.Agent, "tensors", tensors)


@bug("saved_targets_are_the_targets")
def online_networks_are_saved_as_targets(plant: Plant) -> None:
    right = agent_file.network_tensors

    def network_tensors(agent, member):
        both = {name: replace(learner, target=learner.online) for name, learner in agent.learners.items()}
        return right(replace(agent, learners=both), member)

    plant(right, network_tensors)


@bug("saved_targets_are_the_targets")
def the_first_member_is_saved_for_all(plant: Plant) -> None:
    right = agent_file.network_tensors
    plant(right, lambda agent, member: right(agent, 0))


# Acting


@bug("environments_have_exploration_noise_of_their_own")
def every_environment_gets_the_same_noise(plant: Plant) -> None:
    right = collect.Collector._take
    plant.method(
        collect.Collector, "_take", lambda self, purpose: right(self, purpose)[:, :1].repeat(self.envs_per_member, 1)
    )


@bug("environments_have_exploration_noise_of_their_own")
def every_round_gets_the_same_noise(plant: Plant) -> None:
    right = collect.Collector._take

    def _take(self, purpose):
        now, self.round = self.round, 0
        numbers = right(self, purpose)
        self.round = now
        return numbers

    plant.method(collect.Collector, "_take", _take)


def act_with(noise: Callable[..., Any], clip: bool = True) -> Callable[..., Any]:
    """The collector's way of acting, with another noise."""

    def act(self, policy):
        if policy is None:
            return self.low + (self.high - self.low) * self._take("warm-up")
        states = self.states.reshape(len(self.seeds), self.envs_per_member, -1)
        actions = policy(states) + noise(self, self._take("exploration"))
        return np.clip(actions, self.low, self.high) if clip else actions

    return act


@bug("exploration_noise_is_on_by_default", "exploration_noise_is_a_share_of_each_dimensions_half_range")
def actions_are_played_without_noise(plant: Plant) -> None:
    plant.method(collect.Collector, "act", act_with(lambda self, numbers: 0.0))


@bug("exploration_noise_is_on_by_default")
def noise_is_off_unless_asked_for(plant: Plant) -> None:
    right = config.preset_config
    plant(right, lambda name, env, steps: replace(right(name, env, steps), exploration_noise=0.0))


@bug("noise_of_0_plays_the_policy_itself")
def noise_cannot_be_turned_off(plant: Plant) -> None:
    plant.method(collect.Collector, "act", act_with(lambda self, numbers: 0.1 * numbers))


@bug("exploration_noise_is_a_share_of_each_dimensions_half_range")
def exploration_noise_ignores_the_range(plant: Plant) -> None:
    plant.method(collect.Collector, "act", act_with(lambda self, numbers: 0.1 * numbers))


@bug("exploration_noise_is_a_share_of_each_dimensions_half_range")
def exploration_noise_is_a_share_of_dimension_0(plant: Plant) -> None:
    plant.method(
        collect.Collector, "act", act_with(lambda self, numbers: 0.1 * (self.high[0] - self.low[0]) / 2 * numbers)
    )


@bug("exploration_noise_is_a_share_of_each_dimensions_half_range")
def exploration_noise_has_the_whole_range_as_its_unit(plant: Plant) -> None:
    plant.method(collect.Collector, "act", act_with(lambda self, numbers: 0.1 * (self.high - self.low) * numbers))


@bug("exploring_actions_stay_in_the_box")
def exploring_actions_are_not_clipped(plant: Plant) -> None:
    noise = act_with(lambda self, numbers: (self.high - self.low) / 2 * numbers, clip=False)
    plant.method(collect.Collector, "act", noise)


@bug("warm_up_actions_fill_the_whole_box")
def warm_up_actions_keep_to_the_middle(plant: Plant) -> None:
    right = collect.Collector.act

    def act(self, policy):
        middle = (self.low + self.high) / 2
        return right(self, policy) if policy else middle + (right(self, None) - middle) / 2

    plant.method(collect.Collector, "act", act)


@bug("warm_up_actions_fill_the_whole_box")
def warm_up_actions_are_alike_in_all_dimensions(plant: Plant) -> None:
    right = collect.Collector._take
    plant.method(collect.Collector, "_take", lambda self, purpose: right(self, purpose)[..., :1].repeat(2, -1))


@bug("evaluation_plays_the_policy_itself", "evaluation_repeats_exactly")
def evaluation_is_noisy(plant: Plant) -> None:
    right, generator = evaluate.Evaluator.__call__, np.random.default_rng(0)

    class Noisy(policy.Policy):
        def __init__(self, quiet):
            self.quiet, self.low, self.high = quiet, quiet.low, quiet.high

        def __call__(self, states):
            actions = self.quiet(states)
            return actions + 0.1 * generator.standard_normal(actions.shape, np.float32)

    plant.method(evaluate.Evaluator, "__call__", lambda self, quiet: right(self, Noisy(quiet)))


@bug("evaluation_repeats_exactly")
def every_evaluation_plays_other_episodes(plant: Plant) -> None:
    right, seeds = evaluate.Evaluator.__call__, itertools.count()

    def call(self, policy):
        self._seeds = [[next(seeds) for _ in member] for member in self._seeds]
        return right(self, policy)

    plant.method(evaluate.Evaluator, "__call__", call)


@bug("evaluation_repeats_exactly")
def all_episodes_of_an_evaluation_are_the_same(plant: Plant) -> None:
    right = evaluate.Evaluator.__call__

    def call(self, policy):
        self._seeds = [[0 for _ in member] for member in self._seeds]
        return right(self, policy)

    plant.method(evaluate.Evaluator, "__call__", call)


@bug(
    "training_and_evaluation_share_no_environment_and_no_seed",
    "how_often_one_evaluates_changes_nothing_that_is_learned",
)
def evaluation_runs_on_the_training_environments(plant: Plant) -> None:
    right = training.Trainer.__init__

    def initialize(self, *arguments, **named):
        right(self, *arguments, **named)
        self.evaluator.environments = self.collector.environments

    plant.method(training.Trainer, "__init__", initialize)


# A run, and its settings


@bug("a_short_run_really_learns", "the_files_of_a_run_show_its_updates")
def no_update_is_ever_run(plant: Plant) -> None:
    right = training.schedule.updates_due_for_steps
    plant(right, lambda settings, steps, updates: [0 for _ in right(settings, steps, updates)])


@bug("a_run_that_would_never_update_says_so")
def a_run_that_never_updates_says_nothing(plant: Plant) -> None:
    plant.method(config.TrainConfig, "warnings", lambda self: [])


@bug("learning_rates_go_to_their_own_networks")
def the_learning_rates_are_exchanged(plant: Plant) -> None:
    right = agents.Agent.create.__func__

    def create(cls, task, settings, *others, **named):
        actor, critic = settings.actor_learning_rate, settings.critic_learning_rate
        exchanged = replace(settings, actor_learning_rate=critic, critic_learning_rate=actor)
        return right(cls, task, exchanged, *others, **named)

    plant.method(agents.Agent, "create", classmethod(create))


def setting_is_lost(name: str) -> Fault:
    """A setting that never reaches the learner: whatever is given, the same value is used."""

    def plant_it(plant: Plant) -> None:
        if name == "buffer_size":
            right_memory = buffers.make_replay_buffer
            plant(
                right_memory,
                lambda members, capacity, *sizes, **named: right_memory(members, 1_000, *sizes, **named),
            )
            return
        right = training.Trainer.__init__

        def initialize(self, run, *others, **named):
            same_for_all = replace(run.td3, **{name: getattr(SETTINGS, name)})
            right(self, replace(run, td3=same_for_all), *others, **named)

        plant.method(training.Trainer, "__init__", initialize)

    return plant_it


for _field in fields(config.TD3Config):
    BUGS[f"the_setting_{_field.name}_is_lost"] = PlantedBug(
        setting_is_lost(_field.name), (f"the_setting_{_field.name}_reaches_the_learner",)
    )


FROZEN = "a_frozen_member_keeps_its_transitions_and_the_statistics_of_its_observations"


@bug(FROZEN)
def zeros_take_the_place_of_what_a_frozen_member_stored(plant: Plant) -> None:
    plant.method(buffers.ReplayBuffer, "_without_frozen", lambda self, rows: rows)


@bug(FROZEN)
def a_frozen_member_counts_the_zeros_that_follow(plant: Plant) -> None:
    right = normalizers.Normalizer.observe_
    plant.method(normalizers.Normalizer, "observe_", lambda self, states, active=None: right(self, states))
