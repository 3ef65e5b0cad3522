"""Vector environments of the user's own: the same transitions as single environments, and a sentence for bad ones."""

import json
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RescaleAction
from scripted import HIGH, LOW, SMALL, SMALL_OPTIONS, FormulaPolicy, Scripted, linear_policy
from vectors import ScriptedVector, TensorVector, endless_vector, scripted_vector

import td3
from td3.algorithm.streams import derive_seed
from td3.cli import main
from td3.collect.collector import Collector
from td3.collect.tensor_collector import TensorCollector
from td3.engine import Engine
from td3.engine.exchange import StagedExchange
from td3.environments import InProcessVectorEnv
from td3.environments.vector import RESTARTS, VectorSource, check_vector, vector_source_named
from td3.errors import ConfigError, EnvironmentFault, RunError
from td3.evaluate import Evaluator

MODES = list(AutoresetMode)
SHORT = {**SMALL, "steps": 48, "eval_every": 24, "envs": 4}
ACTION, STATE, NEXT_STATE = slice(3, 5), slice(0, 3), slice(5, 8)


@pytest.fixture
def tensors_stay(monkeypatch):
    """On a CPU too, where tensors would be taken as arrays."""
    monkeypatch.setattr("td3.training.parts.stays_on_device", lambda vector, buffer: vector.device is not None)


def collector_of(given, seeds=(0,), as_tensors=False, noise=0.2):
    environments = VectorSource(given).make(given.num_envs, 0)
    check_vector(environments)
    environments.as_tensors = as_tensors
    kind = TensorCollector if as_tensors else Collector
    return kind(environments, list(seeds), LOW, HIGH, noise)


def collected(collector, rounds, policy=None):
    rows, episodes = [], []
    for _ in range(rounds):
        new_rows, new_episodes = collector.step(collector.act(policy))
        rows.append(np.asarray(new_rows))
        episodes += new_episodes
    return np.concatenate(rows, 1), episodes


def in_process(count, seed, make=Scripted):
    """The same environments in the usual collector, with the same seeds, running on from episode to episode."""
    row = InProcessVectorEnv([make() for _ in range(count)])
    row.seeds_episodes = False
    collector = Collector(row, [seed], LOW, HIGH, 0.2)
    first = derive_seed(seed, "environment 0", 0) % 2**31
    collector.states = row.reset(seed=[first + i for i in range(count)])[0]
    return collector


def by_environment(rows):
    found = {}
    for row in rows:
        found.setdefault(row[0], []).append(row.tolist())
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["arrays", "tensors", "gymnasium"])
def test_every_mode_gives_the_transitions_of_the_same_single_environments(mode, kind):
    vector = {
        "arrays": lambda: ScriptedVector(3, mode),
        "tensors": lambda: TensorVector(3, mode),
        "gymnasium": lambda: IntegerSeeds([Scripted] * 3, autoreset_mode=mode),
    }[kind]()
    single = in_process(3, 0)
    single._noise_scale *= 0
    expected = by_environment(collected(single, 60, FormulaPolicy())[0][0])
    rows = by_environment(collected(collector_of(vector, noise=0.0), 90, FormulaPolicy())[0][0])
    assert {seed: each[:60] for seed, each in rows.items()} == expected


