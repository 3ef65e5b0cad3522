"""The update rule of each rung, on numbers worked by hand; discount, termination and truncation."""

import inspect
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from td3_lessons.ladder import (
    rung_1_q_learning,
    rung_2_deep_q_learning,
    rung_3_policy_gradient,
    rung_4_actor_critic,
    rung_5_ddpg,
    rung_6_td3,
)
from td3_lessons.ladder.climb import MODULES, NUMBERS, make_task, rung_module
from td3_lessons.ladder.common import Transition, network, stack

S = np.array([0.4, -0.2], np.float32)
NEXT = np.array([0.7, 0.1], np.float32)


def learner(module, **changes):
    settings = replace(module.Settings(), **changes)
    number = MODULES.index(module.__name__.rpartition(".")[2]) + 1
    return module.Learner(make_task(number), 0, settings)


def step(action, reward=-2.0, terminated=False, truncated=False):
    return Transition(S, action, NEXT, reward, terminated, truncated)


def constant(layers, *values):
    """Let a network say these numbers whatever it is shown."""
    last = layers[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(values))


def outputs(layers, inputs):
    with torch.no_grad():
        return layers(torch.as_tensor(inputs)).clone()


class TestQLearning:
    def test_the_table_starts_at_zero_with_a_row_per_cell_and_five_forces(self):
        q = learner(rung_1_q_learning, cells=11).q
        assert q.shape == (121, 5)
        assert not q.any()

    @pytest.mark.parametrize(
        ("terminated", "truncated", "expected"),
        [(False, False, 1.292), (False, True, 1.292), (True, False, 0.5)],
        ids=["goes on", "a time-out goes on", "an end has no future"],
    )
    def test_the_td_rule(self, terminated, truncated, expected):
        one = learner(rung_1_q_learning, alpha=0.1, gamma=0.99)
        here, there = one.cell(np.stack((S, NEXT)))
        assert here != there
        one.q[here] = (0, 0, 0, 0.8, 0)
        one.q[there] = (1, 8, -3, 2, 0)
        one.learn(step(3, -2.2, terminated, truncated))
        # TD = -2.2 + 0.99 * 8 - 0.8 = 4.92 and Q = 0.8 + 0.492; after an end TD = -2.2 - 0.8 = -3 and Q = 0.8 - 0.3
        assert one.q[here, 3] == pytest.approx(expected)
        assert np.count_nonzero(one.q[here]) == 1

    def test_the_policy_is_the_highest_number_of_the_cell(self):
        one = learner(rung_1_q_learning)
        one.q[one.cell(S[None])[0]] = (-3, -1, -2, -1.5, -9)
        assert one.policy(S[None]).tolist() == [1]
        assert one.value(S[None]).tolist() == [-1]

    def test_equal_numbers_are_drawn_among(self):
        one = learner(rung_1_q_learning, exploration=0.0)
        assert {int(one.act(S)) for _ in range(100)} == {0, 1, 2, 3, 4}

    def test_every_state_of_the_rail_has_a_cell_and_neighbors_share_it(self):
        one = learner(rung_1_q_learning, cells=10)
        corners = np.array([[-2, -2], [2, 2], [1.99, 1.99], [-2, 2]], np.float32)
        assert one.cell(corners).tolist() == [0, 99, 99, 90]


class TestDeepQLearning:
    @pytest.mark.parametrize(
        ("terminated", "truncated", "goal"), [(False, False, 1.96), (False, True, 1.96), (True, False, -2.0)]
    )
    def test_the_gradient_is_that_of_half_the_sum_of_squared_td_errors(self, terminated, truncated, goal, monkeypatch):
        one = learner(rung_2_deep_q_learning, batch_size=3)
        constant(one.q, 1.0, 4.0, 0.5, -2.0, 3.0)
        losses = []
        monkeypatch.setattr(rung_2_deep_q_learning, "descend", lambda optimizer, loss: losses.append(loss))
        one.learn(step(np.int64(2), -2.0, terminated, truncated))
        # goal = -2 + 0.99 * 4 = 1.96, or -2 after an end; Q(s, 2) = 0.5; the one step is drawn three times
        assert losses[0].item() == pytest.approx(0.5 * 3 * (goal - 0.5) ** 2)
        (gradient,) = torch.autograd.grad(losses[0], one.q[-1].bias)
        assert gradient.tolist() == pytest.approx([0, 0, -3 * (goal - 0.5), 0, 0], abs=1e-5)

    def test_learning_moves_q_towards_the_goal(self):
        one = learner(rung_2_deep_q_learning)
        constant(one.q, 1.0, 4.0, 0.5, -2.0, 3.0)
        before = outputs(one.q, S)
        one.learn(step(np.int64(2)))
        assert outputs(one.q, S)[2] > before[2]

    def test_the_memory_keeps_the_newest(self):
        one = learner(rung_2_deep_q_learning, buffer_size=3)
        for reward in range(5):
            one.learn(step(np.int64(0), float(reward)))
        assert [row.reward for row in one.buffer] == [2, 3, 4]

    def test_act_is_greedy_but_for_the_exploration(self):
        one = learner(rung_2_deep_q_learning, exploration=0.5)
        constant(one.q, 1.0, 4.0, 0.5, -2.0, 3.0)
        actions = [int(one.act(S)) for _ in range(400)]
        assert 0.5 < actions.count(1) / 400 < 0.7
        assert set(actions) == {0, 1, 2, 3, 4}


