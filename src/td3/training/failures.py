"""Why a run ended early, in a sentence for status.json and for the person who started it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from td3.algorithm.optimizer import NonFinite
from td3.callbacks.checkpoints import CheckpointCallback
from td3.diagnostics import largest_rewards
from td3.errors import CallbackError, Diverged, EnvironmentFault, RunError, UserError

if TYPE_CHECKING:
    from td3.training.trainer import Trainer


def reason_of(error: Exception, trainer: "Trainer") -> str:
    """What went wrong; empty for an error that is not a user's to fix."""
    if isinstance(error, NonFinite):
        return diagnosis(trainer, str(error), range(trainer.agent.members))
    if isinstance(error, OSError):
        if trainer.folder is not None and (missing := trainer.folder.missing()):
            return f"{missing} was moved or removed while the run trained."
        return f"{error.filename or trainer.config.out} cannot be written ({error.strerror})."
    return str(error) if isinstance(error, CallbackError | EnvironmentFault) else ""


def with_resume_hint(error: Exception, trainer: "Trainer") -> UserError | None:
    """The error to raise instead, which says how to go on; None for an error that stays as it is."""
    hint = "".join(f" {callback.resume_hint(trainer)}" for callback in trainer.callbacks.all_of(CheckpointCallback))
    kinds = {NonFinite: Diverged, OSError: RunError, CallbackError: CallbackError, EnvironmentFault: EnvironmentFault}
    for kind, raised in kinds.items():
        if isinstance(error, kind):
            return raised(f"{trainer.reason}{hint}")
    return None


def diagnosis(trainer: "Trainer", reason: str, members: Sequence[int]) -> str:
    """Why learning broke down, with the size of rewards and what to change."""
    trainer.engine.flush()
    largest = largest_rewards(trainer.buffer)
    rewards = ", ".join(f"{largest[member]:.3g}" for member in members)
    return (
        f"Learning broke down at env step {trainer.env_steps:,}: {reason}. That step was not taken, and all weights "
        f"are finite. The largest reward seen was {rewards}: lower the learning rates, or bring rewards and "
        "observations nearer to 1."
    )
