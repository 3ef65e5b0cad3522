"""EnvPool, the example of a vector environment that steps without Python; needs the extra `envpool`."""

import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from scripted import SMALL
from td3_lab.bench.envs import envpool_source

import td3
from td3.collect.collector import Collector
from td3.environments.vector import VectorSource, check_vector
from td3.errors import EnvironmentFault

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision lowered"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    envpool = pytest.importorskip("envpool", reason="needs the extra envpool (744 MB): make test-envpool")


def pool(num_envs, seed, task="Hopper-v4", mode=AutoresetMode.NEXT_STEP):
    made = envpool.make(task, env_type="gymnasium", num_envs=num_envs, seed=seed)
    made.metadata = {**made.metadata, "autoreset_mode": mode}
    return made


def collected(mode, rounds, seeds=(0,)):
    environments = VectorSource(partial(pool, mode=mode)).make(4, seed=3)
    size = environments.single_action_space.shape[0]
    collector = Collector(environments, seeds, [-1.0] * size, [1.0] * size, 0.1)
    rows = [collector.step(collector.act(lambda states: np.tanh(states[..., :size])))[0] for _ in range(rounds)]
    collector.close()
    return np.concatenate(rows, 1)


def test_its_spaces_and_numbers_pass_the_checks():
    environments = VectorSource(pool).make(3, 0)
    spaces = check_vector(environments)
    assert (spaces.state_size, spaces.action_size) == (11, 3)
    assert environments.autoreset == AutoresetMode.NEXT_STEP
    environments.close()


def test_episodes_are_continuous_and_end_with_their_last_observation():
    (rows,) = collected(AutoresetMode.DISABLED, 150)
    rows = rows.reshape(150, 4, -1)
    states, next_states, terminated = rows[..., :11], rows[..., 14:25], rows[..., -1].astype(bool)
    assert terminated.any()
    follows = (next_states[:-1] == states[1:]).all(-1)
    assert (follows == ~terminated[:-1]).all()  # only after an end does another episode begin
    heights = next_states[terminated][:, 0]
    assert (states[1:][terminated[:-1]][:, 0] > 1.2).all()  # a new one stands
    assert (np.abs(heights - 1.25) > 0.01).any()  # and the old one did not


def test_a_reset_by_mask_gives_the_transitions_of_its_own_autoreset():
    by_mask = collected(AutoresetMode.DISABLED, 100)[0]
    own = collected(AutoresetMode.NEXT_STEP, 100)[0]
    assert len(own) < len(by_mask) == 400
    known = {row[:11].tobytes() for row in by_mask}
    first_episodes = [row for row in own[:40] if row[:11].tobytes() in known]
    assert len(first_episodes) == 40


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_trains_and_evaluates_in_it(seeds, tmp_path):
    mode = AutoresetMode.NEXT_STEP if seeds == 1 else AutoresetMode.DISABLED
    make = partial(pool, task="Pendulum-v1", mode=mode)
    run = td3.train(make, out=tmp_path / "run", seeds=seeds, envs=4, steps=80, eval_every=40, **SMALL)
    for seed in range(seeds):
        assert np.isfinite(run.evaluations(seed)[1]).all()
        assert (run.evaluations(seed)[1] < 0).all()


def test_two_seeds_need_resets_by_mask(tmp_path):
    with pytest.raises(EnvironmentFault, match=r"one seed only: .* set metadata"):
        td3.train(pool, out=tmp_path / "run", seeds=2, steps=40, **SMALL)


def test_the_benchmark_finds_the_tasks_that_it_has():
    assert envpool_source("Scripted-v0") is None
    source = envpool_source("HalfCheetah-v5")
    vector = source.make(2, 0)
    assert vector.reset()[0].shape == (2, 17)
    vector.close()
