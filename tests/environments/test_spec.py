"""Environments given from Python, arguments, and observations of every kind."""

import json
import re
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Tuple
from gymnasium.wrappers import TimeLimit, TransformReward
from scripted import SMALL, SMALL_OPTIONS, Changed, Scripted, needs

import td3
from td3.cli import main
from td3.cli.options import read_kwargs
from td3.config import TrainConfig, resolve
from td3.config_file import read_config
from td3.environments import ProcessVectorEnv, check_environment, make_environment
from td3.environments.spec import parse_env
from td3.errors import ConfigError, EnvironmentFault
from td3.evaluate import Evaluator, held_out

SHORT = {**SMALL, "steps": 40, "eval_every": 0, "eval_episodes": 1}


def make_scripted(length=6):
    return Scripted(lengths=(length,))


def test_a_function_makes_the_environments_and_is_given_again_to_go_on(tmp_path):
    made = []

    def make(length=4):
        made.append(length)
        return Scripted(lengths=(length,))

    run = td3.train(make, out=tmp_path / "cut", env_kwargs={"length": 7}, **SHORT)
    assert set(made) == {7}
    assert (
        run.config.env
        == "environments.test_spec:test_a_function_makes_the_environments_and_is_given_again_to_go_on.make"
    )
    with pytest.raises(
        EnvironmentFault, match=r"environments.test_spec has no environment class .* td3.resume\(RUN, env="
    ):
        td3.resume(run.path, steps=60, trust=True)
    assert td3.resume(run.path, steps=60, env=make).config.steps == 60
    whole = td3.train(make, out=tmp_path / "whole", env_kwargs={"length": 7}, **{**SHORT, "steps": 60})
    agents = [(path / "seed_0/last/agent.safetensors").read_bytes() for path in (run.path, whole.path)]
    assert agents[0] == agents[1]


def test_a_function_reaches_worker_processes(tmp_path):
    given = parse_env(lambda: Scripted(lengths=(9,)))
    pool = ProcessVectorEnv(partial(make_environment, given.factory), 2, 1)
    alone = make_environment(given.factory)
    np.testing.assert_array_equal(pool.reset(seed=[3, 4])[0][0], alone.reset(seed=3)[0])
    pool.close()


def test_a_class_that_can_be_imported_is_kept_by_its_name(tmp_path, capsys):
    run = td3.train(Scripted, out=tmp_path / "run", progress=False, **SHORT)
    assert run.config.env == "scripted:Scripted"
    assert main(["evaluate", str(run.path), "--episodes", "1", "--json", "--trust"]) == 0
    assert json.loads(capsys.readouterr().out)["env"] == "scripted:Scripted"
    td3.resume(run.path, steps=60, env=Scripted)


def test_a_class_may_be_given_a_time_limit():
    environment = make_environment("scripted:Scripted", {"lengths": (50,), "max_episode_steps": 3})
    environment.reset(seed=0)
    assert [environment.step(np.array([0.0, 0.3]))[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "scripted:linear_policy", "builtins:exec"])
def test_nothing_but_an_environment_class_is_ever_called_by_name(name, tmp_path):
    with pytest.raises(EnvironmentFault, match="has no environment class"):
        make_environment(name, {"command": f"touch {tmp_path / 'trap'}"})
    assert not list(tmp_path.iterdir())


