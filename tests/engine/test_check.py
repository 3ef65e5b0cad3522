"""A recorded update that differs from eager execution is found while the run goes on, and the run continues eagerly."""

import importlib
import warnings
from dataclasses import replace

import pytest
import torch

import td3
from td3.algorithm.agent import Agent, Task
from td3.algorithm.replacing import replacements_of
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.update import update as right_update
from td3.config import TrainConfig
from td3.engine import Engine, check, make_engine, updates
from td3.engine.recording import Recording
from td3.errors import ConfigError
from td3.settings import TD3Config

SETTINGS = TD3Config(hidden_sizes=(8, 8), batch_size=4, buffer_size=100)


@pytest.fixture(autouse=True)
def comparisons_may_take_any_time(monkeypatch):
    monkeypatch.setattr(check, "SHARE", float("inf"))


def learners(seeds=(5,), settings=SETTINGS):
    agent = Agent.create(Task(3, [-1.0], [1.0]), settings, seeds)
    buffer = make_replay_buffer(len(seeds), 100, 3, 1)
    buffer.add_(torch.randn(len(seeds), 100, 9, generator=torch.Generator().manual_seed(1)))
    return agent, buffer


def plant(monkeypatch, at):
    """From this count of updates on, an update discounts more: a branch that a recording does not have."""

    def planted(agent, batch, random, settings, move_actor):
        if agent.updates[0] >= at:
            settings = replace(settings, gamma=0.5)
        return right_update(agent, batch, random, settings, move_actor)

    monkeypatch.setattr(importlib.import_module("td3.algorithm.update"), "update", planted)


def tensors_of(agent):
    return {name: tensor.clone() for name, tensor in agent.tensors().items()}


def equal(some, others):
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


@pytest.mark.parametrize(("every", "at"), [(100, 70), pytest.param(10_000, 7_000, marks=pytest.mark.long)])
def test_a_branch_on_the_update_count_is_caught_and_the_rest_is_executed_eagerly(monkeypatch, every, at):
    monkeypatch.setattr(check, "EVERY", every)
    plant(monkeypatch, at)
    agent, buffer = learners()
    engine = Engine(agent, buffer, [5], SETTINGS, "recorded")
    assert engine.description.startswith(
        "Updates are recorded, replayed, and compared with eager execution now, after "
    )
    said = []
    engine.on_warning = said.append
    engine.update([every + 1])
    assert said == []
    engine.update([1])
    (sentence,) = said
    assert sentence.startswith(f"at update {every + 2:,}, updates by recordings differ from eager execution by ")
    assert "The run continues with eager execution" in sentence
    assert engine.description == "Updates are executed eagerly."
    copy, rows = agent.copied(), buffer
    plain = Engine(copy, rows, [5], SETTINGS, "eager")
    plain.seek()
    for one in (engine, plain):
        one.update([20])
    assert equal(agent.tensors(), copy.tensors())
    assert said == [sentence]


def test_state_of_a_replaced_step_that_only_later_updates_will_read_is_compared(monkeypatch):
    monkeypatch.setattr(check, "EVERY", 20)
    calls = []

    @td3.replace_step(11, state={"calls": 1})
    def counted(q_values, target_q, original, step_state):
        calls.append(1)
        step_state["calls"].fill_(len(calls))  # a recording repeats the number of its first call
        return original(q_values, target_q)

    spec = Task(3, [-1.0], [1.0]), SETTINGS
    agent = Agent.create(*spec, [5], replacements=replacements_of([counted]), capacity=100)
    engine, said = Engine(agent, learners()[1], [5], SETTINGS, "recorded"), []
    engine.on_warning = said.append
    engine.update([22])
    assert "updates by recordings differ from eager execution" in said[0]


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([float("nan"), float("inf")], [float("nan"), float("inf")], 0.0),  # state may begin so
        ([3.0, 4.0], [3.0, 5.0], 1 / 34**0.5),
        ([float("inf"), 3.0], [float("inf"), 4.0], 0.25),
        ([float("nan"), 4.0], [3.0, 4.0], float("inf")),
        ([1.0, 4.0], [float("-inf"), 4.0], float("inf")),
    ],
)
def test_a_difference_counts_what_is_not_finite_on_one_side_alone(one, other, apart):
    assert check._apart(torch.tensor(one), torch.tensor(other)) == pytest.approx(apart)