class IntegerSeeds(SyncVectorEnv):
    """Environment i has the seed + i, as in `ScriptedVector`."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed[0] if isinstance(seed, list) else seed, options=options)


def test_gymnasiums_own_take_a_seed_for_each_environment():
    collector = collector_of(SyncVectorEnv([Scripted] * 4, autoreset_mode=AutoresetMode.SAME_STEP), seeds=(3, 4))
    expected = [derive_seed(seed, f"environment {i}", 0) % 2**31 % 1_000_003 for seed in (3, 4) for i in (0, 1)]
    assert collector.states[:, 0].tolist() == expected


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("policy", [None, FormulaPolicy()], ids=["warm-up", "exploration"])
def test_rows_and_episodes_equal_those_of_the_in_process_collector_bit_for_bit(mode, policy):
    expected = collected(in_process(3, 0), 80, policy)
    for kind in (ScriptedVector, TensorVector):
        rows, episodes = collected(collector_of(kind(3, mode)), 80, policy)
        np.testing.assert_array_equal(rows, expected[0])
        assert episodes == expected[1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [(True, False), (False, True), (True, True)], ids=["terminated", "truncated", "both"])
def test_tensors_make_the_rows_that_arrays_make(mode, limit):
    make = partial(ScriptedVector, 4, mode, lengths=(3, 4), endings=(limit,))
    expected = collected(collector_of(make()), 50)
    tensors = TensorVector(4, mode, lengths=(3, 4), endings=(limit,))
    rows, episodes = collected(collector_of(tensors, as_tensors=True), 50, None)
    np.testing.assert_array_equal(rows, expected[0])
    assert episodes == expected[1]
    assert {episode.timed_out for episode in episodes} == {limit == (False, True)}
    assert rows[..., 9].any() == limit[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_the_next_state_of_an_episodes_end_is_its_last_observation(mode, as_tensors):
    kind = TensorVector if as_tensors else ScriptedVector
    (rows,), _ = collected(collector_of(kind(2, mode), as_tensors=as_tensors), 60)
    assert (rows[:, NEXT_STATE][:, :2] == rows[:, STATE][:, :2]).all()  # of the same episode
    assert (rows[:, NEXT_STATE][:, 2] > np.floor(rows[:, STATE][:, 2])).all()  # and later in it


def test_several_seeds_divide_the_environments_among_them():
    rows, episodes = collected(collector_of(ScriptedVector(6), seeds=(3, 4, 5)), 40)
    assert rows.shape == (3, 80, 10)
    groups = [set(member[:, 0]) for member in rows]
    assert [len(group) for group in groups] == [2, 2, 2]
    assert len(set.union(*groups)) == 6
    assert {episode.member for episode in episodes} == {0, 1, 2}


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_nan_freezes_the_seed_whose_environment_gave_it_and_stores_nothing_of_it(as_tensors, mode):
    class Broken(TensorVector if as_tensors else ScriptedVector):
        def step(self, actions):
            observations, *rest = super().step(actions)
            if self.envs[0].total_steps > 9:
                observations[1] = float("nan")
            return observations, *rest

    collector = collector_of(Broken(4, mode), seeds=(0, 1), as_tensors=as_tensors)
    rows, episodes = collected(collector, 40)
    assert np.isfinite(rows).all()
    assert set(collector.failed) == {0}
    assert "NaN or infinity" in collector.failed[0]
    stored = rows[0].any(1)
    assert 0 < stored.sum() < 20
    assert not stored[stored.sum() :].any()
    assert rows[1].any(1).all()
    assert {episode.member for episode in episodes[-5:]} == {1}


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_nan_in_the_only_seed_ends_with_a_sentence(as_tensors):
    kind = TensorVector if as_tensors else ScriptedVector
    for fault in ("reward", "observation"):
        collector = collector_of(kind(2, fault=fault, fault_at=8), as_tensors=as_tensors)
        with pytest.raises(EnvironmentFault, match="an environment gave NaN or infinity in an observation"):
            collected(collector, 20)


def broken(**changes):
    """A vector environment whose step or reset gives something else."""

    class Broken(ScriptedVector):
        def reset(self, *, seed=None, options=None):
            first = super().reset(seed=seed, options=options)
            return changes["reset"](first) if "reset" in changes and (options or "always" in changes) else first

        def step(self, actions):
            result = list(super().step(actions))
            return changes["step"](result) if "step" in changes else tuple(result)

    vector = Broken(3, changes.get("mode", AutoresetMode.SAME_STEP))
    for name in ("single_action_space", "single_observation_space", "action_space", "metadata"):
        setattr(vector, name, changes.get(name, getattr(vector, name)))
    return vector


def replaced(place, change):
    return lambda result: (*result[:place], change(result[place]), *result[place + 1 :])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (broken(single_action_space=Discrete(3)), "has Discrete actions, and TD3 needs continuous ones"),
        (broken(action_space=Box(-1, 1, (3, 5))), r"action_space of shape \(3, 5\), which is not that of 3 environ"),
        (broken(single_observation_space=Box(-1, 1, (4,))), r"of shape \(3, 3\), but 3 .* have the shape \(3, 4\)"),
        (broken(step=replaced(0, lambda o: o[:2])), r"step\(\) gave observations of shape \(2, 3\), but 3 environment"),
        (broken(step=replaced(0, lambda o: o.astype(str))), "gave observations of type .*: return numbers"),
        (broken(step=replaced(1, lambda r: r[:, None])), r"gave rewards of shape \(3, 1\) .* one for each of its 3"),
        (broken(step=replaced(2, lambda t: t.astype(float))), "gave terminated of shape .* type float64.* True or Fal"),
        (broken(step=lambda result: result[:4]), r"must return \(observations, rewards, terminated, truncated, infos"),
        (
            broken(step=lambda result: 1 / 0),
            r"step\(\) failed with ZeroDivisionError: division by zero \(test_vector.py, line \d+\): fix",
        ),
        (broken(reset=lambda first: first[0], always=True), r"reset\(\) must return \(observations, infos\)"),
        (broken(metadata={}), "has the autoreset_mode None in its metadata.*set metadata"),
        (broken(step=replaced(4, lambda infos: {})), r"gave no infos\['final_obs'\] for it"),
        (
            broken(mode=AutoresetMode.DISABLED, reset=lambda first: (first[0] + 1, {})),
            r"reset\(options=\{'reset_mask': ...\}\) changed environments outside the mask",
        ),
    ],
)
def test_a_bad_vector_environment_gets_a_sentence(given, sentence):
    with pytest.raises(EnvironmentFault, match=sentence) as raised:
        collected(collector_of(given), 30)
    assert str(raised.value).count(". ") == 0


def test_a_final_observation_that_is_missing_for_one_episode_is_noticed():
    class Forgetful(ScriptedVector):
        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, infos | {"_final_obs": np.zeros(self.num_envs, bool)}

    with pytest.raises(EnvironmentFault, match=r"gave no infos\['final_obs'\] for it"):
        collected(collector_of(Forgetful(2)), 30)


def test_a_reset_may_give_only_the_observations_of_the_mask():
    class Short(ScriptedVector):
        def reset(self, *, seed=None, options=None):
            observations, infos = super().reset(seed=seed, options=options)
            return observations[options["reset_mask"]] if options else observations, infos

    expected = collected(collector_of(ScriptedVector(3, AutoresetMode.DISABLED)), 40)[0]
    np.testing.assert_array_equal(collected(collector_of(Short(3, AutoresetMode.DISABLED)), 40)[0], expected)


def test_final_observations_may_have_the_older_name():
    class Older(ScriptedVector):
        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, {"final_observation": infos["final_obs"]} if infos else {}

    expected = collected(collector_of(ScriptedVector(3)), 40)[0]
    np.testing.assert_array_equal(collected(collector_of(Older(3)), 40)[0], expected)


def test_numbers_in_infos_without_masks_reach_the_episodes():
    class Told(ScriptedVector):
        def step(self, actions):
            *result, _ = super().step(actions)
            numbers = torch.arange(self.num_envs) + 0.5
            return *result, {"share": numbers, "env_id": np.arange(self.num_envs), "players": {"env_id": numbers}}

    _, episodes = collected(collector_of(Told(3, AutoresetMode.DISABLED)), 40)
    assert {tuple(episode.info.items()) for episode in episodes} == {
        (("share", i + 0.5), ("env_id", float(i))) for i in range(3)
    }


def test_gymnasiums_wrappers_may_be_around_it():
    vector = RescaleAction(ScriptedVector(3), np.float32(LOW), np.float32(HIGH))  # to the bounds that it has
    expected = collected(collector_of(ScriptedVector(3)), 40)[0]
    np.testing.assert_allclose(collected(collector_of(vector), 40)[0], expected, rtol=1e-5)


class Images(ScriptedVector):
    """The time of the episode as the brightness of an image."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.single_observation_space = Box(0, 255, (20, 20, 3), np.uint8)
        self.observation_space = Box(0, 255, (num_envs, 20, 20, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        return self.images(super().reset(seed=seed, options=options)[0]), {}

    def step(self, actions):
        self.single_observation_space = Box(-9, 9, (3,), np.float32)  # of the numbers that are drawn
        observations, *rest, infos = super().step(actions)
        infos = {name: self.images(np.nan_to_num(array)) for name, array in infos.items()}
        return self.images(observations), *rest, infos

    def images(self, observations):
        return np.broadcast_to(
            observations[:, 2].astype(np.uint8)[:, None, None, None], (self.num_envs, 20, 20, 3)
        ).copy()


def test_images_can_be_learned_from(tmp_path):
    run = td3.train(Images, out=tmp_path / "run", **{**SMALL, "steps": 30, "envs": 2, "eval_every": 0})
    assert td3.load(run.path).act(np.zeros((20, 20, 3), np.uint8)).shape == (2,)


def test_normalized_observations_are_the_same_in_tensors(tmp_path, tensors_stay):
    arrays, tensors = (
        td3.train(kind, out=tmp_path / kind.__name__, normalize_observations=True, **SHORT)
        for kind in (ScriptedVector, TensorVector)
    )
    assert agent_bytes(arrays) == agent_bytes(tensors)


@pytest.mark.parametrize("kind", [ScriptedVector, TensorVector])
def test_a_step_in_which_all_environments_only_reset_stores_nothing(kind, tmp_path, tensors_stay):
    make = partial(kind, mode=AutoresetMode.NEXT_STEP, lengths=(5,), endings=((False, True),))
    run = td3.train(make, out=tmp_path / "run", normalize_observations=True, **SHORT)
    status = json.loads((run.path / "status.json").read_text())
    assert (status["status"], status["env_steps"]) == ("finished", 48)
    assert np.isfinite(td3.load(run.path, which="last").act([0.0, 0.0, 0.0])).all()


def test_a_seed_whose_environment_gives_nan_is_frozen_and_the_run_goes_on(tmp_path):
    class Broken(ScriptedVector):
        def step(self, actions):
            observations, *rest = super().step(actions)
            if self.envs[0].total_steps > 12 and self.num_envs == 4:  # in training
                observations[3] = np.nan
            return observations, *rest

    with pytest.warns(UserWarning, match="seed 1 is frozen, and the other seeds go on: an environment gave NaN"):
        run = td3.train(Broken, out=tmp_path / "run", **{**SHORT, "seeds": 2, "envs": 2, "eval_episodes": 1})
    assert list(run.frozen) == [1]
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
    with pytest.warns(UserWarning, match="unfinished episodes were lost"):
        again = td3.resume(run.path, steps=64, env=Broken)
    assert list(again.frozen) == [1]


def test_an_environment_that_reuses_its_arrays_changes_nothing():
    class Reusing(ScriptedVector):
        def step(self, actions):
            _, rewards, terminated, truncated, infos = super().step(actions)
            actions *= 0
            return self.shown, rewards, terminated, truncated, infos

    expected = collected(collector_of(ScriptedVector(3)), 40)[0]
    np.testing.assert_array_equal(collected(collector_of(Reusing(3)), 40)[0], expected)


@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_plays_single_episodes_whatever_the_mode(mode):
    policy = linear_policy()
    source = VectorSource(partial(ScriptedVector, mode=mode))
    evaluator = Evaluator(source, [7], 3)
    found = evaluator(policy)
    evaluator.close()
    first = derive_seed(7, "evaluation", 0) % 2**31
    for episode in range(3):
        environment = Scripted()
        state, _ = environment.reset(seed=first + episode)
        total, steps, over = 0.0, 0, False
        while not over:
            action = np.clip(policy(state[None, None])[0, 0], np.float32(LOW), np.float32(HIGH))
            state, reward, terminated, truncated, _ = environment.step(action)
            total, steps, over = total + reward, steps + 1, terminated or truncated
        assert found.returns[0, episode] == pytest.approx(total)
        assert found.lengths[0, episode] == steps
        np.testing.assert_array_equal(found.visits[0, episode, -3:], state)


def agent_bytes(run, seed=0):
    return (run.folder(seed) / "last" / "agent.safetensors").read_bytes()


def test_arrays_and_tensors_and_a_function_and_an_instance_train_the_same_agent(tmp_path, request):
    make = partial(ScriptedVector, mode=AutoresetMode.DISABLED)
    function = td3.train(make, out=tmp_path / "function", **SHORT, seeds=2)
    tensors = partial(TensorVector, mode=AutoresetMode.DISABLED)
    converted = td3.train(tensors, out=tmp_path / "converted", **SHORT, seeds=2)
    request.getfixturevalue("tensors_stay")
    kept = td3.train(tensors, out=tmp_path / "kept", **SHORT, seeds=2)
    settings = {name: value for name, value in SHORT.items() if name != "envs"}
    instance = td3.train(make(8), out=tmp_path / "instance", seeds=2, eval_env=make, **settings)
    assert instance.config.envs == 4
    for seed in (0, 1):
        agents = {agent_bytes(run, seed) for run in (function, converted, kept, instance)}
        assert len(agents) == 1
        np.testing.assert_array_equal(function.evaluations(seed)[1], instance.evaluations(seed)[1])


@pytest.mark.parametrize("mode", MODES)
def test_a_run_trains_in_every_mode_and_says_what_resume_cannot_promise(mode, tmp_path):
    run = td3.train(partial(ScriptedVector, mode=mode), out=tmp_path / "run", **SHORT)
    status = json.loads((run.path / "status.json").read_text())
    assert status["status"] == "finished"
    assert status["env_steps"] >= 48
    assert status["resume"] == RESTARTS
    assert np.isfinite(run.evaluations(0)[1]).all()


def test_a_resumed_run_begins_new_episodes_and_says_so(tmp_path):
    run = td3.train(endless_vector, out=tmp_path / "run", **SHORT)
    with pytest.warns(UserWarning, match="whose state is not in checkpoints: 4 unfinished episodes were lost"):
        td3.resume(run.path, steps=96, env=endless_vector)
    assert json.loads((run.path / "status.json").read_text())["env_steps"] == 96
    assert td3.load(run.path).act([0.0, 0.0, 0.0]).shape == (2,)


def test_an_instance_alone_is_not_evaluated_and_stays_open(tmp_path):
    said = []

    class Listening(td3.Callback):
        def on_info(self, trainer, text):
            said.append(text)

    vector = ScriptedVector(4)
    settings = {name: value for name, value in SHORT.items() if name != "envs"}
    run = td3.train(vector, out=tmp_path / "run", callbacks=[Listening()], **settings)
    assert any("Nothing is evaluated" in text for text in said)
    assert RESTARTS in said
    assert not vector.closed
    with pytest.raises(RunError, match="has no best agent, because it evaluated nothing: use the last one"):
        td3.load(run.path)
    assert td3.load(run.path, which="last").act([0.0, 0.0, 0.0]).shape == (2,)
    with pytest.warns(UserWarning, match="unfinished episodes were lost"):
        td3.resume(run.path, steps=72, env=vector)


def test_masks_are_no_numbers_of_an_info():
    class Telling(ScriptedVector):
        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, {**infos, "is_success": np.array([1, 0]), "_is_success": np.ones(2, bool)}

    collector, episodes = collector_of(Telling(2, AutoresetMode.DISABLED)), []
    for _ in range(40):
        collector.begin(collector.act(None))
        episodes += collector.finish()[1]
    assert {tuple(episode.info.items()) for episode in episodes} == {(("is_success", 1.0),), (("is_success", 0.0),)}


def test_a_named_environment_may_be_the_evaluations(tmp_path):
    run = td3.train(scripted_vector, eval_env="Scripted-v0", out=tmp_path / "run", **SHORT)
    assert run.evaluations(0)[1].shape == (3, 2)
    off = td3.train(scripted_vector, eval_env=False, out=tmp_path / "off", **SHORT)
    assert not (off.folder(0) / "best").exists()


@pytest.mark.parametrize(
    ("env", "settings", "error", "sentence"),
    [
        (ScriptedVector(3), {"seeds": 2, "envs": 2}, EnvironmentFault, "has 3 environments, but 4 are needed"),
        (lambda num_envs: ScriptedVector(2), {"envs": 4}, EnvironmentFault, "has 2 environments, but 4 are needed"),
        (ScriptedVector(8), {"seeds": 3}, ConfigError, "8 environments, which cannot be divided among 3 seeds"),
        (lambda: ScriptedVector(4), {}, EnvironmentFault, "give the function an argument num_envs"),
        (lambda num_envs: Scripted(), {}, EnvironmentFault, "made Scripted, and not a gymnasium.vector.VectorEnv"),
        (lambda num_envs: 1 / 0, {}, EnvironmentFault, "cannot be made: ZeroDivisionError"),
        (scripted_vector, {"workers": "processes"}, ConfigError, "steps its environments itself, but workers is proc"),
        (scripted_vector, {"pixels": True}, ConfigError, "is a vector environment, and --pixels wraps single ones"),
        (scripted_vector, {"eval_env": "Pendulum-v1"}, ConfigError, "eval_env Pendulum-v1 has .* same spaces"),
        ("Scripted-v0", {"eval_env": "Scripted-v0"}, ConfigError, "eval_env is for runs on a vector environment"),
        (ScriptedVector(2), {"env_kwargs": {"a": 1}}, ConfigError, "given as an instance, and env_kwargs are for"),
        (
            partial(ScriptedVector, mode=AutoresetMode.NEXT_STEP),
            {"seeds": 2},
            EnvironmentFault,
            "one seed only: make it with autoreset_mode=SAME_STEP, train one seed or",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence_and_loses_nothing(env, settings, error, sentence, tmp_path):
    with pytest.raises(error, match=sentence):
        td3.train(env, out=tmp_path / "run", **{**SMALL, "steps": 40, **settings})


def test_the_command_line_takes_a_function_by_its_name(tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "run")
    options = [*SMALL_OPTIONS, "--steps", "48", "--envs", "4", "--eval-every", "24", "--out", out, "--json"]
    assert main(["train", "vectors:scripted_vector", *options]) == 0
    assert json.loads(capsys.readouterr().out)["env_steps"] == 48
    assert main(["evaluate", out, "--episodes", "2", "--trust", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]["0"]) == 2
    assert main(["evaluate", out]) == 2
    assert "--trust" in capsys.readouterr().err
    assert main(["resume", out, "--steps", "72", "--trust", "--json"]) == 0
    captured = capsys.readouterr()
    assert "unfinished episodes were lost" in captured.err.replace("\n", " ")
    assert main(["watch", out, "--trust"]) == 2
    assert "makes vector environments, and this needs a single one" in capsys.readouterr().err.replace("\n", " ")


def test_td3_check_looks_at_a_vector_environment(capsys):
    assert main(["check", "vectors:scripted_vector", "--steps", "200"]) in (0, 1)
    shown = capsys.readouterr().out
    assert "200 random steps" in shown
    assert "repeatable    yes" in shown


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "scripted:linear_policy", "vectors:np.zeros", "a:b"])
def test_nothing_but_a_maker_of_vectors_is_ever_called_by_name(name):
    assert vector_source_named(name) is None


@pytest.mark.parametrize("mode", MODES)
def test_the_graph_engine_learns_the_same_from_tensors_as_from_arrays(mode, tmp_path, tensors_stay, monkeypatch):
    """On a CPU it calls what it would have recorded; tests marked gpu have the recording."""

    def by_graph(agent, buffer, config, threads):
        return Engine(agent, buffer, config.member_seeds, config.td3, "graph", envs=config.envs)

    monkeypatch.setattr("td3.training.parts.make_engine", by_graph)
    seeds = 1 if mode == AutoresetMode.NEXT_STEP else 2
    arrays, tensors = (
        td3.train(partial(kind, mode=mode), out=tmp_path / kind.__name__, seeds=seeds, **SHORT)
        for kind in (ScriptedVector, TensorVector)
    )
    for seed in range(seeds):
        expected, found = (run.agent(seed, "last").policy for run in (arrays, tensors))
        states = np.random.default_rng(0).normal(size=(1, 20, 3)).astype(np.float32)
        np.testing.assert_allclose(found(states), expected(states), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_tensors_on_a_gpu_train_with_cuda_graphs_without_a_copy_through_the_host(mode, tmp_path, monkeypatch):
    stored = []
    store = StagedExchange.store
    monkeypatch.setattr(StagedExchange, "store", lambda self, rows: (stored.append(rows), store(self, rows))[1])
    make = partial(TensorVector, mode=mode, device="cuda")
    run = td3.train(make, out=tmp_path / "run", seeds=2, **{**SHORT, "device": "cuda", "steps": 400})
    assert stored
    assert all(isinstance(rows, torch.Tensor) and rows.is_cuda for rows in stored)
    assert np.isfinite(run.evaluations(1)[1]).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_next_step_autoreset_stores_fewer_rows_on_a_gpu_too(tmp_path):
    make = partial(ScriptedVector, mode=AutoresetMode.NEXT_STEP)
    run = td3.train(make, out=tmp_path / "run", **{**SHORT, "device": "cuda", "steps": 400})
    assert np.isfinite(run.evaluations(0)[1]).all()


def test_a_vector_environment_with_an_action_of_some_shape_gets_it():
    class Matrix(ScriptedVector):
        def __init__(self):
            super().__init__(2)
            self.single_action_space = Box(-1, 1, (2, 3), np.float32)
            self.action_space = Box(-1, 1, (2, 2, 3), np.float32)

        def step(self, actions):
            assert actions.shape == (2, 2, 3)
            return super().step(np.tile(np.float32([0.0, 0.3]), (2, 1)))

    environments = VectorSource(Matrix()).make(2, 0)
    assert check_vector(environments).action_size == 6
    collector = Collector(environments, [0], [-1.0] * 6, [1.0] * 6, 0.1)
    assert collector.step(collector.act(None))[0].shape == (1, 2, 3 + 6 + 3 + 2)


def test_gymnasiums_registered_vector_environments_can_be_given(tmp_path):
    run = td3.train(
        gym.make_vec("Pendulum-v1", 2), eval_env="Pendulum-v1", out=tmp_path / "run", **{**SMALL, "steps": 40}
    )
    assert run.config.env == "given:SyncVectorEnv"


@pytest.mark.filterwarnings("ignore:.*unfinished episodes were lost")
def test_a_run_that_is_evaluated_only_since_its_resume_says_so(tmp_path, capsys):
    run = td3.train(scripted_vector, eval_env=False, out=tmp_path / "run", **SHORT)
    assert main(["report", str(run.path)]) == 0
    assert "No evaluations." in capsys.readouterr().out
    assert main(["resume", str(run.path), "--steps", "72", "--trust"]) == 0
    said = capsys.readouterr().out
    assert "At env step 72: return" in said
    assert "Before training" not in said
