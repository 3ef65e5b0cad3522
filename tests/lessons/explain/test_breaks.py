"""Training in the page: every change of TD3 gives the networks that PyTorch gives, and the effect that is claimed."""

import json

import numpy as np
import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3_lessons.explain.breaks import RACES, broken_update, race_setup
from td3_lessons.explain.page import read
from td3_lessons.explain.rail_run import SETTINGS
from td3_lessons.explain.trace import lesson_trace

CHANGES = ["", *RACES]
UPDATES = 100


class EnvSpec:
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
    starts = np.random.default_rng(0).uniform((-1.6, -0.8), (1.6, 0.8), (64, 2)).ravel().tolist()
    return {**race_setup(settings), "starts": starts}


@pytest.mark.parametrize("change", CHANGES)
def test_a_hundred_updates_in_the_page_equal_pytorchs(blank, change):
    settings = SETTINGS
    made = blank.evaluate(TRAIN, [setup(settings), [change] if change else [], 5, UPDATES])
    rows = torch.tensor(made["rows"], dtype=torch.float64).reshape(1, -1, 7)
    buffer = make_replay_buffer(1, rows.shape[1], 2, 1, dtype=torch.float64)
    buffer.add_(rows)
    agent = Agent.create(Task(2, [-1.0], [1.0]), settings, [0], dtype=torch.float64)
    with torch.no_grad():
        for network, name in ((agent.actor, "actor"), (agent.actor_target, "actor")):
            network.parameters.copy_(torch.tensor(made["before"][name], dtype=torch.float64)[None])
        for network in (agent.critics, agent.critics_target):
            network.parameters.copy_(torch.tensor(made["before"]["critics"], dtype=torch.float64)[:, None])
    random, late = EnvSpec(made["drawn"]), torch.tensor(made["late"], dtype=torch.float64)
    for _ in range(UPDATES):
        broken_update(agent, buffer, random, settings, change, late)
    after = made["after"]
    pairs = [
        (agent.actor.parameters[0], after["actor"]),
        (agent.actor_target.parameters[0], after["actorTarget"]),
        (agent.critics.parameters[:, 0], after["critics"]),
        (agent.critics_target.parameters[:, 0], after["targets"]),
    ]
    for ours, theirs in pairs:
        assert np.abs(ours.detach().numpy() - np.array(theirs)).max() < 1e-4


RECORDED = json.loads(read("race.json"))


def at_the_end(name, measure):
    """Mean of the last 1,000 updates, over the seeds."""
    return np.mean([[moment[measure] for moment in run[-4:]] for run in RECORDED[name]])


def test_every_change_is_recorded_with_three_seeds_and_5000_updates():
    assert set(RECORDED) == {"td3", *RACES}
    for runs in RECORDED.values():
        assert len(runs) == 3
        assert all([moment["update"] for moment in run] == list(range(0, 5001, 250)) for run in runs)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("first", 2),
        ("mean", 2),
        ("max", 4),
        ("notargets", 10),
        ("hardcopy", 10),
        ("nodelay", 1.5),
        ("nosmooth", 1.2),
        ("timeout", 2),
        ("broadcast", 10),
        ("nodeath", 1.3),
    ],
)
def test_every_change_is_visibly_worse_by_its_own_measure(name, factor):
    measure = RACES[name].measure
    assert abs(at_the_end(name, measure)) > factor * abs(at_the_end("td3", measure))


def test_the_unchanged_run_learns():
    assert at_the_end("td3", "return") > -8
    assert abs(at_the_end("td3", "gap")) < 3


def test_what_is_recorded_is_what_the_page_trains(blank):
    made = blank.evaluate(
        """([setup, changes, seed, updates]) => {
            const T = makeTrainer(setup, changes, seed);
            for (let u = 0; u < updates; u++) T.step();
            return T.measure();
        }""",
        [{**race_setup(), "starts": lesson_trace().arrays["starts"].ravel().tolist()}, ["max"], 1, 250],
    )
    wanted = RECORDED["max"][0][1]
    assert made["update"] == wanted["update"] == 250
    assert made["return"] == pytest.approx(wanted["return"], rel=0.02)
    assert made["q"] == pytest.approx(wanted["gap"] + made["earned"], abs=0.05)


def test_a_race_runs_in_the_page_and_can_be_stopped(open_tab, page_file):
    tab = open_tab(page_file)
    tab.show("step=8&t=1&race=mean")
    assert "mean instead of minimum" in tab.page.locator("#race-says").inner_text()
    assert tab.page.locator("#race-state").inner_text().startswith("recorded")
    tab.page.locator("#race-go").click()
    tab.page.wait_for_function("() => (explain.race.live.mean || []).some((run) => run.length > 1)", timeout=60_000)
    assert "training in this page" in tab.page.locator("#race-state").inner_text()
    tab.page.locator("#race-go").click()
    assert tab.evaluate("() => explain.race.running") is False
    assert [line for line in tab.said if line] == []
    tab.context.close()
