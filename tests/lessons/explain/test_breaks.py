"""Training in the page: every change of TD3 gives the networks that PyTorch gives, and the effect that is claimed."""

import numpy as np
import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.statistics import compare
from td3_lessons.explain.breaks import MEASURES, RACE_UPDATES, RACES, broken_update, race_setup
from td3_lessons.explain.evidence import EVERY_UPDATES, races, verdicts
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


def test_every_change_is_recorded_with_thirty_seeds_to_the_end():
    assert set(races()) == {"td3", *RACES}
    for run in races().values():
        assert set(run) == {*MEASURES, "earned"}
        assert all(values.shape == (30, RACE_UPDATES // EVERY_UPDATES + 1) for values in run.values())


@pytest.mark.parametrize("name", RACES)
def test_a_verdict_is_what_the_statistics_of_the_project_say_of_the_recorded_seeds(name):
    ours, theirs = (races()[run]["return"][:, -2:].mean(1) for run in (name, "td3"))
    made, row = compare(ours, theirs, 0.1 * abs(theirs.mean())), verdicts()[name]
    assert (row["verdict"], row["seeds"]) == (made.verdict, 30)
    assert row["difference"] == pytest.approx([made.difference, made.low, made.high], rel=1e-3)
    assert (row["verdict"] == "worse") == (made.high < 0)


@pytest.mark.parametrize("name", ["ddpg", "first", "mean", "max", "notargets", "hardcopy", "nodeath", "broadcast"])
def test_a_change_shows_by_its_own_measure_where_the_return_does_not_decide(name):
    low, high = verdicts()[name]["apart"]
    assert low > 0 or high < 0


def test_most_changes_are_undecided_on_rail_and_the_page_says_so(open_tab, page_file):
    tab = open_tab(page_file)
    for name, row in verdicts().items():
        tab.show(f"step=8&t=1&race={name}")
        said = tab.page.locator("#race-says").inner_text()
        assert f"“{RACES[name].label}” {row['said']}." in said
        assert f"{row['seeds']} recorded seeds each" in said
        for body in row["bodies"]:
            assert body in said
    tab.context.close()


def test_what_is_recorded_is_what_the_page_trains(blank):
    made = blank.evaluate(
        """([setup, changes, seed, updates]) => {
            const T = makeTrainer(setup, changes, seed);
            for (let u = 0; u < updates; u++) T.step();
            return T.measure();
        }""",
        [{**race_setup(SETTINGS), "starts": lesson_trace().arrays["starts"].ravel().tolist()}, ["max"], 1, 500],
    )
    wanted = {measure: values[0, 1] for measure, values in races()["max"].items()}
    assert made["return"] == pytest.approx(wanted["return"], rel=0.02)
    assert made["q"] == pytest.approx(wanted["q"], abs=0.02)
    assert wanted["gap"] == pytest.approx(wanted["q"] - wanted["earned"], abs=0.05)


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
