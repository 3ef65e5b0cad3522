"""What an environment draws becomes its observation: small, gray, the newest few images together."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation

from td3.environments import check_environment, make_environment
from td3.errors import EnvironmentFault
from td3.pixels.wrappers import Pixels, averaging, stacked_frames


class Drawn(gym.Env):
    """Counts its steps and draws the count as a shade; the reward is the count, and the fifth step ends it."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None, image=(12, 10, 3)):
        self.render_mode, self.image = render_mode, image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), float(self.count), self.count == 5, False, {}

    def render(self):
        return np.full(self.image, 10 * self.count, np.uint8)


gym.register("DrawnCounting-v0", entry_point=Drawn)
gym.register("CountingUndrawn-v0", entry_point=lambda: Drawn())
gym.register("CountingFlat-v0", entry_point=lambda render_mode=None: Drawn(render_mode, (12, 10)))
ACTION = np.zeros(1, np.float32)


def test_the_newest_pictures_come_last_and_the_first_one_repeats():
    environment = make_environment("DrawnCounting-v0", pixels=True, frames=3, image_size=16)
    assert environment.observation_space == Box(0, 255, (3, 16, 16), np.uint8)
    shades = [environment.reset(seed=0)[0][:, 0, 0].tolist()]
    shades += [environment.step(ACTION)[0][:, 0, 0].tolist() for _ in range(3)]
    assert shades == [[0, 0, 0], [0, 0, 10], [0, 10, 20], [10, 20, 30]]


def test_an_action_is_repeated_and_its_rewards_are_added_up_to_the_end():
    environment = make_environment("DrawnCounting-v0", pixels=True, frames=1, image_size=16, action_repeat=3)
    environment.reset(seed=0)
    observation, reward, terminated, *_ = environment.step(ACTION)
    assert (observation.max(), reward, terminated) == (30, 6.0, False)
    observation, reward, terminated, *_ = environment.step(ACTION)
    assert (observation.max(), reward, terminated) == (50, 9.0, True)


def test_actions_are_repeated_for_vectors_too():
    environment = make_environment("DrawnCounting-v0", action_repeat=2)
    environment.reset(seed=0)
    assert environment.step(ACTION)[1] == 3.0


def test_pictures_are_made_smaller_by_means_and_gray_by_brightness():
    np.testing.assert_allclose(averaging(4, 2), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    np.testing.assert_allclose(averaging(3, 2), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]], rtol=1e-6)
    np.testing.assert_allclose(averaging(2, 4), [[1, 0], [1, 0], [0, 1], [0, 1]])

    class Coloured(Drawn):
        def render(self):
            image = np.zeros((32, 48, 3), np.uint8)
            image[:16, :24, 0], image[:16, 24:, 1], image[16:, :24, 2], image[16:, 24:] = 255, 255, 255, 255
            return image

    gray = Pixels(Coloured("rgb_array"), "Colored", 16).observation(None)
    assert [gray[0, 0], gray[0, -1], gray[-1, 0], gray[-1, -1]] == [76, 150, 29, 255]
    assert {*gray.ravel().tolist()} == {76, 150, 29, 255}


@pytest.mark.parametrize("name", ["CountingUndrawn-v0", "CountingFlat-v0"])
def test_an_environment_that_draws_nothing_is_refused_in_one_sentence(name):
    with pytest.raises(EnvironmentFault, match=r"has no renderer that gives images|cannot be made"):
        make_environment(name, pixels=True).reset(seed=0)


@pytest.mark.parametrize(
    ("space", "stack", "frames"),
    [
        ((84, 84, 3), 0, 1),
        ((3, 84, 84), 0, 1),
        ((84, 84), 0, 1),
        ((84, 84), 4, 4),
        ((32, 40, 3), 3, 3),
        ((9,), 0, 0),
        ((7, 7), 0, 0),
    ],
)
def test_pictures_are_told_from_tables_and_stacks_from_channels(space, stack, frames):
    class Shown(Drawn):
        observation_space = Box(0, 255, space, np.uint8)

        def reset(self, **options):
            super().reset(**options)
            return np.zeros(space, np.uint8), {}

        def step(self, action):
            return np.zeros(space, np.uint8), *super().step(action)[1:]

    environment = FrameStackObservation(Shown(), stack) if stack else Shown()
    spaces = check_environment(environment, "Shown")
    assert spaces.frames == frames
    assert spaces.state_size == np.prod(environment.observation_space.shape)
    assert stacked_frames(environment) == max(stack, 1)


def test_pendulum_shows_its_pole():
    pytest.importorskip("pygame", reason="comes with an extra")
    environment = make_environment("Pendulum-v1", pixels=True)
    images, _ = environment.reset(seed=0)
    assert images.shape == (3, 84, 84)
    assert images.max() == 255  # paper
    assert 50 < np.count_nonzero(images[-1] < 160) < 1_000  # pole
    environment.close()
