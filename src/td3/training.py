"""The loop: act, update, step, store; evaluate and write on a schedule of env steps.

One order of events, whatever the engine: the action comes from the actor as the last update left it; while the
environments do it, the update draws from the buffer as it was before that step.
"""

import contextlib
import json
import math
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from td3.algorithm import Agent, AgentSpec, NormalizedReplayBuffer, ReplayBuffer, make_replay_buffer
from td3.algorithm.optimizer import NonFinite
from td3.callbacks.base import Callback, CallbackList, WarningsCallback
from td3.callbacks.standard import standard_callbacks
from td3.collect import RayCollector, require_cluster
from td3.collect.collector import Collector, Episode
from td3.config import TD3Config, TrainConfig, resolve
from td3.diagnostics import TimeBudget, examine, value_against_return
from td3.engine import acting_policy, live_policy, make_engine
from td3.engine.losses import LossSums
from td3.environments import (
    InProcessVectorEnv,
    ProcessVectorEnv,
    TaskSpaces,
    WorkerBackend,
    check_environment,
    fastest_workers,
    in_batch,
    make_environment,
    place,
    requested_workers,
)
from td3.environments.guarded import opened
from td3.environments.spec import EnvFactory, parse_env
from td3.errors import CallbackError, ConfigError, Diverged, EnvironmentFault, RunError
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.files import check_run_folder
from td3.libraries import library_variables
from td3.pixels.encoder import EncoderPlan
from td3.pixels.frame_buffer import FrameReplayBuffer, frame_buffer_bytes
from td3.pixels.layout import convolutions_for, encoder_shapes, layout_of
from td3.policy import Array
from td3.resources import available_threads, gigabytes, require_memory, require_network_memory
from td3.run.agent_file import save_agent
from td3.run.checkpoints import Checkpoint, Checkpoints, check_facts, fill_buffer
from td3.run.directory import (
    DIAGNOSTICS,
    METRICS,
    MemberWriter,
    Run,
    check_position,
    locked,
    new_directory,
    read_facts,
    require_no_run,
    require_trust,
    versions,
    write_facts,
    write_json,
)
from td3.signals import sigterm_as_interrupt

LOG_EVERY = 1_000
"""Env steps between rows of metrics.csv."""
SAVING_SHARE = 0.02
"""Share of the time that checkpoints may take where their interval is left to us."""
ALARM_AFTER = 5_000
"""Updates before critics are expected to know anything of the size of returns."""
NETWORKS = (
    *("actor", "actor_target", "critics", "critics_target", "encoder", "encoder_target"),
    *("observations.mean", "observations.scale"),
)
"""What an evaluation that is under way needs of its snapshot."""
COLLECTED = ("collector.round", "collector.episodes", "collector.lengths")
"""What the collector has counted, as a checkpoint names it."""
SAVE_INTERVAL = 5.0
"""Seconds between such checkpoints at least."""
MOST_WRITING = 8
"""Seeds whose files are written at a time."""
SNAPSHOTS = 10
"""Actors kept along the way, besides the newly initialized: enough for a video of the learning."""


