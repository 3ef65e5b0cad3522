"""Small environments with goals, of which every transition tells its episode and its moment."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

LONGEST = 6


class Walk(gym.Env):
    """Achieves (episode seed, moment). Reward 0 where the goal is achieved, else -1. It ends after 2 to 6 env steps.

    An episode of even seed ends with a termination, one of odd seed with a truncation.
    """

    def __init__(self, lengths=(2, 5, 3, 6, 1)):
        goal = Box(-np.inf, np.inf, (2,), np.float64)
        # In this order: none of the parts is first, and the flattened order is what the space says.
        self.observation_space = Dict(observation=Box(-np.inf, np.inf, (3,)), desired_goal=goal, achieved_goal=goal)
        self.action_space = Box(-1, 1, (1,))
        self.lengths = lengths

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.moment = float(seed % 10_007 if seed is not None else 0), 0
        self.goal = np.array([self.number, 1000.0])
        return self.shown(), {}

    def step(self, action):
        self.moment += 1
        over = self.moment >= self.lengths[int(self.number) % len(self.lengths)]
        terminated, even = over and int(self.number) % 2 == 0, self.moment
        reward = self.compute_reward(self.shown()["achieved_goal"], self.goal, {})
        return self.shown(), float(reward), terminated, over and not terminated, {"is_success": even == -1}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.abs(achieved_goal - desired_goal).max(-1) > 0).astype(np.float64)

    def shown(self):
        return {
            "observation": np.array([7.0, self.number, self.moment], np.float32),
            "desired_goal": self.goal,
            "achieved_goal": np.array([self.number, float(self.moment)]),
        }


class WalkToTheEnd(Walk):
    """The same; it terminates where its goal is achieved."""

    def compute_terminated(self, achieved_goal, desired_goal, info):
        assert np.shape(achieved_goal) == (2,)
        return bool(self.compute_reward(achieved_goal, desired_goal, info) == 0)

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        over = self.moment >= self.lengths[int(self.number) % len(self.lengths)]
        return observation, reward, False, over, info


class OneByOne(Walk):
    """`compute_reward` for single goals only."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.abs(achieved_goal - desired_goal).max() > 0)


class WithoutReward(Walk):
    """No method `compute_reward`."""

    compute_reward = None

    def step(self, action):
        return self.shown(), 0.0, False, False, {}


class Branching(Walk):
    """A branch on what is an array for many goals."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -1.0 if (achieved_goal - desired_goal)[..., 0] + 1 else 0.0


class OtherRewards(Walk):
    """Rewards that `compute_reward` does not give."""

    def step(self, action):
        observation, reward, *others = super().step(action)
        return observation, reward - 1, *others


class NamedGoals(Walk):
    """Goals that are names."""

    def __init__(self):
        super().__init__()
        parts = {**self.observation_space.spaces, "desired_goal": Discrete(3)}
        self.observation_space = Dict(parts)

    def shown(self):
        return {**super().shown(), "desired_goal": 1}


class Breaking(Walk):
    """Raises in every seventh env step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps % 7 == 0:
            raise RuntimeError("broken")
        return super().step(action)
