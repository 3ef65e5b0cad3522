"""Evaluation on a schedule of env steps, here or beside training, with diagnostics of the learner."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from td3.algorithm.agent import Agent
from td3.callbacks.callback import RunCallback
from td3.diagnostics import examine, value_against_return
from td3.engine import live_policy
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.policy import Array
from td3.run.checkpoints import Checkpoint, load_agent_
from td3.run.tables import DIAGNOSTICS

if TYPE_CHECKING:
    from td3.training import Trainer

NETWORKS = (
    *("actor", "actor_target", "critics", "critics_target", "encoder", "encoder_target"),
    *("observations.mean", "observations.scale"),
)
"""What an evaluation that is under way needs of its snapshot."""


class EvaluationCallback(RunCallback):
    """Evaluates at the start, every `eval_every` env steps and at the end; fires `on_evaluation` and what follows.

    Without an evaluator nothing is evaluated.
    """

    def __init__(self, evaluator: Evaluator | EvaluationWorkers | None) -> None:
        self._evaluator = evaluator
        self._snapshots: dict[int, Agent] = {}
        self._examined: dict[int, list[dict[str, Any] | None]] = {}  # None: frozen

    def on_loop_start(self, trainer: "Trainer") -> None:
        """The newly initialized agent."""
        if not trainer.resumed:
            self._evaluate(trainer)

    def on_env_step(self, trainer: "Trainer") -> None:
        """Report evaluations that are done, and begin the next where it is due."""
        if self._examined:
            self._report(trainer)
        steps = trainer.config.steps
        if trainer.env_steps >= steps or trainer.is_due(trainer.config.eval_every or steps):
            self._evaluate(trainer)

    def on_loop_end(self, trainer: "Trainer") -> None:
        """Wait for those that are under way."""
        self._report(trainer, wait=True)

    def _evaluate(self, trainer: "Trainer") -> None:
        trainer.check_finite()
        if self._evaluator is None:
            return
        agent, buffer, env_steps = trainer.agent, trainer.buffer, trainer.env_steps
        if agent.normalizer is not None:
            trainer.engine.flush()  # rows that still wait count in what normalizes, whichever the engine
        beside = isinstance(self._evaluator, EvaluationWorkers)
        # What is evaluated while training goes on must be a copy.
        snapshot = agent.copied() if beside or buffer.rows.is_cuda else agent
        config = trainer.config
        examined = examine(agent, buffer, config.member_seeds, env_steps, waiting=config.rows_per_round)
        rows = [None if member in trainer.frozen else row for member, row in enumerate(examined)]
        self._begin(env_steps, snapshot, rows)
        self._report(trainer)

    def _begin(self, env_steps: int, snapshot: Agent, examined: list[dict[str, Any] | None]) -> None:
        assert self._evaluator is not None
        self._snapshots[env_steps], self._examined[env_steps] = snapshot, examined
        self._evaluator.begin(env_steps, live_policy(snapshot), _missing(examined))

    def _report(self, trainer: "Trainer", wait: bool = False) -> None:
        for env_steps, evaluation in self._evaluator.finished(wait) if self._evaluator else ():
            snapshot, examined = self._snapshots.pop(env_steps), self._examined.pop(env_steps)
            assert evaluation.visits is not None
            values = value_against_return(snapshot, evaluation.visits)
            nothing = dict.fromkeys(DIAGNOSTICS, np.nan)
            diagnosed = [
                {**nothing, **(a or {}), **b, "env_steps": env_steps} for a, b in zip(examined, values, strict=True)
            ]
            trainer.time.lap("evaluate")
            trainer.callbacks.on_evaluation(trainer, evaluation._replace(env_steps=env_steps, agent=snapshot))
            trainer.callbacks.on_diagnostics(trainer, env_steps, diagnosed)
            trainer.callbacks.on_timing(trainer, trainer.time.take())

    def facts(self) -> dict[str, Any]:
        """Diagnostics of the evaluations that are under way."""
        return {"pending_evaluations": {str(env_steps): self._examined[env_steps] for env_steps in self._pending}}

    def arrays(self) -> dict[str, Array]:
        """Networks of the evaluations that are under way."""
        arrays: dict[str, Array] = {}
        for index, env_steps in enumerate(self._pending):
            snapshot = self._snapshots[env_steps]
            networks = snapshot.tensors()
            for name in NETWORKS:
                if name in networks:
                    arrays[f"pending.{index}.{name}"] = networks[name].detach().cpu().numpy()
            arrays[f"pending.{index}.updates"] = snapshot.updates
        return arrays

    def restore(self, trainer: "Trainer", checkpoint: Checkpoint) -> None:
        """Begin them again."""
        if self._evaluator is None:
            return
        pending = {int(name): examined for name, examined in checkpoint.facts["pending_evaluations"].items()}
        for index, env_steps in enumerate(sorted(pending)):
            snapshot = trainer.agent.copied()
            saved = checkpoint.named(f"pending.{index}.")
            load_agent_(snapshot, saved)
            snapshot.updates[:] = saved["updates"]
            self._begin(env_steps, snapshot, pending[env_steps])

    @property
    def _pending(self) -> list[int]:
        return sorted(self._snapshots)


def _missing(rows: Sequence[object | None]) -> list[int]:
    return [index for index, row in enumerate(rows) if row is None]
