"""The baselines, each as it comes: this package, Stable-Baselines3, sbx, and the paper author's code."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.collect.collector import Collector
from td3.config import Precision, TrainConfig
from td3.engine import make_engine
from td3.engine.check import try_changes
from td3.engine.losses import LossSums
from td3.engine.updates import Updates
from td3.environments import check_environment, make_environment
from td3.errors import ConfigError
from td3.settings import TD3Config
from td3.training import Trainer, backend_flags
from td3.variant_settings import with_variant
from td3.variants import find_replacements
from td3_lab.bench.machine import on_device
from td3_lab.bench.timing import Case

STATE_SIZE, ACTION_SIZE = 17, 6
"""As in HalfCheetah."""
ROWS = 100_000
"""Transitions in each baseline's buffer where updates alone are measured."""
WARM_UP_STEPS = 1_000
"""Env steps with random actions before a loop is measured."""
CHUNK = 10
"""Env steps for which another library's loop is called at a time."""


def synthetic_rows(count: int) -> NDArray[Any]:
    """Transitions for a buffer, `state | action | next_state | reward | terminated`; a hundredth terminates."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((count, 2 * STATE_SIZE + ACTION_SIZE + 2), np.float32)
    rows[:, STATE_SIZE : STATE_SIZE + ACTION_SIZE] = generator.uniform(-1, 1, (count, ACTION_SIZE))
    rows[:, -1] = generator.random(count) < 0.01
    return rows


def _columns(count: int) -> list[NDArray[Any]]:
    """The same as state, action, next_state, reward and terminated."""
    return np.split(synthetic_rows(count), np.cumsum([STATE_SIZE, ACTION_SIZE, STATE_SIZE, 1]), axis=1)


def synthetic_buffer(members: int, count: int, device: torch.device) -> ReplayBuffer:
    """A full buffer."""
    buffer = ReplayBuffer(members, count, STATE_SIZE, ACTION_SIZE, device)
    buffer.add_(torch.from_numpy(synthetic_rows(count)).to(device).expand(members, -1, -1))
    return buffer


def td3_updates(
    buffer: ReplayBuffer,
    width: int,
    batch_size: int,
    threads: int,
    variant: Sequence[str] = (),
    replace_steps: Sequence[str] = (),
    precision: Precision = "float32",
) -> Case:
    """Updates as a run does them, all members counted; perhaps with variants or replaced steps.

    Make and measure them within `backend_flags`.
    """
    device, members = buffer.rows.device, buffer.rows.shape[0]
    settings = TD3Config(hidden_sizes=(width, width), batch_size=batch_size, buffer_size=max(batch_size, ROWS))
    config = TrainConfig(
        "HalfCheetah-v5",
        seeds=members,
        device=_name(device),
        threads=threads,
        precision=precision,
        variant=tuple(variant),
        td3=with_variant(settings, tuple(variant)),
    )
    task = Task(STATE_SIZE, [-1.0] * ACTION_SIZE, [1.0] * ACTION_SIZE)
    replacements = find_replacements(config.variant, replace_steps)
    agent = Agent.create(
        task, config.td3, config.member_seeds, device, replacements=replacements, capacity=buffer.capacity
    )
    if replacements:
        try_changes(agent, config.member_seeds, config.td3)
    try:
        if device.type == "cpu" and members == 1:
            update_once, kind = one_member_update(agent, buffer, config), lambda: "recorded updates"
        else:
            engine = make_engine(agent, buffer, config, threads)
            for notice in engine.notices:
                engine.on_warning(notice)
            update_once, kind = partial(engine.update, [1] * members), lambda: engine.kind
        for _ in range(config.td3.policy_delay):  # the first of each kind is recorded, which takes longer
            update_once()
    except Exception as error:
        if not replacements:
            raise
        raise ConfigError(f"the replaced steps cannot be recorded ({type(error).__name__}: {error}).") from error

    def work() -> float:
        update_once()
        return float(members)

    return replace(on_device(work, device, threads, agent.backend.set_threads), kind=kind)


def one_member_update(agent: Agent, buffer: ReplayBuffer, config: TrainConfig) -> Callable[[], object]:
    """What an engine does for a lone member, less its choice of threads: here the benchmark sets them."""
    return Updates(agent, buffer, [config.seed], LossSums(1), config.td3)


def author_updates(checkout: Path, batch_size: int, device: torch.device, threads: int) -> Case:
    """Updates by the paper author's code, from a checkout of it."""
    modules = import_checkout(checkout)
    # It takes a GPU whenever there is one; here everybody works on the same device.
    modules["TD3"].device = device  # type: ignore[attr-defined]  # a module of theirs
    try:
        learner = modules["TD3"].TD3(STATE_SIZE, ACTION_SIZE, 1.0)
        buffer = modules["utils"].ReplayBuffer(STATE_SIZE, ACTION_SIZE)
    except TypeError as error:  # its first versions, of 2018, had other arguments
        raise ConfigError(f"{checkout} is not a current checkout of the author's code: {error}.") from error
    buffer.device = device
    count = min(ROWS, len(buffer.state))
    state, action, next_state, reward, terminated = _columns(count)
    buffer.state[:count], buffer.action[:count], buffer.next_state[:count] = state, action, next_state
    buffer.reward[:count], buffer.not_done[:count] = reward, 1 - terminated
    buffer.size = count

    def work() -> float:
        learner.train(buffer, batch_size)
        return 1.0

    return on_device(work, device, threads)


