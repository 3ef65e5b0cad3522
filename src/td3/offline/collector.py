"""The collector of an offline run: it has no environments and adds nothing."""

from collections.abc import Mapping

from td3.policy import Array


class DatasetCollector:
    """Stands where `Collector` does. Every round is one step of the run's clock, without a transition."""

    envs_per_member = stepped = 1

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.failed: dict[int, str] = {}

    def deactivate(self, member: int) -> None:
        """Nothing: it steps no environment."""

    def state(self) -> dict[str, Array]:
        """Nothing to restore."""
        return {}

    def restore(self, state: Mapping[str, Array]) -> list[int]:
        """No episode was under way, so none was lost."""
        return []
