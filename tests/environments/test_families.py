"""Real components: one short run in every family, and episodes that follow from their seeds."""

import gymnasium as gym
import numpy as np
import pytest
from scripted import SMALL, needs

import td3
from td3.environments import make_environment

FAMILIES = {
    "HalfCheetah-v4": ("mujoco", {}, ""),
    "Walker2d-v5": ("mujoco", {}, ""),
    "MountainCarContinuous-v0": ("gymnasium", {}, ""),
    "LunarLander-v3": ("Box2D", {"continuous": True, "gravity": -5.0}, ""),
    "Walker2DBulletEnv-v0": ("pybullet_envs_gymnasium", {}, ""),
    "dm_control/walker-walk-v0": ("dm_control", {}, "Dict(height 1, orientations 14, velocity 9)"),
    "FetchReachDense-v4": ("gymnasium_robotics", {}, "Dict(achieved_goal 3, desired_goal 3, observation 10)"),
}


@pytest.mark.parametrize("env", FAMILIES)
def test_every_family_trains_and_is_read_again(env, tmp_path):
    package, env_kwargs, flattened = FAMILIES[env]
    needs(package)
    fields = {**SMALL, "eval_every": 0, "eval_episodes": 1, "learning_starts": 150, "env_kwargs": env_kwargs}
    # Episodes of 1,000 steps are for those who learn from them.
    fields["env_kwargs"] = {"max_episode_steps": 60, **env_kwargs}
    run = td3.train(env, steps=200, out=tmp_path / "run", **fields)
    assert run.config.env_kwargs == fields["env_kwargs"]
    agent = td3.load(run.path, which="last")
    assert agent.facts["flattened"] == flattened
    environment = make_environment(**run.config.env_arguments)
    observation, _ = environment.reset(seed=0)
    assert environment.action_space.contains(agent.act(observation).astype(environment.action_space.dtype))
    environment.close()


REPEATING = {
    "AntBulletEnv-v0": 40,
    "HalfCheetahBulletEnv-v0": 40,
    "Walker2DBulletEnv-v0": 40,
    "LunarLanderContinuous-v3": 60,
    "dm_control/cheetah-run-v0": 20,
    "FetchReachDense-v4": 20,
}


@pytest.mark.parametrize("env", REPEATING)
def test_a_seed_fixes_an_episode_in_a_new_environment_and_in_a_used_one(env):
    steps = REPEATING[env]
    try:
        used = make_environment(env)
    except td3.errors.MissingExtra as error:
        pytest.skip(str(error))
    first = {seed: episode(make_environment(env), seed, steps) for seed in (1, 2)}
    assert first[1] != first[2]
    for seed in (2, 1, 1, 2):
        episode(used, 10 + seed, 2 * steps)
        assert episode(used, seed, steps) == first[seed]
    used.close()


def test_a_bipedal_walker_forgets_its_long_past():
    """In one world for all episodes, the last of these strays at its step 128."""
    needs("Box2D")
    used, expected = make_environment("BipedalWalker-v3"), episode(make_environment("BipedalWalker-v3"), 7, 300, 5)
    for seed, steps in ((3, 50), (7, 300), (4, 500)):
        episode(used, seed, steps, 5)
    assert episode(used, 7, 300, 5) == expected


def episode(environment, seed, steps, numbers=0):
    """Everything that an episode of random actions gives, as bytes."""
    generator, space = np.random.default_rng(numbers), environment.action_space
    observation, _ = environment.reset(seed=seed)
    given = [np.asarray(observation, np.float32).tobytes()]
    for _ in range(steps):
        action = generator.uniform(space.low, space.high).astype(space.dtype)
        observation, reward, terminated, truncated, _ = environment.step(action)
        given.append((np.asarray(observation, np.float32).tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            break
    return given


def test_a_bullet_environment_without_a_seed_stays_random():
    needs("pybullet_envs_gymnasium")
    starts = [make_environment("HopperBulletEnv-v0").reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)


def test_every_name_in_the_list_can_be_made():
    from td3.environments import families

    for family, ready in families():
        if ready:
            # The first import registers, and what the others are called is then known.
            make_environment(family.examples[0]).close()
            assert all(name in gym.registry for name in family.examples), family.title
