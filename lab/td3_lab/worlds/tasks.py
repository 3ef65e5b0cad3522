"""Gymnasium's MuJoCo tasks (v5) as functions of tensors; `parity.py` compares them with Gymnasium's own."""

import torch
from torch import Tensor

from td3.errors import UserError
from td3_lab.worlds.task import State, Task


def _squares(values: Tensor) -> Tensor:
    return values.square().flatten(1).sum(1)


class HalfCheetah(Task):
    """Run with a planar two-legged robot; episodes end by time alone."""

    name, model, frame_skip = "HalfCheetah-v5", "half_cheetah.xml", 5
    position_noise, velocity_noise, normal_velocity = 0.1, 0.1, True

    def observation(self, state: State) -> Tensor:
        """Return positions without x, and velocities."""
        return torch.cat([state.qpos[:, 1:], state.qvel], 1)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the velocity and the cost of the action."""
        return {"forward": velocity, "ctrl": -0.1 * _squares(action)}


class Hopper(Task):
    """Hop on one leg; an episode ends with a fall."""

    name, model, frame_skip = "Hopper-v5", "hopper.xml", 4
    position_noise = velocity_noise = 5e-3

    def observation(self, state: State) -> Tensor:
        """Return positions without x, and clipped velocities."""
        return torch.cat([state.qpos[:, 1:], state.qvel.clamp(-10, 10)], 1)

    def terminated(self, state: State) -> Tensor:
        """Return which worlds lie, lean or have left the range of sound states."""
        rest = torch.cat([state.qpos[:, 2:], state.qvel], 1)
        upright = (state.qpos[:, 1] > 0.7) & (state.qpos[:, 2].abs() < 0.2)
        return ~(upright & (rest.abs() < 100).all(1))

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the velocity, one for standing, and the cost of the action."""
        return {"forward": velocity, "survive": (~terminated).float(), "ctrl": -1e-3 * _squares(action)}


class Walker2d(Hopper):
    """Walk on two legs in a plane; an episode ends with a fall."""

    name, model = "Walker2d-v5", "walker2d_v5.xml"

    def terminated(self, state: State) -> Tensor:
        """Return which worlds lie, jump too high or lean."""
        height, angle = state.qpos[:, 1], state.qpos[:, 2]
        return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


class Swimmer(Task):
    """Swim with three links in a viscous fluid; episodes end by time alone."""

    name, model, frame_skip = "Swimmer-v5", "swimmer.xml", 4
    position_noise = velocity_noise = 0.1

    def observation(self, state: State) -> Tensor:
        """Return positions without x and y, and velocities."""
        return torch.cat([state.qpos[:, 2:], state.qvel], 1)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the velocity and the cost of the action."""
        return {"forward": velocity, "ctrl": -1e-4 * _squares(action)}


class Ant(Task):
    """Walk on four legs; an episode ends when the torso leaves its range of heights."""

    name, model, frame_skip = "Ant-v5", "ant.xml", 5
    position_noise, velocity_noise, normal_velocity = 0.1, 0.1, True
    contacts, constraints = 32, 104
    contact_forces = derived_at_reset = True

    def position(self, state: State) -> Tensor:
        """Return x of the torso."""
        return state.xpos[:, 1, 0]

    def observation(self, state: State) -> Tensor:
        """Return positions without x and y, velocities, and clipped contact forces."""
        forces = state.cfrc_ext[:, 1:].clamp(-1, 1).flatten(1)
        return torch.cat([state.qpos[:, 2:], state.qvel, forces], 1)

    def terminated(self, state: State) -> Tensor:
        """Return which torsos are too low or too high."""
        height = state.qpos[:, 2]
        return ~((height >= 0.2) & (height <= 1.0))

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the velocity, one for being alive, and the costs of action and contacts."""
        return {
            "forward": velocity,
            "survive": (~terminated).float(),
            "ctrl": -0.5 * _squares(action),
            "contact": -5e-4 * _squares(state.cfrc_ext.clamp(-1, 1)),
        }


