"""How updates are executed: the interface that the trainer knows."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from td3.config import Precision
from td3.engine.losses import LossSums
from td3.policy import Array


@runtime_checkable
class Engine(Protocol):
    """How updates and actions are executed."""

    asynchronous: bool
    """Whether `update` returns at once and the updates run beside this thread, as a GPU's do."""

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member that is not frozen."""

    def act_async(self, states: Array | Tensor) -> None:
        """Have the actors, as they are now, choose actions for states `[member, count, state]`.

        Tensors are on the engine's device, and their actions stay there.
        """

    def act_wait(self) -> Array | Tensor:
        """The actions asked for, `[member, count, action]`; tensors for tensors."""

    def prepare(self) -> None:
        """Do what can be done ahead, while the environments step."""

    def store(self, rows: Array | Tensor) -> None:
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

    notices: list[str]
    """Warnings from before the first update, such as why it is not executed as asked."""

    on_warning: Callable[[str], None]
    """Told when updates turn out to differ from eager execution."""

    @property
    def kind(self) -> str:
        """How updates are executed, in a word or two."""

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""

    def set_learning_rates(self, actor: float, critic: float) -> None:
        """Learn at these rates from the next update on."""

    def seek(self) -> None:
        """The agent and the buffer were set to another moment: go on from there."""

    def use_threads(self) -> None:
        """Set the number of threads that updates use in this process."""

    def close(self) -> None:
        """Let go of threads and devices."""


@contextlib.contextmanager
def backend_flags(precision: Precision = "float32") -> Iterator[None]:
    """PyTorch's flags as updates on a GPU need them; afterwards as they were before."""
    tf32 = precision == "tf32"
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    # cuDNN would otherwise choose TF32, and sums whose order is another one each time.
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = tf32, tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
