"""`td3 evaluate` and `td3 watch`: a trained agent in its environment."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from td3.cli.options import Commands, RunPath, Trust
from td3.errors import ConfigError

if TYPE_CHECKING:
    from td3.report.video import Video


@dataclass(frozen=True)
class EvaluateCommand:
    """Evaluate a trained agent without exploration noise: `td3 evaluate runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    episodes: int = 10
    """Episodes for each seed."""
    episode_seed: int = 0
    """Seed of the held-out evaluation episodes."""
    which: Literal["best", "last"] = "last"
    """The agent at its best evaluation, or at the end of training."""
    trust: Trust = False
    json: bool = False
    """Print the results as one JSON object instead of text."""


@dataclass(frozen=True)
class WatchCommand:
    """Write a video of a trained agent, with reward and Q-values below: `td3 watch runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    out: Path | None = None
    """The file, .mp4 or .gif; by default video.mp4 (grid.mp4, learning.mp4) in the run directory."""
    gif: bool = False
    """Also write a GIF next to an mp4."""
    grid: bool = False
    """All seeds' agents in a grid (at most 16)."""
    learning: bool = False
    """One seed's agent from initialization to the end of training, in ten seconds."""
    plain: bool = False
    """Frames only, without reward and Q-values."""
    episodes: int = 1
    """Episodes to show, one after another."""
    max_steps: int = 2_000
    """Maximum env steps to show per episode."""
    seed: int | None = None
    """Which seed's agent; by default the one whose last evaluation was highest."""
    which: Literal["best", "last"] = "best"
    """The agent at its best evaluation, or at the end of training."""
    trust: Trust = False
    json: bool = False
    """Print the results as one JSON object instead of text."""


def evaluate_command(command: EvaluateCommand) -> int:
    """Evaluate every seed of a run."""
    from td3.callbacks.progress import describe
    from td3.environments import in_batch
    from td3.environments.source import environment_maker
    from td3.environments.vector import VectorSource
    from td3.evaluate import Evaluator, held_out
    from td3.resources import available_threads
    from td3.run.directory import Run

    run, purpose = Run(command.run), held_out(command.episode_seed)
    env_arguments = run.env_arguments(command.trust, f"td3 evaluate {command.run}")
    means, episodes, rates = {}, {}, {}
    for seed in run.seeds:
        agent = run.agent(seed, command.which)
        with environment_maker(env_arguments) as make:
            batch = None if isinstance(make, VectorSource) else in_batch(make, available_threads())
            evaluator = Evaluator(make, [seed], command.episodes, worker_backend=batch, purpose=purpose)
            evaluation = evaluator(agent.policy)
            evaluator.close()
        returns = evaluation.returns[0]
        means[seed], episodes[seed] = float(returns.mean()), returns.tolist()
        if not math.isnan(rate := float(evaluation.success_rate[0])):
            rates[seed] = rate
        if not command.json:
            frozen = f" (frozen at env step {run.frozen[seed]['env_steps']:,})" if seed in run.frozen else ""
            held_out_seed = f"(held-out, --episode-seed {command.episode_seed})"
            print(f"seed {seed}{frozen}: return {describe(evaluation)} {held_out_seed}")
    if command.json:
        facts = {"env": run.config.env, "which": command.which, "episode_seed": command.episode_seed}
        successes = {"success_rate": rates} if rates else {}
        print(json.dumps({**facts, "mean_return": means, "returns": episodes, **successes}))
    elif len(means) > 1:
        counted = [means[seed] for seed in run.active_seeds]
        some = f"{len(counted)} of {len(means)}" if len(counted) < len(means) else f"all {len(means)}"
        print(f"{some} seeds: mean return {sum(counted) / len(counted):,.1f}")
    return 0


def watch_command(command: WatchCommand) -> int:
    """Write a video of a trained agent."""
    video = record_video(command)
    if command.json:
        print(json.dumps({"video": str(video.path), "frames": video.frames, "returns": video.returns}))
    else:
        returns = ", ".join(f"{value:,.1f}" for value in video.returns)
        print(f"{video.path}: {video.frames} frames, return {returns}{f' ({video.agent})' if video.agent else ''}")
        if command.gif and video.path.suffix == ".mp4":
            print(video.path.with_suffix(".gif"))
    return 0


def record_video(command: WatchCommand) -> "Video":
    """The video of a trained agent, and a GIF of it if asked for."""
    from td3.report.video import record_run
    from td3.report.video_file import to_gif

    if command.grid and command.seed is not None:
        raise ConfigError("--grid shows all seeds and --seed chooses one: give one of the two.")
    video = record_run(**{f.name: getattr(command, f.name) for f in fields(command) if f.name not in ("json", "gif")})
    if command.gif and video.path.suffix == ".mp4":
        to_gif(video.path, video.path.with_suffix(".gif"))
    return video


COMMANDS: Commands = {"evaluate": (EvaluateCommand, evaluate_command), "watch": (WatchCommand, watch_command)}
