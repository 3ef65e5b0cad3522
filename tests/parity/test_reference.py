"""The package's update against a textbook TD3 in float64: the same weights, batches and noise give the same numbers."""

import pytest
import torch
from reference.td3_float64 import PlainBatch, PlainTD3

from parity.script import (
    ACTION_RANGES,
    EVERY_PAIR,
    PRESETS,
    STATE_SIZE,
    Script,
    ScriptedStreams,
    copy_weights_,
    largest_difference,
    make_agent,
    named_layers,
    named_linears,
    one_by_default,
)
from td3.engine import update_once

# Two hundred updates were seen to differ by 2e-14 at most: rounding, and room for another order of summation.
TOLERANCE = 1e-10


class SideBySide:
    """Our agent and the reference, born equal, following one script."""

    def __init__(self, preset: str, range_name: str, updates: int) -> None:
        self.settings, (low, high) = PRESETS[preset], ACTION_RANGES[range_name]
        self.script = Script(updates, self.settings, low, high)
        self.agent = make_agent(self.settings, low, high, torch.float64)
        self.buffer, self.streams = self.script.buffer(torch.float64), ScriptedStreams(self.script, torch.float64)
        self.plain = PlainTD3(
            STATE_SIZE,
            low,
            high,
            self.settings.hidden_sizes,
            self.settings.actor_learning_rate,
            self.settings.critic_learning_rate,
            self.settings.optimizer,
            self.settings.gamma,
            self.settings.tau,
            self.settings.policy_delay,
            self.settings.target_policy_noise,
            self.settings.target_noise_clip,
        )
        copy_weights_(self.plain.networks(), self.agent)

    def update(self) -> None:
        """One update of each; their losses agree."""
        script, number = self.script, self.plain.updates
        rows = script.rows[number]
        columns = (script.state, script.action, script.reward, script.next_state, script.terminated)
        expected = self.plain.update(PlainBatch(*(column[rows] for column in columns)), script.noise[number])
        losses = update_once(self.agent, self.buffer, self.streams, self.settings)
        assert losses.critic.item() == pytest.approx(expected.critic, abs=TOLERANCE)
        assert losses.mean_q.item() == pytest.approx(expected.mean_q, abs=TOLERANCE)
        assert (losses.actor is None) == (expected.actor is None)
        if losses.actor is not None:
            assert losses.actor.item() == pytest.approx(expected.actor, abs=TOLERANCE)

    def difference(self) -> float:
        """The largest, over six networks and both optimizers' moments."""
        plain = named_linears(self.plain.networks(), (self.plain.actor_optimizer, self.plain.critic_optimizer))
        return largest_difference(named_layers(self.agent), plain)


@pytest.mark.parametrize(("preset", "action_range"), EVERY_PAIR)
def test_the_first_two_updates_equal_the_reference(preset, action_range):
    both = SideBySide(preset, action_range, updates=2)
    born = named_layers(both.agent)

    both.update()
    first = named_layers(both.agent)
    moved = {name for name in first if not torch.equal(born[name], first[name])}
    assert moved == {name for name in first if name.startswith(("critic_1", "critic_2"))}
    assert both.difference() <= TOLERANCE

    both.update()
    second = named_layers(both.agent)
    assert all(not torch.equal(born[name], second[name]) for name in second)
    assert both.difference() <= TOLERANCE


@pytest.mark.parametrize(("preset", "action_range"), one_by_default(0))
def test_200_updates_equal_the_reference(preset, action_range):
    both = SideBySide(preset, action_range, updates=200)
    for _ in range(200):
        both.update()
    assert both.agent.updates.tolist() == [200]
    assert both.difference() <= TOLERANCE


@pytest.mark.parametrize("action_range", ACTION_RANGES)
def test_the_script_takes_every_branch_of_an_update(action_range):
    settings, (low, high) = PRESETS["author"], ACTION_RANGES[action_range]
    script, agent = Script(1, settings, low, high), make_agent(settings, low, high, torch.float64)
    rows = script.rows[0]
    blur = settings.target_policy_noise * script.noise[0]
    assert (blur > settings.target_noise_clip).any()
    assert (blur < -settings.target_noise_clip).any()
    half = agent.actor.action_range.half
    next_state = script.next_state[rows].unsqueeze(0)
    blurred = agent.actor_target(next_state)[0] + blur.clamp(-0.5, 0.5) * half
    above, below = blurred > agent.actor.action_range.high, blurred < agent.actor.action_range.low
    assert above.any()
    assert below.any()
    assert (above | below).any(0).all()
    q_values = agent.critics_target(next_state, blurred.clamp(*map(torch.tensor, (low, high))).unsqueeze(0))
    assert 0.05 < (q_values[0] < q_values[1]).double().mean() < 0.95
    assert 0 < script.terminated[rows].sum() < len(rows)
