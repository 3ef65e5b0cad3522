"""Why a run ended early, in a sentence for status.json and for the person who started it."""

import inspect
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from td3.algorithm.optimizer import NonFinite
from td3.callbacks.checkpoints import CheckpointCallback
from td3.diagnostics import largest_rewards
from td3.errors import CallbackError, ConfigError, Diverged, EnvironmentFault, RunError, UserError
from td3.user_code import describe, fault_of, with_lines

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
    if effect := trainer.process_before.fault():
        return str(effect)
    if isinstance(error, CallbackError | EnvironmentFault):
        return str(error)
    step = _replaced_step_of(error, trainer)
    return f"{step}, failed with {describe(error)}." if step else ""


def with_resume_hint(error: Exception, trainer: "Trainer") -> UserError | None:
    """The error to raise instead, which says how to go on; None for an error that stays as it is."""
    hint = "".join(f" {callback.resume_hint(trainer)}" for callback in trainer.callbacks.all_of(CheckpointCallback))
    if trainer.process_before.fault():
        return EnvironmentFault(f"{trainer.reason}{hint}")
    kinds = {NonFinite: Diverged, OSError: RunError, CallbackError: CallbackError, EnvironmentFault: EnvironmentFault}
    for kind, raised in kinds.items():
        if isinstance(error, kind):
            return fault_of(error, f"{trainer.reason}{hint}", raised)
    return with_lines(ConfigError(f"{trainer.reason}{hint}"), error) if trainer.reason else None


def _replaced_step_of(error: Exception, trainer: "Trainer") -> str:
    """The user's function in the place of a step that an error came through; empty if there is none."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    for step, function, _ in trainer.agent.changes.replacements if trainer.agent.changes else ():
        if inspect.unwrap(function).__code__ in codes and not str(function.__module__).startswith("td3."):
            return f"step {step}, replaced by {function.__name__}"
    return ""


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
