"""Updates of a Stable-Baselines3 model by this package's engine, on memory that both share.

While it learns, the weights of the policy's modules and the moments of its optimizers are views of the engine's flat
tensors: nothing is copied in either direction, and callbacks, `predict` and `save` see the newest weights. Afterwards
the modules get tensors of their own again.
"""

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn

from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import layer_views
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.step_01_replay_buffer import ReplayBuffer, make_replay_buffer
from td3.backends.choose import keep_threads
from td3.config import TrainConfig
from td3.engine import make_engine
from td3.libraries import library_variables
from td3.resources import available_threads
from td3.settings import TD3Config
from td3.training.backend_flags import backend_flags
from td3_sb3.buffer import RowReplayBuffer
from td3_sb3.errors import DivergedError

USUAL: dict[Any, dict[str, Any]] = {
    torch.optim.Adam: {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False},
    torch.optim.SGD: {"momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False},
}
"""Settings of PyTorch's optimizers that the kernels have built in."""


def linears(network: Any) -> list[nn.Linear]:
    """The linear layers of one of their networks, in order."""
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def is_plain(network: Any, last: type[nn.Module] | None) -> bool:
    """Whether this is a chain of linear layers, at least two, with ReLU between and `last` after them."""
    wanted = [nn.Linear, nn.ReLU] * (len(linears(network)) - 1) + [nn.Linear] + ([last] if last else [])
    return [type(layer) for layer in network] == wanted and len(linears(network)) > 1


def why_not(model: Any) -> str | None:
    """What the engine cannot serve, so that Stable-Baselines3's own update runs; None where it can."""
    policy = model.policy
    if type(policy) is not TD3Policy:
        return f"a policy of the class {type(policy).__name__}"
    if not isinstance(model.replay_buffer, RowReplayBuffer):
        return f"a replay buffer of the class {type(model.replay_buffer).__name__} for these observations"
    normalizer = model._vec_normalize_env
    if normalizer is not None and (normalizer.norm_obs or normalizer.norm_reward):
        return "VecNormalize"
    if type(policy.actor.features_extractor) is not FlattenExtractor:
        return f"the features extractor {type(policy.actor.features_extractor).__name__}"
    if len(policy.critic.q_networks) != 2:
        return f"n_critics={len(policy.critic.q_networks)}"
    if not is_plain(policy.actor.mu, nn.Tanh) or not all(is_plain(one, None) for one in policy.critic.q_networks):
        return "networks without hidden layers, or with other activations than ReLU"
    for optimizer in (policy.actor.optimizer, policy.critic.optimizer):
        usual = USUAL.get(type(optimizer))
        if usual is None or any(optimizer.defaults.get(name) != value for name, value in usual.items()):
            return f"the optimizer {type(optimizer).__name__} with these settings"
    if any(weight.dtype != torch.float32 for weight in policy.parameters()):
        return "weights of another type than float32"
    return None


@contextlib.contextmanager
def process_settings() -> Iterator[None]:
    """What an engine needs of the process while it is made or used; threads and flags are restored afterwards."""
    with library_variables(), backend_flags(), keep_threads():
        yield


class SharedUpdates:
    """An engine whose agent has the weights of a model's modules."""

    def __init__(self, model: Any) -> None:
        policy, self._device = model.policy, model.device
        self._buffer: RowReplayBuffer = model.replay_buffer
        self._generation, self._n_envs = self._buffer.generation, self._buffer.n_envs
        optimizer = "adam" if isinstance(policy.actor.optimizer, torch.optim.Adam) else "sgd"
        self._agent = _agent_like(policy, optimizer, self._device)
        self._networks = [
            (policy.actor.mu, self._agent.actor.parameters.detach()[0]),
            (policy.actor_target.mu, self._agent.actor_target.parameters[0]),
            *zip(policy.critic.q_networks, self._agent.critics.parameters.detach()[:, 0], strict=True),
            *zip(policy.critic_target.q_networks, self._agent.critics_target.parameters[:, 0], strict=True),
        ]
        self._optimizers = [
            _SharedOptimizer(policy.actor.optimizer, [policy.actor.mu], self._agent.actor_optimizer.state()),
            _SharedOptimizer(policy.critic.optimizer, policy.critic.q_networks, self._agent.critics_optimizer.state()),
        ]
        pairs = chain.from_iterable(_pairs(*network) for network in self._networks)
        self._weights = [(weight, view, view.data_ptr()) for weight, view in pairs]
        self._engine: Any = None
        self._settings: TD3Config | None = None
        self.counted = 0
        self.seed = int(torch.randint(2**31 - 1, ()))  # PyTorch's own, which `set_random_seed` has set

    def belongs_to(self, model: Any) -> bool:
        """Whether this is about the networks, optimizers and buffer that the model has now."""
        policy = model.policy
        return (
            self._buffer is model.replay_buffer
            and self._generation == self._buffer.generation
            and self._networks[0][0] is policy.actor.mu
            and self._networks[2][0] is policy.critic.q_networks[0]
            and self._optimizers[0].optimizer is policy.actor.optimizer
            and self._optimizers[1].optimizer is policy.critic.optimizer
            and self._device == next(policy.parameters()).device
        )

    def share(self) -> None:
        """Make modules and optimizers share the engine's memory; where they do not, their numbers go there first."""
        for weight, view, place in self._weights:
            if weight.data_ptr() != place:
                view.copy_(weight.detach())
                weight.data = view
        for optimizer in self._optimizers:
            optimizer.share()

    def release(self) -> None:
        """Give modules and optimizers tensors of their own again."""
        for weight, *_ in self._weights:
            weight.data = weight.detach().clone(memory_format=torch.contiguous_format)
        for optimizer in self._optimizers:
            optimizer.release()

    def update(self, model: Any, count: int, settings: TD3Config) -> None:
        """Run so many updates of the model, at its learning rates of now."""
        rates = [float(shared.optimizer.param_groups[0]["lr"]) for shared in self._optimizers]
        self.share()
        with process_settings():
            if self._settings != settings:
                self._engine, self._settings = self._make_engine(settings, model._n_updates), settings
            engine = self._engine
            engine.set_learning_rates(*rates)
            self._send_rows()
            if int(self._agent.updates[0]) != model._n_updates:
                self._agent.updates[:] = model._n_updates
                engine.seek()
            engine.use_threads()
            try:
                engine.update([count])
            except NonFinite as error:
                raise DivergedError(
                    f"learning diverged: {error}. Lower learning_rate, or look at the rewards and observations."
                ) from None
        done, delay = model._n_updates + count, settings.policy_delay
        moved = done // delay - model._n_updates // delay
        for shared, steps in zip(self._optimizers, (moved, count), strict=True):
            shared.counted(steps)
        model._n_updates = done
        self.counted += count

    def mean_losses(self) -> dict[str, float]:
        """Means over all updates since the previous call; empty if there were none."""
        if not self.counted or self._engine is None:
            return {}
        counted, self.counted = self.counted, 0
        try:
            return dict(self._engine.mean_losses([counted])[0])
        except NonFinite as error:
            raise DivergedError(f"learning diverged: {error}. Lower learning_rate, or look at the rewards.") from None

    def _make_engine(self, settings: TD3Config, updates: int) -> Any:
        self._agent.updates[:] = updates
        self._rows, self._sent = self._engine_buffer(), 0
        # Another engine draws other numbers: one made later does not repeat the batches of the first.
        seed, self.seed = self.seed, (self.seed + 1) % 2**31
        config = TrainConfig("td3_sb3", seed=seed, td3=settings, envs=self._n_envs)
        engine = make_engine(self._agent, self._rows, config, available_threads())
        for notice in engine.notices:
            engine.on_warning(notice)
        return engine

    def _engine_buffer(self) -> ReplayBuffer:
        """The engine's buffer: on a CPU the very rows of the model's, on a GPU a copy there."""
        rows, shared = self._buffer.rows, self._shares_rows()
        state_size, action_size = self._agent.actor.network.sizes[0], self._agent.actor.network.sizes[-1]
        made = make_replay_buffer(1, 1 if shared else len(rows), state_size, action_size, self._device)
        if shared:
            made.rows = torch.from_numpy(rows)[None]
        return made

    def _shares_rows(self) -> bool:
        return bool(self._device.type == "cpu")

    def _send_rows(self) -> None:
        """Tell the engine of the transitions that were stored since its last update."""
        new = min(self._buffer.added - self._sent, len(self._buffer.rows))
        self._sent = self._buffer.added
        if self._shares_rows():
            self._rows.set_cursor_(self._buffer.size() * self._n_envs, {})
        elif new == self._n_envs:
            self._engine.store(self._buffer.newest_rows(new)[None])
        elif new:
            self._engine.flush()
            self._rows.add_(torch.from_numpy(self._buffer.newest_rows(new)[None]).to(self._device))


class _SharedOptimizer:
    """One of PyTorch's optimizers, whose moments are views of ours."""

    def __init__(self, optimizer: Any, networks: Any, state: dict[str, Tensor]) -> None:
        self.optimizer, self._state = optimizer, state
        layers = chain.from_iterable(linears(network) for network in networks)
        self._weights = [*chain.from_iterable((layer.weight, layer.bias) for layer in layers)]
        self._steps = torch.zeros(len(self._weights))  # theirs has a count for each weight
        self._host_steps, self._known = self._steps.numpy(), 0.0
        self._views: dict[str, list[Tensor]] = {}
        for theirs, ours in (("exp_avg", "first_moment"), ("exp_avg_sq", "second_moment")):
            if ours in state:
                flat = state[ours].flatten(0, -2)
                pairs = chain.from_iterable(_pairs(*both) for both in zip(networks, flat, strict=True))
                self._views[theirs] = [view for _, view in pairs]

    def share(self) -> None:
        """Make its moments views of ours; where they are not, they are copied first."""
        if not self._views:
            return
        first = self.optimizer.state[self._weights[0]]  # its `load_state_dict` replaces all of them together
        if not first or first["exp_avg"].data_ptr() != self._views["exp_avg"][0].data_ptr():
            for index, weight in enumerate(self._weights):
                own = self.optimizer.state[weight]
                for name, views in self._views.items():
                    views[index].copy_(own[name] if own else torch.zeros(()))
                self._steps[index] = float(own["step"]) if own else 0.0
                own |= {"step": self._steps[index], **{name: views[index] for name, views in self._views.items()}}
        if self._host_steps[0] != self._known:  # loaded, or taken by PyTorch's own optimizer
            self._known = float(self._host_steps[0])
            self._state["steps"].fill_(self._known)

    def counted(self, steps: int) -> None:
        """Count so many steps."""
        if self._views:
            self._known += steps
            self._host_steps[:] = self._known

    def release(self) -> None:
        """Give it tensors of its own."""
        for weight in self._weights if self._views else []:
            own = self.optimizer.state[weight]
            for name, tensor in own.items():
                own[name] = tensor.clone(memory_format=torch.contiguous_format)


def _pairs(network: Any, flat: Tensor) -> list[tuple[Any, Tensor]]:
    """Each weight and bias of their network with its place in our flat parameters."""
    layers = linears(network)
    sizes = [layers[0].in_features, *(layer.out_features for layer in layers)]
    views = layer_views(flat, sizes)
    return [
        pair
        for layer, (weight, bias) in zip(layers, views, strict=True)
        for pair in ((layer.weight, weight.mT), (layer.bias, bias))
    ]


def _agent_like(policy: TD3Policy, optimizer: Any, device: torch.device) -> Agent:
    """An agent of the policy's sizes, whose weights are written later; its actions lie in [-1, 1], as theirs do."""
    actor, critic = linears(policy.actor.mu), linears(policy.critic.q_networks[0])
    ones = (1.0,) * actor[-1].out_features
    task = Task(actor[0].in_features, tuple(-one for one in ones), ones)
    settings = TD3Config(
        actor_hidden_sizes=tuple(layer.out_features for layer in actor[:-1]),
        critic_hidden_sizes=tuple(layer.out_features for layer in critic[:-1]),
        actor_learning_rate=1.0,
        critic_learning_rate=1.0,
        optimizer=optimizer,
    )
    return Agent.create(task, settings, [0], device)


def engine_settings(model: Any, batch_size: int) -> TD3Config:
    """The model's numbers as an engine takes them; raises `ConfigError` for those that it cannot serve."""
    return TD3Config(
        hidden_sizes=tuple(layer.out_features for layer in linears(model.policy.actor.mu)[:-1]),
        batch_size=int(batch_size),
        buffer_size=max(len(model.replay_buffer.rows), int(batch_size)),
        target_policy_noise=float(model.target_policy_noise),
        target_noise_clip=float(model.target_noise_clip),
        policy_delay=int(model.policy_delay),
        gamma=float(model.gamma),
        tau=float(model.tau),
    )
