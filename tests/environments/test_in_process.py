import re

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from scripted import FormulaPolicy, Scripted

from td3.collect.collector import Collector
from td3.environments import InProcessVectorEnv
from td3.environments.processes import ProcessVectorEnv

ACTION = np.array([0.5, 0.3], np.float32)


def row(count: int = 3, **kwargs) -> InProcessVectorEnv:
    return InProcessVectorEnv([Scripted(**kwargs) for _ in range(count)])


def test_a_row_says_that_it_does_not_reset_by_itself():
    environments = row()
    assert environments.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    assert environments.observation_space.shape == (3, 3)
    assert environments.action_space.shape == (3, 2)


def test_only_the_masked_environments_are_reset():
    environments = row(lengths=(9,))
    environments.reset(seed=[1, 2, 3])
    stepped, *_ = environments.step(np.tile(ACTION, (3, 1)))
    observations, _ = environments.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(observations[[0, 2]], stepped[[0, 2]])
    assert observations[1].tolist() == [2, 1, 0]


def test_one_seed_is_given_to_every_environment():
    observations, _ = row().reset(seed=4)
    assert observations[:, 0].tolist() == [4, 4, 4]


def test_environments_that_are_not_stepped_stand_still():
    environments = row(lengths=(9,))
    first, _ = environments.reset(seed=[1, 2, 3])
    observations, rewards, terminated, truncated, _ = environments.step_some(np.tile(ACTION, (3, 1)), [1])
    np.testing.assert_array_equal(observations[[0, 2]], first[[0, 2]])
    assert rewards.tolist() == [0, pytest.approx(1.3), 0]
    assert not (terminated | truncated).any()


def test_what_was_returned_is_not_changed_by_the_next_step():
    environments = row(lengths=(9,))
    first, _ = environments.reset(seed=[1, 2, 3])
    kept = first.copy()
    environments.step(np.tile(ACTION, (3, 1)))
    np.testing.assert_array_equal(first, kept)


def test_a_wrong_shape_in_the_middle_is_a_fault_of_that_environment():
    environments = row(fault="shape", fault_at=1)
    environments.reset(seed=0)
    environments.step(np.tile(ACTION, (3, 1)))
    assert {*environments.faults} == {0, 1, 2}
    assert "shape (2,), but its observation_space says (3,): make the two agree" in environments.faults[0]


def test_worker_processes_give_the_same_rows_as_one_process():
    collected = []
    for environments in (row(5), ProcessVectorEnv(Scripted, 5, workers=2)):
        collector = Collector(environments, [7], (-1.0, 0.25), (3.0, 0.5), 0.2)
        rounds = [collector.step(collector.act(FormulaPolicy())) for _ in range(40)]
        environments.close()
        collected.append(rounds)
    for (rows, episodes), (pool_rows, pool_episodes) in zip(*collected, strict=True):
        np.testing.assert_array_equal(rows, pool_rows)
        assert episodes == pool_episodes


def test_a_fault_in_a_worker_process_comes_back_as_a_sentence():
    environments = ProcessVectorEnv(Broken, 1, workers=1)
    environments.reset(seed=[0])
    environments.step(ACTION[None])
    (reason,) = environments.faults.values()
    environments.close()
    assert reason.startswith(
        "an environment failed in step(): ZeroDivisionError: division by zero (test_in_process.py, "
    )
    (lines,) = reason.__notes__
    assert re.fullmatch(
        r'  File ".*test_in_process.py", line \d+, in step\n    return 1 / 0\nZeroDivisionError: .*', lines
    )
    assert lines.splitlines()[0] in str(reason.__cause__)  # the whole traceback of the worker


class Broken(Scripted):
    """Fails at its first step."""

    def step(self, action):
        return 1 / 0
