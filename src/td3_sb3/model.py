"""`TD3` of Stable-Baselines3 with updates by this package's engine.

Everything is inherited but what makes it fast: `train` runs the engine on the weights of the policy's modules,
`predict` acts in numpy on a CPU, and the replay buffer lies in the memory that the engine reads. What the engine cannot
serve (a policy, a buffer or an optimizer of another kind, `VecNormalize`) is trained by Stable-Baselines3's own code.
"""

import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from stable_baselines3.td3 import td3 as theirs
from stable_baselines3.td3.policies import TD3Policy

from td3.errors import ConfigError
from td3.export.folder import Export, export_agent
from td3.policy import Array, Policy
from td3.settings import TD3Config
from td3_sb3 import files
from td3_sb3.buffer import RowReplayBuffer, rows_serve
from td3_sb3.errors import SettingError
from td3_sb3.exporting import env_name, exported_agent
from td3_sb3.settings import as_callback, check_env, check_settings, plain_train_freq
from td3_sb3.updates import SharedUpdates, engine_settings, is_plain, linears, why_not

NUMBERS = ("policy_delay", "target_policy_noise", "target_noise_clip", "gamma", "tau")


class TD3(theirs.TD3):
    """Stable-Baselines3's TD3, trained by this package's engine where that can serve it."""

    _shared: SharedUpdates | None = None
    _numbers: tuple[tuple[Any, ...], TD3Config] | None = None
    _actor: tuple[tuple[int, ...], Policy] | None = None
    _learning = False
    _scheduled_rate: Any = None
    updates_by = ""
    """What ran the last update: "td3", or "Stable-Baselines3: " and the reason."""

    # Setting up

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> Any:
        check_env(env)
        return theirs.TD3._wrap_env(env, verbose, monitor_wrapper)

    def _setup_model(self) -> None:
        if not hasattr(self, "observation_space"):
            raise SettingError("env must be an environment or its name, but None was given.")
        check_settings(self)
        if self._rows_serve() and self.replay_buffer is None:
            self.replay_buffer = RowReplayBuffer(
                self.buffer_size,
                self.observation_space,
                self.action_space,
                self.device,
                self.n_envs,
                **self.replay_buffer_kwargs,
            )
        super()._setup_model()

    def _rows_serve(self) -> bool:
        if self.replay_buffer_class not in (None, ReplayBuffer) or self.optimize_memory_usage:
            return False
        return getattr(self, "n_steps", 1) == 1 and rows_serve(self.observation_space)

    def _setup_lr_schedule(self) -> None:
        if isinstance(self.learning_rate, np.number):
            self.learning_rate = float(self.learning_rate)
        super()._setup_lr_schedule()
        self._scheduled_rate = self.learning_rate

    def _convert_train_freq(self) -> None:
        self.train_freq = plain_train_freq(self.train_freq)
        super()._convert_train_freq()

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed everything that is random; the next update draws from a new stream."""
        super().set_random_seed(seed)
        if seed is not None:
            self._release()
            self._shared = None

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
        check_settings(self)  # attributes may have been set since it was made
        self._convert_train_freq()
        if self.learning_rate != self._scheduled_rate:
            self._setup_lr_schedule()
        self._learning = True
        try:
            each = cast(int, log_interval)  # None, which logs nothing, is theirs too
            return super().learn(total_timesteps, callback, each, tb_log_name, reset_num_timesteps, progress_bar)
        finally:
            self._learning = False
            self._release()

    def _init_callback(self, callback: Any, progress_bar: bool = False) -> BaseCallback:
        """As theirs, and a function may stand in a list, or return None, which stops nothing."""
        listed = [
            as_callback(one) for one in (callback if isinstance(callback, list) else [callback]) if one is not None
        ]
        return super()._init_callback(listed, progress_bar)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Run so many updates."""
        settings = self._engine_settings(batch_size)
        if settings is None:
            self._release()
            super().train(gradient_steps, batch_size)
            return
        assert self._shared is not None
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        try:
            self._shared.update(self, gradient_steps, settings)
        finally:
            if not self._learning:
                self._release()
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if self.device.type == "cpu":  # a GPU would have to be waited for
            self._record_losses()

    def dump_logs(self) -> None:
        """Write what was logged."""
        self._record_losses()
        super().dump_logs()

    def _record_losses(self) -> None:
        for name, value in (self._shared.mean_losses() if self._shared is not None else {}).items():
            if name != "mean_q" and not np.isnan(value):
                self.logger.record(f"train/{name}", value)

    def _engine_settings(self, batch_size: int) -> TD3Config | None:
        """Have an engine ready, and return its settings; None, with the reason noted, where it cannot serve."""
        if self._shared is None or not self._shared.belongs_to(self) or self._vec_normalize_env is not None:
            self._release()
            self._shared = None
            if self._rows_serve() and type(self.replay_buffer) is ReplayBuffer:  # from a pickle
                self.replay_buffer = RowReplayBuffer.from_plain(self.replay_buffer)
            if (reason := why_not(self)) is not None:
                self._note(f"Stable-Baselines3: {reason}")
                return None
            self._shared = SharedUpdates(self)
        numbers = batch_size, *(getattr(self, name) for name in NUMBERS)
        if self._numbers is None or self._numbers[0] != numbers:
            try:
                self._numbers = numbers, engine_settings(self, batch_size)
            except ConfigError as error:
                self._note(f"Stable-Baselines3: {error}")
                return None
        self._note("td3")
        return self._numbers[1]

    def _note(self, updates_by: str) -> None:
        if updates_by != self.updates_by and self.verbose >= 1:
            print(f"Updates by {updates_by}")
        self.updates_by = updates_by

    def _release(self) -> None:
        if self._shared is not None:
            self._shared.release()

    # Acting

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Array, Any]:
        """The action for one observation or a batch, and `state` as it was given; there is never noise on it."""
        shape = self.observation_space.shape
        if isinstance(observation, np.ndarray) and self.device.type == "cpu" and shape is not None:
            actor = self._numpy_actor()
            if actor is not None and shape in (observation.shape, observation.shape[1:]):
                batch = observation.reshape(-1, int(np.prod(shape))).astype(np.float32)
                space = cast(Box, self.action_space)
                actions = self.policy.unscale_action(actor(batch).reshape(-1, *space.shape))
                actions = np.clip(actions, space.low, space.high)
                return (actions[0] if observation.shape == shape else actions), state
        return super().predict(observation, state, episode_start, deterministic)

    def _numpy_actor(self) -> Policy | None:
        """The actor in numpy, on the memory of its module's weights; None for one of another kind."""
        policy = self.policy
        if type(policy) is not TD3Policy:
            return None
        places = tuple(weight.data_ptr() for weight in policy.actor.parameters())
        if self._actor is None or self._actor[0] != places:
            if not rows_serve(self.observation_space) or not is_plain(policy.actor.mu, torch.nn.Tanh):
                return None
            arrays = [
                [part.detach().cpu().numpy() for part in (one.weight, one.bias)] for one in linears(policy.actor.mu)
            ]
            layers = [(weight.T, bias) for weight, bias in arrays]
            size = layers[-1][1].size
            actor = Policy(layers, [-1.0] * size, [1.0] * size, (len(layers[0][0]),), (size,))
            self._actor = places, actor
        return self._actor[1]

    # Files

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "_shared",
            "_numbers",
            "_actor",
            "_learning",
            "_scheduled_rate",
            "updates_by",
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the engine, which is made again when it is needed."""
        made_again = ("_shared", "_numbers", "_actor", "_learning")
        return {name: value for name, value in vars(self).items() if name not in made_again}

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Write Stable-Baselines3's own format, atomically; the replay buffer has a file of its own."""
        files.save_model(path, lambda target: super(TD3, self).save(target, exclude, include))

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
        """The model that `save` or Stable-Baselines3 wrote. Code in the file is executed with `trust=True` alone."""
        if kwargs.pop("trust", False):
            return super().load(path, env, device, custom_objects, print_system_info, force_reset, **kwargs)
        content, found = files.read_model(path, custom_objects or {}, kwargs)
        return super().load(content, env, device, found, print_system_info, force_reset, **kwargs)

    def export(self, out: Any) -> Export:
        """Write `actor.onnx`, `actor.pt2`, an example that asks them and the model as `sb3.zip` into a folder."""
        content = io.BytesIO()
        self.save(content)
        self._actor = None  # on a GPU its weights were copied
        agent = exported_agent(self, self._numpy_actor())
        return export_agent(agent, env_name(self.env), content.getvalue(), Path(out))

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True, trust: bool = False) -> None:
        """Read what `save_replay_buffer` wrote, here or in Stable-Baselines3; code is executed with `trust` alone."""
        if trust:
            super().load_replay_buffer(path, truncate_last_traj)
        else:
            self.replay_buffer = files.read_buffer(path)
            self.replay_buffer.device = self.device
            if isinstance(self.replay_buffer, HerReplayBuffer):
                if self.env is None:
                    raise SettingError("a HerReplayBuffer needs the environment: give one to load or set_env first.")
                self.replay_buffer.set_env(self.env)
                if truncate_last_traj:
                    self.replay_buffer.truncate_last_trajectory()
        if self._rows_serve() and type(self.replay_buffer) is ReplayBuffer:
            self.replay_buffer = RowReplayBuffer.from_plain(self.replay_buffer)
