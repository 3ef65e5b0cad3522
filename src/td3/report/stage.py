"""A trained agent in a rendered environment, without a display."""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from td3.environments.make import family_of, make_environment
from td3.errors import EnvironmentFault, UserError
from td3.pixels import wrappers as pixels
from td3.policy import ACTIVATIONS, Array, Policy, forward
from td3.report.strip import Strip, short_number
from td3.run.agent_file import load_agent
from td3.user_code import describe

NORM_EPSILON = 1e-5
"""Added to the variance in LayerNorm (as in `td3.backends.base`, which imports PyTorch)."""


def prepare_headless_rendering(env: str) -> None:
    """Let MuJoCo and pygame render without a display; call it before mujoco is imported."""
    family = family_of(env)
    pixels.prepare_headless_rendering(family and family.package)


class Player(NamedTuple):
    """An actor, its critic if it is known, and the label in the video."""

    policy: Policy
    critic: Callable[[Array, Array], float] | None = None
    label: str = ""
    gamma: float = 0.99
    env_steps: int = 0


class Stage:
    """A rendered environment and the player in it."""

    def __init__(self, env_arguments: Mapping[str, Any], player: Player) -> None:
        self.env, self.player, self.strip = env_arguments["env"], player, Strip()
        self.environment = make_rendered(**env_arguments)
        # Gymnasium gives a spec to environments of its registry; a user's class has none.
        given = {} if self.environment.spec is None else self.environment.spec.kwargs
        self._is_small = "width" in given and env_arguments.get("pixels", False)

    def reset(self, seed: int) -> None:
        """A new episode."""
        self._observation, _ = self.environment.reset(seed=seed)
        self.strip.clear()
        self.ended, self.step_number = False, 0

    def rehearse(self, seed: int, max_steps: int) -> None:
        """Play the episode without rendering, so that scales and observed returns are known when it is recorded."""
        self.reset(seed)
        rewards: list[float] = []
        values: list[float] = []
        while not self.ended and self.step_number < max_steps:
            reward, value = self.step()
            rewards.append(reward)
            values += [] if value is None else [value]
        self.strip.expect(rewards, values, self.player.gamma)

    def step(self) -> tuple[float, float | None]:
        """One env step: its reward and the Q-value of critic 1."""
        action, critic = self.player.policy.act(self._observation), self.player.critic
        value = None if critic is None else critic(np.ravel(self._observation), np.ravel(action))
        self._observation, reward, terminated, truncated, _ = self.environment.step(action)
        self.strip.add(float(reward), value)
        self.ended, self.step_number = bool(terminated or truncated), self.step_number + 1
        return float(reward), value

    def image(self, with_strip: bool) -> Array:
        """The current frame."""
        frame = pixels.render_frame(self.environment, self.env)
        if self._is_small:  # rendered at the size of the observations, too small for the strip
            frame = frame.repeat(2, 0).repeat(2, 1)
        if not with_strip:
            return frame
        label = f"{self.player.label}   return {short_number(self.strip.total)}".lstrip()
        return self.strip.under(frame, label)


def make_rendered(env: str, **env_arguments: Any) -> Any:
    """The environment with frames as RGB arrays."""
    family = family_of(env)
    # The camera that follows the body, where the model has one; MuJoCo falls back to its free camera.
    is_mujoco = family is not None and family.extra == "mujoco" and not env_arguments.get("pixels")
    view: dict[str, Any] = {"width": 320, "height": 240, "camera_name": "track"} if is_mujoco else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a missing renderer is an error below
            environment = make_environment(env, **env_arguments, render_mode="rgb_array", **view)
    except EnvironmentFault as fault:
        if "render_mode" in str(fault) or "takes no arguments" in str(fault):  # a class without __init__
            raise pixels.no_renderer(env) from None
        raise
    if environment.render_mode != "rgb_array":
        environment.close()
        raise pixels.no_renderer(env)
    return environment


def require_frames(env_arguments: Mapping[str, Any]) -> None:
    """Refuse an environment that cannot be drawn, such as one whose renderer needs a package that is missing."""
    with contextlib.closing(make_rendered(**env_arguments)) as environment:
        try:
            environment.reset(seed=0)
            pixels.render_frame(environment, env_arguments["env"])
        except UserError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"{env_arguments['env']} cannot be drawn for a video ({describe(error)})."
            ) from error


def saved_critic(folder: Path) -> Callable[[Array, Array], float] | None:
    """Critic 1 of a saved agent, in numpy; None if only the actor was saved."""
    tensors = load_file(folder / "agent.safetensors")
    layers: list[tuple[Array, Array]] = []
    while f"critic_1.{len(layers)}.weight" in tensors:
        name = f"critic_1.{len(layers)}"
        layers.append((tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]))
    if not layers:
        return None
    policy, facts = load_agent(folder)
    network = _normalized_forward if facts.get("critic_layer_norm", False) else forward

    def q_value(state: Array, action: Array) -> float:
        seen = policy.seen(state[None])[0]
        inputs = np.concatenate((seen, action)).astype(np.float32)
        return float(network(layers, inputs, policy.activation)[0])

    return q_value


def _normalized_forward(layers: Sequence[tuple[Array, Array]], inputs: Array, activation: str) -> Array:
    """The outputs for one row of inputs where the hidden layers have LayerNorm, without learned scale and shift."""
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = hidden @ weight + bias
        hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + NORM_EPSILON)
        hidden = ACTIVATIONS[activation](hidden)
    weight, bias = layers[-1]
    return np.asarray(hidden @ weight + bias)