class TestPolicyGradient:
    @pytest.mark.parametrize("ending", ["terminated", "truncated"])
    def test_the_gradient_is_return_times_grad_log_probability(self, ending, monkeypatch):
        one = learner(rung_3_policy_gradient, gamma=0.5, exploration_noise=0.5)
        constant(one.actor.network, 0.0)  # the middle of the policy is 0
        losses = []
        monkeypatch.setattr(rung_3_policy_gradient, "descend", lambda optimizer, loss: losses.append(loss))
        one.learn(step(np.array([0.5]), 1.0))
        one.learn(step(np.array([-1.0]), 2.0))
        assert losses == []
        one.learn(step(np.array([0.25]), 4.0, **{ending: True}))
        # R = 1 + 0.5 * 4, 2 + 0.5 * 4, 4 = 3, 4, 4, whatever ended the episode; log pi = -(a / 0.5)^2 / 2
        assert losses[0].item() == pytest.approx(3 * 0.5 + 4 * 2 + 4 * 0.125)
        (gradient,) = torch.autograd.grad(losses[0], one.actor.network[-1].bias)
        # d log pi / d mean = a / 0.25, and tanh has slope 1 at 0; the sign is that of descent on -J
        assert gradient.item() == pytest.approx(-(3 * 2 + 4 * -4 + 4 * 1))

    def test_an_episode_is_used_once(self):
        one = learner(rung_3_policy_gradient)
        one.learn(step(np.array([0.5]), 1.0, terminated=True))
        assert one.episode == []

    def test_what_was_followed_by_a_high_return_becomes_more_likely(self):
        one = learner(rung_3_policy_gradient)
        before = one.policy(S[None])[0, 0]
        one.learn(step(np.array([before + 0.3]), 10.0, terminated=True))
        assert one.policy(S[None])[0, 0] > before

    def test_draws_have_the_width_of_the_policy(self):
        one = learner(rung_3_policy_gradient, exploration_noise=0.3)
        draws = np.array([one.act(S)[0] for _ in range(2000)])
        assert draws.mean() == pytest.approx(one.policy(S[None])[0, 0], abs=0.03)
        assert draws.std() == pytest.approx(0.3, abs=0.02)

    def test_it_keeps_no_values(self):
        assert learner(rung_3_policy_gradient).value(S[None]) is None


class TestActorCritic:
    @pytest.mark.parametrize(
        ("terminated", "truncated", "surprise"), [(False, False, -2.03), (False, True, -2.03), (True, False, -5.0)]
    )
    def test_critic_and_actor_learn_from_the_surprise(self, terminated, truncated, surprise, monkeypatch):
        one = learner(rung_4_actor_critic, batch_size=1, exploration_noise=0.5)
        constant(one.critic, 3.0)
        constant(one.actor.network, 0.0)
        losses = []
        monkeypatch.setattr(rung_4_actor_critic, "descend", lambda optimizer, loss: losses.append(loss))
        one.learn(step(np.array([0.5]), -2.0, terminated, truncated))
        # y - V = -2 + 0.99 * 3 - 3 = -2.03, or -2 - 3 after an end
        assert losses[0].item() == pytest.approx(0.5 * surprise**2)
        (gradient,) = torch.autograd.grad(losses[0], one.critic[-1].bias)
        assert gradient.item() == pytest.approx(-surprise)
        (uphill,) = torch.autograd.grad(losses[1], one.actor.network[-1].bias)
        assert uphill.item() == pytest.approx(-surprise * 2)  # d log pi / d mean = 0.5 / 0.25

    def test_it_need_not_wait_for_the_end_of_an_episode(self):
        one = learner(rung_4_actor_critic, batch_size=2)
        weights = [weight.clone() for weight in one.critic.parameters()]
        one.learn(step(np.array([0.5])))
        assert all(map(torch.equal, weights, one.critic.parameters()))
        one.learn(step(np.array([0.5])))
        assert not all(map(torch.equal, weights, one.critic.parameters()))
        assert one.latest == []

    def test_the_critic_is_no_business_of_the_actors_step(self):
        one = learner(rung_4_actor_critic, batch_size=1, critic_learning_rate=0.0)
        weights = [weight.clone() for weight in one.critic.parameters()]
        one.learn(step(np.array([0.5])))
        assert all(map(torch.equal, weights, one.critic.parameters()))


