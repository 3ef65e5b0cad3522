"""What every engine has: members that are frozen, learning rates, and a way to warn."""

import warnings
from collections.abc import Callable, Sequence

from td3.algorithm import Agent, ReplayBuffer
from td3.algorithm.optimizer import NonFinite
from td3.engine.losses import LossSums


class EngineBase:
    """Members that are not updated any more (a loss or a gradient was not finite, or a run gave up), with the reason.

    `on_warning` is told what a run survives; a run sets its own. `notices` are warnings from before the first update.
    """

    losses: LossSums
    on_warning: Callable[[str], None] = staticmethod(lambda text: warnings.warn(text, stacklevel=2))

    def __init__(self, agent: Agent, buffer: ReplayBuffer) -> None:
        self.agent, self.buffer = agent, buffer
        buffer.backend = agent.backend
        self.frozen: dict[int, str] = {}
        buffer.frozen = self.frozen
        self.notices: list[str] = []

    def set_learning_rates(self, actor: float, critic: float) -> None:
        """Learn at these rates from the next update on."""
        self.agent.actor_optimizer.learning_rate = actor
        self.agent.critics_optimizer.learning_rate = critic

    def warn_of_difference(self, way: str, updates: int, found: float) -> None:
        """Say that updates differ from eager execution, and what follows."""
        self.on_warning(
            f"at update {updates:,}, updates by {way} differ from eager execution by {found:.1e}: a step depends on "
            "something that is not recorded, such as the number of updates. The run continues with eager execution; "
            "updates since the last comparison may not have been executed as written."
        )

    def freeze(self, member: int, reason: str) -> None:
        """Never update this member again."""
        self.frozen.setdefault(member, reason)
        self.agent.active[member] = 0

    def check(self) -> None:
        """Find the members that an update on a GPU has frozen; raise `NonFinite` if no other member is left.

        On a CPU they are known already: there a member is frozen in the update that fails.
        """
        for member, active in enumerate(self.agent.active.tolist()):
            if not active and member not in self.frozen:
                self.freeze(member, "a gradient is too large or not a number")
                steps = self.agent.critics_optimizer.state().get("steps")
                if steps is not None:  # the updates begun since then did nothing
                    self.agent.updates[member] = int(steps[0, member])
        self.require_active()

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""
        self.check()
        return self.losses.take(updates)

    def require_active(self) -> None:
        """Raise `NonFinite` if all members are frozen."""
        if len(self.frozen) == self.agent.members:
            raise NonFinite(list(self.frozen.values())[-1])
