"""A baseline that many would try first: a plain PyTorch TD3 as the author's code has it, compiled by Inductor."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.errors import ConfigError
from td3.settings import TD3Config
from td3_lab.bench.learners import ACTION_SIZE, STATE_SIZE
from td3_lab.bench.machine import on_device
from td3_lab.bench.timing import Case


def compiled_updates(buffer: ReplayBuffer, width: int, batch_size: int, threads: int) -> Case:
    """Updates with both losses through `torch.compile`, a float32 buffer and fused Adam; compiling is not timed."""
    rows, settings = buffer.rows[0], TD3Config()
    device, delay, tau = rows.device, settings.policy_delay, settings.tau
    actor = _network(STATE_SIZE, width, ACTION_SIZE, device)
    critics = nn.ModuleList(_network(STATE_SIZE + ACTION_SIZE, width, 1, device) for _ in range(2))
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    pairs = [*zip(actor_target.parameters(), actor.parameters(), strict=True)]
    pairs += [*zip(critics_target.parameters(), critics.parameters(), strict=True)]
    targets, online = [t.data for t, _ in pairs], [o.data for _, o in pairs]
    actor_optimizer = torch.optim.Adam(actor.parameters(), settings.actor_learning_rate, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), settings.critic_learning_rate, fused=True)
    sizes = [STATE_SIZE, ACTION_SIZE, STATE_SIZE, 1, 1]

    def critic_loss(batch: Tensor) -> Tensor:
        state, action, next_state, reward, terminated = torch.split(batch, sizes, 1)
        with torch.no_grad():
            noise = (torch.randn_like(action) * settings.target_policy_noise).clamp(
                -settings.target_noise_clip, settings.target_noise_clip
            )
            following = torch.cat((next_state, (actor_target(next_state).tanh() + noise).clamp(-1, 1)), 1)
            smaller = torch.minimum(critics_target[0](following), critics_target[1](following))
            target = reward + settings.gamma * (1 - terminated) * smaller
        both = torch.cat((state, action), 1)
        loss: Tensor = sum((critic(both) - target).square().mean() for critic in critics)
        return loss

    def actor_loss(batch: Tensor) -> Tensor:
        state = batch[:, :STATE_SIZE]
        loss: Tensor = -critics[0](torch.cat((state, actor(state).tanh()), 1)).mean()
        return loss

    compiled: list[Any] = [torch.compile(critic_loss), torch.compile(actor_loss)]
    done = 0

    def work() -> float:
        nonlocal done
        batch = rows[torch.randint(len(rows), (batch_size,), device=device)]
        critic_optimizer.zero_grad(set_to_none=True)
        compiled[0](batch).backward()
        critic_optimizer.step()
        done += 1
        if done % delay == 0:
            actor_optimizer.zero_grad(set_to_none=True)
            compiled[1](batch).backward()
            actor_optimizer.step()
            torch._foreach_lerp_(targets, online, tau)
        return 1.0

    before = torch.get_num_threads()
    torch.set_num_threads(threads)  # what is compiled holds for this number alone
    try:
        for _ in range(2 * delay):
            work()
    except Exception as error:  # Inductor needs a C++ compiler, and raises errors of its own
        raise ConfigError(f"torch.compile failed here ({type(error).__name__}): leave out --compile.") from error
    finally:
        torch.set_num_threads(before)
    return on_device(work, device, threads)


def _network(inputs: int, width: int, outputs: int, device: torch.device) -> nn.Sequential:
    hidden = nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(width, outputs)).to(device)
