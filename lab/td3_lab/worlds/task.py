"""What a task is: a model, what the agent sees, what it earns and when an episode ends, as functions of tensors."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass
class State:
    """MuJoCo's quantities of every world, each a tensor `[world, ...]`; a step of the physics writes them in place."""

    qpos: Tensor
    qvel: Tensor
    ctrl: Tensor
    xpos: Tensor
    xipos: Tensor
    site_xpos: Tensor
    cinert: Tensor
    cvel: Tensor
    cfrc_ext: Tensor
    qfrc_actuator: Tensor
    qfrc_constraint: Tensor


@dataclass
class Step:
    """What an env step of every world gave; each tensor is overwritten by the next step."""

    observation: Tensor
    """The last observations `[world, observation]`, before an ended episode starts anew."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor

    @property
    def ended(self) -> Tensor:
        """Return which episodes have ended."""
        return self.terminated | self.truncated


class Task:
    """A task on many worlds at once; a subclass states the model and four functions, `tasks.py` has nine examples."""

    name: str
    model: str
    """MJCF file: a path, or the name of a file in Gymnasium's folder of models."""
    frame_skip: int
    time_limit = 1000
    position_noise = 0.0
    """Half the width of the uniform noise on the first positions of an episode."""
    velocity_noise = 0.0
    normal_velocity = False
    """Whether the noise on the first velocities is normal instead of uniform."""
    contacts = 24
    """Contacts per world for which memory is taken (`nconmax`)."""
    constraints = 72
    """Rows of constraints per world for which memory is taken (`njmax`)."""
    contact_forces = False
    """Whether `cfrc_ext` is read, which costs a pass over the bodies after each env step."""
    derived_at_reset = False
    """Whether the first observation needs more than qpos and qvel, which costs kinematics in every round."""

    masses: Tensor
    """Masses of the bodies `[body]`, from the model."""

    def model_path(self) -> str:
        """Return the MJCF file as a path."""
        if Path(self.model).is_file():
            return self.model
        import gymnasium

        return str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / self.model)

    def position(self, state: State) -> Tensor:
        """Return the coordinate `[world]` whose change over an env step is the velocity that `reward` receives."""
        return state.qpos[:, 0]

    def observation(self, state: State) -> Tensor:
        """Return the observations `[world, observation]`."""
        raise NotImplementedError

    def terminated(self, state: State) -> Tensor:
        """Return which worlds have ended in a terminal state `[world]`."""
        return torch.zeros_like(state.qpos[:, 0], dtype=torch.bool)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the terms of the reward, each `[world]`; the reward is their sum."""
        raise NotImplementedError

    def first_state(self, qpos: Tensor, qvel: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return positions and velocities of a new episode for every world, given the model's own."""

        def uniform(like: Tensor) -> Tensor:
            return torch.rand(like.shape, generator=generator, device=like.device) * 2 - 1

        noise = (
            torch.randn(qvel.shape, generator=generator, device=qvel.device) if self.normal_velocity else uniform(qvel)
        )
        return qpos + self.position_noise * uniform(qpos), qvel + self.velocity_noise * noise
