"""Observations, rewards and terminations of Gymnasium's MuJoCo tasks, computed for many environments at once.

Every formula has the order of operations and the types of Gymnasium's own class, so that each number is equal to the
last bit (tests/environments/test_mujoco_batch.py); positions and velocities are float64, actions float32.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Outcome = tuple[Array, Array]
"""Rewards and terminations, `[environment]`."""


class ObservationPart(NamedTuple):
    """A part of an observation that is read from the simulation as it is, or clipped."""

    numbers: Array
    low: float = -np.inf
    high: float = np.inf


class Task:
    """One of Gymnasium's tasks; `parts` are the `state_arrays`, `[environment, number]`, after the latest step.

    Weights and ranges are those of `env`, a Gymnasium environment; `v4` says which of its two versions it is.
    """

    needs_contact_forces = True
    """Whether `mj_rnePostConstraint` must follow a step: only contact forces (`cfrc_ext`) come from it."""

    @classmethod
    def state_arrays(cls, env: Any) -> tuple[Array, ...]:
        """The arrays of one environment's simulation that rewards, terminations and `write_observations` need."""
        return env.data.qpos, env.data.qvel

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """What an observation consists of; nothing where `write_observations` computes it."""
        return ObservationPart(env.data.qpos[_hidden(env, 1) :]), ObservationPart(env.data.qvel)

    def __init__(self, env: Any, v4: bool, *parts: Array) -> None:
        self.env, self.v4, self.dt = env, v4, env.dt
        self.qpos, self.qvel, *self.rest = parts

    def progress(self) -> Array:
        """What the reward of the next step needs to know of the state before it."""
        return self.qpos[:, 0].copy()

    def write_observations(self, out: Array) -> None:
        """Write every environment's observation, where it is not read as it is."""

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Rewards and terminations of a step, given `progress()` as it was before and is after the step.

        `squared_actions` are the sums of the actions' squares.
        """
        raise NotImplementedError

    def _healthy_reward(self, healthy: Array) -> Array:
        counted = healthy | self.env._terminate_when_unhealthy if self.v4 else healthy
        return np.asarray(counted * self.env._healthy_reward)

    def _unhealthy(self, healthy: Array) -> Array:
        return ~healthy if self.env._terminate_when_unhealthy else np.zeros_like(healthy)


def _hidden(env: Any, count: int) -> int:
    """How many positions the observation leaves out."""
    return count * bool(getattr(env, "_exclude_current_positions_from_observation", True))


def never(count: int) -> Array:
    """Terminations of a task that has none."""
    return np.zeros(count, bool)


def between(low: float, values: Array, high: float) -> Array:
    """Whether values lie inside an open range."""
    return np.asarray((low < values) & (values < high))


class HalfCheetah(Task):
    """Run forward; nothing ends an episode but time."""

    needs_contact_forces = False

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Velocity less the cost of control."""
        forward = self.env._forward_reward_weight * ((after - before) / self.dt)
        return forward - self.env._ctrl_cost_weight * squared_actions, never(len(actions))


