"""Videos of trained agents: episodes, a grid of seeds, or one seed over the course of training."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.errors import ConfigError, RunError
from td3.report.video_drawing import grid_of, with_curve
from td3.report.video_file import VideoWriter
from td3.report.video_stage import Player, saved_critic
from td3.run.agent_file import load_agent
from td3.run.directory import Run, named_seeds

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
    shown: str = ""
    """Whose agent it shows, of a run."""

    def _repr_html_(self) -> str:
        """The video itself, for notebooks."""
        content = base64.b64encode(self.path.read_bytes()).decode()
        if self.path.suffix == ".gif":
            return f'<img src="data:image/gif;base64,{content}">'
        return f'<video controls loop muted src="data:video/mp4;base64,{content}"></video>'


def record(
    players: Sequence[Player],
    env_arguments: Mapping[str, Any],
    path: Path,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = LONGEST_EPISODE,
    plain: bool = False,
) -> Video:
    """Play episodes and write them one after another, in real time as far as the frame rate allows.

    Several players are shown in a grid, where an episode that has ended is dimmed until all have. Below the frames
    reward and Q-values are plotted, unless `plain`. `env_arguments` are those of `make_environment`.
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ConfigError(f"must be a whole number of at least 1, but {value!r} was given.", name)
    returns = []
    with VideoWriter(env_arguments, path) as writer:
        stages = [writer.stage(player) for player in players]
        for episode in range(episodes):
            for stage in stages:
                if not plain:
                    stage.rehearse(seed + episode, max_steps)
                stage.reset(seed + episode)
            for step in range(max_steps):
                if step % writer.every == 0:
                    images = [stage.image(plain) for stage in stages]
                    writer.show(images[0] if len(images) == 1 else grid_of(images))
                playing = [stage for stage in stages if not stage.ended]
                for stage in playing:
                    stage.step()
                if all(stage.ended for stage in playing):
                    break
            returns += [sum(stage.strip.rewards) for stage in stages]
    return Video(path, writer.frames, returns)


def record_learning(
    players: Sequence[Player],
    env_arguments: Mapping[str, Any],
    path: Path,
    seconds: float = 10.0,
    seed: int = 0,
    curve: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Video:
    """The same agent from its initial weights to the end of training, each snapshot for an equal part of the time.

    With a `curve` (env steps, returns) the learning curve is next to the frames, with a mark at the snapshot.
    """
    returns = []
    with VideoWriter(env_arguments, path) as writer:
        stage = writer.stage(players[0])
        frames_each = max(1, round(seconds * writer.frames_per_second / len(players)))
        for player in players:  # one scale for all of them
            stage.player = player
            stage.rehearse(seed, frames_each * writer.every)
        for player in players:
            stage.player, episode = player, 0
            stage.reset(seed)
            for _ in range(frames_each):
                image = stage.image()
                writer.show(image if curve is None else with_curve(image, *curve, float(player.env_steps)))
                for _ in range(writer.every):
                    if stage.ended:
                        episode += 1
                        stage.reset(seed + episode)
                    stage.step()
            returns.append(sum(stage.strip.rewards))
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
    if grid and seed is not None:
        raise ConfigError("--grid shows all seeds and --seed chooses one: give one of the two.")
    opened = Run(run)
    name = "grid.mp4" if grid else "learning.mp4" if learning else "video.mp4"
    path, env_arguments = out or opened.path / name, opened.env_arguments(trust, f"td3 watch {run}")
    seeds = opened.seeds[:MOST_TILES] if grid else [opened.best_seed() if seed is None else seed]
    if learning:
        players = _players_over_training(opened, seeds[0])
        env_steps, returns = opened.evaluations(seeds[0])
        curve = env_steps.astype(float).tolist(), returns.mean(1).tolist()
        return record_learning(players, env_arguments, path, curve=curve)._replace(shown=f"seed {seeds[0]}")
    players = [_player(opened, member, which) for member in seeds]
    video = record(players, env_arguments, path, episodes, max_steps=max_steps, plain=plain)
    if grid:
        return video._replace(shown=f"{which} agents of {named_seeds(seeds)}")
    saved_at = players[0].env_steps
    step = f"{opened.config.unit[:-1]} {saved_at:,}" + ("" if saved_at else " (untrained)")
    return video._replace(shown=f"{which} agent of seed {seeds[0]}, {step}")


def _player(run: Run, seed: int, which: str) -> Player:
    agent, gamma = run.agent(seed, which), run.config.td3.gamma
    critic = saved_critic(run.folder(seed) / which)
    return Player(agent.policy, critic, f"seed {seed}", gamma, env_steps=agent.facts["env_steps"])


def _players_over_training(run: Run, seed: int) -> list[Player]:
    if seed not in run.seeds:
        run.agent(seed)  # raises the error
    folders = sorted(folder for folder in (run.folder(seed) / "snapshots").glob("*") if folder.is_dir())
    if not folders:
        raise RunError(f"{run.folder(seed)} has no snapshots, which an earlier version did not save: train it again.")
    indices = np.unique(np.linspace(0, len(folders) - 1, min(SNAPSHOTS, len(folders))).round().astype(int))
    players = []
    for index in indices:
        agent = load_agent(folders[index])
        env_steps = int(agent.facts.get("env_steps", 0))
        players.append(Player(agent.policy, None, f"{env_steps:,} env steps", env_steps=env_steps))
    return players
