"""Saved agents of every seed: the last, the best evaluated, and actors along the way."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from td3.algorithm.agent import Agent
from td3.callbacks.callback import RunCallback
from td3.callbacks.logs import MOST_WRITING
from td3.config import TrainConfig
from td3.evaluate import Evaluation
from td3.policy import Array
from td3.run.agent_file import save_agent

if TYPE_CHECKING:
    from td3.run.checkpoints import Checkpoint
    from td3.training import Trainer

SNAPSHOTS = 10
"""Actors kept along the way, besides the newly initialized: enough for a video of the learning."""


def is_milestone(env_steps: int, config: TrainConfig) -> bool:
    """Whether an evaluation at this env step is one of the about ten, from start to end, whose actors are kept."""
    every = config.eval_every or config.steps
    tenths = [SNAPSHOTS * every * (env_steps // every - back) // config.steps for back in (0, 1)]
    return tenths[0] > tenths[1] or env_steps >= config.steps


class AgentCallback(RunCallback):
    """Saves `best` and `snapshots/ENV_STEPS` after an evaluation, and `last` when a seed or the run ends."""

    def __init__(self, config: TrainConfig) -> None:
        self._best, self._started = np.full(config.seeds, -np.inf), False
        self._threads = ThreadPoolExecutor(min(MOST_WRITING, config.seeds), "td3 agents")

    def on_training_start(self, trainer: "Trainer") -> None:
        """From now on the agent is the run's, restored where it is resumed."""
        self._started = True

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """Save what was evaluated where it is the best so far, and its actor at milestones."""
        # Side by side: what takes time is the disk, and it takes many files in the time of one.
        list(self._threads.map(partial(self._save_evaluated, trainer, evaluation), evaluation.members))
        trainer.time.lap("save")

    def _save_evaluated(self, trainer: "Trainer", evaluation: Evaluation, member: int) -> None:
        env_steps, agent, returned = evaluation.env_steps, evaluation.agent, evaluation.returns[member].mean()
        if is_milestone(env_steps, trainer.config):
            self._save(trainer, f"snapshots/{env_steps:09}", agent, env_steps, [member], actor_only=True)
        if returned > self._best[member]:
            self._best[member] = returned
            self._save(trainer, "best", agent, env_steps, [member])

    def on_seed_frozen(self, trainer: "Trainer", member: int, reason: str) -> None:
        """Save it as it stays."""
        self._save(trainer, "last", trainer.agent, trainer.env_steps, [member])

    def on_training_end(self, trainer: "Trainer") -> None:
        """Save all seeds that are not frozen."""
        self._threads.shutdown()
        with contextlib.suppress(OSError):  # a disk that is full must not hide why the run ended
            if self._started:  # else its checkpoint could not be restored, and what was saved before stays
                self._save(trainer, "last", trainer.agent, trainer.env_steps, trainer.active_members)

    def _save(
        self,
        trainer: "Trainer",
        which: str,
        agent: Agent,
        env_steps: int,
        members: Sequence[int],
        actor_only: bool = False,
    ) -> None:
        config = trainer.config
        for member in members:
            facts = {
                "env": config.env,
                "seed": config.member_seeds[member],
                "env_steps": env_steps,
                "updates": int(agent.updates[member]),
                "hidden_sizes": list(config.td3.actor_sizes),
                "versions": trainer.versions,
            }
            if agent.encoder is not None:
                facts["strides"] = list(agent.encoder.plan.strides)
            save_agent(trainer.path / f"seed_{facts['seed']}" / which, agent, member, trainer.spaces, facts, actor_only)

    def arrays(self) -> dict[str, Array]:
        """The best mean return of each seed."""
        return {"best_returns": self._best}

    def restore(self, trainer: "Trainer", checkpoint: "Checkpoint") -> None:
        """Know the best again."""
        self._best = checkpoint.tensors["best_returns"].copy()
