"""The linear-quadratic regulator: the best policy is known exactly, and the actor finds it."""

import numpy as np
import pytest

from learning.probes import Learnt, LinearQuadratic

GAMMA = 0.8


def test_the_riccati_gain_is_the_best_of_all_gains():
    """Checked against discounted costs of rolled-out episodes, so that the yardstick itself is measured."""

    def cost(gain):
        states, total = np.array([[1.0, -0.5, 0.3], [0.2, 0.8, -1.0]]), 0.0
        for step in range(200):
            action = -gain @ states
            running = np.einsum("is,ij,js->s", states, LinearQuadratic.state_cost, states)
            total += GAMMA**step * (running + LinearQuadratic.action_cost * action**2).sum()
            states = LinearQuadratic.dynamics @ states + LinearQuadratic.push * action
        return total

    best = LinearQuadratic.riccati_gain(GAMMA)
    for change in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.05), (0.0, -0.05)):
        assert cost(best + change) > cost(best)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    settings = {"steps": 4_000, "gamma": GAMMA, "hidden_sizes": (128, 128), "batch_size": 256}
    return Learnt(LinearQuadratic, tmp_path_factory.mktemp("linear_quadratic"), **settings)


def test_the_learned_gain_is_the_riccati_gain(learned):
    """Within 5 %; other seeds came within 1 to 3 %."""
    states = np.random.default_rng(0).uniform(-1, 1, (2_000, 2)).astype(np.float32)
    gain = np.linalg.lstsq(states, -learned.actions(states)[:, 0], rcond=None)[0]
    best = LinearQuadratic.riccati_gain(GAMMA)
    assert np.linalg.norm(gain - best) <= 0.05 * np.linalg.norm(best)
    assert np.abs(states @ best).max() < LinearQuadratic.high[0]
