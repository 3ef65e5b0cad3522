"""How updates are executed: the interface, and the choice of an engine."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from td3.algorithm import Agent, ReplayBuffer
from td3.config import TrainConfig
from td3.engine import TOLERANCE, TOLERANCE_TF32, EagerEngine, GraphEngine, max_difference
from td3.engine.losses import LossSums
from td3.policy import Array


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

    def seek(self) -> None:
        """The agent and the buffer were set to another moment: go on from there."""

    def use_threads(self) -> None:
        """Set the number of threads that updates use in this process."""

    def close(self) -> None:
        """Let go of threads and devices."""


def make_engine(agent: Agent, buffer: ReplayBuffer, config: TrainConfig, threads: int) -> Engine:
    """CUDA graphs on a GPU, recorded updates on a CPU; eager execution for images, and where a check fails.

    Make and use it within `backend_flags`.
    """
    seeds, settings = config.member_seeds, config.td3
    images = agent.critics.encoder is not None
    by_graph = buffer.rows.is_cuda and settings.train_freq == "step" and not images

    def engine(agent: Agent, buffer: ReplayBuffer) -> GraphEngine | EagerEngine:
        if by_graph:
            return GraphEngine(agent, buffer, seeds, settings, config.envs)
        return EagerEngine(agent, buffer, seeds, settings, threads)

    if by_graph or not (images or buffer.rows.is_cuda):
        way, allowed = (
            ("CUDA graphs", TOLERANCE_TF32 if config.tf32 else TOLERANCE) if by_graph else ("recordings", 0.0)
        )
        drift = max_difference(agent, seeds, settings, engine)
        if drift <= allowed:
            return engine(agent, buffer)
        warnings.warn(
            f"updates by {way} differ from eager ones by {drift:.1e} (allowed: {allowed:.0e}); "
            "this run uses eager execution, which is slower.",
            stacklevel=2,
        )
    return EagerEngine(agent, buffer, seeds, settings, threads, recorded=False)


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
