"""`TD3` with the constructor, the methods, the defaults and the order of events of Stable-Baselines3's.

As there, and unlike `td3.train`: the networks see actions scaled to [-1, 1], a transition is stored before the update
that follows it, and there is no exploration noise unless `action_noise` brings it.
"""

import contextlib
import inspect
import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box

from td3.algorithm import Agent, AgentSpec, ReplayBuffer, make_replay_buffer
from td3.algorithm.networks import parameter_count
from td3.algorithm.optimizer import OPTIMIZERS
from td3.algorithm.streams import derive_seed
from td3.backends.choose import keep_threads
from td3.collect.collector import Collector
from td3.config import TD3Config, TrainConfig
from td3.engine import make_engine
from td3.environments import TaskSpaces
from td3.errors import AgentFileError, ConfigError
from td3.files import require_plain
from td3.libraries import library_variables
from td3.policy import Array, Policy
from td3.resources import available_threads, require_memory
from td3.run.directory import versions
from td3.sb3.callbacks import Callbacks, check_logging, make_logger
from td3.sb3.environments import UnitActions, as_vec_env, checked_spaces
from td3.sb3.noise import StackedNoise, described, from_description
from td3.sb3.saving import read_model, with_suffix, write_model
from td3.training import Engine, backend_flags, choose_device

OUR_WORDS = {
    "--td3.buffer-size": "buffer_size",
    ", or train fewer seeds": "",
    "buffer_size": "buffer_size",
    "actor_learning_rate": "learning_rate",
    "target_noise_clip": "target_noise_clip",
    "target_policy_noise": "target_policy_noise",
}
NOT_HERE = {
    **dict.fromkeys(
        ("policy", "actor", "actor_target", "critic", "critic_target"),
        "td3.sb3 keeps its networks in stacked tensors, not in PyTorch modules; `model.agent` has them",
    ),
    **dict.fromkeys(("get_parameters", "set_parameters"), "save and load the model, or use `model.agent.tensors()`"),
}
PLAIN_SETTINGS = (
    *("buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq", "gradient_steps", "policy_delay"),
    *("target_policy_noise", "target_noise_clip", "stats_window_size", "tensorboard_log", "verbose", "seed"),
)


