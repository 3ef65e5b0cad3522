"""TD3 (Twin Delayed DDPG, https://arxiv.org/abs/1802.09477) in one file, to be read from top to bottom.

    python examples/one_file.py --env Pendulum-v1 --steps 10000 --gamma 0.95

It uses PyTorch and Gymnasium and nothing of the package: settings, replay buffer, networks, one update, the training
loop. The numbers in comments are the fifteen steps of docs/fifteen_steps.md. Given equal initial weights, batches and
noise, it computes what the package computes (tests/examples/test_one_file.py).
"""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.nn.functional import mse_loss


@dataclass
class Settings:
    """Train TD3 on a Gymnasium environment with continuous actions, and print the return of each evaluation."""

    env: str = "Pendulum-v1"  # Name of the environment
    seed: int = 0  # Seed of weights, noise and environment
    steps: int = 1_000_000  # Env steps of the run
    eval_every: int = 5_000  # Env steps between evaluations
    eval_episodes: int = 10  # Episodes per evaluation
    learning_starts: int = 25_000  # Env steps with random actions before learning; at most a tenth of the run
    buffer_size: int = 1_000_000  # Transitions in the replay buffer
    batch_size: int = 256  # Transitions per update
    hidden_sizes: tuple[int, ...] = (256, 256)  # Units of each hidden layer
    learning_rate: float = 3e-4  # Learning rate of actor and critics
    gamma: float = 0.99  # Discount factor
    tau: float = 0.005  # Polyak averaging coefficient of the target networks
    policy_delay: int = 2  # Updates of the critics per update of the actor and the target networks
    # Noise is in units of half the action range.
    exploration_noise: float = 0.1  # Standard deviation of the noise on training actions
    target_policy_noise: float = 0.2  # Standard deviation of the noise on the target action (step 6)
    target_noise_clip: float = 0.5  # Limit of the noise on the target action (step 6)


class Batch(NamedTuple):
    """Transitions, one per row."""

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    terminated: Tensor
    """1 where the episode ended for good; 0 at a time limit, after which rewards would have continued."""


class ReplayBuffer:
    """The newest transitions; the oldest are overwritten."""

    def __init__(self, capacity: int, state_size: int, action_size: int) -> None:
        rows = torch.zeros(capacity)
        states, next_states = torch.zeros(capacity, state_size), torch.zeros(capacity, state_size)
        self.columns = Batch(states, torch.zeros(capacity, action_size), rows, next_states, rows.clone())
        self.capacity, self.added = capacity, 0

    def add(self, *transition: np.ndarray | float) -> None:
        """Store state, action, reward, next state and terminated."""
        for column, value in zip(self.columns, transition, strict=True):
            column[self.added % self.capacity] = torch.as_tensor(value)
        self.added += 1

    def sample(self, batch_size: int) -> Batch:
        """Rows drawn uniformly, with replacement."""
        rows = torch.randint(min(self.added, self.capacity), (batch_size,))
        return Batch(*(column[rows] for column in self.columns))


