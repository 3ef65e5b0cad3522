"""TD3 in fifteen steps; read the files in the order of their names. How a layer is computed is the backend's work."""

from td3.algorithm.agent import Agent
from td3.algorithm.normalizer import NormalizedReplayBuffer
from td3.algorithm.registry import STEPS, Step
from td3.algorithm.spec import AgentSpec
from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer, make_replay_buffer
from td3.algorithm.streams import MemberStreams, RandomStreams, derive_seed
from td3.algorithm.update import Losses, update

__all__ = [
    "STEPS",
    "Agent",
    "AgentSpec",
    "Batch",
    "Losses",
    "MemberStreams",
    "NormalizedReplayBuffer",
    "RandomStreams",
    "ReplayBuffer",
    "Step",
    "derive_seed",
    "make_replay_buffer",
    "update",
]
