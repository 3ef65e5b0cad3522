"""The fast learner's parts that learn: normalizer, support of the atoms, actor, critics and their update."""

from functools import partial

import torch
from torch import Tensor

from td3_lab.worlds.networks import Networks, cross_entropy, expected, projected, resampling
from td3_lab.worlds.policy import CLIP, Policy
from td3_lab.worlds.replay import ReplayBuffer
from td3_lab.worlds.settings import Settings


class Normalizer:
    """Running mean and standard deviation of the observations, kept on the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.mean, self.variance = torch.zeros(size, device=device), torch.ones(size, device=device)
        self.count = torch.full((), 1e-4, device=device)

    def observe(self, observation: Tensor) -> None:
        """Count a batch of observations in."""
        size = observation.shape[0]
        total = self.count + size
        variance, mean = torch.var_mean(observation, 0, correction=0)
        change = mean - self.mean
        spread = self.variance * self.count + variance * size + change.square() * self.count * size / total
        self.variance.copy_(spread / total)
        self.mean.add_(change * size / total)
        self.count.copy_(total)

    @property
    def scale(self) -> Tensor:
        """Return what observations are divided by."""
        return self.variance.sqrt() + 1e-2

    def __call__(self, observation: Tensor) -> Tensor:
        """Return normalized, clipped observations."""
        return ((observation - self.mean) / self.scale).clamp(-CLIP, CLIP)


class Support:
    """The atoms, whose ends grow with the discounted returns that the worlds reach, so that no task needs its own.

    A high and a low percentile of the returns over the worlds are followed. An end that one of them comes close to
    moves out by a tenth at least, and the critics' last layers are rewritten so that their distributions stay in place.
    """

    first = 1.0

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.low = torch.full((), -self.first if settings.low is None else settings.low, device=device)
        self.high = torch.full((), self.first if settings.high is None else settings.high, device=device)
        self.margin, self.nearness = settings.support_margin, 1.1 / settings.support_margin
        self.grid = torch.linspace(0, 1, settings.atoms, device=device)
        self.atoms = self.low + (self.high - self.low) * self.grid
        self.lowest, self.highest = torch.zeros((), device=device), torch.zeros((), device=device)
        self.reach, self.horizon = settings.support_reach, 1 / (1 - settings.gamma)

    def begin(self, rewards: Tensor) -> None:
        """Set the first ends from the rewards of random actions; the critics then begin in the middle of the range."""
        mean, spread = self.horizon * rewards.mean(), self.horizon * rewards.std()
        self.low.copy_(mean - self.reach / 8 * spread)
        self.high.copy_(mean + self.reach * spread)
        self.atoms.copy_(self.low + (self.high - self.low) * self.grid)

    def observe(self, returns: Tensor) -> None:
        """Follow the percentiles of the worlds' discounted returns."""
        values = returns.sort().values
        edge = len(values) // 100
        self.lowest.copy_(torch.minimum(self.lowest, values[edge]))
        self.highest.copy_(torch.maximum(self.highest, values[-1 - edge]))

    def grow(self, critics: list[Networks]) -> None:
        """Move the ends out where the returns need it, and the critics' last layers with them."""
        low = torch.where(self.lowest < self.nearness * self.low, self.margin * self.lowest, self.low)
        high = torch.where(self.highest > self.nearness * self.high, self.margin * self.highest, self.high)
        atoms = low + (high - low) * self.grid
        matrix, bias = resampling(self.atoms, atoms)
        for networks in critics:
            last_weight, last_bias = (tensor[..., : networks.outputs] for tensor in networks.layers[-1])
            last_weight.copy_(last_weight @ matrix.T)
            last_bias.copy_(last_bias @ matrix.T + bias)
        self.low.copy_(low)
        self.high.copy_(high)
        self.atoms.copy_(atoms)


