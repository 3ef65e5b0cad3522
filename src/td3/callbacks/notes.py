"""What a run says of itself: how it is executed, as it starts, and that a seed's learning diverges."""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3.callbacks.callback import Callback
from td3.config import TrainConfig, preset_config
from td3.diagnostics import largest_rewards
from td3.environments.requirements import option_with_limit
from td3.environments.vector import RESTARTS
from td3.evaluate import LONGEST_EPISODE, Evaluation
from td3.presets import WARM_UP_PART
from td3.rules import LARGEST

if TYPE_CHECKING:
    from td3.training import Trainer

ALARM_AFTER = 5_000
"""Updates before critics are expected to know anything of the size of returns."""


def warm_up_note(config: TrainConfig, learning_starts: int, env_steps: int = 0) -> str:
    """One sentence on the steps before learning that are still to come; a loaded policy acts in them."""
    if env_steps >= learning_starts:
        return ""
    if config.init_from is not None:
        return f"Until env step {learning_starts:,} the policy that was loaded acts, and nothing is learned yet."
    usual = preset_config(config.preset, config.env, LARGEST).learning_starts
    shortened = config.td3.learning_starts == config.steps // WARM_UP_PART < usual
    why = f" (10 % of this run; {usual:,} by default)" if shortened and not env_steps else ""
    steps = (
        f"random steps until env step {learning_starts:,}" if env_steps else f"{learning_starts:,} random steps first"
    )
    waits = "" if config.td3.train_freq == "episode" else "; nothing is learned until then"
    return f"Warm-up: {steps}{waits}{why}."


def updates_note(config: TrainConfig) -> str:
    """How many updates a round of several environments makes, which a ratio alone hides."""
    if config.envs == 1 or config.td3.train_freq == "episode":
        return ""
    updates = f"{config.envs * config.td3.utd_ratio:,.12g}"
    return f"{config.envs:,} environments: {updates} updates per round (--td3.utd-ratio {config.td3.utd_ratio:g})."


class NotesCallback(Callback):
    """A line on everything unusual about how this run is executed."""

    _warned = False
    """Whether the run was told that an episode had to be cut."""

    def on_loop_start(self, trainer: "Trainer") -> None:
        """Say it once, below the first line of a display."""
        config, spaces = trainer.config, trainer.spaces
        if why := trainer.agent.backend.slower_because:
            trainer.info(f"Updates are slower than they could be, because {why}.")
        for member, facts in trainer.frozen.items():
            trainer.info(f"Seed {config.member_seeds[member]} stays frozen: {facts['reason']}")
        changes = trainer.agent.changes
        for step, function, _ in changes.replacements if changes else ():
            if not str(function.__module__).startswith("td3."):  # those of variants are named by the variant
                file = Path(inspect.unwrap(function).__code__.co_filename).name
                trainer.info(f"Step {step} is {function.__name__} ({file}).")
        for note in trainer.beginning:
            trainer.info(note)
        for note in (warm_up_note(config, trainer.learning_starts, trainer.env_steps), updates_note(config)):
            if note:
                trainer.info(note)
        if config.env_kwargs:
            trainer.info(f"Made with {json.dumps(config.env_kwargs)}.")
        if config.normalize_observations:
            of = "the dataset's" if config.dataset else "their running"
            trainer.info(f"Observations are normalized by {of} mean and standard deviation.")
        if not trainer.replays:
            trainer.info(RESTARTS)
        if trainer.evaluator is None:
            trainer.info("Nothing is evaluated, and there is no best agent: give eval_env=... to evaluate in it.")
        if spaces.flattened:
            trainer.info(f"Observations: {spaces.flattened}, flattened to {spaces.state_size} numbers.")
        if trainer.replays and not spaces.time_limit:
            trainer.info(
                f"{config.env} has no time limit: where its step() never truncates, an evaluation may take up to "
                f"{LONGEST_EPISODE:,} env steps an episode. Add  {option_with_limit(config.env_kwargs)}"
            )

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """Warn once of episodes that had to be cut."""
        if evaluation.lengths.max() >= LONGEST_EPISODE and not trainer.spaces.time_limit and not self._warned:
            self._warned = True
            trainer.warn(
                f"env step {evaluation.env_steps:,}: an evaluation's episode was cut after {LONGEST_EPISODE:,} env "
                f"steps, because {trainer.config.env} has no time limit: train with  "
                f"{option_with_limit(trainer.config.env_kwargs)}"
            )


class DivergenceCallback(Callback):
    """Warns once of a seed whose critics promise far more than its rewards can add up to."""

    def __init__(self) -> None:
        self._warned: set[int] = set()
        self._largest: list[float] = []
        """Each seed's largest absolute reward so far; the replay buffer may have lost it since."""
        self._seen = 0
        """Transitions that were looked at."""

    def state(self) -> Mapping[str, Any]:
        """What is known of the rewards, and who was warned of."""
        return {"largest": self._largest, "seen": self._seen, "warned": sorted(self._warned)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._largest, self._seen, self._warned = list(state["largest"]), state["seen"], set(state["warned"])

    def on_log(self, trainer: "Trainer", rows: Sequence[Mapping[str, Any]]) -> None:
        """Compare the critics' mean with the largest reward."""
        trainer.engine.flush()
        new = largest_rewards(trainer.buffer, trainer.buffer.added - self._seen)
        self._largest = largest = [max(pair) for pair in zip(self._largest or new, new, strict=True)]
        self._seen = trainer.buffer.added
        for member in trainer.active_members:
            if rows[member]["updates"] < ALARM_AFTER or member in self._warned:
                continue
            possible, mean_q = largest[member] / max(1e-3, 1 - trainer.config.td3.gamma), rows[member]["mean_q"]
            if abs(mean_q) > 2 * possible > 0 and trainer.agent.trains_critics:
                self._warned.add(member)
                trainer.warn(
                    f"seed {trainer.config.member_seeds[member]}: the critics say {mean_q:.3g} on average, where "
                    f"rewards of at most {largest[member]:.3g} can add up to {possible:.3g}: learning diverges. Lower "
                    "the learning rates or raise --td3.policy-delay."
                )