def import_checkout(checkout: Path) -> dict[str, ModuleType]:
    """The modules `TD3` and `utils` of a checkout; the import system afterwards knows nothing of them."""
    if not checkout.is_dir():
        raise ConfigError(f"there is no directory {checkout}: give --author a checkout of the author's code.")
    for name in ("TD3.py", "utils.py"):
        if not (checkout / name).is_file():
            raise ConfigError(f"{checkout} is not a checkout of the author's code: it has no {name}.")
    # Its modules know each other by these short names, which may be somebody else's here.
    own = [file.stem for file in checkout.glob("*.py")]
    hidden = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    place = str(checkout.resolve())
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        modules = {name: importlib.import_module(name) for name in ("TD3", "utils")}
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the author's code in {checkout} cannot be imported: {reason}") from error
    finally:
        sys.path.remove(place)
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
    for name, wanted in (("TD3", "TD3"), ("utils", "ReplayBuffer")):
        if not hasattr(modules[name], wanted):
            raise ConfigError(f"{checkout} is not a checkout of the author's code: its {name}.py has no {wanted}.")
    return modules


def installed(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


class Spaces(gym.Env[Any, Any]):
    """Spaces and nothing else: other libraries ask for an environment even where it is never stepped."""

    observation_space = Box(-np.inf, np.inf, (STATE_SIZE,), np.float32)
    action_space = Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)


def sb3_updates(batch_size: int, width: int, device: torch.device, threads: int) -> Case:
    """Updates by Stable-Baselines3, one per call, as its loop has it."""
    learner = _their_learner("stable_baselines3", Spaces(), batch_size, width, device)
    state, action, next_state, reward, terminated = _columns(ROWS)
    buffer = learner.replay_buffer
    buffer.observations[:, 0], buffer.actions[:, 0], buffer.next_observations[:, 0] = state, action, next_state
    buffer.rewards[:], buffer.dones[:], buffer.full = reward, terminated, True

    def work() -> float:
        learner.train(gradient_steps=1, batch_size=batch_size)
        return 1.0

    return on_device(work, device, threads)


def their_loop(package: str, env: str, batch_size: int, width: int, device: torch.device, threads: int) -> Case:
    """Env steps of Stable-Baselines3 or sbx by their own `learn`, warmed up."""
    learner = _their_learner(package, make_environment(env), batch_size, width, device)

    def work() -> float:
        learner.learn(CHUNK, reset_num_timesteps=False)
        return float(CHUNK)

    for _ in range(WARM_UP_STEPS // CHUNK + 2):  # the last two compile what they compile
        work()
    return on_device(work, device, threads)


def _their_learner(package: str, environment: Any, batch_size: int, width: int, device: torch.device) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what these packages deprecate among themselves is no news here
        library: Any = importlib.import_module(package)
        logger: Any = importlib.import_module("stable_baselines3.common.logger")
        noise: Any = importlib.import_module("stable_baselines3.common.noise")
        settings = TD3Config()
        size = environment.action_space.shape
        learner = library.TD3(
            "MlpPolicy",
            environment,
            learning_rate=settings.actor_learning_rate,
            buffer_size=ROWS,
            learning_starts=WARM_UP_STEPS,
            batch_size=batch_size,
            train_freq=1,
            gradient_steps=1,
            action_noise=noise.NormalActionNoise(np.zeros(size), np.full(size, settings.exploration_noise)),
            policy_kwargs={"net_arch": [width, width]},
            device=_name(device) if package == "stable_baselines3" else "auto",
            seed=0,
        )
    learner.set_logger(logger.Logger(folder=None, output_formats=[]))
    return learner


def make_training(config: TrainConfig, device: torch.device) -> Trainer:
    """A run that has not begun; it writes nothing until it does."""
    make: Callable[[], gym.Env[Any, Any]] = partial(make_environment, **config.env_arguments)
    probe = make()
    spaces = check_environment(probe, config.env)
    probe.close()
    with backend_flags(config.precision):
        return Trainer(config, spaces, make, device, ROWS)


class Td3Loop:
    """Env steps of this package, one update for each: the calls of `Trainer.run` without logs and evaluations."""

    def __init__(self, env: str, envs: int, width: int, batch_size: int, device: torch.device, threads: int) -> None:
        settings = TD3Config(hidden_sizes=(width, width), batch_size=batch_size)
        config = TrainConfig(env, envs=envs, device=_name(device), threads=threads, td3=settings, eval_episodes=1)
        training = self._training = make_training(config, device)
        assert isinstance(training.collector, Collector)
        self._collector = training.collector
        self.case = on_device(self._round, device, threads, training.agent.backend.set_threads)
        self._update: Callable[[], object] = partial(training.engine.update, [1])
        if device.type == "cpu":
            self._update = one_member_update(training.agent, training.buffer, config)
        for _ in range(-(-WARM_UP_STEPS // envs)):
            training.engine.store(self._collector.step(self._collector.act(None))[0])

    def _round(self) -> float:
        collector, engine = self._collector, self._training.engine
        engine.act_async(collector.member_states)
        for _ in range(collector.envs_per_member):
            self._update()
        collector.begin(collector.explore(engine.act_wait()))
        engine.prepare()
        rows, _ = collector.finish()
        engine.store(rows)
        return float(rows.shape[1])

    def close(self) -> None:
        """Let go of environments and threads."""
        self._training.close()


def _name(device: torch.device) -> Literal["cpu", "cuda"]:
    return "cuda" if device.type == "cuda" else "cpu"
