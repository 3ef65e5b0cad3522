"""What the trainer needs of a collector, wherever its transitions come from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from td3.policy import Array


class Fault(NamedTuple):
    """Something that went wrong in an environment, which then began a new episode."""

    member: int
    environment: int
    reason: str


class BaseCollector:
    """Defaults for a collector without environments in this process, which cannot fail or be replayed here."""

    lost_because = ""
    """Why `restore` may lose unfinished episodes, in words that follow the name of the environment."""

    def __init__(self, envs_per_member: int) -> None:
        self.envs_per_member = envs_per_member
        self.stepped = envs_per_member
        """Env steps of each member in the latest round; fewer than it has environments where some only reset."""
        self.first_rows_after = 0
        """Env steps of each member before its first row is stored."""
        self.faults: list[Fault] = []
        """Faults that the trainer has not reported yet."""
        self.failed: dict[int, str] = {}
        """Members with an environment that failed for good, and why; they are inactive from then on."""

    def deactivate(self, member: int) -> None:
        """Step the environments of this member no more."""

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` goes on."""
        return {}

    def restore(self, state: Mapping[str, Array]) -> list[int]:
        """Go on from `state`; returns the environments whose unfinished episode was lost."""
        return []

    def figures(self) -> dict[str, Any]:
        """What to write into status.json."""
        return {}


class DatasetCollector(BaseCollector):
    """The collector of an offline run: every round is one step of the run's clock, without a transition."""

    def __init__(self) -> None:
        super().__init__(1)
