"""Everything that a run is, for a checkpoint, and back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.replacing import Replacement, StepChanges
from td3.callbacks.callback import RunCallback
from td3.errors import RunError
from td3.policy import Array
from td3.run.checkpoints import Checkpoint, fill_buffer, load_agent_

if TYPE_CHECKING:
    from td3.training.trainer import Trainer

STEP_STATE = "agent.step_"
"""How the names of the state of replaced steps begin."""
COLLECTED = ("collector.round", "collector.episodes", "collector.lengths")
"""What the collector has counted, as a checkpoint names it."""
OF_ANY_LENGTH = ("unlogged_episodes", "collector.actions")
"""Arrays whose length depends on the moment."""


def facts_of(trainer: "Trainer") -> dict[str, Any]:
    """What a checkpoint's manifest says of the run."""
    facts = {
        "config": trainer.config.to_json(),
        "versions": trainer.versions,
        "added": trainer.buffer.added,
        "seconds": trainer.seconds,
        "frozen": trainer.frozen_seeds(),
        "callbacks": trainer.callbacks.state(),
    }
    for callback in trainer.callbacks.all_of(RunCallback):
        facts |= callback.facts()
    return facts


def arrays_of(trainer: "Trainer") -> dict[str, Array]:
    """Everything else that the run is, except its transitions."""
    found: dict[str, Tensor | Array] = {
        **{f"agent.{name}": tensor for name, tensor in trainer.agent.tensors().items()},
        "updates": trainer.agent.updates,
        "active": trainer.agent.active,
        "loss_sums": trainer.engine.losses.sums,
        **{f"buffer.{name}": array for name, array in trainer.buffer.state().items()},
        **{f"collector.{name}": array for name, array in trainer.collector.state().items()},
    }
    for callback in trainer.callbacks.all_of(RunCallback):
        found |= callback.arrays()
    return {name: _array(value) for name, value in found.items()}


def restore(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    """Bring a trainer that has not begun to where the checkpoint was taken; raises RunError if they do not fit."""
    try:
        checkpoint = _with_room(trainer, checkpoint)
        _require_fit(trainer, checkpoint)
        _restore_learner(trainer, checkpoint)
        _restore_collector(trainer, checkpoint)
        for callback in trainer.callbacks.all_of(RunCallback):
            callback.restore(trainer, checkpoint)
        _restore_callbacks(trainer, checkpoint.facts.get("callbacks", {}))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        advice = "give the function as it was" if STEP_STATE in str(error) else "restore the files of the run"
        raise RunError(
            f"{trainer.config.out} has a checkpoint that does not fit its run ({error}): {advice}, or train anew."
        ) from error


def require_step_state(path: Path, replacements: Sequence[Replacement], members: int, checkpoint: Checkpoint) -> None:
    """Refuse functions that declare other state than the checkpoint has, before anything of the run is written."""
    changes = StepChanges.create(replacements, members, 1, "meta", torch.float32)
    try:
        for name, wanted in changes.tensors().items():
            shape = _saved(checkpoint, f"agent.{name}").shape
            if name not in changes.growing() and shape != tuple(wanted.shape):
                what = _described(f"agent.{name}")
                raise ValueError(f"{what} has the shape {shape} instead of {tuple(wanted.shape)}")
    except ValueError as error:
        raise RunError(
            f"{path} has a checkpoint that does not fit its run ({error}): give the function as it was, or train anew."
        ) from None


def _with_room(trainer: "Trainer", checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with state of replaced steps for each row of the replay buffer that the run, made longer, has.

    The new rows come last: a buffer whose size is the length of the run has never wrapped.
    """
    changes, tensors = trainer.agent.changes, dict(checkpoint.tensors)
    names = changes.growing() if changes else set()
    for name, wanted in (changes.tensors() if changes else {}).items():
        saved = _saved(checkpoint, f"agent.{name}")
        if name in names and saved.ndim == 2 and saved.shape[1] < wanted.shape[1]:
            tensors[f"agent.{name}"] = np.pad(saved, ((0, 0), (0, wanted.shape[1] - saved.shape[1])))
    return checkpoint._replace(tensors=tensors)


def _saved(checkpoint: Checkpoint, name: str) -> Array:
    if name not in checkpoint.tensors:
        raise ValueError(f"{_described(name)} is missing")
    return checkpoint.tensors[name]


def _described(name: str) -> str:
    """`agent.step_9.0.u` is `state u of replaced step 9 (agent.step_9.0.u)`; other names say enough."""
    if not name.startswith(STEP_STATE):
        return name
    step, _, rest = name.removeprefix(STEP_STATE).partition(".")
    return f"state {rest.rpartition('.')[2]} of replaced step {step} ({name})"


def _require_fit(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    tensors, remote = checkpoint.tensors, trainer.collector.remote
    for name, array in arrays_of(trainer).items():
        saved = _saved(checkpoint, name)
        fits = array.shape == saved.shape or name in OF_ANY_LENGTH
        if saved.dtype != array.dtype or not (fits or remote):
            raise ValueError(f"{_described(name)} has the shape {saved.shape} instead of {array.shape}")
    collects = not remote and not trainer.config.dataset
    counts = {name: tensors[name] for name in ("updates", *(COLLECTED if collects else ()))}
    longest = np.max(counts.get("collector.lengths", 0), initial=0)
    if longest > checkpoint.env_steps or any(np.any(count < 0) for count in counts.values()):
        raise ValueError("it has counted less than nothing, or a longer episode than the run")


def _restore_learner(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    facts, tensors, agent = checkpoint.facts, checkpoint.tensors, trainer.agent
    for member, seed in enumerate(trainer.config.member_seeds):
        if why := facts.get("frozen", {}).get(str(seed)):
            trainer.frozen[member] = {"env_steps": int(why["env_steps"]), "reason": str(why["reason"])}
            trainer.engine.freeze(member, trainer.frozen[member]["reason"])
            trainer.collector.deactivate(member)
    trainer.env_steps = checkpoint.env_steps
    trainer.seconds_before = facts["seconds"]
    fill_buffer(trainer.buffer, checkpoint, facts["added"])
    load_agent_(agent, checkpoint.named("agent."))
    agent.updates[:] = tensors["updates"]
    if "active" in tensors:
        agent.active.copy_(torch.from_numpy(tensors["active"]))
    trainer.engine.losses.sums.copy_(torch.from_numpy(tensors["loss_sums"]))
    trainer.engine.seek()


def _restore_collector(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    if lost := trainer.collector.restore(checkpoint.named("collector.")):
        trainer.warn(
            f"{trainer.config.env} {trainer.collector.lost_because}: {len(lost)} unfinished episodes were lost, and "
            "the run goes on with new ones, not exactly as it would have."
        )


def _restore_callbacks(trainer: "Trainer", state: Mapping[str, Any]) -> None:
    trainer.callbacks.load_state(state)
    if lost := sorted({*state} - {callback.name for callback in trainer.callbacks.callbacks}):
        trainer.warn(
            f"the state of callback {', '.join(lost)} was not restored, because the callback was not given: resume the "
            "run from Python with  td3.resume(RUN, callbacks=[...])"
        )


def _array(value: Tensor | Array) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value
