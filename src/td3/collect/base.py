"""What the trainer needs of a collector, wherever its transitions come from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from td3.policy import Array

if TYPE_CHECKING:
    from td3.training.trainer import Trainer

NO_INFO: Mapping[str, float] = {}


class Episode(NamedTuple):
    """A finished episode of training."""

    member: int
    episode_return: float
    length: int
    timed_out: bool = False
    info: Mapping[str, float] = NO_INFO
    """The numbers in the environment's last `info`, by name; True is 1."""


class Fault(NamedTuple):
    """Something that went wrong in an environment, which then began a new episode."""

    member: int
    environment: int
    reason: str


class BaseCollector:
    """Defaults for a collector without environments in this process, which cannot fail or be replayed here."""

    remote = False
    """Whether environments are stepped by other machines, so that what it counts depends on who answers when."""
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

    def collect(self, trainer: "Trainer") -> tuple[Any, list[Episode]] | None:
        """One env step of every environment, beside the updates that are due (`trainer.update`).

        Returns new rows `[member, count, row]`, which may be none, and the episodes that ended; None: nothing came.
        """
        raise NotImplementedError

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

    def __init__(self, members: int) -> None:
        super().__init__(1)
        self._no_rows = np.empty((members, 0, 0), np.float32)

    def collect(self, trainer: "Trainer") -> tuple[Array, list[Episode]]:
        """Only update."""
        trainer.update(1)
        trainer.engine.prepare()
        return self._no_rows, []
