import re

import gymnasium as gym
import numpy as np
import pytest
from scripted import FAULTY, HIGH, LOW, Changed, Scripted, box

from td3.environments import check_environment
from td3.environments.observations import as_vector
from td3.environments.requirements import TaskSpaces
from td3.errors import EnvironmentFault

SENTENCES = {
    "DiscreteActions-v0": r"has Discrete actions, and TD3 needs continuous ones \(a Box\)",
    "DictActions-v0": r"has Dict actions, and TD3 needs continuous ones \(a Box\)",
    "InfiniteActions-v0": r"has action bounds \[ -1. -inf\]..\[ 1. inf\], and TD3 needs finite ones: declare",
    "ZeroWidthActions-v0": r"has an action dimension without width \(\[-1.  2.\]..\[1. 2.\]\)",
    "DiscreteObservations-v0": r"has Discrete observations: wrap it so that it gives an array \(a Box\)",
    "Images-v0": r"gives images of 300 x 300 pixels, and at most 256 x 256 can be learned from",
    "WrongShape-v0": r"reset\(\) gave an observation of shape \(3,\), but its observation_space says \(5,\)",
    "NanAtReset-v0": r"reset\(\) gave NaN or infinity in its observation",
    "TextAtReset-v0": r"reset\(\) gave an observation of type <U1: return numbers",
    "OldReset-v0": r"reset\(\) returned ndarray: begin it with  def reset\(self, \*, seed=None, options=None\):",
    "OldStep-v0": r"step\(\) returned 4 values: end it with  return observation, reward, terminated, truncated, info  ",
    "ListReward-v0": r"step\(\) gave the reward array\(\[.*\]\) \(ndarray\): return one real number",
    "NanRewardAtOnce-v0": r"step\(\) gave NaN or infinity as its reward",
    "NumberAsEnd-v0": r"step\(\) gave terminated=0.0 \(float\): return True or False",
}


def test_a_good_environment_tells_its_spaces():
    assert check_environment(Scripted(), "Good-v0") == TaskSpaces(3, LOW, HIGH, (3,), (2,))


def test_shapes_are_kept_and_sizes_multiplied():
    environment = Changed(
        action_space=gym.spaces.Box(-1, 1, (2, 2)),
        observation_space=gym.spaces.Box(-9, 9, (1, 3)),
        first=lambda observation, info: (observation[None], info),
    )
    environment.step = lambda action: (np.zeros((1, 3)), 0.0, False, np.bool_(False), {"shape": action.shape})
    spaces = check_environment(environment, "Shaped-v0")
    assert (spaces.state_size, spaces.action_size) == (3, 4)
    assert (spaces.observation_shape, spaces.action_shape) == ((1, 3), (2, 2))


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_environment_is_refused_with_what_to_mend(name):
    with pytest.raises(EnvironmentFault, match=f"^{name}(.| ){SENTENCES[name]}") as caught:
        check_environment(Changed(**FAULTY[name]), name)
    assert "\n" not in str(caught.value)


def test_a_whole_number_is_a_fine_reward():
    environment = Changed(result=lambda o, r, *rest: (o, 1, *rest))
    assert check_environment(environment, "Whole-v0").state_size == 3


def test_bounds_the_wrong_way_round_are_refused():
    space = box([-1, -1], [1, 1])
    space.low[1], space.high[1] = 1, -1
    with pytest.raises(EnvironmentFault, match="without width"):
        check_environment(Changed(action_space=space), "Turned-v0")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class NoSeed(Scripted):
    def reset(self):
        return super().reset()


def raising(error):
    def call(*result):
        raise error

    return call


AWKWARD = {
    "raises in reset": (
        Changed(first=raising(ValueError("no"))),
        r"Odd-v0.reset\(\) failed with ValueError: no \(test_requirements.py, line \d+\): fix the",
    ),
    "raises in step": (
        Changed(result=raising(ValueError("no"))),
        r"Odd-v0.step\(\) failed with ValueError: no \(test_requirements.py, line \d+\): fix the",
    ),
    "exits in reset": (Changed(first=raising(SystemExit(0))), r"Odd-v0.reset\(\) failed with SystemExit: 0 "),
    "no text": (Changed(result=raising(Mute())), r"Odd-v0.step\(\) failed with Mute: its text cannot be printed "),
    "no seed": (
        NoSeed(),
        r"Odd-v0.reset\(\) failed with TypeError: .* unexpected keyword argument 'seed': its reset\(\) follows the old",
    ),
    "empty": (
        Changed(observation_space=gym.spaces.Box(-1, 1, (0,))),
        r"Odd-v0 has an observation space of shape \(0,\), which holds no numbers",
    ),
    "huge": (
        Changed(action_space=box([-3e38, -1], [3e38, 1])),
        r"Odd-v0 has action bounds .*, whose width does not fit into 32-bit numbers",
    ),
    "objects": (
        Changed(first=lambda observation, info: ([object()] * 3, info)),
        r"Odd-v0.reset\(\) gave an observation of type object: return numbers",
    ),
    "ragged": (
        Changed(result=lambda o, *rest: ([[1], [2, 3], []], *rest)),
        r"Odd-v0.step\(\) failed with ValueError: setting an array element",
    ),
    "complex": (
        Changed(first=lambda observation, info: (observation * 1j, info)),
        r"Odd-v0.reset\(\) gave an observation of type complex64: return numbers",
    ),
}