class Humanoid(Task):
    """Run on two legs in space; an episode ends with a fall. Gymnasium solves contacts with PGS, Warp with Newton."""

    name, model, frame_skip = "Humanoid-v5", "humanoid.xml", 5
    position_noise = velocity_noise = 1e-2
    contacts, constraints = 48, 128
    contact_forces = derived_at_reset = True

    def position(self, state: State) -> Tensor:
        """Return x of the center of mass."""
        return (state.xipos[:, :, 0] * self.masses).sum(1) / self.masses.sum()

    def observation(self, state: State) -> Tensor:
        """Return positions without x and y, velocities, inertias, velocities of the bodies, and forces."""
        bodies = [state.cinert[:, 1:], state.cvel[:, 1:], state.qfrc_actuator[:, 6:], state.cfrc_ext[:, 1:]]
        return torch.cat([state.qpos[:, 2:], state.qvel, *(values.flatten(1) for values in bodies)], 1)

    def terminated(self, state: State) -> Tensor:
        """Return which torsos are too low or too high."""
        height = state.qpos[:, 2]
        return ~((height > 1.0) & (height < 2.0))

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the velocity, five for being alive, and the costs of action and contacts."""
        return {
            "forward": 1.25 * velocity,
            "survive": 5.0 * (~terminated).float(),
            "ctrl": -0.1 * _squares(state.ctrl),
            "contact": -(5e-7 * _squares(state.cfrc_ext)).clamp(max=10.0),
        }


class Reacher(Task):
    """Reach a target with an arm of two links; episodes have 50 steps."""

    name, model, frame_skip = "Reacher-v5", "reacher.xml", 2
    time_limit = 50
    position_noise, velocity_noise = 0.1, 5e-3
    derived_at_reset = True
    fingertip, target = 3, 4

    def _distance(self, state: State) -> Tensor:
        return state.xpos[:, self.fingertip] - state.xpos[:, self.target]

    def observation(self, state: State) -> Tensor:
        """Return the angles' cosines and sines, the target, velocities, and the way to the target."""
        angles, way = state.qpos[:, :2], self._distance(state)[:, :2]
        return torch.cat([angles.cos(), angles.sin(), state.qpos[:, 2:], state.qvel[:, :2], way], 1)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return the distance and the cost of the action."""
        return {"dist": -self._distance(state).norm(dim=1), "ctrl": -_squares(action)}

    def first_state(self, qpos: Tensor, qvel: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return noisy positions, and targets spread evenly over a disc of radius 0.2."""
        qpos, qvel = super().first_state(qpos, qvel, generator)
        draws = torch.rand((2, len(qpos)), generator=generator, device=qpos.device)
        radius, angle = 0.2 * draws[0].sqrt(), 2 * torch.pi * draws[1]
        target = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        return torch.cat([qpos[:, :2], target], 1), torch.cat([qvel[:, :2], torch.zeros_like(target)], 1)


class InvertedPendulum(Task):
    """Balance a pole on a cart; an episode ends when the pole leans."""

    name, model, frame_skip = "InvertedPendulum-v5", "inverted_pendulum.xml", 2
    position_noise = velocity_noise = 0.01

    def observation(self, state: State) -> Tensor:
        """Return positions and velocities."""
        return torch.cat([state.qpos, state.qvel], 1)

    def terminated(self, state: State) -> Tensor:
        """Return which poles lean by more than 0.2."""
        return ~(state.qpos[:, 1].abs() <= 0.2)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return one for a standing pole."""
        return {"survive": (~terminated).float()}


class InvertedDoublePendulum(Task):
    """Balance two poles on a cart; an episode ends when the tip is too low."""

    name, model, frame_skip = "InvertedDoublePendulum-v5", "inverted_double_pendulum.xml", 5
    position_noise, velocity_noise, normal_velocity = 0.1, 0.1, True

    def observation(self, state: State) -> Tensor:
        """Return the cart's place, sines and cosines of the angles, velocities, and the force of the rail's end."""
        angles, force = state.qpos[:, 1:], state.qfrc_constraint.clamp(-10, 10)[:, :1]
        return torch.cat([state.qpos[:, :1], angles.sin(), angles.cos(), state.qvel.clamp(-10, 10), force], 1)

    def terminated(self, state: State) -> Tensor:
        """Return which tips are not above 1."""
        return ~(state.site_xpos[:, 0, 2] > 1)

    def reward(self, state: State, action: Tensor, velocity: Tensor, terminated: Tensor) -> dict[str, Tensor]:
        """Return ten for standing, and the costs of the tip's place and the velocities."""
        tip, speed = state.site_xpos[:, 0], state.qvel
        return {
            "survive": 10.0 * (~terminated).float(),
            "distance_penalty": -(0.01 * tip[:, 0].square() + (tip[:, 2] - 2).square()),
            "velocity_penalty": -(1e-3 * speed[:, 1].square() + 5e-3 * speed[:, 2].square()),
        }


TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        HalfCheetah,
        Hopper,
        Walker2d,
        Swimmer,
        Ant,
        Humanoid,
        Reacher,
        InvertedPendulum,
        InvertedDoublePendulum,
    )
}


def task_named(name: str) -> Task:
    """Return the task of that name."""
    if name not in TASKS:
        raise UserError(f"There is no GPU model of the task {name!r}; there is one of {', '.join(TASKS)}.")
    return TASKS[name]()