class TestDDPG:
    @pytest.mark.parametrize(
        ("terminated", "truncated", "goal"), [(False, False, 2.95), (False, True, 2.95), (True, False, -2.0)]
    )
    def test_the_critic_learns_from_the_targets(self, terminated, truncated, goal, monkeypatch):
        one = learner(rung_5_ddpg, batch_size=4, learning_starts=1)
        constant(one.critic_target, 5.0)
        constant(one.critic, 1.0)
        losses = []
        monkeypatch.setattr(rung_5_ddpg, "descend", lambda optimizer, loss: losses.append(loss))
        one.learn(step(np.array([0.5]), -2.0, terminated, truncated))
        # y = -2 + 0.99 * 5 = 2.95, or -2 after an end; Q = 1; the mean over four equal rows
        assert losses[0].item() == pytest.approx((goal - 1) ** 2, rel=1e-5)
        (gradient,) = torch.autograd.grad(losses[0], one.critic[-1].bias)
        assert gradient.item() == pytest.approx(-2 * (goal - 1), rel=1e-5)
        assert losses[1].item() == pytest.approx(-1)

    def test_the_actor_goes_up_the_critics_slope(self):
        one = learner(rung_5_ddpg, batch_size=1, learning_starts=1, critic_learning_rate=0.0)
        with torch.no_grad():  # Q(s, a) = relu(a + 2) + 0 ... : rises with the action
            for layer in (one.critic[0], one.critic[2], one.critic[4]):
                layer.weight.zero_()
                layer.bias.zero_()
            one.critic[0].weight[0, 2] = one.critic[2].weight[0, 0] = one.critic[4].weight[0, 0] = 1.0
            one.critic[0].bias[0] = 2.0
        before = one.policy(S[None])[0, 0]
        assert one.value(S[None])[0] == pytest.approx(before + 2, abs=1e-5)
        one.learn(step(np.array([0.5])))
        assert one.policy(S[None])[0, 0] > before

    def test_the_targets_follow_by_the_share_tau(self):
        one = learner(rung_5_ddpg, batch_size=2, learning_starts=1, tau=0.25)
        old = [weight.clone() for weight in (*one.actor_target.parameters(), *one.critic_target.parameters())]
        one.learn(step(np.array([0.5])))
        new = [*one.actor_target.parameters(), *one.critic_target.parameters()]
        online = [*one.actor.parameters(), *one.critic.parameters()]
        for before, after, now in zip(old, new, online, strict=True):
            assert torch.allclose(after, 0.75 * before + 0.25 * now, atol=1e-7)

    def test_at_first_any_action_then_the_actors_with_noise_inside_the_range(self):
        one = learner(rung_5_ddpg, learning_starts=2, exploration_noise=0.2, batch_size=1)
        first = np.array([one.act(S)[0] for _ in range(500)])
        assert first.min() < -0.9
        assert first.max() > 0.9
        one.learn(step(np.array([0.5])))
        one.learn(step(np.array([0.5])))
        then = np.array([one.act(S)[0] for _ in range(500)])
        assert then.std() == pytest.approx(0.2, abs=0.03)
        assert np.abs(then).max() <= 1