class TD3:
    """Stable-Baselines3's TD3 to type, this package's TD3 to run."""

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: float | Callable[[float], float] = 1e-3,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: Any = None,
        replay_buffer_class: Any = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        policy_delay: int = 2,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        _refuse_unsupported(policy, replay_buffer_class, replay_buffer_kwargs, optimize_memory_usage, n_steps)
        check_logging(tensorboard_log)
        self.learning_rate, self.buffer_size, self.learning_starts = learning_rate, buffer_size, learning_starts
        self.batch_size, self.tau, self.gamma = batch_size, tau, gamma
        self.train_freq, self.gradient_steps, self.policy_delay = train_freq, gradient_steps, policy_delay
        self.target_policy_noise, self.target_noise_clip = target_policy_noise, target_noise_clip
        self.action_noise, self.policy_kwargs = action_noise, dict(policy_kwargs or {})
        self.stats_window_size, self.tensorboard_log = stats_window_size, tensorboard_log
        self.verbose, self.seed = verbose, seed
        self.device = choose_device(str(device)) if str(device) in ("auto", "cpu", "cuda") else torch.device(device)
        self.env: Any = None
        self.n_envs, self.num_timesteps = 1, 0
        self.ep_info_buffer: deque[dict[str, float]] = deque(maxlen=stats_window_size)
        self.ep_success_buffer: deque[float] = deque(maxlen=stats_window_size)
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._episode_num, self._learn_calls, self._progress_remaining = 0, 0, 1.0
        self._collector: Collector | None = None
        self._buffer: ReplayBuffer | None = None
        self._engine: Engine | None = None
        self._logger: Any = None
        self._has_own_logger = False
        self._snapshot: tuple[int, Policy] | None = None
        if _init_setup_model:
            if env is None:
                raise ConfigError("env must be an environment or its name, but None was given.")
            self.env = as_vec_env(env, verbose)
            self.n_envs = self.env.num_envs
            self._set_up(self.env.observation_space, self.env.action_space)

    def _set_up(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.spaces: TaskSpaces = checked_spaces(observation_space, action_space)
        self._settings, self._sizes = self._checked_settings()
        self.agent = _new_learner(self._seed, self.spaces, self._sizes, self._settings, self.device)
        if self.seed is not None:
            np.random.seed(self.seed)  # where noise objects draw from, Stable-Baselines3's and ours
        if self.verbose >= 1:
            print(f"Using {self.device.type} device")

    def _checked_settings(self) -> tuple[TD3Config, tuple[tuple[int, ...], tuple[int, ...]]]:
        actor_sizes, critic_sizes, optimizer = _networks(self.policy_kwargs)
        rate = self.learning_rate(1.0) if callable(self.learning_rate) else self.learning_rate
        _require_whole("learning_starts", self.learning_starts, 0)
        _require_whole("gradient_steps", self.gradient_steps, -1)
        self._frequency, self._unit = _train_frequency(self.train_freq)
        try:
            settings = TD3Config(
                hidden_sizes=actor_sizes,
                actor_learning_rate=rate,
                critic_learning_rate=rate,
                optimizer=optimizer,  # type: ignore[arg-type]  # _networks has refused every other name
                batch_size=self.batch_size,
                buffer_size=self.buffer_size,
                target_policy_noise=self.target_policy_noise,
                target_noise_clip=self.target_noise_clip,
                policy_delay=self.policy_delay,
                gamma=self.gamma,
                tau=self.tau,
            )
        except ConfigError as error:
            raise ConfigError(_in_option_names(error)) from None
        return settings, (actor_sizes, critic_sizes)

    # Learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 4,
        tb_log_name: str = "TD3",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> "TD3":
        """Train for so many env steps, of all environments together; returns the model itself."""
        callbacks = Callbacks(callback, progress_bar)
        collector, noise, engine = self._prepare(reset_num_timesteps)
        if reset_num_timesteps:
            self.num_timesteps, self._episode_num = 0, 0
            self.ep_info_buffer.clear()
            self.ep_success_buffer.clear()
        else:
            total_timesteps += self.num_timesteps
        if not self._has_own_logger:
            self._logger = make_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        self._started, self._first_step = time.perf_counter(), self.num_timesteps
        self._counted_updates = self._n_updates
        names = {"self": self, "total_timesteps": total_timesteps, "log_interval": log_interval}
        callbacks.started(self, names, {})
        while self.num_timesteps < total_timesteps:
            steps = self._roll_out(collector, noise, engine, callbacks, total_timesteps, log_interval)
            if steps is None:
                break
            if self.num_timesteps > self.learning_starts:
                self.train(steps if self.gradient_steps < 0 else self.gradient_steps)
        callbacks.told("on_training_end")
        return self

    def _roll_out(
        self,
        collector: Collector,
        noise: StackedNoise,
        engine: Engine,
        callbacks: Callbacks,
        total_timesteps: int,
        log_interval: int | None,
    ) -> int | None:
        """Step until updates are due; returns the env steps done, or None when a callback wants to stop."""
        assert isinstance(collector.environments, UnitActions)
        callbacks.told("on_rollout_start")
        rounds, episodes = 0, 0
        while (rounds if self._unit == "step" else episodes) < self._frequency:
            actions = self._next_actions(collector, noise, engine)
            rows, _ = collector.step(actions)
            said = collector.environments.last
            self.num_timesteps += self.n_envs
            rounds += 1
            if not callbacks.stepped(
                {**said, "self": self, "buffer_actions": actions[0], "num_collected_steps": rounds}
            ):
                return None
            self._note(said["infos"])
            engine.store(rows)
            self._progress_remaining = 1.0 - self.num_timesteps / total_timesteps
            for index in np.flatnonzero(said["dones"]).tolist():
                episodes += 1
                self._episode_num += 1
                noise.episode_ended(index)
                if log_interval is not None and self._episode_num % log_interval == 0:
                    self.dump_logs()
        callbacks.told("on_rollout_end")
        return rounds * self.n_envs

    def _next_actions(self, collector: Collector, noise: StackedNoise, engine: Engine) -> Array:
        """Actions `[1, environment, action]` within [-1, 1]: random ones first, then the actor's, both with noise."""
        if self.num_timesteps < self.learning_starts:
            actions = collector.act(None)
        else:
            engine.act_async(collector.member_states)
            actions = engine.act_wait()
        return noise.added_to(actions[0])[None]

    def train(self, gradient_steps: int, batch_size: int | None = None) -> None:
        """Run so many updates."""
        if batch_size not in (None, self.batch_size):
            raise ConfigError(f"batch_size is {self.batch_size}: give another one to the constructor, not to train.")
        engine = self._running_engine()
        if callable(self.learning_rate):
            rate = float(self.learning_rate(self._progress_remaining))
            if not 0 <= rate <= 100:
                raise ConfigError(
                    f"learning_rate must give numbers from 0 to 100, but it gave {rate!r}: fix the schedule."
                )
            engine.set_learning_rates(rate, rate)
        with _settings_of_updates():
            engine.use_threads()
            engine.update([gradient_steps])

    def _prepare(self, new_episode: bool) -> tuple[Collector, StackedNoise, Engine]:
        if self.env is None:
            raise ConfigError("there is no environment to learn in: give one to set_env, or to load as env=...")
        if self._unit == "episode" and self.n_envs > 1:
            raise ConfigError("train_freq in episodes needs one environment alone: give it in steps.")
        if self._collector is None or new_episode:
            # Other numbers at every call: a second `learn` does not repeat the episodes of the first.
            seed = derive_seed(self._seed, "learn", self._learn_calls)
            self._learn_calls += 1
            size = self.spaces.action_size
            self._collector = Collector(UnitActions(self.env), [seed], [-1.0] * size, [1.0] * size, 0.0)
        return self._collector, StackedNoise(self.action_noise, self.n_envs), self._running_engine()

    def _running_engine(self) -> Engine:
        if self._engine is None:
            # Each engine draws its own numbers: one made later does not repeat the batches of the first.
            seed = derive_seed(self._seed, "engine", self._n_updates)
            config = TrainConfig("td3.sb3", seed=seed, td3=self._settings, envs=self.n_envs)
            threads = available_threads()
            with _settings_of_updates():
                self._engine = make_engine(self.agent, self.replay_buffer, config, threads)
        return self._engine

    def _note(self, infos: Any) -> None:
        for info in infos:
            if info.get("episode") is not None:
                self.ep_info_buffer.append(info["episode"])
            if info.get("is_success") is not None and "terminal_observation" in info:
                self.ep_success_buffer.append(float(info["is_success"]))

    def dump_logs(self) -> None:
        """Log under Stable-Baselines3's names; losses are means over all updates since the last time."""
        elapsed = max(time.perf_counter() - self._started, 1e-9)
        updates = self._n_updates - self._counted_updates
        self._counted_updates = self._n_updates
        losses = self._running_engine().mean_losses([updates])[0]
        record = self.logger.record
        record("time/episodes", self._episode_num, exclude="tensorboard")
        if self.ep_info_buffer:
            record("rollout/ep_rew_mean", float(np.mean([episode["r"] for episode in self.ep_info_buffer])))
            record("rollout/ep_len_mean", float(np.mean([episode["l"] for episode in self.ep_info_buffer])))
        if self.ep_success_buffer:
            record("rollout/success_rate", float(np.mean(self.ep_success_buffer)))
        record("time/fps", int((self.num_timesteps - self._first_step) / elapsed))
        record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        if updates:
            rate = self.learning_rate
            record("train/learning_rate", float(rate(self._progress_remaining) if callable(rate) else rate))
            record("train/n_updates", self._n_updates, exclude="tensorboard")
            record("train/critic_loss", losses["critic_loss"])
            if not np.isnan(losses["actor_loss"]):
                record("train/actor_loss", losses["actor_loss"])
        self.logger.dump(step=self.num_timesteps)

    # Acting

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Array, Any]:
        """The action for one observation or a batch, and `state` as it was given; there is never noise on it."""
        return self._live_policy().act(observation), state

    def _live_policy(self) -> Policy:
        if self._snapshot is None or (self.device.type != "cpu" and self._snapshot[0] != self._n_updates):
            # On a CPU the arrays are the actor's own and always up to date; from a GPU they are fetched.
            layers = [
                (weight[0].detach().cpu().numpy(), bias[0].detach().cpu().numpy())
                for weight, bias in self.agent.actor.network.layers()
            ]
            spaces = self.spaces
            policy = Policy(
                layers, spaces.action_low, spaces.action_high, spaces.observation_shape, spaces.action_shape
            )
            self._snapshot = self._n_updates, policy
        return self._snapshot[1]

    # Environments and logs

    def get_env(self) -> Any:
        """The environments, as a vector."""
        return self.env

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Learn in another environment of the same spaces; of another number, if you like."""
        given = as_vec_env(env, self.verbose)
        if checked_spaces(given.observation_space, given.action_space) != self.spaces:
            raise ConfigError(
                f"the environment has observations {given.observation_space} and actions {given.action_space}, but the "
                f"model was made for {self.observation_space} and {self.action_space}: give one like it."
            )
        if given.num_envs != self.n_envs:
            self._engine = None  # a GPU's graphs are made for one number of environments
        self.env, self.n_envs = given, given.num_envs
        if force_reset:
            self._collector = None

    def get_vec_normalize_env(self) -> None:
        """None: td3.sb3 does not normalize."""

    @property
    def logger(self) -> Any:
        """Where `record` and `dump` go; there from the first `learn` on."""
        if self._logger is None:
            self._logger = make_logger(0, None, "", True)
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Log to this object from now on."""
        self._logger, self._has_own_logger = logger, True

    @property
    def _n_updates(self) -> int:
        return int(self.agent.updates[0])

    @property
    def replay_buffer(self) -> ReplayBuffer:
        """The buffer, made when it is first asked for: `len(model.replay_buffer)` transitions, actions in [-1, 1]."""
        if self._buffer is None:
            state_size, action_size = self.spaces.state_size, self.spaces.action_size
            needed = self.buffer_size * 4 * (2 * state_size + action_size + 2)
            try:
                require_memory(needed, self.buffer_size, 1, self.device)
            except ConfigError as error:
                raise ConfigError(_in_option_names(error)) from None
            self._buffer = make_replay_buffer(1, self.buffer_size, state_size, action_size, self.device)
        return self._buffer

    # Files

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Write networks, optimizers, settings and counters, without pickle; the buffer has a file of its own."""
        rate = self.learning_rate
        noise = described(self.action_noise)
        lost = ["learning_rate"] if callable(rate) else []
        lost += ["action_noise"] if self.action_noise is not None and noise is None else []
        facts = {
            "settings": {name: getattr(self, name) for name in PLAIN_SETTINGS},
            "learning_rate": float(rate(1.0) if callable(rate) else rate),
            "action_noise": noise,
            "not_stored": lost,
            "net_arch": {"pi": list(self._sizes[0]), "qf": list(self._sizes[1])},
            "optimizer": self._settings.optimizer,
            "num_timesteps": self.num_timesteps,
            "episodes": self._episode_num,
            "learn_calls": self._learn_calls,
            "updates": self._n_updates,
            "stream_seed": self._seed,
            "versions": versions(),
        }
        tensors = {name: tensor.cpu().numpy() for name, tensor in self.agent.tensors().items()}
        for kind, space in (("observation", self.observation_space), ("action", self.action_space)):
            tensors |= {f"space.{kind}_low": space.low, f"space.{kind}_high": space.high}
        write_model(path, facts, tensors)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> "TD3":
        """The model that `save` wrote; further arguments of the constructor take the place of stored ones."""
        if print_system_info:
            print(", ".join(f"{name} {version}" for name, version in versions().items()))
        for name in kwargs:
            if name not in inspect.signature(cls.__init__).parameters:
                raise ConfigError(f"load takes the constructor's arguments, and {name!r} is none of them.")
        facts, tensors = read_model(path)
        try:
            given = {name: value for name, value in (custom_objects or {}).items() if name in PLAIN_SETTINGS} | kwargs
            settings = facts["settings"]
            if isinstance(settings["train_freq"], list):
                settings["train_freq"] = tuple(settings["train_freq"])
            optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[facts["optimizer"]]
            stored = {
                **settings,
                "learning_rate": facts["learning_rate"],
                "action_noise": from_description(facts["action_noise"]),
                "policy_kwargs": {"net_arch": facts["net_arch"], "optimizer_class": optimizer},
            }
            model = cls("MlpPolicy", None, device=device, _init_setup_model=False, **stored | given)
            model._seed = int(facts["stream_seed"]) if "seed" not in given else model._seed
            bounds = [
                Box(
                    tensors[f"space.{kind}_low"],
                    tensors[f"space.{kind}_high"],
                    dtype=tensors[f"space.{kind}_low"].dtype.type,
                )
                for kind in ("observation", "action")
            ]
            actor_sizes, critic_sizes, _ = _networks(model.policy_kwargs)
            _require_sizes(tensors, bounds[0].low.size, bounds[1].low.size, actor_sizes, critic_sizes)
            model._set_up(*bounds)
            _put_in(model.agent, tensors, facts["updates"])
            model.num_timesteps, model._episode_num = int(facts["num_timesteps"]), int(facts["episodes"])
            model._learn_calls = int(facts["learn_calls"])
            missing = [name for name in facts["not_stored"] if name not in given]
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise AgentFileError(f"{path} does not hold a usable model ({error!r}).") from None
        if missing:
            warnings.warn(
                f"{', '.join(missing)} could not be stored with the model: give it to load again.", stacklevel=2
            )
        if env is not None:
            model.set_env(env, force_reset)
        return model

    def save_replay_buffer(self, path: Any) -> None:
        """Write the buffer, oldest transition first; .pkl in a name becomes .safetensors, which is what it is."""
        from safetensors.torch import save_file

        self._running_engine().flush()  # rows still on their way to a GPU arrive
        buffer = self.replay_buffer
        oldest = buffer.added % buffer.capacity if buffer.added > buffer.capacity else 0
        rows = buffer.rows[:, : len(buffer)].roll(-oldest, 1)
        target = _buffer_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file({"rows": rows.contiguous().cpu()}, target)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Read what `save_replay_buffer` wrote."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        source = _buffer_path(path)
        try:
            require_plain(source)
            rows = load_file(source)["rows"]
        except (OSError, SafetensorError, KeyError) as error:
            raise AgentFileError(f"{source} is not a readable replay buffer of td3.sb3 ({error}).") from None
        width = sum(self.replay_buffer.widths)
        if rows.ndim != 3 or rows.shape[0] != 1 or rows.shape[2] != width or rows.dtype != torch.float32:
            raise AgentFileError(f"{source} holds transitions of another task: shape {tuple(rows.shape)}.")
        self._buffer = self._engine = None
        self.replay_buffer.add_(rows.to(self.device))

    def __getattr__(self, name: str) -> Any:
        """Say what to do instead, for what cannot be had here."""
        hint = f": {NOT_HERE[name]}." if name in NOT_HERE else "."
        raise AttributeError(f"td3.sb3.TD3 has no attribute {name!r}{hint}")


@contextlib.contextmanager
def _settings_of_updates() -> Iterator[None]:
    """What an engine needs of the process while it is made or used; others find their own threads and flags again."""
    with library_variables(), backend_flags(), keep_threads():
        yield


def _new_learner(
    seed: int,
    spaces: TaskSpaces,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    settings: TD3Config,
    device: torch.device,
) -> Agent:
    ones = [1.0] * spaces.action_size
    actor_sizes, critic_sizes = sizes
    chosen = replace(settings, actor_hidden_sizes=actor_sizes, critic_hidden_sizes=critic_sizes)
    spec = AgentSpec.from_settings(chosen, spaces.state_size, [-one for one in ones], ones)
    return Agent.create(spec, [seed], device)


def _require_sizes(
    tensors: Mapping[str, Array], state_size: int, action_size: int, pi: Sequence[int], qf: Sequence[int]
) -> None:
    """Raise ValueError if the stored networks have other sizes than the settings say, before such are made."""
    for name, sizes in (("actor", (state_size, *pi, action_size)), ("critics", (state_size + action_size, *qf, 1))):
        if tensors[name].shape[-1] != parameter_count(sizes):
            raise ValueError(f"{name} is not a network of sizes {sizes}")


def _put_in(agent: Agent, tensors: Mapping[str, Array], updates: int) -> None:
    for name, tensor in agent.tensors().items():
        stored = torch.from_numpy(tensors[name])
        if stored.shape != tensor.shape or not torch.isfinite(stored).all():
            raise ValueError(f"the tensor {name} does not fit or holds NaN")
        tensor.copy_(stored)
    agent.updates[:] = updates


def _in_option_names(error: ConfigError) -> str:
    """A sentence about our settings, with the names that were typed."""
    return re.sub("|".join(OUR_WORDS), lambda found: OUR_WORDS[found.group()], str(error))


def _buffer_path(path: Any) -> Any:
    given = with_suffix(path, ".safetensors")
    return given.with_suffix(".safetensors") if given.suffix == ".pkl" else given


def _refuse_unsupported(
    policy: Any, buffer_class: Any, buffer_kwargs: dict[str, Any] | None, saves_memory: bool, n_steps: int
) -> None:
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", repr(policy))
    if name not in ("MlpPolicy", "TD3Policy"):
        raise ConfigError(f"td3.sb3 knows the policy 'MlpPolicy' alone, but {name!r} was given.")
    if buffer_class is not None and getattr(buffer_class, "__name__", "") != "ReplayBuffer":
        raise ConfigError("td3.sb3 has a replay buffer of its own: leave replay_buffer_class out.")
    if any(value is not True or key != "handle_timeout_termination" for key, value in (buffer_kwargs or {}).items()):
        raise ConfigError(
            "td3.sb3 has a replay buffer of its own, right about time-outs: leave replay_buffer_kwargs out."
        )
    if saves_memory:
        raise ConfigError("td3.sb3 does not know optimize_memory_usage: make buffer_size smaller instead.")
    if n_steps != 1:
        raise ConfigError(f"td3.sb3 learns from single steps: leave n_steps out, instead of giving {n_steps!r}.")


def _networks(policy_kwargs: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Hidden sizes of the actor and of the critics, and the optimizer's name."""
    known = {
        "net_arch",
        "activation_fn",
        "n_critics",
        "optimizer_class",
        "optimizer_kwargs",
        "share_features_extractor",
    }
    known |= {"features_extractor_class", "features_extractor_kwargs", "normalize_images"}
    for name in policy_kwargs:
        if name not in known:
            raise ConfigError(f"td3.sb3 does not know {name!r} in policy_kwargs: it knows net_arch.")
    arch = policy_kwargs.get("net_arch")
    arch = [400, 300] if arch is None else arch  # Stable-Baselines3's default for TD3
    if isinstance(arch, Mapping):
        if set(arch) != {"pi", "qf"}:
            raise ConfigError(f"net_arch as a dict has the keys pi and qf, but {sorted(arch)} were given.")
        actor_sizes, critic_sizes = tuple(arch["pi"]), tuple(arch["qf"])
    else:
        actor_sizes = critic_sizes = tuple(arch)
    for sizes in (actor_sizes, critic_sizes):
        if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ConfigError(f"net_arch must be one or more whole numbers of at least 1, but {arch!r} was given.")
    refused = {
        "activation_fn": ("ReLU", "ReLU between its layers"),
        "features_extractor_class": ("FlattenExtractor", "plain vectors as observations"),
    }
    for name, (only, has) in refused.items():
        given = policy_kwargs.get(name)
        if given is not None and getattr(given, "__name__", "") != only:
            raise ConfigError(f"td3.sb3 has {has} and nothing else: leave {name} out of policy_kwargs.")
    if policy_kwargs.get("n_critics", 2) != 2:
        raise ConfigError("TD3 has two critics: leave n_critics out of policy_kwargs.")
    for name in ("optimizer_kwargs", "features_extractor_kwargs"):
        if policy_kwargs.get(name):
            raise ConfigError(f"td3.sb3 does not take {name}: leave it out of policy_kwargs.")
    optimizer = getattr(policy_kwargs.get("optimizer_class", torch.optim.Adam), "__name__", "").lower()
    if optimizer not in OPTIMIZERS:
        raise ConfigError("td3.sb3 has the optimizers Adam and SGD: choose one as optimizer_class, or leave it out.")
    return actor_sizes, critic_sizes, optimizer


def _train_frequency(given: Any) -> tuple[int, str]:
    count, unit = (given, "step") if isinstance(given, int) else tuple(given)
    unit = getattr(unit, "value", unit)  # Stable-Baselines3 has an enumeration for it
    if unit not in ("step", "episode"):
        raise ConfigError(f"train_freq is counted in 'step' or 'episode', but {unit!r} was given.")
    _require_whole("train_freq", count, 1)
    return count, unit


def _require_whole(name: str, given: Any, low: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < low:
        raise ConfigError(f"{name} must be a whole number of at least {low}, but {given!r} was given.")