def train(env: Any, *, preset: str = "author", callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
    """Train and return the run: `td3.train("HalfCheetah-v5", steps=100_000, seeds=3, batch_size=128)`.

    Instead of a name, `env` may be a class of environments or a function that makes one. `callbacks` are told what
    happens, and may stop the run (`td3.Callback`).
    """
    given = parse_env(env)
    if given.env_kwargs:
        settings["env_kwargs"] = given.env_kwargs | settings.get("env_kwargs", {})
    config = resolve(given.env, preset, **settings)
    config.require_updates()
    for warning in config.warnings():
        warnings.warn(warning, stacklevel=2)
    return train_run(config, [WarningsCallback(), *callbacks], given.factory)


@library_variables()
@sigterm_as_interrupt()
def train_run(
    config: TrainConfig, callbacks: Sequence[Callback] | None = None, factory: EnvFactory | None = None
) -> Run:
    """Train as configured; Ctrl-C saves what was learned, and is then raised as KeyboardInterrupt.

    `factory` makes the environment where its name alone cannot. Without `callbacks`, warnings are Python's own.
    """
    env_arguments = _env_arguments(config, factory)
    spaces = _probe_environment(config, env_arguments)
    in_host_ram = _require_room(config, spaces)
    path = new_directory(config)
    config = replace(config, out=path)
    with locked(path):
        require_no_run(path)  # another process may have been faster
        write_facts(path / "versions.json", versions())
        write_facts(path / "config.json", config.to_json())
        _train(config, env_arguments, spaces, in_host_ram, callbacks, None)
    return Run(path)


def resume(
    path: Path | str,
    *,
    steps: int | None = None,
    env: Any = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Continue a run that was interrupted or stopped, or, with more steps, a finished one.

    Give the same `callbacks` again: those that keep a state get it back.

    `env` is needed where the run was trained on a function of yours: the same one again. A run whose environment is
    named `module:Class` is resumed with that class as `env`, or with `trust`, which has the module imported.
    """
    given, told = None if env is None else parse_env(env), [WarningsCallback(), *callbacks]
    if given is None or given.factory is not None:
        return resume_run(Path(path), steps, told, given and given.factory, trust=trust)
    return resume_run(Path(path), steps, told, trust=trust, env=given.env)


@library_variables()
@sigterm_as_interrupt()
def resume_run(
    path: Path,
    steps: int | None = None,
    callbacks: Sequence[Callback] | None = None,
    factory: EnvFactory | None = None,
    *,
    trust: bool = False,
    env: str | None = None,
) -> Run:
    """Go on from the newest whole checkpoint, or from the beginning where there is none.

    A module that the run's environment names is imported only with `trust`, or where `env` is that name.
    """
    check_run_folder(path)
    checkpoints = Checkpoints(path)
    with locked(path) if path.is_dir() else contextlib.nullcontext():
        config = _config_to_resume(path, Run(path).config, steps)
        if env is not None and env != config.env:
            raise RunError(f"{path} is a run of {config.env}, and {env} was given: give the environment that it has.")
        require_trust(config, path, trust or env is not None or factory is not None, f"td3 resume {path}")
        checkpoint, refused = checkpoints.newest()
        while checkpoint is not None:
            try:
                _require_same_run(config, TrainConfig.from_json(checkpoint.facts["config"]))
                _check_rows(config, checkpoint)
                break
            except (ValueError, KeyError, TypeError, ConfigError) as error:
                refused.append(f"checkpoint {checkpoint.env_steps:,} cannot be used ({error})")
                checkpoint, more = checkpoints.before(checkpoint)
                refused += more
        if (
            checkpoint is not None
            and checkpoint.env_steps >= config.steps
            and read_facts(path / "status.json").get("status") == "finished"
        ):
            raise RunError(
                f"{path} has done its {config.steps:,} env steps: to go on, give a larger number,  "
                f"td3 resume {path} --steps {2 * config.steps}"
            )
        if checkpoint is None and (lost := _progress(path, config)):
            why = refused[0] if refused else "it has no checkpoint"
            raise RunError(
                f"{path} cannot be resumed: {why}, and to begin again would overwrite what it learned in {lost:,} "
                f"env steps. To train it anew:  td3 train --config {path / 'config.json'} --out ANOTHER"
            )
        place = "the beginning" if checkpoint is None else f"env step {checkpoint.env_steps:,}"
        notices = [f"{sentence}; continuing from {place}." for sentence in refused]
        if checkpoint is not None:
            notices += _changed_versions(checkpoint.facts.get("versions", {}))
        env_arguments = _env_arguments(config, factory)
        spaces = _probe_environment(config, env_arguments)
        in_host_ram = _require_room(config, spaces, checkpoint, resumed=True)
        # Before the first checkpoint of an extension: a run that is killed until then still knows how long it is to be.
        write_facts(path / "config.json", config.to_json())
        _train(config, env_arguments, spaces, in_host_ram, callbacks, checkpoint, notices)
    return Run(path)


def _progress(path: Path, config: TrainConfig) -> int:
    """How far a run has come, by its status and its saved agents."""
    found = [path / "status.json", *(path / f"seed_{seed}" / "best" / "agent.json" for seed in config.member_seeds)]
    steps = [read_facts(file).get("env_steps") for file in found]
    return max((count for count in steps if isinstance(count, int)), default=0)


def _config_to_resume(path: Path, config: TrainConfig, steps: int | None) -> TrainConfig:
    config = replace(config, out=path)
    if steps is None or steps == config.steps:
        return config
    if steps < config.steps:
        raise RunError(f"{path} is a run of {config.steps:,} env steps: --steps {steps} is fewer.")
    if config.preset == "paper" and config.td3.buffer_size == max(config.steps, 100):
        # That preset keeps the whole history, however long.
        config = replace(config, td3=replace(config.td3, buffer_size=steps))
    return replace(config, steps=steps)


def _require_same_run(config: TrainConfig, saved: TrainConfig) -> None:
    """Raise ValueError if a checkpoint was written with other settings than config.json has; a run may grow longer."""
    grown = replace(saved.td3, buffer_size=config.td3.buffer_size) if config.preset == "paper" else saved.td3
    saved = replace(saved, out=config.out, steps=config.steps, td3=grown)
    differing = [f.name for f in fields(saved) if getattr(saved, f.name) != getattr(config, f.name)]
    if differing:
        raise ValueError(f"it was written with another {', '.join(differing)} than config.json has")


def _check_rows(config: TrainConfig, checkpoint: Checkpoint) -> None:
    """Raise ValueError if rows of the run's tables, or of the buffer, are no longer what the checkpoint knows."""
    assert config.out is not None
    check_facts(checkpoint, config, MemberWriter.FILES)
    for seed in config.member_seeds:
        check_position(config.out / f"seed_{seed}", checkpoint.facts["positions"][str(seed)])
    for _ in checkpoint.rows():
        pass


def _changed_versions(before: Mapping[str, str]) -> list[str]:
    """A sentence if a package that results depend on has another version than when the checkpoint was written."""
    now, before = versions(), {"kernels": "PyTorch", **before}  # there were no others once
    known = [name for name in now if name in before]  # another package that came since changes nothing
    changed = [f"{name} {before[name]} is now {now[name]}" for name in known if before[name] != now[name]]
    return [f"{'; '.join(changed)}: the run goes on, but not as it would have."] if changed else []


def _env_arguments(config: TrainConfig, factory: EnvFactory | None) -> dict[str, Any]:
    return config.env_arguments if factory is None else {**config.env_arguments, "env": factory}


def _probe_environment(config: TrainConfig, env_arguments: Mapping[str, Any]) -> TaskSpaces:
    if config.workers == "ray":
        require_cluster(config.ray_address)
    with opened(partial(make_environment, **env_arguments)) as probe:
        spaces = check_environment(probe, config.env)
    if spaces.frames and config.workers == "ray":
        raise ConfigError(f"{config.env} gives images, and collectors of Ray send numbers: use other --workers.")
    if spaces.frames and config.normalize_observations:
        raise ConfigError(
            f"{config.env} gives images, and --normalize-observations is for numbers: leave it out, the encoder "
            "brings images to a common scale by itself."
        )
    return spaces


def _require_room(
    config: TrainConfig, spaces: TaskSpaces, checkpoint: Checkpoint | None = None, *, resumed: bool = False
) -> bool:
    """Refuse a run that would fill the memory or the disk; says whether a GPU's replay buffer goes into host RAM."""
    buffer_size, device = min(config.td3.buffer_size, _longest(config)), choose_device(config.device)
    needed = config.seeds * buffer_bytes(spaces, buffer_size)
    networks = config.seeds * network_bytes(spaces, config.td3)
    advice = "free some, or resume it on a machine that has more." if resumed else ""
    sizes = config.td3.critic_sizes
    require_network_memory(networks, sizes, config.td3.batch_size, config.seeds, device, advice)
    in_host_ram = require_memory(
        needed, buffer_size, config.seeds, device, config.buffer_device, advice, reserved=networks
    )
    out = (config.out or Path("runs")).absolute()
    try:
        folder = next(place for place in (*out.parents, out) if place.is_dir())
        total, _, free = shutil.disk_usage(folder)
    except OSError as error:
        raise ConfigError(f"--out cannot be used ({error.strerror}): give another.") from None
    needed -= sum(shard.bytes for shard in checkpoint.shards) if checkpoint else 0  # they are there already
    if config.save_every != 0 and needed > 0.9 * free and total > 0:
        what = "further checkpoints" if resumed else "the checkpoints"
        room = f"{what} of this run need {gigabytes(needed)}, and {folder} has {gigabytes(free)} free: make room"
        if resumed:
            raise ConfigError(f"{room}, or move the run to another disk and resume it there.")
        raise ConfigError(
            f"{room}, give another --out, lower --td3.buffer-size, or train without checkpoints by --save-every 0."
        )
    return in_host_ram


def _train(
    config: TrainConfig,
    env_arguments: Mapping[str, Any],
    spaces: TaskSpaces,
    in_host_ram: bool,
    callbacks: Sequence[Callback] | None,
    checkpoint: Checkpoint | None,
    notices: Sequence[str] = (),
) -> None:
    told = CallbackList([*([WarningsCallback()] if callbacks is None else callbacks), *standard_callbacks()])
    make, buffer_size = partial(make_environment, **env_arguments), min(config.td3.buffer_size, _longest(config))
    try:
        with backend_flags(config.tf32):
            trainer = Trainer(config, spaces, make, choose_device(config.device), buffer_size, in_host_ram)
            with contextlib.closing(trainer):
                trainer.run(told, checkpoint, notices)
    except torch.OutOfMemoryError:
        raise ConfigError(
            "the GPU has no memory left: train fewer seeds, lower --td3.buffer-size, or use --device cpu."
        ) from None


def choose_device(name: str) -> torch.device:
    """The device of this name; auto takes a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but PyTorch finds no GPU here: use --device cpu or auto.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def encoder_plan(spaces: TaskSpaces, settings: TD3Config) -> EncoderPlan | None:
    """The encoder for a task whose observations are images."""
    layout = layout_of(spaces.observation_shape, spaces.frames) if spaces.frames else None
    if layout is None:
        return None
    shift = min(settings.random_shift, min(layout.height, layout.width) // 20)
    layers = convolutions_for(layout)
    shapes = encoder_shapes(layout, layers, settings.image_features)
    return EncoderPlan(*layout, shapes, tuple(stride for *_, stride in layers), shift)


def make_buffer(
    members: int, buffer_size: int, spaces: TaskSpaces, device: torch.device, in_host_ram: bool
) -> ReplayBuffer:
    """The replay buffer of a task: of vectors, or of images, whose frames are kept once."""
    if spaces.frames:
        frame = spaces.frames, spaces.state_size // spaces.frames
        return FrameReplayBuffer(members, buffer_size, *frame, spaces.action_size, device, in_host_ram=in_host_ram)
    sizes = spaces.state_size, spaces.action_size
    return make_replay_buffer(members, buffer_size, *sizes, device, in_host_ram=in_host_ram)


def buffer_bytes(spaces: TaskSpaces, buffer_size: int) -> int:
    """What the replay buffer of one seed takes."""
    if not spaces.frames:
        return buffer_size * 4 * (2 * spaces.state_size + spaces.action_size + 2)
    frame_size = spaces.state_size // spaces.frames
    return frame_buffer_bytes(buffer_size, spaces.frames, frame_size, spaces.action_size)


def network_bytes(spaces: TaskSpaces, settings: TD3Config) -> int:
    """About what the networks of one seed take: weights, targets, gradients, moments, and activations of a batch."""
    plan = encoder_plan(spaces, settings)
    inputs = settings.image_features if plan else spaces.state_size
    actor = (inputs, *settings.actor_sizes, spaces.action_size)
    critic = (inputs + spaces.action_size, *settings.critic_sizes, 1)
    weights = sum((a + 1) * b for sizes in (actor, critic, critic) for a, b in pairwise(sizes))
    weights += sum(math.prod(shape) for shape in plan.shapes) if plan else 0
    # Of a batch: a row of every layer of the three networks, forward and backward, and the states themselves.
    batch = settings.batch_size * (2 * (sum(actor) + 2 * sum(critic)) + 2 * spaces.state_size)
    return 4 * (5 * weights + batch)


@runtime_checkable
class Engine(Protocol):
    """How updates and actions are executed."""

    asynchronous: bool
    """Whether `update` returns at once and the updates run beside this thread, as a GPU's do."""

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member that is not frozen."""

    def act_async(self, states: Array) -> None:
        """Have the actors, as they are now, choose actions for states `[member, count, state]`."""

    def act_wait(self) -> Array:
        """The actions asked for, `[member, count, action]`."""

    def prepare(self) -> None:
        """Do what can be done ahead, while the environments step."""

    def store(self, rows: Array) -> None:
        """Put new rows into the buffer; updates begun before do not see them."""

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""

    @property
    def losses(self) -> LossSums:
        """What the updates since the last call of `mean_losses` said of themselves."""

    def flush(self) -> None:
        """Have every stored row really in the buffer."""

    frozen: dict[int, str]
    """Members that are not updated any more, with the reason."""

    def check(self) -> None:
        """Find members that an update has frozen; raise `NonFinite` if no other member is left."""

    def freeze(self, member: int, reason: str) -> None:
        """Never update this member again."""

    on_warning: Callable[[str], None]
    """Told when updates turn out to differ from eager execution."""

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""

    def set_learning_rates(self, actor: float, critic: float) -> None:
        """Learn at these rates from the next update on."""

    def seek(self) -> None:
        """The agent and the buffer were set to another moment: go on from there."""

    def use_threads(self) -> None:
        """Set the number of threads that updates use in this process."""

    def close(self) -> None:
        """Let go of threads and devices."""


@contextlib.contextmanager
def backend_flags(tf32: bool = False) -> Iterator[None]:
    """PyTorch's flags as updates on a GPU need them; afterwards as they were before."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    # cuDNN would otherwise choose TF32, and sums whose order is another one each time.
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = tf32, tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


def make_vector_envs(
    make: Callable[[], gym.Env[Any, Any]], config: TrainConfig, threads: int, device: torch.device
) -> tuple[InProcessVectorEnv | ProcessVectorEnv, Evaluator | EvaluationWorkers, WorkerBackend]:
    """Environments of training and of evaluation: in this process, in a batch, in threads, or in other processes."""
    count = config.seeds * config.envs
    batch = in_batch(make, threads) if config.workers == "auto" else None
    chosen = requested_workers(config.workers, count) if config.workers != "auto" else batch
    if count == 1 and batch:
        chosen = WorkerBackend()  # Gymnasium steps a single environment as fast
    evaluation = (make, config.member_seeds, config.eval_episodes)
    evaluator: Evaluator | EvaluationWorkers
    if device.type == "cpu" or threads < 4:
        worker_backend = chosen or fastest_workers(make, count)
        # What is kept out of this process in training is kept out of it in evaluation.
        evaluating = worker_backend if worker_backend.kind == "processes" else batch
        evaluator = Evaluator(*evaluation, config.td3.gamma, evaluating, config.env_timeout)
    else:
        # Beside a GPU with cores to spare. One or two environments, stepped here, take less time than the GPU's update.
        # More are spread over as few workers as finish a round as early as a worker on every core but this process's
        # would. Evaluation, at the paper's protocol two env steps for each of training's, takes what they leave of
        # every core: its processes run at idle priority (docs/performance.md, "On one GPU").
        deep = -(-count // (threads - 1))
        stepping = 0 if count <= 2 else -(-count // deep)
        worker_backend = chosen or (WorkerBackend("processes", stepping) if stepping else WorkerBackend())
        workers = min(2 * config.seeds, threads - 1)
        single = batch and batch._replace(workers=1)  # there is a process for every core
        evaluator = EvaluationWorkers(*evaluation, workers, config.td3.gamma, config.env_timeout, single)
    with contextlib.ExitStack() as made:  # where the environments cannot be had, the evaluator is closed
        made.enter_context(contextlib.closing(evaluator))
        environments = place(make, count, worker_backend, config.env_timeout)
        made.pop_all()
    return environments, evaluator, worker_backend


def make_evaluator(
    make: Callable[[], gym.Env[Any, Any]], config: TrainConfig, threads: int, device: torch.device
) -> Evaluator | EvaluationWorkers:
    """Where training steps elsewhere: evaluation in this process, or, beside a GPU with cores to spare, in others."""
    batch = in_batch(make, threads)
    evaluation = (make, config.member_seeds, config.eval_episodes)
    if device.type == "cpu" or threads < 4:
        return Evaluator(*evaluation, config.td3.gamma, batch)
    workers, single = max(1, min(2 * config.seeds, threads)), batch and batch._replace(workers=1)
    return EvaluationWorkers(*evaluation, workers, config.td3.gamma, config.env_timeout, single)


class Trainer:
    """The loop and everything that it needs; callbacks get it with every event."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: TaskSpaces,
        make: Callable[[], gym.Env[Any, Any]],
        device: torch.device,
        buffer_size: int,
        in_host_ram: bool = False,
    ) -> None:
        self.config, self.spaces, self._versions = config, spaces, versions()  # looked up once: it takes milliseconds
        settings, seeds = config.td3, config.member_seeds
        bounds = (spaces.action_low, spaces.action_high)
        encoder, normalized = encoder_plan(spaces, settings), config.normalize_observations
        spec = AgentSpec.from_settings(settings, spaces.state_size, *bounds, normalized, encoder)
        self.agent = Agent.create(spec, seeds, device)
        self.buffer = make_buffer(len(seeds), buffer_size, spaces, device, in_host_ram)
        if self.agent.normalizer is not None:
            self.buffer = NormalizedReplayBuffer(self.buffer, self.agent.normalizer)
        self.placement = f"{self.buffer.rows.device}" + (", replay buffer in the host's RAM" if in_host_ram else "")
        threads = config.threads or available_threads()
        self.remote: RayCollector | None = None
        with contextlib.ExitStack() as made:  # where a part cannot be had, those before it are closed
            self.engine = make_engine(self.agent, self.buffer, config, threads)
            made.enter_context(contextlib.closing(self.engine))
            if config.workers == "ray":
                self.evaluator = make_evaluator(make, config, threads, device)
                made.enter_context(contextlib.closing(self.evaluator))
                self.remote = made.enter_context(contextlib.closing(RayCollector(config, spaces, make)))
            else:
                environments, self.evaluator, worker_backend = make_vector_envs(make, config, threads, device)
                made.enter_context(contextlib.closing(self.evaluator))
                made.enter_context(contextlib.closing(environments))
                if worker_backend.kind != "none":
                    self.placement += f", {worker_backend}"
                self.collector = Collector(environments, seeds, *bounds, settings.exploration_noise)
            self._made = made.pop_all()
        self.env_steps = 0
        self.status, self.stop_reason = "running", ""
        self._frozen: dict[int, dict[str, Any]] = {}
        self._warned_seeds: set[int] = set()
        self._snapshots: dict[int, Agent] = {}
        self._saved: int | None = None
        self._examined: dict[int, list[dict[str, Any] | None]] = {}  # None: frozen
        self._best = np.full(len(seeds), -np.inf)
        self._episodes: list[list[Episode]] = [[] for _ in seeds]
        self._logged_updates = np.zeros(len(seeds), np.int64)
        self._writing = ThreadPoolExecutor(min(MOST_WRITING, len(seeds)), "td3 writing")

    def stop(self, reason: str) -> None:
        """End training after this round, as if it had been the last: evaluated, saved, and resumable."""
        self.stop_reason = reason

    def run(self, callbacks: CallbackList, checkpoint: Checkpoint | None, notices: Sequence[str] = ()) -> None:
        """Train to the last env step, from the first or from a checkpoint; `notices` are warnings to begin with."""
        config, self.callbacks = self.config, callbacks
        self.first_step = 0 if checkpoint is None else checkpoint.env_steps
        assert config.out is not None
        self.path, self._begun, self._time = config.out, time.monotonic(), TimeBudget()
        self._checkpoints = Checkpoints(self.path)
        self._saving_seconds, self._last_save, self._save_cost = 0.0, time.monotonic(), 0.0
        self.status, reason = "failed", ""
        self.writers: list[MemberWriter] = []
        try:
            for notice in notices:
                self.warn(notice)
            if checkpoint is None:
                self._checkpoints.start_new()
                self.writers = [MemberWriter(self.path / f"seed_{seed}", config.env) for seed in config.member_seeds]
            else:
                try:
                    self._restore(checkpoint)
                except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
                    raise RunError(f"{self.path} has a checkpoint that does not fit its run ({error}).") from error
            self._write_status("running")
            self.callbacks.on_training_start(self)
            self.engine.on_warning = self.warn
            self.info(self.engine.description)
            if why := self.agent.backend.slower_because:
                self.info(f"Updates are slower than they could be, because {why}.")
            for member, facts in self._frozen.items():
                self.info(f"Seed {config.member_seeds[member]} stays frozen: {facts['reason']}")
            if checkpoint is None and (note := config.warm_up_note()):
                self.info(note)
            if config.env_kwargs:
                self.info(f"Made with {json.dumps(config.env_kwargs)}.")
            if config.normalize_observations:
                self.info("Observations are normalized by their running mean and standard deviation.")
            if self.spaces.flattened:
                self.info(f"Observations: {self.spaces.flattened}, flattened to {self.spaces.state_size} numbers.")
            if checkpoint is None:
                self._evaluate()
                self._save_checkpoint()  # so that there is one, however early the end comes
            self._raise_failure()
            with StopSignals() as stopped:
                while self.env_steps < config.steps and not self.stop_reason:
                    self._round()
                    self._raise_failure()
                    if stopped.noted:
                        stopped.deaf = True  # a save that was begun is finished
                        self._save_checkpoint()
                        raise KeyboardInterrupt
            self._record_evaluations(wait=True)
            if self._saved != self.env_steps:  # else it was killed after its last checkpoint
                self._save_checkpoint()
            self._raise_failure()
            self.status, reason = ("stopped", self.stop_reason) if self.stop_reason else ("finished", "")
        except KeyboardInterrupt:
            self.status = "interrupted"
            raise
        except CallbackError as error:
            reason = str(error)
            raise CallbackError(f"{reason} {self._resume_hint()}") from error.__cause__
        except NonFinite as error:
            reason = self._diagnosis(str(error), range(self.agent.members))
            raise Diverged(f"{reason} {self._resume_hint()}") from None
        except EnvironmentFault as error:
            reason = str(error)
            raise EnvironmentFault(f"{error} {self._resume_hint()}") from error
        except OSError as error:
            reason = f"{error.filename or self.path} cannot be written ({error.strerror})."
            raise RunError(f"{reason} {self._resume_hint()}") from error
        finally:
            # A disk that is full must not hide why the run ended.
            with contextlib.suppress(OSError):
                self._save("last", self.agent, self.env_steps, self._active_members)
            for writer in self.writers:
                with contextlib.suppress(OSError):
                    writer.close()
            with contextlib.suppress(OSError):
                self._write_status(self.status, reason)
            self.callbacks.on_training_end(self)

    def warn(self, text: str) -> None:
        """Tell the callbacks of something that training survives."""
        self.callbacks.on_warning(self, text)

    def info(self, text: str) -> None:
        """Tell the callbacks how this run is executed."""
        self.callbacks.on_info(self, text)

    def _raise_failure(self) -> None:
        """End the run if a callback has failed, with a checkpoint of the round that is complete now."""
        if self.callbacks.failure:
            self._save_checkpoint()
            raise self.callbacks.failure

    def _round(self) -> None:
        """One env step of every environment, and the updates that belong to it."""
        before, lap = self.env_steps, self._time.lap
        if self.config.td3.learning_rate_schedule != "constant":
            self.engine.set_learning_rates(*self.config.td3.learning_rates(before / self.config.steps))
        if self.remote:
            found = self._collect_from_afar(self.remote)
            if found is None:
                return  # nobody has sent enough yet
            rows, episodes = found
        else:
            rows, episodes = self._collect_here()
        lap("env")
        self._freeze_failed()
        self.engine.store(rows)
        lap("store")
        self.env_steps += rows.shape[1]
        self.engine.update(self._updates_due_for_episodes(episodes))
        self._freeze_failed()
        lap("update")
        for episode in episodes:
            if episode.member not in self._frozen:
                self._episodes[episode.member].append(episode)
                self.writers[episode.member].episode(episode)
                self.callbacks.on_episode_end(self, episode)
        if self._collecting.faults:
            self._tell_faults()
        self._record_evaluations()
        self._write_on_schedule(before)
        self.callbacks.on_env_step(self)
        lap("other")
        if self._save_is_due(before):
            self._save_checkpoint()
            lap("save")

    def _collect_here(self) -> tuple[Array, list[Episode]]:
        """Act, update, step: rows of every environment once, and the episodes that ended."""
        before, lap = self.env_steps, self._time.lap
        warm_up = before < self.config.td3.learning_starts
        if not warm_up:
            self.engine.act_async(self.collector.member_states)
        lap("act")
        owed = self._updates_due_for_steps(before + self.collector.envs_per_member)
        if self.engine.asynchronous:
            # A GPU's update begins when the actions are on their way, and runs on while the environments step.
            self.engine.update(owed)
            lap("update")
        actions = self.collector.act(None) if warm_up else self.collector.explore(self.engine.act_wait())
        lap("act")
        self.collector.begin(actions)
        lap("env")
        if not self.engine.asynchronous:
            # Environments in threads or processes step meanwhile.
            self.engine.update(owed)
            lap("update")
        self.engine.prepare()
        return self.collector.finish()

    def _collect_from_afar(self, remote: RayCollector) -> tuple[Array, list[Episode]] | None:
        """The same with collectors on a cluster: they act and step while this process updates."""
        lap = self._time.lap
        remote.send(int(self.agent.updates.max()), lambda: acting_policy(self.agent))
        lap("act")
        self.engine.update(self._updates_due_for_steps(self.env_steps + remote.envs_per_member))
        lap("update")
        found = remote.take(int(self.agent.updates.max()))
        for sentence in remote.said:
            self.warn(f"env step {self.env_steps:,}: {sentence}")
        remote.said.clear()
        return found

    @property
    def _collecting(self) -> Collector | RayCollector:
        return self.remote or self.collector

    @property
    def _active_members(self) -> list[int]:
        return [member for member in range(self.agent.members) if member not in self._frozen]

    def _check(self) -> None:
        """Find out whether an update on a GPU has frozen a member."""
        self.engine.check()
        self._freeze_failed()

    def _freeze_failed(self) -> None:
        """Leave seeds where they are whose numbers broke down or whose environments failed for good: others go on."""
        failed = {} if self.remote else self.collector.failed
        if len(self.engine.frozen) == len(self._frozen) == len(self._frozen.keys() | failed.keys()):
            return
        for member, reason in failed.items():
            self.engine.freeze(member, reason)
        if len(self.engine.frozen) == self.agent.members:
            raise EnvironmentFault(list(failed.values())[-1])  # where it was the numbers, the engine has raised
        for member in sorted(self.engine.frozen.keys() - self._frozen.keys()):
            reason = failed.get(member) or self._diagnosis(self.engine.frozen[member], [member])
            self._frozen[member] = {"env_steps": self.env_steps, "reason": reason}
            self._save("last", self.agent, self.env_steps, [member])
            if not self.remote:
                self.collector.deactivate(member)
            self._episodes[member] = []
            seed = self.config.member_seeds[member]
            self.warn(f"seed {seed} is frozen, and the other seeds go on: {reason}")
        self._write_status("running")

    def _tell_faults(self) -> None:
        for fault in self.collector.faults:
            seed = self.config.member_seeds[fault.member]
            self.warn(f"seed {seed}, env step {self.env_steps:,}: {fault.reason}; a new episode was begun.")
        self.collector.faults.clear()

    def _save_is_due(self, before: int) -> bool:
        every = self.config.save_every
        if self.env_steps >= self.config.steps or every == 0:
            return False  # the end saves by itself
        if every is not None:
            return before // every < self.env_steps // every
        return time.monotonic() - self._last_save > max(SAVE_INTERVAL, self._save_cost / SAVING_SHARE)

    def _save_checkpoint(self) -> None:
        """Save everything; where the disk does not allow it, say so and go on."""
        if self.config.save_every == 0:
            return
        begun = time.monotonic()
        try:
            self.engine.flush()
            self.callbacks.on_checkpoint(self)
            if not self.agent.active.any():
                self.engine.check()  # raises; else seeds are frozen on a schedule of env steps, not of the clock
            self._checkpoints.save(self.env_steps, *self._state(), self.buffer)
            self._saved = self.env_steps
            self._write_status("running")
        except OSError as error:
            self.warn(
                f"the checkpoint at env step {self.env_steps:,} could not be written ({error.strerror}); "
                "the one before it stays, and training goes on."
            )
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - begun
        self._saving_seconds += self._save_cost

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything that the run is, except its transitions."""
        facts = {
            "config": self.config.to_json(),
            "versions": self._versions,
            "added": self.buffer.added,
            "pending_evaluations": {str(env_steps): self._examined[env_steps] for env_steps in sorted(self._snapshots)},
            "positions": {str(s): w.position() for s, w in zip(self.config.member_seeds, self.writers, strict=True)},
            "seconds": round(self._seconds(), 3),
            "frozen": self._frozen_seeds(),
            "callbacks": self.callbacks.state(),
            "saving_seconds": round(self._saving_seconds, 3),
        }
        tensors = self._tensors()
        for member, writer in enumerate(self.writers):
            tensors |= {f"history.{member}.{name}": array for name, array in writer.history.items()}
        return facts, tensors

    def _tensors(self) -> dict[str, Array]:
        tensors: dict[str, Tensor | Array] = {
            **{f"agent.{name}": tensor for name, tensor in self.agent.tensors().items()},
            "updates": self.agent.updates,
            "active": self.agent.active,
            "loss_sums": self.engine.losses.sums,
            "logged_updates": self._logged_updates,
            "best_returns": self._best,
            "unlogged_episodes": np.array([e for episodes in self._episodes for e in episodes], np.float64),
            **{f"buffer.{name}": array for name, array in self.buffer.state().items()},
            **{f"collector.{name}": array for name, array in self._collecting.state().items()},
        }
        for number, env_steps in enumerate(sorted(self._snapshots)):
            networks = self._snapshots[env_steps].tensors()
            tensors |= {f"pending.{number}.{name}": networks[name] for name in NETWORKS if name in networks}
            tensors[f"pending.{number}.updates"] = self._snapshots[env_steps].updates
        return {name: _array(value) for name, value in tensors.items()}

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Stand where the checkpoint was taken."""
        facts, tensors = checkpoint.facts, checkpoint.tensors
        for name, array in self._tensors().items():
            fits = array.shape == tensors[name].shape or name in ("unlogged_episodes", "collector.actions")
            if tensors[name].dtype != array.dtype or not (fits or self.remote):
                raise ValueError(f"{name} has the shape {tensors[name].shape} instead of {array.shape}")
        counts = {name: tensors[name] for name in ("updates", *COLLECTED) if not (self.remote and name in COLLECTED)}
        longest = np.max(counts.get("collector.lengths", 0), initial=0)
        if longest > checkpoint.env_steps or any(np.any(count < 0) for count in counts.values()):
            raise ValueError("it has counted less than nothing, or a longer episode than the run")
        self.callbacks.load_state(facts.get("callbacks", {}))
        self._checkpoints.continue_from(checkpoint)
        for member, seed in enumerate(self.config.member_seeds):
            if why := facts.get("frozen", {}).get(str(seed)):
                self._frozen[member] = {"env_steps": int(why["env_steps"]), "reason": str(why["reason"])}
                self.engine.freeze(member, self._frozen[member]["reason"])
                if not self.remote:
                    self.collector.deactivate(member)
        self._saved = self.env_steps = checkpoint.env_steps
        fill_buffer(self.buffer, checkpoint, facts["added"])
        _load_tensors(self.agent, tensors, "agent.")
        self.agent.updates[:] = tensors["updates"]
        if "active" in tensors:
            self.agent.active.copy_(torch.from_numpy(tensors["active"]))
        self.engine.losses.sums.copy_(torch.from_numpy(tensors["loss_sums"]))
        self.engine.seek()
        self._logged_updates = tensors["logged_updates"].copy()
        self._best = tensors["best_returns"].copy()
        for member, episode_return, length, timed_out in tensors["unlogged_episodes"].reshape(-1, 4).tolist():
            episode = Episode(int(member), episode_return, int(length), bool(timed_out))
            self._episodes[episode.member].append(episode)
        if self.remote:
            self.warn(self.remote.restore(_named(tensors, "collector."), self.env_steps))
        elif strayed := self.collector.restore(_named(tensors, "collector.")):
            self.warn(
                f"{self.config.env} does not repeat itself when an episode is played again: {len(strayed)} unfinished "
                "episodes were lost, and the run goes on with new ones, not exactly as it would have."
            )
        self._begun -= facts["seconds"]
        self._saving_seconds += facts.get("saving_seconds", 0.0)  # which the first version did not count on
        for member, seed in enumerate(self.config.member_seeds):
            writer = MemberWriter(
                self.path / f"seed_{seed}", self.config.env, facts["positions"][str(seed)], facts["seconds"]
            )
            self.writers.append(writer)
            writer.restore_history(_named(tensors, f"history.{member}."))
        pending = {int(name): examined for name, examined in facts["pending_evaluations"].items()}
        for number, env_steps in enumerate(sorted(pending)):
            snapshot = self.agent.copied()
            _load_tensors(snapshot, tensors, f"pending.{number}.")
            snapshot.updates[:] = tensors[f"pending.{number}.updates"]
            self._snapshots[env_steps], self._examined[env_steps] = snapshot, pending[env_steps]
            self.evaluator.begin(env_steps, live_policy(snapshot), _missing(pending[env_steps]))

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def _write_status(self, status: str, reason: str | None = None) -> None:
        known = {"status": status, "env_steps": self.env_steps, **({"reason": reason} if reason else {})}
        known |= {"frozen": self._frozen_seeds()} if self._frozen else {}
        times = {"seconds": round(self._seconds(), 3), "saving_seconds": round(self._saving_seconds, 3)}
        collectors = self.remote.figures() if self.remote else {}
        write_json(self.path / "status.json", {**known, **times, **collectors})

    def _frozen_seeds(self) -> dict[str, dict[str, Any]]:
        return {str(self.config.member_seeds[member]): dict(facts) for member, facts in sorted(self._frozen.items())}

    def _resume_hint(self) -> str:
        if self._saved is None:
            return "There is no checkpoint yet."
        if not self._checkpoints.has(self._saved):
            return f"{self.path} no longer has its checkpoints: if it was moved, resume it where it is now."
        return f"The checkpoint at env step {self._saved:,} is whole: td3 resume {self.path} goes on from there."

    def _diagnosis(self, reason: str, members: Sequence[int]) -> str:
        largest = self._largest_rewards()
        rewards = ", ".join(f"{largest[member]:.3g}" for member in members)
        return (
            f"Learning broke down at env step {self.env_steps:,}: {reason}. That step was not taken, and all weights "
            f"are finite. The largest reward seen was {rewards}: lower the learning rates, or bring rewards and "
            "observations nearer to 1."
        )

    def _warn_about_divergence(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Say once of a seed that its critics promise far more than its rewards can add up to."""
        active = self._active_members
        settled = [
            m
            for m, row in enumerate(rows)
            if m in active and row["updates"] >= ALARM_AFTER and m not in self._warned_seeds
        ]
        largest = self._largest_rewards() if settled else []
        for member in settled:
            possible, said = largest[member] / max(1e-3, 1 - self.config.td3.gamma), rows[member]["mean_q"]
            if abs(said) > 2 * possible > 0:
                self._warned_seeds.add(member)
                self.warn(
                    f"seed {self.config.member_seeds[member]}: the critics say {said:.3g} on average, where rewards of "
                    f"at most {largest[member]:.3g} can add up to {possible:.3g}: learning diverges. Lower the "
                    "learning rates or raise --td3.policy-delay."
                )

    def _largest_rewards(self) -> list[float]:
        """Each seed's reward in the buffer that is farthest from 0."""
        self.engine.flush()
        rewards = self.buffer.rows[:, : len(self.buffer), -2]
        if not len(self.buffer):
            return [0.0] * self.agent.members
        largest: list[float] = rewards.abs().amax(1).tolist()
        return largest

    def _updates_due_for_steps(self, env_steps: int) -> list[int]:
        """Updates due when so many env steps have been begun, less those done; none from an empty buffer."""
        settings = self.config.td3
        if settings.train_freq != "step" or len(self.buffer) == 0:
            return [0] * self.agent.members
        due = int(max(0, env_steps - settings.learning_starts) * settings.utd_ratio)
        owed: list[int] = (due - self.agent.updates).tolist()
        return owed

    def _updates_due_for_episodes(self, episodes: Sequence[Episode]) -> list[int]:
        """As many updates as the ended episodes had steps."""
        owed = [0] * self.agent.members
        if self.config.td3.train_freq == "episode":
            for episode in episodes:
                owed[episode.member] += round(episode.length * self.config.td3.utd_ratio)
        return owed

    def _write_on_schedule(self, before: int) -> None:
        last = self.env_steps >= self.config.steps
        if last or before // LOG_EVERY < self.env_steps // LOG_EVERY:
            self._log()
        every = self.config.eval_every or self.config.steps
        if last or before // every < self.env_steps // every:
            self._evaluate()

    def _log(self) -> None:
        self._check()
        updates = self.agent.updates.copy()
        losses = self.engine.mean_losses((updates - self._logged_updates).tolist())
        self._logged_updates = updates
        rows = []
        for member, writer in enumerate(self.writers):
            finished = self._episodes[member]
            self._episodes[member] = []
            if member in self._frozen:
                rows.append({**dict.fromkeys(METRICS, np.nan), "env_steps": self.env_steps})
                continue
            rows.append(
                {
                    "env_steps": self.env_steps,
                    "updates": int(updates[member]),
                    "episodes": len(finished),
                    "timeouts": sum(e.timed_out for e in finished),
                    "episode_return": float(np.mean([e.episode_return for e in finished])) if finished else np.nan,
                    "episode_length": float(np.mean([e.length for e in finished])) if finished else np.nan,
                    **losses[member],
                }
            )
            writer.metrics(rows[-1])
        self.callbacks.on_log(self, rows)
        self._warn_about_divergence(rows)

    def _evaluate(self) -> None:
        self._check()
        beside = isinstance(self.evaluator, EvaluationWorkers)
        if self.agent.normalizer is not None:
            self.engine.flush()  # rows that still wait count in what normalizes, whichever the engine
        # What is evaluated while training goes on must be a copy.
        snapshot = self.agent.copied() if beside or self.buffer.rows.is_cuda else self.agent
        self._snapshots[self.env_steps] = snapshot
        examined = examine(
            self.agent, self.buffer, self.config.member_seeds, self.env_steps, waiting=self._collecting.envs_per_member
        )
        known = [None if member in self._frozen else row for member, row in enumerate(examined)]
        self._examined[self.env_steps] = known
        self.evaluator.begin(self.env_steps, live_policy(snapshot), _missing(known))
        self._record_evaluations()

    def _record_evaluations(self, wait: bool = False) -> None:
        for env_steps, evaluation in self.evaluator.finished(wait):
            snapshot, examined = self._snapshots.pop(env_steps), self._examined.pop(env_steps)
            assert evaluation.visits is not None
            values = value_against_return(snapshot, evaluation.visits)
            nothing = dict.fromkeys(DIAGNOSTICS, np.nan)
            diagnosed = [
                {**nothing, **(a or {}), **b, "env_steps": env_steps} for a, b in zip(examined, values, strict=True)
            ]
            self._time.lap("evaluate")
            record = partial(self._record_member, env_steps, snapshot)
            # Side by side: what takes time is the disk, and it takes many files in the time of one.
            found = zip(range(self.agent.members), evaluation.returns, evaluation.lengths, diagnosed, strict=True)
            each = [one for one in found if examined[one[0]] is not None]
            list(self._writing.map(record, *zip(*each, strict=True)))
            self._time.lap("save")
            self.callbacks.on_evaluation(self, evaluation._replace(env_steps=env_steps))
            self.callbacks.on_diagnostics(self, env_steps, diagnosed)
            self.callbacks.on_timing(self, self._time.take())

    def _record_member(
        self, env_steps: int, snapshot: Agent, member: int, returns: Array, lengths: Array, diagnosed: dict[str, Any]
    ) -> None:
        """Write what one member's evaluation found, and the agents that are kept for it."""
        self.writers[member].diagnostics(diagnosed)
        self.writers[member].evaluation(env_steps, returns, lengths)
        if is_milestone(env_steps, self.config):
            self._save(f"snapshots/{env_steps:09}", snapshot, env_steps, [member], actor_only=True)
        if returns.mean() > self._best[member]:
            self._best[member] = returns.mean()
            self._save("best", snapshot, env_steps, [member])

    def _save(self, which: str, agent: Agent, env_steps: int, members: Sequence[int], actor_only: bool = False) -> None:
        config = self.config
        for member in members:
            facts = {
                "env": config.env,
                "seed": config.member_seeds[member],
                "env_steps": env_steps,
                "updates": int(agent.updates[member]),
                "hidden_sizes": list(config.td3.actor_sizes),
                "versions": self._versions,
            }
            if agent.critics.encoder is not None:
                facts["strides"] = list(agent.critics.encoder.plan.strides)
            save_agent(self.path / f"seed_{facts['seed']}" / which, agent, member, self.spaces, facts, actor_only)

    def close(self) -> None:
        """Let go of environments and threads."""
        self._made.close()
        self._writing.shutdown()


def is_milestone(env_steps: int, config: TrainConfig) -> bool:
    """Whether an evaluation at this env step is one of the about ten, from start to end, whose actors are kept."""
    every = config.eval_every or config.steps
    tenths = [SNAPSHOTS * every * (env_steps // every - back) // config.steps for back in (0, 1)]
    return tenths[0] > tenths[1] or env_steps >= config.steps


def _longest(config: TrainConfig) -> int:
    """No more rows than this can ever be stored."""
    return -(-config.steps // config.envs) * config.envs


class StopSignals:
    """Ctrl-C and a polite kill (SIGTERM) are noted, so that a round can be finished; the second one comes through.

    Unless it is `deaf`: then they are not listened to.
    """

    noted = deaf = False

    def __enter__(self) -> "StopSignals":
        """Listen; in another thread than the main one there is nothing to hear."""
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        """Let others listen again."""
        for number, handler in self._before.items():
            if handler is not None:  # not one of Python's own, and it cannot be put back
                signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.noted and not self.deaf:
            raise KeyboardInterrupt
        self.noted = True


def _missing(rows: Sequence[object | None]) -> list[int]:
    return [index for index, row in enumerate(rows) if row is None]


def _array(value: Tensor | Array) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _named(tensors: Mapping[str, Array], beginning: str) -> dict[str, Array]:
    return {name[len(beginning) :]: array for name, array in tensors.items() if name.startswith(beginning)}


def _load_tensors(agent: Agent, tensors: Mapping[str, Array], beginning: str) -> None:
    """Put saved tensors of these names into an agent, in place."""
    for name, tensor in agent.tensors().items():
        if beginning + name in tensors:
            tensor.copy_(torch.from_numpy(tensors[beginning + name]))