class Learner:
    """Actor, twin critics over atoms, their targets and optimizers; `update` is one gradient iteration of TD3."""

    def __init__(self, settings: Settings, observations: int, actions: int, device: torch.device) -> None:
        self.settings, is_cuda = settings, device.type == "cuda"
        self.generator = torch.Generator(device).manual_seed(settings.seed + 2)
        precision = torch.bfloat16 if settings.bf16 and is_cuda else torch.float32
        self.fused = settings.fused and is_cuda
        networks = partial(
            Networks.initialized,
            layer_norm=settings.layer_norm,
            precision=precision,
            generator=self.generator,
            fused=self.fused,
        )
        self.actor = networks(1, (observations, *settings.actor_layers, actions), last=0.01)
        self.critics = networks(2, (observations + actions, *settings.critic_layers, settings.atoms))
        self.actor_target, self.critics_target = self.actor.copied(), self.critics.copied()
        self.normalizer, self.support = Normalizer(observations, device), Support(settings, device)
        self.losses = torch.zeros(2, device=device)
        """The critics' last loss and the last mean Q-value."""
        adamw = partial(
            torch.optim.AdamW,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=is_cuda,
            capturable=is_cuda,
        )
        self.actor_optimizer, self.critics_optimizer = adamw(self.actor.parameters), adamw(self.critics.parameters)
        self._critic_loss, self._actor_loss = self.critic_loss, self.actor_loss
        if settings.compiled and is_cuda:
            self._critic_loss, self._actor_loss = torch.compile(self.critic_loss), torch.compile(self.actor_loss)

    def act(self, observation: Tensor) -> Tensor:
        """Return the actor's actions for raw observations."""
        return self.actor(self.normalizer(observation))[0].tanh()

    def critic_loss(
        self, observation: Tensor, action: Tensor, following: Tensor, reward: Tensor, discount: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of both critics with the target distribution, and the target's mean value."""
        settings, atoms = self.settings, self.support.atoms
        with torch.no_grad():
            observation, following = self.normalizer(observation), self.normalizer(following)
            clip = settings.target_noise_clip
            smoothing = (settings.target_noise * noise).clamp(-clip, clip)
            next_action = (self.actor_target(following)[0].tanh() + smoothing).clamp(-1, 1)
            logits = self.critics_target(torch.cat([following, next_action], 1))
            # Clipped double Q-learning: the distribution with the smaller expected value.
            if self.fused:
                target, values = torch.ops.td3_lab.target_distribution(logits, atoms, reward, discount)
            else:
                values = expected(logits, atoms)
                smaller = torch.where((values[0] < values[1])[:, None], logits[0], logits[1]).softmax(-1)
                target = projected(smaller, atoms, reward, discount)
        logits = self.critics(torch.cat([observation, action], 1))
        return cross_entropy(logits, target), values.detach().mean()

    def actor_loss(self, observation: Tensor) -> Tensor:
        """Return minus the smaller expected value of the actor's actions."""
        observation = self.normalizer(observation)
        action = self.actor(observation)[0].tanh()
        logits = self.critics.frozen()(torch.cat([observation, action], 1))
        return -expected(logits, self.support.atoms).amin(0).mean()

    def update(self, buffer: ReplayBuffer, *, move_actor: bool) -> None:
        """Update the critics, if asked the actor, and the targets, on one batch."""
        settings = self.settings
        batch = buffer.sample(settings.batch, settings.n_step, settings.gamma, self.generator)
        noise = torch.randn(batch.action.shape, generator=self.generator, device=batch.action.device)
        loss, value = self._critic_loss(
            batch.observation, batch.action, batch.next_observation, batch.reward, batch.discount, noise
        )
        _descend(loss, self.critics, self.critics_optimizer)
        self.losses.copy_(torch.stack([loss.detach(), value]))
        if move_actor:
            _descend(self._actor_loss(batch.observation), self.actor, self.actor_optimizer)
        with torch.no_grad():
            targets = [*self.critics_target.parameters, *self.actor_target.parameters]
            torch._foreach_lerp_(targets, [*self.critics.parameters, *self.actor.parameters], settings.tau)

    @torch.no_grad()
    def grow_support(self) -> None:
        """Let the support follow the returns."""
        self.support.grow([self.critics, self.critics_target])

    def tensors(self) -> list[Tensor]:
        """Return every tensor that training changes, without the optimizers' moments."""
        networks = (self.actor, self.critics, self.actor_target, self.critics_target)
        normalizer, support = self.normalizer, self.support
        return [
            *(tensor for network in networks for tensor in network.parameters),
            *(normalizer.mean, normalizer.variance, normalizer.count, self.losses),
            *(support.low, support.high, support.atoms, support.lowest, support.highest),
        ]

    def forget_moments(self) -> None:
        """Set the optimizers back to their beginning."""
        for optimizer in (self.actor_optimizer, self.critics_optimizer):
            for state in optimizer.state.values():
                for tensor in state.values():
                    tensor.zero_()

    def policy_tensors(self) -> list[Tensor]:
        """Return what the policy consists of."""
        return [self.normalizer.mean, self.normalizer.scale, *self.actor.parameters]

    def policy(self, tensors: list[Tensor]) -> Policy:
        """Return `policy_tensors` as a policy for the host."""
        mean, scale, *parameters = (tensor.detach().cpu().numpy() for tensor in tensors)
        layers, arrays = [], iter(parameters)
        for layer in self.actor.layers:
            weight, *rest = (next(arrays)[0] for _ in layer)
            layers.append([weight.T.copy(), *(array[0] for array in rest)])
        layers[0][0] = layers[0][0][:, : len(mean)]
        layers[-1] = [array[: self.actor.outputs] for array in layers[-1]]
        return Policy(mean, scale, [tuple(layer) for layer in layers])


def _descend(loss: Tensor, networks: Networks, optimizer: torch.optim.AdamW) -> None:
    gradients = torch.autograd.grad(loss, networks.parameters)
    for parameter, gradient in zip(networks.parameters, gradients, strict=True):
        # The fused AdamW wants gradients laid out as the parameters, and compiled code may choose otherwise.
        same = gradient.stride() == parameter.stride()
        parameter.grad = gradient if same else torch.empty_like(parameter).copy_(gradient)
    optimizer.step()
