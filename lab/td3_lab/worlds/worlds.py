"""Many worlds of a task on MuJoCo Warp: tensors in, tensors out, episodes restarted on the device."""

from collections.abc import Callable
from dataclasses import fields

import mujoco
import torch
from torch import Tensor

from td3.errors import UserError
from td3_lab.worlds.task import State, Step, Task

ENGINE = "3.11.0"
"""The version of mujoco and mujoco-warp that the tasks are compared with Gymnasium on."""

try:
    import mujoco_warp
    import warp
except ImportError as error:
    needed = f"pip install mujoco=={ENGINE} mujoco-warp=={ENGINE} warp-lang"
    raise UserError(f"Worlds need MuJoCo Warp, in an environment of its own: {needed}") from error
if mujoco.__version__ != ENGINE:
    raise UserError(
        f"The worlds are compared with Gymnasium on mujoco {ENGINE}, and {mujoco.__version__} is installed: "
        f"pip install mujoco=={ENGINE} mujoco-warp=={ENGINE}"
    )

LARGEST_SPEED = 1e6
"""A world with a faster joint has blown up; MuJoCo's own limit is 1e10, which float32 squares cannot hold."""


class Worlds:
    """A batch of worlds; `observation` holds what the agent acts on, `step` advances every world by one env step.

    On a GPU the physics is one CUDA graph on `stream`, in order with PyTorch's current stream; the parts before and
    after it use no host values, so a caller may capture them. An episode restarts in the step that ended it.
    """

    def __init__(
        self,
        task: Task,
        count: int,
        device: str = "cpu",
        seed: int = 0,
        solver_iterations: int | None = None,
        spread_clocks: bool = True,
    ) -> None:
        self.task, self.count, self.device = task, count, torch.device(device)
        warp.config.quiet = True
        warp.init()
        self.stream = torch.cuda.Stream(priority=-1) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._warp_stream = None if self.stream is None else warp.stream_from_torch(self.stream)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        with warp.ScopedDevice("cpu" if self.stream is None else f"cuda:{torch.cuda.current_device()}"):
            self._load(solver_iterations)
        limit = task.time_limit
        clocks = torch.randint(limit, (count,), generator=self.generator, device=self.device)
        self.clock = clocks if spread_clocks else torch.zeros_like(clocks)
        self.blown_up, self.overflowed = (torch.zeros((), dtype=torch.long, device=self.device) for _ in range(2))
        self._everywhere = torch.ones(count, dtype=torch.bool, device=self.device)
        self._graphs = {name: self._captured(launch) for name, launch in self._launches().items()}
        self._run("kinematics")
        self.observation = task.observation(self.state).clone()
        self._position = task.position(self.state).clone()
        self.reset()

    def _load(self, solver_iterations: int | None) -> None:
        model = mujoco.MjModel.from_xml_path(self.task.model_path())
        # Warp has no PGS solver, which Gymnasium's Humanoid uses.
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        if solver_iterations is not None:
            model.opt.iterations = solver_iterations
        self._model = mujoco_warp.put_model(model)
        self._model.opt.warn_overflow = False
        limits = {"nconmax": self.task.contacts, "njmax": self.task.constraints}
        self._data = mujoco_warp.make_data(model, nworld=self.count, **limits)
        self.state = State(*(warp.to_torch(getattr(self._data, field.name)) for field in fields(State)))
        self._warmstart = warp.to_torch(self._data.qacc_warmstart)
        self._overflow = warp.to_torch(self._data.overflow)

        def tensor(values: object) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=self.device)

        low, high = (tensor(model.actuator_ctrlrange[:, i]) for i in (0, 1))
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self.task.masses = tensor(model.body_mass)
        self._qpos0 = tensor(model.qpos0).expand(self.count, -1)
        self._qvel0 = torch.zeros(self.count, model.nv, device=self.device)
        self.seconds = model.opt.timestep * self.task.frame_skip
        self.actions = model.nu

    def reset(self) -> Tensor:
        """Start a new episode in every world and return the observations; the clocks keep their spread."""
        self._restart(self._everywhere)
        self._run("kinematics")
        self._derived_of_new(self._everywhere)
        self.observation.copy_(self.task.observation(self.state))
        self._position.copy_(self.task.position(self.state))
        return self.observation

    def step(self, action: Tensor) -> Step:
        """Advance every world by one env step under actions in [-1, 1], and restart those that ended."""
        self.begin(action)
        self.physics()
        return self.finish()

    def step_from(self, qpos: Tensor, qvel: Tensor, warmstart: Tensor, position: Tensor, action: Tensor) -> Step:
        """Return one env step from given states, under actions in the model's own range."""
        self.state.qpos.copy_(qpos)
        self.state.qvel.copy_(qvel)
        self._warmstart.copy_(warmstart)
        self._position.copy_(position)
        self.state.ctrl.copy_(action)
        self.physics()
        return self.finish()

    def begin(self, action: Tensor) -> None:
        """Write the actions, scaled from [-1, 1] to the model's range, into the simulator."""
        self.state.ctrl.copy_(self._middle + self._half * action)

    def physics(self) -> None:
        """Simulate one env step of every world."""
        self._run("physics")

    def finish(self) -> Step:
        """Return what the step gave, and restart the worlds whose episode ended."""
        step = self.outcome()
        self.refresh()
        self.restarted(step)
        return step

    def refresh(self) -> None:
        """Compute what first observations need beyond positions and velocities, where a task says so."""
        if self.task.derived_at_reset:
            self._run("kinematics")

    def outcome(self) -> Step:
        """Return observations, rewards and ends, and write first states into the worlds that ended."""
        state, task = self.state, self.task
        joints = torch.cat([state.qpos, state.qvel], 1)
        sound = torch.isfinite(joints).all(1) & (state.qvel.abs() < LARGEST_SPEED).all(1)
        position = task.position(state)
        terminated = task.terminated(state)
        terms = task.reward(state, state.ctrl, (position - self._position) / self.seconds, terminated)
        reward, observation = torch.stack(list(terms.values())).sum(0), task.observation(state)
        sound &= torch.isfinite(reward) & torch.isfinite(observation).all(1)
        # The episode of a world that blew up is cut off before the step that broke it, without a reward.
        observation = torch.where(sound[:, None], observation, self.observation)
        self.clock.add_(1)
        terminated = terminated & sound
        truncated = ~terminated & (~sound | (self.clock >= task.time_limit))
        step = Step(observation, torch.where(sound, reward, 0.0), terminated, truncated)
        self.blown_up.add_((~sound).sum())
        self.overflowed.add_((self._overflow != 0).sum())
        self._overflow.zero_()
        self._position.copy_(torch.nan_to_num(position))
        self._restart(step.ended)
        return step

    def restarted(self, step: Step) -> None:
        """Put the first observations of restarted worlds in place of the last ones."""
        ended = step.ended
        self._derived_of_new(ended)
        self.observation.copy_(torch.where(ended[:, None], self.task.observation(self.state), step.observation))
        self._position.copy_(torch.where(ended, self.task.position(self.state), self._position))
        self.clock.mul_(~ended)

    def _restart(self, ended: Tensor) -> None:
        qpos, qvel = self.task.first_state(self._qpos0, self._qvel0, self.generator)
        self.state.qpos.copy_(torch.where(ended[:, None], qpos, self.state.qpos))
        self.state.qvel.copy_(torch.where(ended[:, None], qvel, self.state.qvel))
        self._warmstart.copy_(torch.where(ended[:, None], 0.0, self._warmstart))

    def _derived_of_new(self, ended: Tensor) -> None:
        """Set the forces of new episodes to zero, as Gymnasium's first observation has them."""
        for force in (self.state.cfrc_ext, self.state.qfrc_actuator, self.state.qfrc_constraint):
            force.copy_(torch.where(ended.view(-1, *[1] * (force.dim() - 1)), 0.0, force))

    def _simulate(self) -> None:
        for _ in range(self.task.frame_skip):
            mujoco_warp.step(self._model, self._data)
        if self.task.contact_forces:
            mujoco_warp.rne_postconstraint(self._model, self._data)

    def _kinematics(self) -> None:
        mujoco_warp.kinematics(self._model, self._data)
        mujoco_warp.com_pos(self._model, self._data)
        mujoco_warp.com_vel(self._model, self._data)

    def _launches(self) -> dict[str, Callable[[], None]]:
        return {"physics": self._simulate, "kinematics": self._kinematics}

    def _captured(self, launch: Callable[[], None]) -> warp.Graph | None:
        """Return the launches as a CUDA graph, on a CPU nothing; the worlds need a reset afterwards."""
        if self.stream is None:
            return None
        torch.cuda.synchronize()
        with warp.ScopedStream(self._warp_stream):
            launch()  # compiles the kernels, which a capture cannot
            with warp.ScopedCapture() as capture:
                launch()
        torch.cuda.synchronize()
        return capture.graph

    def _run(self, name: str) -> None:
        """Run a part of the simulator; on a GPU its graph, in order with the current stream."""
        if self.stream is None:
            with warp.ScopedDevice("cpu"):
                self._launches()[name]()
            return
        current = torch.cuda.current_stream()
        if current != self.stream:
            self.stream.wait_stream(current)
        warp.capture_launch(self._graphs[name], stream=self._warp_stream)
        if current != self.stream:
            current.wait_stream(self.stream)