def test_an_instance_is_made_again_from_its_specification():
    given = parse_env(gym.make("Pendulum-v1", g=5.0, max_episode_steps=30, render_mode="rgb_array"))
    assert given == ("Pendulum-v1", {"g": 5.0, "max_episode_steps": 30}, None)
    assert parse_env(gym.make("HalfCheetah-v5")) == ("HalfCheetah-v5", {}, None)
    wrapped = parse_env(TransformReward(gym.make("Pendulum-v1"), lambda reward: reward / 10))
    assert wrapped.env == "given:Pendulum-v1"
    copy, plain = make_environment(wrapped.factory), make_environment("Pendulum-v1")
    copy.reset(seed=0)
    plain.reset(seed=0)
    action = np.zeros(1, np.float32)
    assert copy.step(action)[1] == pytest.approx(plain.step(action)[1] / 10)
    with pytest.raises(EnvironmentFault, match="Pendulum-v1 was given from Python, with more than its name"):
        make_environment(wrapped.env)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Scripted(), r"from this Scripted it cannot make another: give its class .*td3.train\(Scripted\)"),
        (3, "by its name, its class or a function that makes it, but 3 was given"),
        (lambda: 3, "turned out to be 3, and not an environment"),
        (lambda: 1 / 0, "cannot be made: ZeroDivisionError: division by zero"),
        (TimeLimit, "cannot be made: .*missing 2 required positional arguments"),
    ],
)
def test_what_cannot_be_trained_gets_a_sentence(given, sentence, tmp_path):
    with pytest.raises(EnvironmentFault, match=sentence):
        td3.train(given, out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


class Kinds(Changed):
    """The scripted environment, showing one fixed observation of any kind."""

    def __init__(self, space, shown):
        super().__init__(observation_space=space, first=lambda *_: (shown, {}), result=lambda _, *rest: (shown, *rest))


KINDS = {
    "Discrete": (Discrete(4, start=2), 3, [0, 1, 0, 0], "Discrete(4, start=2)"),
    "MultiDiscrete": (MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1], "MultiDiscrete([2 3])"),
    "MultiBinary": (MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1], "MultiBinary(3)"),
    "Tuple": (
        Tuple([Box(-9, 9, (2,)), Discrete(2)]),
        (np.array([4.5, -2]), 1),
        [4.5, -2, 0, 1],
        "Tuple(2, Discrete(2))",
    ),
    "Dict": (
        Dict({"b": Dict({"c": Box(-9, 9, (1, 2))}), "a": Box(0, 9, (1,), np.int64)}),
        {"a": np.array([7]), "b": {"c": np.array([[1.5, 2]])}},
        [7, 1.5, 2],
        "Dict(a 1, b Dict(c 2))",
    ),
    "whole numbers": (Box(0, 200, (3,), np.int64), np.array([1, 150, 3]), [1, 150, 3], ""),
    "bytes": (Box(0, 255, (2,), np.uint8), np.array([1, 255], np.uint8), [1, 255], ""),
}


@pytest.mark.parametrize("kind", KINDS)
def test_observations_of_every_kind_become_numbers(kind, tmp_path):
    space, shown, expected, words = KINDS[kind]
    make = partial(Kinds, space, shown)
    environment = make_environment(make)
    spaces = check_environment(environment, "Kinds")
    assert (spaces.state_size, spaces.flattened) == (len(expected), words)
    np.testing.assert_array_equal(environment.reset(seed=0)[0], expected)
    run = td3.train(make, out=tmp_path / "run", **{**SHORT, "steps": 24, "eval_every": 12})
    rows = next(td3.run.checkpoints.Checkpoints(run.path).newest()[0].rows())[1]
    np.testing.assert_array_equal(rows[0, :, : len(expected)], np.tile(np.float32(expected), (24, 1)))


def test_images_in_a_group_and_what_has_no_size_are_refused():
    images = Dict({"seen": Box(0, 255, (4, 4, 3), np.uint8), "speed": Box(-1, 1, (1,))})
    with pytest.raises(EnvironmentFault, match="has Dict observations with images among them"):
        check_environment(make_environment(partial(Kinds, images, None)), "Kinds")
    with pytest.raises(EnvironmentFault, match="has Sequence observations: wrap it"):
        check_environment(make_environment(partial(Kinds, Sequence(Box(-1, 1, (2,))), None)), "Kinds")


