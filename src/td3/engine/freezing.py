"""Which members are frozen: those that met a loss or a gradient that was not finite, or that a run gave up on."""

from td3.algorithm import Agent
from td3.algorithm.optimizer import NonFinite


class FrozenMembers:
    """What every engine has: members that are not updated any more, each with the reason."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.frozen: dict[int, str] = {}

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

    def require_active(self) -> None:
        """Raise `NonFinite` if all members are frozen."""
        if len(self.frozen) == self.agent.members:
            raise NonFinite(list(self.frozen.values())[-1])
