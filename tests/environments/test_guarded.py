"""What an environment may give as rewards and ends, wherever it is stepped."""

from functools import partial

import numpy as np
import pytest
import torch
from faults.collecting import placed
from scripted import Scripted
from vectors import ScriptedVector

from td3.environments import guarded
from td3.environments.checked_vector import CheckedVectorEnv
from td3.errors import EnvironmentFault

ACTIONS = np.tile(np.float32([0.5, 0.3]), (2, 1))
ENDS = [np.bool_(True), 1, np.int64(1), np.array(True), np.array([True]), torch.tensor(True), torch.tensor([1])]
NO_ENDS = ["False", "", float("nan"), np.nan, 0.0, 1.0, 2, -1, None, [], [True], np.array([True, True]), int]
REWARDS = [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), np.array([2.0]), torch.tensor(2.0), torch.tensor([2])]
NO_REWARDS = ["-1.5", 2j, np.complex64(2), np.array("2"), np.array([2.0, 2.0]), None, [2.0], int]


class Giving(Scripted):
    """Gives other values from its second step on."""

    def __init__(self, **changes):
        super().__init__(lengths=(9,))
        self.changes = changes

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        given = {"reward": reward, "terminated": terminated, "truncated": truncated}
        given |= self.changes if self.step_number > 1 else {}
        return observation, *given.values(), info


def second_step(where, **changes):
    environments = placed(partial(Giving, **changes), where, count=2)
    environments.reset(seed=[0, 1])
    environments.step(ACTIONS)
    result = environments.step(ACTIONS)
    faults = environments.faults
    environments.close()
    return result, faults


@pytest.mark.parametrize("given", ENDS, ids=repr)
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_whatever_is_true_or_false_is_an_end(name, given):
    (_, _, terminated, truncated, _), faults = second_step("in process", **{name: given})
    assert faults == {}
    assert (terminated if name == "terminated" else truncated).tolist() == [True, True]


@pytest.mark.parametrize("given", NO_ENDS, ids=repr)
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_nothing_else_is(name, given):
    result, faults = second_step("in process", **{name: given})
    for reason in faults.values():
        shown = f"{' '.join(repr(given).split())} ({type(given).__name__})"
        assert reason.startswith(f"an environment gave {name}={shown}: return True or False")
    assert len(faults) == 2
    assert not np.any(result[1])


@pytest.mark.parametrize("given", REWARDS, ids=repr)
def test_a_real_number_is_a_reward(given):
    (_, rewards, *_), faults = second_step("in process", reward=given)
    assert (faults, rewards.tolist()) == ({}, [2.0, 2.0])


@pytest.mark.parametrize("given", NO_REWARDS, ids=repr)
def test_text_and_complex_numbers_are_none(given):
    _, faults = second_step("in process", reward=given)
    assert all(f"the reward {given!r} (" in reason and "one real number" in reason for reason in faults.values())
    assert len(faults) == 2


def test_the_same_holds_in_worker_processes():
    for changes, said in (({"terminated": "False"}, "terminated='False' (str)"), ({"reward": 2j}, "the reward 2j")):
        _, faults = second_step("processes", **changes)
        assert len(faults) == 2
        assert all(said in reason for reason in faults.values())


@pytest.mark.parametrize(
    "changes", [{"rewards": 2j}, {"rewards": "2"}, {"terminated": np.nan}, {"terminated": "False"}, {"truncated": 1.0}]
)
def test_and_in_vector_environments(changes):
    class Wrong(ScriptedVector):
        def step(self, actions):
            names = ("rewards", "terminated", "truncated")
            observations, *given, infos = super().step(actions)
            return observations, *(np.full(2, changes.get(n, v)) for n, v in zip(names, given, strict=True)), infos

    environments = CheckedVectorEnv(Wrong(2), "Wrong")
    environments.reset(seed=0)
    with pytest.raises(EnvironmentFault, match=f"gave {next(iter(changes))} of shape"):
        environments.step(ACTIONS)


def test_the_usual_types_cost_no_call(monkeypatch):
    monkeypatch.setattr(guarded, "as_flag", pytest.fail)
    monkeypatch.setattr(guarded, "as_reward", pytest.fail)
    environment = Scripted()
    shapes = guarded.Shapes.of(environment)
    guarded.reset(environment, 0, shapes)
    assert guarded.step(environment, ACTIONS[0], shapes)[1] > 0
