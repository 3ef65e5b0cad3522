import sys

import gymnasium as gym
import pytest
from scripted import Scripted

from td3.environments import families, make, make_environment
from td3.errors import EnvironmentFault, MissingExtra


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("HalfCheeta-v5", "HalfCheetah-v5"),
        ("halfcheetah-v5", "HalfCheetah-v5"),
        ("Pendulum-v7", "Pendulum-v1"),
        ("Pendullum-v1", "Pendulum-v1"),
        ("Walker-v5", "Walker2d-v5"),
        ("Ant-v1", "Ant-v5"),
    ],
)
def test_an_unknown_environment_is_told_the_nearest_names(typed, meant):
    with pytest.raises(EnvironmentFault, match=f"there is no environment '{typed}': did you mean .*{meant}"):
        make_environment(typed)


def test_an_environment_like_no_other_is_sent_to_the_list():
    with pytest.raises(EnvironmentFault, match="there is no environment 'Zzzzqqq-v0': `td3 envs` lists what"):
        make_environment("Zzzzqqq-v0")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(EnvironmentFault, match=r"a b\[ cannot be made: Malformed environment ID"):
        make_environment("a b[")


@pytest.mark.parametrize(
    ("env", "extra"),
    [
        ("AntBulletEnv-v0", "pybullet"),
        ("BipedalWalker-v3", "box2d"),
        ("dm_control/walker-walk-v0", "dm-control"),
        ("FetchReachDense-v4", "robotics"),
        ("Hopper-v5", "mujoco"),
    ],
)
def test_a_missing_package_is_named_by_its_extra(env, extra, monkeypatch):
    monkeypatch.setattr(make, "_installed", lambda family: False)
    with pytest.raises(MissingExtra) as caught:
        make_environment(env)
    assert str(caught.value) == f"{env} needs the extra '{extra}': install it with  pip install 'td3[{extra}]'"


def test_pendulum_needs_its_extra_only_to_be_drawn(monkeypatch):
    monkeypatch.setattr(make, "_installed", lambda family: False)
    make_environment("Pendulum-v1").close()
    with pytest.raises(MissingExtra, match=r"td3\[classic\]"):
        make_environment("Pendulum-v1", render_mode="rgb_array")


def test_every_family_is_listed_with_whether_it_is_ready():
    found = {family.title: ready for family, ready in families()}
    assert {"MuJoCo", "Classic control", "PyBullet", "Box2D", "DeepMind Control", "Gymnasium-Robotics"} == set(found)
    assert found["MuJoCo"]
    assert found["Classic control"]


def test_every_example_belongs_to_its_family():
    for family, _ in families():
        assert all(make.family_of(env) is family for env in family.examples)


def test_a_module_before_the_name_is_imported(tmp_path, monkeypatch):
    (tmp_path / "my_tasks.py").write_text(
        "import gymnasium\nfrom scripted import Scripted\ngymnasium.register('Mine-v0', entry_point=Scripted)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(make_environment("my_tasks:Mine-v0").unwrapped, Scripted)
    del gym.registry["Mine-v0"], sys.modules["my_tasks"]


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(EnvironmentFault, match="no_such_module:Mine-v0 needs the module 'no_such_module'"):
        make_environment("no_such_module:Mine-v0")


def test_a_class_that_is_no_environment_gets_a_sentence(monkeypatch):
    gym.register("Foreign-v0", entry_point=dict)
    with pytest.raises(EnvironmentFault, match=r"Foreign-v0 cannot be made: The environment must inherit from"):
        make_environment("Foreign-v0")
    del gym.registry["Foreign-v0"]


def test_dictionaries_of_observations_become_one_vector():
    class Grouped(Scripted):
        def __init__(self):
            super().__init__()
            self.observation_space = gym.spaces.Dict(
                {"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Box(-1, 1, (3,))}
            )

    gym.register("Grouped-v0", entry_point=Grouped)
    assert make_environment("Grouped-v0").observation_space.shape == (5,)
    del gym.registry["Grouped-v0"]