class Swimmer(HalfCheetah):
    """As HalfCheetah, in the plane."""

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions and velocities."""
        return ObservationPart(env.data.qpos[_hidden(env, 2) :]), ObservationPart(env.data.qvel)


class Walker2d(Task):
    """Walk forward and do not fall."""

    needs_contact_forces = False

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions and clipped velocities."""
        return ObservationPart(env.data.qpos[_hidden(env, 1) :]), ObservationPart(env.data.qvel, -10, 10)

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Velocity and health less the cost of control."""
        healthy = self._healthy()
        forward = self.env._forward_reward_weight * ((after - before) / self.dt)
        reward = forward + self._healthy_reward(healthy) - self.env._ctrl_cost_weight * squared_actions
        return reward, self._unhealthy(healthy)

    def _healthy(self) -> Array:
        height, angle = self.env._healthy_z_range, self.env._healthy_angle_range
        return between(height[0], self.qpos[:, 1], height[1]) & between(angle[0], self.qpos[:, 2], angle[1])


class Hopper(Walker2d):
    """As Walker2d, on one leg; also ended by any large position or velocity."""

    def _healthy(self) -> Array:
        low, high = self.env._healthy_state_range
        state = between(low, self.qpos[:, 2:], high).all(1) & between(low, self.qvel, high).all(1)
        return np.asarray(state & super()._healthy())


class Ant(Task):
    """Walk forward on four legs, without jumping or falling."""

    def __init__(self, env: Any, v4: bool, *parts: Array) -> None:
        super().__init__(env, v4, *parts)
        self.torso, *self.forces = self.rest
        self.needs_contact_forces = bool(self.forces)

    @classmethod
    def state_arrays(cls, env: Any) -> tuple[Array, ...]:
        """Also the torso's place and, where they are looked at, contact forces."""
        torso = env.data.body(getattr(env, "_main_body", "torso")).xpos
        forces = (env.data.cfrc_ext,) if getattr(env, "_use_contact_forces", True) else ()
        return env.data.qpos, env.data.qvel, torso, *forces

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions, velocities, contact forces (of v5 not the world's)."""
        parts = ObservationPart(env.data.qpos[_hidden(env, 2) :]), ObservationPart(env.data.qvel)
        if not (env._use_contact_forces if v4 else env._include_cfrc_ext_in_observation):
            return parts
        return *parts, ObservationPart(env.data.cfrc_ext[0 if v4 else 1 :], *env._contact_force_range)

    def progress(self) -> Array:
        """Where the torso is, along x."""
        return self.torso[:, 0].copy()

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Velocity and health less the costs of control and of contacts."""
        low, high = self.env._healthy_z_range
        height = self.qpos[:, 2]
        finite = np.isfinite(self.qpos).all(1) & np.isfinite(self.qvel).all(1)
        healthy = finite & (low <= height) & (height <= high)
        forward = (after - before) / self.dt * getattr(self.env, "_forward_reward_weight", 1)
        costs = self.env._ctrl_cost_weight * squared_actions
        if self.forces:
            clipped = np.clip(self.forces[0], *self.env._contact_force_range)
            costs = costs + self.env._contact_cost_weight * np.square(clipped).sum(1)
        return forward + self._healthy_reward(healthy) - costs, self._unhealthy(healthy)


class Humanoid(Task):
    """Walk forward on two legs and do not fall."""

    @classmethod
    def state_arrays(cls, env: Any) -> tuple[Array, ...]:
        """Also contact forces and the centers of mass."""
        return env.data.qpos, env.data.qvel, env.data.cfrc_ext, env.data.xipos

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions, velocities, inertia and forces; v5 leaves out the world's and the root's, and what one likes."""
        firsts = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
        bodies = (
            ObservationPart(getattr(env.data, name)[0 if v4 else first :])
            for name, first in firsts.items()
            if v4 or getattr(env, f"_include_{name}_in_observation") is True
        )
        return ObservationPart(env.data.qpos[_hidden(env, 2) :]), ObservationPart(env.data.qvel), *bodies

    def progress(self) -> Array:
        """Where the center of mass is, along x."""
        mass = self.env.model.body_mass
        centers = self.rest[1].reshape(len(self.qpos), -1, 3)
        return np.asarray((np.einsum("b,nbj->nj", mass, centers) / mass.sum())[:, 0])

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Velocity and health less the costs of control and (v5) of contacts."""
        healthy = between(self.env._healthy_z_range[0], self.qpos[:, 2], self.env._healthy_z_range[1])
        forward = self.env._forward_reward_weight * ((after - before) / self.dt)
        costs = self.env._ctrl_cost_weight * _squared_controls(actions)
        if not self.v4:
            contact = self.env._contact_cost_weight * np.square(self.rest[0]).sum(1)
            costs = costs + np.clip(contact, *self.env._contact_cost_range)
        return forward + self._healthy_reward(healthy) - costs, self._unhealthy(healthy)


class HumanoidStandup(Humanoid):
    """Get up."""

    def progress(self) -> Array:
        """Nothing."""
        return never(len(self.qpos))

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Height less the costs of control and of impacts."""
        env: Any = self.env
        control_weight, impact_weight = (0.1, 5e-07) if self.v4 else (env._ctrl_cost_weight, env._impact_cost_weight)
        impacts = impact_weight * np.square(self.rest[0]).sum(1)
        impacts = np.minimum(impacts, 10) if self.v4 else np.clip(impacts, *env._impact_cost_range)
        height = (self.qpos[:, 2] - 0) / env.model.opt.timestep
        return height - control_weight * _squared_controls(actions) - impacts + 1, never(len(actions))


def _squared_controls(actions: Array) -> Array:
    """Sums of the actions' squares in float64, which the simulation's controls are."""
    return np.asarray(np.square(actions.astype(np.float64)).sum(1))


class InvertedPendulum(Task):
    """Keep a pole upright."""

    needs_contact_forces = False

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions and velocities."""
        return ObservationPart(env.data.qpos), ObservationPart(env.data.qvel)

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """One for every step; version 5 gives none for the last."""
        finite = np.isfinite(self.qpos).all(1) & np.isfinite(self.qvel).all(1)
        fallen = ~finite | (np.abs(self.qpos[:, 1]) > 0.2)
        return np.ones(len(actions)) if self.v4 else (~fallen).astype(np.float64), fallen


class InvertedDoublePendulum(Task):
    """Keep two poles upright, one upon the other."""

    needs_contact_forces = False

    @classmethod
    def state_arrays(cls, env: Any) -> tuple[Array, ...]:
        """Also the forces of the rail's ends and the place of the tip."""
        return env.data.qpos, env.data.qvel, env.data.qfrc_constraint, env.data.site_xpos[0]

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Nothing as it is."""
        return ()

    def write_observations(self, out: Array) -> None:
        """Place, angles as sines and cosines, velocities and forces."""
        angles, forces = self.qpos[:, 1:], np.clip(self.rest[0], -10, 10)
        parts = self.qpos[:, :1], np.sin(angles), np.cos(angles), np.clip(self.qvel, -10, 10)
        np.concatenate((*parts, forces if self.v4 else forces[:, :1]), 1, out=out, casting="same_kind")

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """A bonus less distance and velocity; one by one, because NumPy rounds `x**2` of an array in another way."""
        fallen = self.rest[1][:, 2] <= 1
        rewards = np.empty(len(fallen))
        for index, ((x, _, y), (_, v1, v2)) in enumerate(zip(self.rest[1], self.qvel, strict=True)):
            distance = 0.01 * x**2 + (y - 2) ** 2
            velocity = 0.001 * v1**2 + 0.005 * v2**2
            bonus = 10 if self.v4 else self.env._healthy_reward * int(not fallen[index])
            rewards[index] = bonus - distance - velocity
        return rewards, fallen


class Reacher(Task):
    """Bring the fingertip to the target."""

    needs_contact_forces = False
    bodies: ClassVar[tuple[str, ...]] = ("fingertip", "target")

    @classmethod
    def state_arrays(cls, env: Any) -> tuple[Array, ...]:
        """Also the places of the bodies."""
        return env.data.qpos, env.data.qvel, *(env.data.body(name).xpos for name in cls.bodies)

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Nothing as it is."""
        return ()

    def progress(self) -> Array:
        """The distance."""
        return norm(self.rest[0] - self.rest[1])

    def write_observations(self, out: Array) -> None:
        """Angles as sines and cosines, the target, velocities, and the way to the target."""
        angles, way = self.qpos[:, :2], self.rest[0] - self.rest[1]
        parts = np.cos(angles), np.sin(angles), self.qpos[:, 2:], self.qvel[:, :2]
        np.concatenate((*parts, way if self.v4 else way[:, :2]), 1, out=out, casting="same_kind")

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Less distance (version 4: before the step) and less control are better."""
        if self.v4:
            return -before + -squared_actions, never(len(actions))
        env = self.env
        return -after * env._reward_dist_weight + -squared_actions * env._reward_control_weight, never(len(actions))


class Pusher(Reacher):
    """Push the object to the goal; version 4 does not run on today's MuJoCo."""

    bodies: ClassVar[tuple[str, ...]] = ("tips_arm", "object", "goal")

    @classmethod
    def observation_parts(cls, env: Any, v4: bool) -> tuple[ObservationPart, ...]:
        """Positions and velocities of the arm, and three places."""
        qpos, qvel, *places = cls.state_arrays(env)
        return ObservationPart(qpos[:7]), ObservationPart(qvel[:7]), *map(ObservationPart, places)

    def progress(self) -> Array:
        """Nothing."""
        return never(len(self.qpos))

    def write_observations(self, out: Array) -> None:
        """Nothing: an observation is read as it is."""

    def outcome(self, before: Array, after: Array, actions: Array, squared_actions: Array) -> Outcome:
        """Nearer to the object, the object nearer to the goal, less control."""
        tips, thing, goal = self.rest
        near = -norm(thing - tips) * self.env._reward_near_weight
        distance = -norm(thing - goal) * self.env._reward_dist_weight
        return distance + -squared_actions * self.env._reward_control_weight + near, never(len(actions))


def norm(vectors: Array) -> Array:
    """Lengths, as `numpy.linalg.norm` computes that of one vector: by BLAS's product of it with itself."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))


TASKS: dict[str, type[Task]] = {
    "ant": Ant,
    "half_cheetah": HalfCheetah,
    "hopper": Hopper,
    "humanoid": Humanoid,
    "humanoidstandup": HumanoidStandup,
    "inverted_double_pendulum": InvertedDoublePendulum,
    "inverted_pendulum": InvertedPendulum,
    "pusher": Pusher,
    "reacher": Reacher,
    "swimmer": Swimmer,
    "walker2d": Walker2d,
}
"""By the name of Gymnasium's module, less its version."""
