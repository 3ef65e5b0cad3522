"""Training in the page: every change of TD3 gives the networks that PyTorch gives, and the effect that is claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from td3.algorithm import Agent, make_replay_memory
from td3.explain.breaks import RACES, broken_update
from td3.explain.page import read
from td3.explain.rail_run import SETTINGS

CHANGES = ["", *RACES]
UPDATES = 100


class Given:
    """The rows and the noise that the page drew."""

    def __init__(self, drawn):
        self.left = list(drawn)

    def rows(self, filled, count):
        self.now = self.left.pop(0)
        return torch.tensor(self.now["rows"])[None]

    def normal(self, count, size):
        return torch.tensor(self.now["normal"], dtype=torch.float64)[None, :, None]


@pytest.fixture(scope="module")
def blank(chromium):
    tab = chromium.new_context().new_page()
    tab.add_script_tag(content=read("train.js"))
    return tab


TRAIN = """([setup, changes, seed, updates]) => {
    const T = makeTrainer(setup, changes, seed), list = (v) => Array.from(v), drawn = [];
    const copy = () => { const n = T.networks(); return { actor: list(n.actor), critics: n.critics.map(list),
        actorTarget: list(n.actorTarget), targets: n.targets.map(list) }; };
    const before = copy();
    for (let u = 0; u < updates; u++) { T.step(); drawn.push(T.drawn()); }
    const { rows, late } = T.buffer();
    return { before, after: copy(), drawn, rows: list(rows), late: list(late) };
}"""


def setup(settings=SETTINGS):
    names = ("batch_size", "memory_size", "random_steps", "exploration_noise", "gamma", "tau", "policy_delay")
    names += ("target_noise", "target_noise_clip", "actor_learning_rate", "critic_learning_rate")
    starts = np.random.default_rng(0).uniform((-1.6, -0.8), (1.6, 0.8), (64, 2)).ravel().tolist()
    return {
        "sizes": {"actor": [2, *settings.hidden_sizes, 1], "critic": [3, *settings.hidden_sizes, 1]},
        "settings": {name: getattr(settings, name) for name in names},
        "starts": starts,
    }


@pytest.mark.parametrize("change", CHANGES)
def test_a_hundred_updates_in_the_page_equal_pytorchs(blank, change):
    # Short episodes at the start of training hold few time-outs and falls: more of both, so that every change matters.
    settings = replace(SETTINGS, batch_size=64)
    made = blank.evaluate(TRAIN, [setup(settings), [change] if change else [], 5, UPDATES])
    rows = torch.tensor(made["rows"], dtype=torch.float64).reshape(1, -1, 7)
    memory = make_replay_memory(1, rows.shape[1], 2, 1, dtype=torch.float64)
    memory.add_(rows)
    rates = settings.actor_learning_rate, settings.critic_learning_rate
    agent = Agent.create([0], 2, [-1.0], [1.0], settings.hidden_sizes, *rates, dtype=torch.float64)
    with torch.no_grad():
        for network, name in ((agent.actor, "actor"), (agent.actor_target, "actor")):
            network.parameters.copy_(torch.tensor(made["before"][name], dtype=torch.float64)[None])
        for network in (agent.critics, agent.critics_target):
            network.parameters.copy_(torch.tensor(made["before"]["critics"], dtype=torch.float64)[:, None])
    random, late = Given(made["drawn"]), torch.tensor(made["late"], dtype=torch.float64)
    for _ in range(UPDATES):
        broken_update(agent, memory, random, settings, change, late)
    after = made["after"]
    pairs = [
        (agent.actor.parameters[0], after["actor"]),
        (agent.actor_target.parameters[0], after["actorTarget"]),
        (agent.critics.parameters[:, 0], after["critics"]),
        (agent.critics_target.parameters[:, 0], after["targets"]),
    ]
    for ours, theirs in pairs:
        assert np.abs(ours.detach().numpy() - np.array(theirs)).max() < 1e-4
