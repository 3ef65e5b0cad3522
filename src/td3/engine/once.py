"""One update as it is written: step 4, steps 5 to 15, and a count. Engines must compute what this computes."""

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import RandomStreams
from td3.algorithm.update import Losses, moves_actor, steps_of
from td3.settings import TD3Config


def update_once(agent: Agent, buffer: ReplayBuffer, random: RandomStreams, settings: TD3Config) -> Losses:
    """Sample a batch, improve the agent once, and count it; members that are updated together count alike."""
    sample_batch, update = steps_of(agent, settings)
    batch = sample_batch(buffer, random, settings.batch_size)
    losses = update(agent, batch, random, settings, moves_actor(int(agent.updates[0]), settings))
    agent.updates += 1
    return losses