@pytest.mark.parametrize("delay", [1, 2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_several_members_and_delays_are_compared(monkeypatch, delay, threads):
    monkeypatch.setattr(check, "EVERY", 40)
    plant(monkeypatch, at=30)
    settings, seeds = replace(SETTINGS, policy_delay=delay), (5, 6)
    agent, buffer = learners(seeds, settings)
    engine = Engine(agent, buffer, seeds, settings, "recorded", threads=threads)
    said = []
    engine.on_warning = said.append
    for _ in range(60):
        engine.update([1, 1])
    assert len(said) == 1
    assert "updates by recordings differ from eager execution" in said[0]
    assert agent.updates.tolist() == [60, 60]
    engine.close()


def test_comparing_changes_no_number_of_the_run(monkeypatch):
    results, compared, real = [], [], check.difference
    monkeypatch.setattr(check, "difference", lambda *agents: compared.append(real(*agents)) or compared[-1])
    for every in (10, 10**9):
        monkeypatch.setattr(check, "EVERY", every)
        agent, buffer = learners()
        engine = Engine(agent, buffer, [5], SETTINGS, "recorded")
        for number in range(45):
            engine.set_learning_rates(1e-3 / (1 + number), 2e-3 / (1 + number))
            engine.store(torch.randn(1, 1, 9, generator=torch.Generator().manual_seed(number)).numpy())
            engine.update([1])
        assert compared == [0.0] * 4  # all of them in the first run
        results.append((tensors_of(agent), engine.mean_losses([45])))
    assert equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def test_the_next_comparison_waits_until_its_share_of_the_time_has_passed(monkeypatch):
    monkeypatch.setattr(check, "EVERY", 20)
    monkeypatch.setattr(check, "SHARE", 0.005)
    now, compared = [100.0], []
    monkeypatch.setattr(check.time, "monotonic", lambda: now[0])

    def difference(one, other):
        compared.append(int(one.updates[0]))
        now[0] += 1.0  # so long did the comparison take
        return 0.0

    monkeypatch.setattr(check, "difference", difference)
    agent, buffer = learners()
    engine = Engine(agent, buffer, [5], SETTINGS, "recorded")
    engine.update([60])
    assert compared == [22]
    now[0] += 199.0
    engine.update([10])
    assert compared == [22]
    now[0] += 1.0
    engine.update([10])
    assert compared == [22, 72]


def test_the_first_comparison_comes_sooner(monkeypatch):
    monkeypatch.setattr(check, "FIRST", 20)
    monkeypatch.setattr(check, "EVERY", 60)
    monkeypatch.setattr(check, "SHARE", float("inf"))
    compared = []
    monkeypatch.setattr(check, "difference", lambda one, other: compared.append(int(one.updates[0])) or 0.0)
    engine = Engine(*learners(), [5], SETTINGS, "recorded")
    engine.update([130])
    assert compared == [22, 62, 122]


def test_after_a_resume_the_next_comparison_is_at_the_same_count(monkeypatch):
    monkeypatch.setattr(check, "EVERY", 20)
    agent, buffer = learners()
    engine = Engine(agent, buffer, [5], SETTINGS, "recorded")
    agent.updates[:] = 25
    engine.seek()
    compared = []
    monkeypatch.setattr(check, "difference", lambda one, other: compared.append(int(one.updates[0])) or 0.0)
    engine.update([40])
    assert compared == [42, 62]


def test_graphs_are_compared_within_their_tolerance(monkeypatch):
    """On a CPU the graph engine has nothing to replay: here a CPU's recording stands for a CUDA graph."""
    monkeypatch.setattr(check, "EVERY", 20)
    monkeypatch.setattr(updates, "Captured", lambda work, device, prepare=None: Recording(work))
    plant(monkeypatch, at=15)
    agent, buffer = learners((5, 6))
    engine = Engine(agent, buffer, (5, 6), SETTINGS, "graph")
    assert engine.description.startswith("Updates are recorded as CUDA graphs")
    engine.update([21, 21])
    with pytest.warns(UserWarning, match="at update 22, updates by CUDA graphs differ from eager execution"):
        engine.update([1, 1])
    assert engine.description == "Updates are executed eagerly."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.update([30, 30])
    loose = Engine(*learners((5, 6)), (5, 6), SETTINGS, "graph", tolerance=1e9)
    loose.update([60, 60])
    assert loose.description.startswith("Updates are recorded")


def test_a_run_that_is_caught_goes_on_to_its_end_with_a_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(check, "EVERY", 40)
    plant(monkeypatch, at=30)
    settings = {"hidden_sizes": (8, 8), "batch_size": 4, "learning_starts": 10}
    options = {"eval_every": 0, "eval_episodes": 1, "device": "cpu", "threads": 1, "workers": "none"}
    with pytest.warns(UserWarning, match="at update 42, updates by recordings differ from eager execution"):
        run = td3.train("Rail-v0", steps=100, out=tmp_path / "run", **settings, **options)
    assert run.agent(0, "last").facts["updates"] == 90


def config_of(**fields):
    return TrainConfig("Rail-v0", device="cpu", td3=SETTINGS, **fields)


@pytest.mark.parametrize(
    ("engine", "starts"), [("auto", "Updates are rec"), ("recorded", "Updates are rec"), ("eager", "Updates are ex")]
)
def test_the_engine_is_the_one_that_was_asked_for(engine, starts):
    agent, buffer = learners((0,))
    made = make_engine(agent, buffer, config_of(engine=engine), 1)
    assert made.description.startswith(starts)
    made.close()


def test_an_engine_that_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match="engine graph needs a GPU, but device is cpu: use --engine auto or eager"):
        config_of(engine="graph")
    with pytest.raises(ConfigError, match="engine recorded needs a CPU, but device is cuda"):
        TrainConfig("Rail-v0", device="cuda", engine="recorded")
    with pytest.raises(ConfigError, match="engine must be one of auto, eager, recorded, graph, but 'fast' was given"):
        TrainConfig("Rail-v0", engine="fast")
    with pytest.raises(ConfigError, match="engine graph was asked for, but this run is on a CPU: use --engine auto"):
        make_engine(*learners(), TrainConfig("Rail-v0", engine="graph", td3=SETTINGS), 1)


def test_a_linear_schedule_falls_to_zero_over_the_run():
    settings = TD3Config(actor_learning_rate=1e-3, critic_learning_rate=2e-3, learning_rate_schedule="linear")
    assert settings.learning_rates(0.0) == (1e-3, 2e-3)
    assert settings.learning_rates(0.75) == (2.5e-4, 5e-4)
    assert settings.learning_rates(1.0) == (0.0, 0.0)
    assert TD3Config().learning_rates(0.75) == (3e-4, 3e-4)
