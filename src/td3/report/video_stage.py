"""A trained agent in a rendered environment, without a display."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from td3.environments.make import family_of, make_environment
from td3.errors import EnvironmentFault
from td3.pixels import wrappers as pixels
from td3.policy import Array, Policy, forward
from td3.report.video_drawing import Strip, short_number
from td3.run.agent_file import load_agent


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
        spec = self.environment.spec  # of Gymnasium's registry; a user's class has none
        self._image: Array = np.zeros(0)
        self._is_small = spec is not None and "width" in spec.kwargs and env_arguments.get("pixels", False)

    def reset(self, seed: int) -> None:
        """A new episode."""
        self._observation, _ = self.environment.reset(seed=seed)
        self.strip.clear()
        self.ended = False

    def rehearse(self, seed: int, max_steps: int) -> None:
        """Play the episode without rendering, so that scales and observed returns are known when it is recorded."""
        self.reset(seed)
        while not self.ended and len(self.strip.rewards) < max_steps:
            self.step()
        self.strip.set_scales(self.player.gamma)

    def step(self) -> None:
        """One env step, with its reward and the Q-value of critic 1."""
        action, critic = self.player.policy.act(self._observation), self.player.critic
        q_value = None if critic is None else critic(np.ravel(self._observation), np.ravel(action))
        self._observation, reward, terminated, truncated, _ = self.environment.step(action)
        self.strip.add(float(reward), q_value)
        self.ended = bool(terminated or truncated)

    def image(self, plain: bool = False) -> Array:
        """The current frame; once the episode has ended, its newest one, dimmed."""
        if self.ended:
            return np.asarray(self._image * 0.45, np.uint8)
        frame = pixels.render_frame(self.environment, self.env)
        if self._is_small:  # rendered at the size of the observations, too small for the strip
            frame = frame.repeat(2, 0).repeat(2, 1)
        label = f"{self.player.label}   return {short_number(sum(self.strip.rewards, 0.0))}".lstrip()
        self._image = frame if plain else self.strip.under(frame, label)
        return self._image


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
    layer_norm = bool(facts.get("critic_layer_norm", False))

    def q_value(state: Array, action: Array) -> float:
        inputs = np.concatenate((policy.seen(state[None])[0], action)).astype(np.float32)
        return float(forward(layers, inputs, policy.activation, layer_norm)[0])

    return q_value