def test_the_header_says_what_was_flattened_and_what_it_was_made_with(tmp_path, capsys):
    gym.register("Grouped-v1", entry_point=lambda **kwargs: Kinds(*KINDS["Dict"][:2]))
    options = ["--steps", "30", "--out", str(tmp_path / "run"), *SMALL_OPTIONS]
    assert main(["train", "Grouped-v1", "--env-kwargs", "a=1", "b=yes", *options]) == 0
    del gym.registry["Grouped-v1"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == [
        'Made with {"a": 1, "b": "yes"}.',
        "Observations: Dict(a 1, b Dict(c 2)), flattened to 3 numbers.",
    ]


def test_a_dictionary_given_to_an_agent_gets_a_sentence(trained):
    with pytest.raises(td3.errors.UserError, match=r"gymnasium.spaces.flatten\(env.observation_space, observation\)"):
        td3.load(trained.path).act({"a": 1})


@pytest.mark.parametrize(
    "words", [["a=5.0", "b=true", "c=text"], ['{"a": 5.0, "b": true, "c": "text"}'], ["c=x=y"], []]
)
def test_arguments_are_read_as_pairs_or_as_json(words):
    expected = {"a": 5.0, "b": True, "c": "text"} if len(words) == 3 or "{" in "".join(words) else {}
    assert read_kwargs(words) == (expected or {word[0]: word[2:] for word in words})


def test_arguments_are_kept_and_used_by_every_command(tmp_path, capsys):
    out, words = tmp_path / "run", ["g=5.0", "max_episode_steps=30"]
    options = ["--steps", "60", "--out", str(out), "--eval-every", "0", *SMALL_OPTIONS]
    # The environment's name after its arguments is found as well.
    assert main(["train", "--env-kwargs", *words, *options, "Pendulum-v1"]) == 0
    run = td3.Run(out)
    assert run.config.env_arguments == {"env": "Pendulum-v1", "env_kwargs": {"g": 5.0, "max_episode_steps": 30}}
    assert make_environment(**run.config.env_arguments).unwrapped.g == 5.0
    capsys.readouterr()
    assert main(["evaluate", str(out), "--episodes", "1", "--json"]) == 0
    evaluator = Evaluator(lambda: make_environment(**run.config.env_arguments), [0], 1, purpose=held_out(0))
    found = json.loads(capsys.readouterr().out)["mean_return"]["0"]
    assert found == pytest.approx(evaluator(run.agent(0).policy).returns[0, 0])
    assert main(["watch", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == 30
    assert main(["resume", str(out), "--steps", "90"]) == 0
    assert (run.folder(0) / "monitor.csv").read_text().count(",30,") == 3
    assert main(["train", "--config", str(out / "config.json"), "--out", str(tmp_path / "again")]) == 0
    assert td3.Run(tmp_path / "again").config.env_kwargs == run.config.env_kwargs


def test_a_search_keeps_its_arguments_in_its_result(tmp_path):
    options = ["--env-kwargs", "g=5.0", "max_episode_steps=30", "--normalize-observations", "--device", "cpu"]
    sizes = ["--steps", "60", "--trials", "1", "--eval-episodes", "1", "--fields", "gamma"]
    assert main(["tune", "Pendulum-v1", *options, *sizes, "--out", str(tmp_path)]) == 0
    found = read_config(tmp_path / "best.toml")
    assert found.env_kwargs == {"g": 5.0, "max_episode_steps": 30}
    assert found.normalize_observations


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["g"], "'g' is neither KEY=VALUE nor a JSON object"),
        (["=3"], "'=3' is neither KEY=VALUE"),
        (['{"g": }'], '{"g": } is not JSON'),
        (["render_mode=human"], "--env-kwargs must be plain, finite values by name, and not render_mode"),
        (["wings=2"], "Pendulum-v1 cannot be made: .*unexpected keyword argument 'wings'"),
    ],
)
def test_wrong_arguments_get_a_sentence(words, sentence, tmp_path, capsys):
    assert main(["train", "Pendulum-v1", "--env-kwargs", *words, "--out", str(tmp_path / "run"), *SMALL_OPTIONS]) == 2
    error = capsys.readouterr().err
    assert re.search(re.escape(sentence) if "{" in sentence else sentence, error), error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", [{"a": np.zeros(2)}, {"a b": 1}, {1: 2}, {"a": (1, 2)}, ["a"], {"a": float("nan")}])
def test_arguments_that_a_file_cannot_keep_are_refused(given):
    with pytest.raises(ConfigError, match="env_kwargs must be plain, finite values by name"):
        resolve("Pendulum-v1", env_kwargs=given)


def test_a_run_from_before_there_were_arguments_is_read():
    values = resolve("Pendulum-v1").to_json()
    del values["env_kwargs"], values["normalize_observations"]
    assert TrainConfig.from_json(values) == resolve("Pendulum-v1")


def test_discrete_actions_with_a_continuous_form_are_told_so():
    needs("Box2D")
    with pytest.raises(EnvironmentFault, match="make it with  --env-kwargs continuous=true"):
        check_environment(make_environment("LunarLander-v3"), "LunarLander-v3")


@pytest.mark.parametrize(
    ("env", "absent", "extra"),
    [
        ("AntBulletEnv-v0", "pybullet", "pybullet"),
        ("AntBulletEnv-v0", "pybullet_envs_gymnasium", "pybullet"),
        ("BipedalWalker-v3", "Box2D", "box2d"),
        ("CarRacing-v3", "Box2D", "box2d"),
        ("dm_control/walker-walk-v0", "dm_control", "dm-control"),
        ("dm_control/walker-walk-v0", "shimmy", "dm-control"),
        ("FetchReachDense-v4", "gymnasium_robotics", "robotics"),
        ("Hopper-v4", "mujoco", "mujoco"),
    ],
)
def test_any_one_missing_package_names_the_extra(env, absent, extra, monkeypatch, tmp_path):
    real = td3.environments.make.importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == absent else real(name, *more))
    with pytest.raises(td3.errors.MissingExtra, match=rf"pip install 'td3\[{extra}\]'"):
        td3.train(env, out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


def test_where_pybullet_has_no_package_that_is_said(monkeypatch, capsys):
    real = td3.environments.make.importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "pybullet" else real(name, *more)
    )
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    said = "PyBullet has a ready package for Python 3.11 only, and this is 3.13"
    with pytest.raises(td3.errors.MissingExtra, match=said):
        make_environment("AntBulletEnv-v0")
    assert main(["envs"]) == 0
    assert f"PyBullet (missing: pip install 'td3[pybullet]'; {said}" in capsys.readouterr().out