class TestTD3:
    def test_an_update_is_the_algorithms_own(self, monkeypatch):
        calls = []
        monkeypatch.setattr(rung_6_td3, "update_once", lambda *given: calls.append(given))
        one = learner(rung_6_td3, learning_starts=2)
        one.learn(step(np.array([0.5])))
        assert calls == []
        one.learn(step(np.array([0.5])))
        assert calls == [(one.agent, one.buffer, one.streams, one.settings)]
        assert inspect.unwrap(rung_module(6).make_replay_buffer).__module__.startswith("td3.algorithm")

    @pytest.mark.parametrize(("terminated", "truncated", "stored"), [(False, True, 0.0), (True, False, 1.0)])
    def test_only_a_true_end_is_stored_as_one(self, terminated, truncated, stored):
        one = learner(rung_6_td3)
        one.learn(step(np.array([0.5]), -2.0, terminated, truncated))
        row = one.buffer.gather(torch.zeros(1, 1, dtype=torch.int64))
        assert row.terminated.item() == stored
        assert row.reward.item() == -2
        assert row.state[0, 0].numpy() == pytest.approx(S)
        assert row.action[0, 0].numpy() == pytest.approx(0.5)
        assert row.next_state[0, 0].numpy() == pytest.approx(NEXT)

    def test_the_settings_are_td3s_with_this_rungs_numbers(self):
        settings = rung_6_td3.Settings()
        assert (settings.policy_delay, settings.target_policy_noise, settings.target_noise_clip) == (2, 0.2, 0.5)
        below = rung_5_ddpg.Settings()
        for name in ("steps", "gamma", "tau", "batch_size", "buffer_size", "learning_starts", "exploration_noise"):
            assert getattr(settings, name) == getattr(below, name)
        for name in ("actor_learning_rate", "critic_learning_rate"):
            assert getattr(settings, name) == getattr(below, name)

    def test_the_value_is_critic_ones(self):
        one = learner(rung_6_td3)
        state = torch.as_tensor(S)[None, None]
        expected = one.agent.critics(state, one.agent.actor(state))[0, 0, 0].item()
        assert one.value(S[None])[0] == pytest.approx(expected)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_loop_is_the_same_letter_for_letter(number):
    assert inspect.getsource(rung_module(number).train) == inspect.getsource(rung_module(1).train)


class Corridor(gym.Env):
    """Three steps and an end; what kind of end is told."""

    def __init__(self, ending="terminated"):
        self.observation_space, self.action_space = Box(-2, 2, (2,)), Box(-1, 1, (1,))
        self.ending = ending

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return np.array([self.place / 10, 0], np.float32), {}

    def step(self, action):
        self.place += 1
        end = self.place == 3
        observation = np.array([self.place / 10, 0], np.float32)
        return (
            observation,
            float(self.place),
            end and self.ending == "terminated",
            end and self.ending != "terminated",
            {},
        )


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("number", NUMBERS)
def test_the_loop_hands_on_the_true_last_state_and_starts_anew(number, ending, monkeypatch):
    gym.register("Corridor-v0", entry_point=Corridor, kwargs={"ending": ending})
    module = rung_module(number)
    seen = []
    monkeypatch.setattr(module.Learner, "learn", lambda self, step: seen.append(step))
    task = make_task(number, "Corridor-v0")
    module.train(task, 0, replace(module.Settings(), steps=7), lambda *_: None)
    del gym.registry["Corridor-v0"]
    places = [(round(float(s.state[0]), 1), round(float(s.next_state[0]), 1)) for s in seen]
    assert places == [(0.0, 0.1), (0.1, 0.2), (0.2, 0.3)] * 2 + [(0.0, 0.1)]
    assert [s.terminated for s in seen] == [place[1] == 0.3 and ending == "terminated" for place in places]
    assert [s.truncated for s in seen] == [place[1] == 0.3 and ending == "truncated" for place in places]
    assert [s.reward for s in seen[:3]] == [1, 2, 3]


def test_a_batch_has_float_columns_and_whole_numbers_of_actions():
    batch = stack([step(np.int64(2)), step(np.int64(4), terminated=True)])
    assert batch.state.dtype == batch.reward.dtype == batch.terminated.dtype == torch.float32
    assert (batch.action.dtype, batch.action.tolist()) == (torch.int64, [2, 4])
    assert batch.terminated.tolist() == [0, 1]
    assert stack([step(np.array([0.5]))]).action.dtype == torch.float32


def test_a_network_follows_from_its_seed_and_leaves_the_global_stream_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, same, other = network(2, 1, (3, 0)), network(2, 1, (3, 0)), network(2, 1, (3, 1))
    assert torch.rand(1) == expected
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not torch.equal(one[0].weight, other[0].weight)