def remedy_in(environment, before, after="$"):
    """The line of code that a refusal offers between two texts."""
    with pytest.raises(EnvironmentFault) as caught:
        check_environment(environment, "Odd-v0")
    return re.search(f"{re.escape(before)}(.*?){after}", str(caught.value)).group(1).strip()


NAMES = {"gymnasium": gym, "np": np, "gym": gym}


def test_infinite_action_bounds_are_mended_by_either_line_of_the_refusal():
    environment = Changed(**FAULTY["InfiniteActions-v0"])
    wrapper = remedy_in(environment, "or wrap it:")
    assert check_environment(eval(wrapper, {**NAMES, "env": environment}), "Mended-v0").action_low == (-1.0, -1.0)
    exec(remedy_in(environment, "as in", "  or wrap it"), {**NAMES, "self": environment})
    assert check_environment(environment, "Mended-v0").action_high == (1.0, 1.0)


@pytest.mark.parametrize(
    ("environment", "shape"),
    [
        (Changed(action_space=box([-3e38, -1], [3e38, 1])), (3,)),
        (
            Changed(
                observation_space=gym.spaces.Box(0, 255, (300, 200, 3), np.uint8),
                first=lambda observation, info: (np.zeros((300, 200, 3), np.uint8), info),
                result=lambda observation, *rest: (np.zeros((300, 200, 3), np.uint8), *rest),
            ),
            (75, 200, 3),
        ),
        (
            Changed(
                observation_space=gym.spaces.Sequence(gym.spaces.Box(-1, 1, (2,))),
                first=lambda observation, info: (([0.5, 1],), info),
                result=lambda observation, *rest: (([0.5, 1],), *rest),
            ),
            (2,),
        ),
        (
            Changed(
                observation_space=gym.spaces.Dict(
                    seen=gym.spaces.Box(0, 255, (4, 4, 3), np.uint8), joints=gym.spaces.Box(-1, 1, (2,))
                ),
                first=lambda observation, info: ({"seen": np.zeros((4, 4, 3)), "joints": np.zeros(2)}, info),
                result=lambda observation, *rest: ({"seen": np.zeros((4, 4, 3)), "joints": np.zeros(2)}, *rest),
            ),
            (2,),
        ),
    ],
)
def test_the_wrapper_that_a_refusal_offers_mends_the_environment(environment, shape):
    names = {**NAMES, "env": environment, "SIZE": 2, "as_array": lambda given: np.float32(given[0])}
    mended = as_vector(eval(f"gymnasium{remedy_in(environment, '  gymnasium')}", names))
    assert check_environment(mended, "Mended-v0").observation_shape == shape


def test_the_lines_for_the_old_gym_api_make_it_a_new_one():
    class Old(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-1, 1, (1,))

        def reset(self):
            return np.zeros(1)

    with pytest.raises(EnvironmentFault, match=r"its reset\(\) follows the old gym API: begin it with") as caught:
        check_environment(Old(), "Old-v0")
    start, call, end = re.search(r"begin it with  (.*)  and  (.*),  and end it with  (.*)$", str(caught.value)).groups()
    names = {"super": lambda: super(Old, environment)}
    exec(f"{start}\n {call}\n observation = __import__('numpy').zeros(1)\n {end}", names)
    Old.reset, environment = names["reset"], Old()
    Old.step = lambda self, action: (np.zeros(1), 0.0, False, {})
    with pytest.raises(EnvironmentFault, match="returned 4 values: end it with") as caught:
        check_environment(environment, "Old-v0")
    line = re.search(r"end it with  (return .*)  where", str(caught.value)).group(1)
    values = "observation, reward, terminated, truncated, info = [0.0], 0.0, False, False, {}"
    exec(f"def step(self, action):\n {values}\n {line}", names)
    Old.step = names["step"]
    assert check_environment(environment, "Old-v0").state_size == 1


@pytest.mark.parametrize("case", AWKWARD)
def test_an_awkward_environment_gets_one_sentence(case):
    environment, sentence = AWKWARD[case]
    with pytest.raises(EnvironmentFault, match=f"^{sentence}") as caught:
        check_environment(environment, "Odd-v0")
    assert "\n" not in str(caught.value)
