"""Videos of trained agents: episodes, a grid of seeds, or one seed over the course of training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.errors import ConfigError, RunError
from td3.policy import Policy
from td3.report.stage import Player, saved_critic
from td3.report.strip import dimmed, grid_columns, narrowed, tiled, with_curve
from td3.report.video_file import VideoWriter
from td3.run.agent_file import load_agent
from td3.run.directory import Run

LONGEST_EPISODE = 2_000
"""Maximum env steps shown of an episode, by default."""
SNAPSHOTS = 10
"""Snapshots of the training that `--learning` shows."""
MOST_TILES = 16
"""Maximum seeds in a grid: each needs its own renderer."""


class Video(NamedTuple):
    """The file of a video, its frames and the returns of its episodes."""

    path: Path
    frames: int
    returns: list[float]
    agent: str = ""
    """Which agent of a run was played: its seed and the env step at which it was saved."""


def record(
    policy: Policy,
    env: str | Mapping[str, Any],
    path: Path,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = LONGEST_EPISODE,
    player: Player | None = None,
) -> Video:
    """Play episodes and write them one after another, in real time as far as the frame rate allows.

    `env` is a name, or all arguments of `make_environment`.
    With a `player` (of the same policy) reward and Q-values are plotted below the frames.
    """
    _require_positive(episodes=episodes, max_steps=max_steps)
    returns = []
    with VideoWriter(env, path) as writer:
        stage = writer.stage(player or Player(policy))
        for episode in range(episodes):
            if player is not None:
                stage.rehearse(seed + episode, max_steps)
            stage.reset(seed + episode)
            while not stage.ended and stage.step_number < max_steps:
                if stage.step_number % writer.every == 0:
                    writer.show(stage.image(with_strip=player is not None))
                stage.step()
            returns.append(stage.strip.total)
    return Video(path, writer.frames, returns)


def record_grid(
    players: Sequence[Player], env: str | Mapping[str, Any], path: Path, seed: int = 0, max_steps: int = LONGEST_EPISODE
) -> Video:
    """One episode of each player in a grid; finished episodes are dimmed until all have ended."""
    _require_positive(max_steps=max_steps)
    with VideoWriter(env, path) as writer:
        stages = [writer.stage(player) for player in players]
        for stage in stages:
            stage.rehearse(seed, max_steps)
            stage.reset(seed)
        tiles = [np.zeros(0)] * len(stages)
        width = min(320, 1280 // grid_columns(len(stages)))
        for step in range(max_steps):
            if step % writer.every == 0:
                for place, stage in enumerate(stages):
                    if not stage.ended:
                        tiles[place] = narrowed(stage.image(with_strip=True), width)
                writer.show(tiled([dimmed(t) if s.ended else t for t, s in zip(tiles, stages, strict=True)]))
            for stage in stages:
                if not stage.ended:
                    stage.step()
            if all(stage.ended for stage in stages):
                break
    return Video(path, writer.frames, [stage.strip.total for stage in stages])


def record_learning(
    players: Sequence[Player],
    env: str | Mapping[str, Any],
    path: Path,
    seconds: float = 10.0,
    seed: int = 0,
    curve: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Video:
    """The same agent from its initial weights to the end of training, each snapshot for an equal part of the time.

    With a `curve` (env steps, returns) the learning curve is next to the frames, with a mark at the snapshot.
    """
    returns = []
    with VideoWriter(env, path) as writer:
        stage = writer.stage(players[0])
        frames_each = max(1, round(seconds * writer.frames_per_second / len(players)))
        for player in players:  # one scale for all of them
            stage.player = player
            stage.rehearse(seed, frames_each * writer.every)
        for player in players:
            stage.player, episode = player, 0
            stage.reset(seed)
            for _ in range(frames_each):
                image = stage.image(with_strip=True)
                writer.show(image if curve is None else with_curve(image, *curve, float(player.env_steps)))
                for _ in range(writer.every):
                    if stage.ended:
                        episode += 1
                        stage.reset(seed + episode)
                    stage.step()
            returns.append(stage.strip.total)
    return Video(path, writer.frames, returns)


def record_run(
    run: Path,
    out: Path | None = None,
    episodes: int = 1,
    max_steps: int = LONGEST_EPISODE,
    seed: int | None = None,
    which: str = "best",
    grid: bool = False,
    learning: bool = False,
    plain: bool = False,
    trust: bool = False,
) -> Video:
    """The video of `td3 watch`; `trust` allows importing the run's module."""
    if grid and learning:
        raise ConfigError("--grid shows seeds side by side and --learning one of them over time: give one of the two.")
    found = Run(run)
    name = "grid.mp4" if grid else "learning.mp4" if learning else "video.mp4"
    path, env = out or found.path / name, found.env_arguments(trust, f"td3 watch {run}")
    if grid:
        seeds = found.seeds[:MOST_TILES] if seed is None else (seed,)
        return record_grid([_player(found, one, which) for one in seeds], env, path, max_steps=max_steps)
    if learning:
        chosen = found.best_seed() if seed is None else seed
        players = _along_the_way(found, chosen)
        env_steps, returns = found.evaluations(chosen)
        return record_learning(players, env, path, curve=(env_steps.astype(float).tolist(), returns.mean(1).tolist()))
    player = _player(found, found.best_seed() if seed is None else seed, which)
    video = record(player.policy, env, path, episodes, max_steps=max_steps, player=None if plain else player)
    return video._replace(agent=player.label)


def _player(run: Run, seed: int, which: str) -> Player:
    agent = run.agent(seed, which)
    step = int(agent.facts["env_steps"])
    label = f"seed {seed}, env step {step:,}" + ("" if step else " (untrained)")
    return Player(agent.policy, saved_critic(run.folder(seed) / which), label, run.config.td3.gamma)


def _along_the_way(run: Run, seed: int) -> list[Player]:
    if seed not in run.seeds:
        run.agent(seed)  # raises the error
    folders = sorted(folder for folder in (run.folder(seed) / "snapshots").glob("*") if folder.is_dir())
    if not folders:
        raise RunError(f"{run.folder(seed)} has no snapshots, which an earlier version did not save: train it again.")
    places = np.unique(np.linspace(0, len(folders) - 1, min(SNAPSHOTS, len(folders))).round().astype(int))
    agents = [load_agent(folders[place]) for place in places]
    steps = [int(agent.facts.get("env_steps", 0)) for agent in agents]
    return [
        Player(agent.policy, None, f"{step:,} env steps", env_steps=step)
        for agent, step in zip(agents, steps, strict=True)
    ]


def _require_positive(**numbers: int) -> None:
    for name, given in numbers.items():
        if given < 1:
            raise ConfigError(f"must be a whole number of at least 1, but {given!r} was given.", name)