def mlp(inputs: int, hidden_sizes: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class Actor(nn.Module):
    """The policy: state -> action, stretched by tanh to the range of each dimension."""

    def __init__(self, state_size: int, low: Tensor, high: Tensor, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.net = mlp(state_size, hidden_sizes, len(low))
        self.low, self.high, self.half_range = nn.Buffer(low), nn.Buffer(high), nn.Buffer((high - low) / 2)

    def forward(self, state: Tensor) -> Tensor:
        """The action for each state."""
        return (self.low + self.high) / 2 + self.half_range * torch.tanh(self.net(state))

    def add_noise(self, action: Tensor, noise: Tensor) -> Tensor:
        """The action plus noise in units of half the range, clamped to the range."""
        return (action + noise * self.half_range).clamp(self.low, self.high)


class Critic(nn.Module):
    """The value of an action: (state, action) -> Q-value, the expected discounted sum of rewards."""

    def __init__(self, state_size: int, action_size: int, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.net = mlp(state_size + action_size, hidden_sizes, 1)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """The Q-value of each row, without a last axis of size 1, which would broadcast against the rewards."""
        return self.net(torch.cat([state, action], -1)).squeeze(-1)


class TD3(nn.Module):
    """Six networks, two optimizers, and one update."""

    def __init__(self, state_size: int, low: Tensor, high: Tensor, settings: Settings) -> None:
        super().__init__()
        self.settings, self.updates, sizes = settings, 0, settings.hidden_sizes
        # 2 Build the actor and its target.
        self.actor = Actor(state_size, low, high, sizes)
        self.actor_target = copy.deepcopy(self.actor)
        # 3 Build two critics and their targets; the two differ in their initial weights.
        self.critic_1, self.critic_2 = (Critic(state_size, len(low), sizes) for _ in range(2))
        self.critic_1_target, self.critic_2_target = copy.deepcopy(self.critic_1), copy.deepcopy(self.critic_2)

        critics = [*self.critic_1.parameters(), *self.critic_2.parameters()]
        self.critics_optimizer = torch.optim.Adam(critics, settings.learning_rate)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), settings.learning_rate)

    def update(self, batch: Batch, noise: Tensor) -> None:
        """Improve the critics and, every second time, the actor; `noise` is standard normal, `[batch, action]`."""
        settings, clip = self.settings, self.settings.target_noise_clip
        state, action, reward, next_state, terminated = batch

        with torch.no_grad():  # y is a constant: no gradient passes through a target network
            # 5 The target actor gives the next action.
            next_action = self.actor_target(next_state)
            # 6 Add clipped noise and clamp to the action range: similar actions should have similar values.
            clipped_noise = (settings.target_policy_noise * noise).clamp(-clip, clip)
            next_action = self.actor.add_noise(next_action, clipped_noise)
            # 7 Both target critics evaluate the smoothed action.
            next_q_1 = self.critic_1_target(next_state, next_action)
            next_q_2 = self.critic_2_target(next_state, next_action)
            # 8 Keep the smaller Q-value: the actor would seek out what one critic overestimates.
            next_q = torch.minimum(next_q_1, next_q_2)
            # 9 Form the Bellman target: after a termination nothing follows.
            y = reward + settings.gamma * (1 - terminated) * next_q

        # 10 Both critics evaluate the stored action.
        q_1, q_2 = self.critic_1(state, action), self.critic_2(state, action)
        # 11 Measure the loss of both critics.
        critic_loss = mse_loss(q_1, y) + mse_loss(q_2, y)
        # 12 Backpropagate and improve both critics.
        self.critics_optimizer.zero_grad()
        critic_loss.backward()
        self.critics_optimizer.step()

        self.updates += 1
        if self.updates % settings.policy_delay == 0:
            # 13 Improve the actor, uphill on critic 1, whose weights stay as they are.
            actor_loss = -self.critic_1(state, self.actor(state)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward(inputs=[*self.actor.parameters()])
            self.actor_optimizer.step()
            # 14 Polyak-average the actor target.
            polyak_average_(self.actor_target, self.actor, settings.tau)
            # 15 Polyak-average both critic targets.
            polyak_average_(self.critic_1_target, self.critic_1, settings.tau)
            polyak_average_(self.critic_2_target, self.critic_2, settings.tau)


@torch.no_grad()
def polyak_average_(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target's weights by the share tau towards those of its network."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)


@torch.no_grad()
def act(actor: Actor, state: np.ndarray, noise: float = 0.0) -> np.ndarray:
    """The actor's action in one state, with exploration noise of this standard deviation."""
    action = actor(torch.as_tensor(state, dtype=torch.float32))
    if noise > 0:
        action = actor.add_noise(action, noise * torch.randn_like(action))
    return action.numpy()


def evaluate(actor: Actor, env: gym.Env, episodes: int) -> np.ndarray:
    """The return of each episode, without exploration noise; every evaluation has the same initial states."""
    returns = np.zeros(episodes)
    for episode in range(episodes):
        state, ended = env.reset(seed=episode)[0], False
        while not ended:
            state, reward, terminated, truncated, _ = env.step(act(actor, state))
            returns[episode] += float(reward)
            ended = terminated or truncated
    return returns


def train(settings: Settings) -> list[tuple[int, float]]:
    """Train an agent; env step and mean return of each evaluation."""
    env, eval_env = gym.make(settings.env), gym.make(settings.env)
    space, states = env.action_space, env.observation_space
    if not isinstance(space, gym.spaces.Box) or not isinstance(states, gym.spaces.Box) or len(states.shape) != 1:
        raise SystemExit(f"{settings.env} needs actions in a Box and observations in a Box of one dimension.")
    torch.manual_seed(settings.seed)
    space.seed(settings.seed)
    state, _ = env.reset(seed=settings.seed)
    warm_up = min(settings.learning_starts, settings.steps // 10)

    # 1 Make the replay buffer.
    buffer = ReplayBuffer(settings.buffer_size, states.shape[0], space.shape[0])
    agent = TD3(states.shape[0], torch.as_tensor(space.low), torch.as_tensor(space.high), settings)

    curve = []
    for step in range(settings.steps + 1):
        if step % settings.eval_every == 0 or step == settings.steps:
            returns = evaluate(agent.actor, eval_env, settings.eval_episodes)
            curve.append((step, returns.mean().item()))
            print(f"{step:9,} env steps: return {returns.mean():,.1f} +- {returns.std():,.1f}", flush=True)
        if step == settings.steps:
            break

        action = space.sample() if step < warm_up else act(agent.actor, state, settings.exploration_noise)
        next_state, reward, terminated, truncated, _ = env.step(action)
        buffer.add(state, action, float(reward), next_state, float(terminated))
        state = env.reset()[0] if terminated or truncated else next_state

        if step >= warm_up:
            # 4 Sample a batch of transitions.
            batch = buffer.sample(settings.batch_size)
            agent.update(batch, torch.randn_like(batch.action))
    return curve


if __name__ == "__main__":
    torch.set_num_threads(1)  # networks this small gain little from more threads, and lose much on a busy machine
    train(tyro.cli(Settings))
