"""Films of agents: played without noise, rendered without a screen, written as mp4 or GIF."""

import errno
import importlib.util
import math
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from td3.environments.make import family_of, make_environment
from td3.errors import ConfigError, EnvironmentFault, RunError, missing_extra
from td3.pixels import wrappers as pixels
from td3.policy import Array, Policy, forward
from td3.report.strip import Strip, curve_beside, dimmed, grid_columns, narrowed, short_number, tiled
from td3.run.agent_file import load_agent
from td3.run.directory import Run

FRAMES_PER_SECOND = 30
LONGEST_EPISODE = 2_000
"""Env steps shown of an episode, unless told otherwise."""
SNAPSHOTS = 10
"""Moments of the training that `--learning` shows."""
MOST_TILES = 16
"""Seeds in a grid: each needs a renderer of its own."""


class Film(NamedTuple):
    """Where the film is and what it shows."""

    path: Path
    frames: int
    returns: list[float]


def prepare_film(env: str) -> None:
    """Whatever can be known to be missing for a film is told now, before anything is trained or played."""
    if importlib.util.find_spec("imageio_ffmpeg") is None or importlib.util.find_spec("PIL") is None:
        raise missing_extra("writing a video", "video")
    prepare_headless_rendering(env)


def prepare_headless_rendering(env: str) -> None:
    """Let MuJoCo and pygame draw without a screen; must come before mujoco is imported."""
    family = family_of(env)
    pixels.prepare_headless_rendering(family and family.package)


class Player(NamedTuple):
    """Who is filmed: an actor, the critic that scores what it does if it is known, and what to write above."""

    policy: Policy
    critic: Callable[[Array, Array], float] | None = None
    label: str = ""
    gamma: float = 0.99
    env_steps: int = 0


def record(
    policy: Policy,
    env: str | Mapping[str, Any],
    path: Path,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = LONGEST_EPISODE,
    player: Player | None = None,
) -> Film:
    """Play episodes and write them one after another, in real time as far as the frame rate allows.

    `env` is a name, or all that `make_environment` is called with.
    With a `player` (of the same policy) reward and Q run along below the picture.
    """
    _require_positive(episodes=episodes, max_steps=max_steps)
    returns = []
    with Screen(env, path) as screen:
        stage = screen.stage(player or Player(policy))
        for episode in range(episodes):
            if player is not None:
                stage.rehearse(seed + episode, max_steps)
            stage.reset(seed + episode)
            while not stage.ended and stage.step_number < max_steps:
                if stage.step_number % screen.every == 0:
                    screen.show(stage.image(with_strip=player is not None))
                stage.step()
            returns.append(stage.strip.total)
    return Film(path, screen.frames, returns)


def record_grid(
    players: Sequence[Player], env: str | Mapping[str, Any], path: Path, seed: int = 0, max_steps: int = LONGEST_EPISODE
) -> Film:
    """One episode of each player, all at once in a grid; who is done stays, darkened, until all are."""
    _require_positive(max_steps=max_steps)
    with Screen(env, path) as screen:
        stages = [screen.stage(player) for player in players]
        for stage in stages:
            stage.rehearse(seed, max_steps)
            stage.reset(seed)
        tiles = [np.zeros(0)] * len(stages)
        width = min(320, 1280 // grid_columns(len(stages)))
        for step in range(max_steps):
            if step % screen.every == 0:
                for place, stage in enumerate(stages):
                    if not stage.ended:
                        tiles[place] = narrowed(stage.image(with_strip=True), width)
                screen.show(tiled([dimmed(t) if s.ended else t for t, s in zip(tiles, stages, strict=True)]))
            for stage in stages:
                if not stage.ended:
                    stage.step()
            if all(stage.ended for stage in stages):
                break
    return Film(path, screen.frames, [stage.strip.total for stage in stages])


def record_learning(
    players: Sequence[Player],
    env: str | Mapping[str, Any],
    path: Path,
    seconds: float = 10.0,
    seed: int = 0,
    curve: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Film:
    """The same agent from its initial weights to the end of training, each snapshot for an equal part of the time.

    With a `curve` (env steps, returns) the learning curve stands beside the picture, with a mark at the snapshot.
    """
    returns = []
    with Screen(env, path) as screen:
        stage = screen.stage(players[0])
        frames_each = max(1, round(seconds * screen.frames_per_second / len(players)))
        for player in players:  # one scale for all of them
            stage.player = player
            stage.rehearse(seed, frames_each * screen.every)
        for player in players:
            stage.player, episode = player, 0
            stage.reset(seed)
            for _ in range(frames_each):
                image = stage.image(with_strip=True)
                screen.show(image if curve is None else curve_beside(image, *curve, float(player.env_steps)))
                for _ in range(screen.every):
                    if stage.ended:
                        episode += 1
                        stage.reset(seed + episode)
                    stage.step()
            returns.append(stage.strip.total)
    return Film(path, screen.frames, returns)


def film_run(
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
) -> Film:
    """The film that `td3 watch` was asked for; `trust` lets a run's own module be imported."""
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
        env_steps, q_values = found.evaluations(chosen)
        return record_learning(players, env, path, curve=(env_steps.astype(float).tolist(), q_values.mean(1).tolist()))
    player = _player(found, found.best_seed() if seed is None else seed, which)
    return record(player.policy, env, path, episodes, max_steps=max_steps, player=None if plain else player)


def _player(run: Run, seed: int, which: str) -> Player:
    agent = run.agent(seed, which)
    return Player(agent.policy, saved_critic(run.folder(seed) / which), f"seed {seed}", run.config.td3.gamma)


def _along_the_way(run: Run, seed: int) -> list[Player]:
    if seed not in run.seeds:
        run.agent(seed)  # has a sentence for that
    folders = sorted(folder for folder in (run.folder(seed) / "snapshots").glob("*") if folder.is_dir())
    if not folders:
        raise RunError(f"{run.folder(seed)} has no snapshots: it was trained before they were kept. Train it again.")
    places = np.unique(np.linspace(0, len(folders) - 1, min(SNAPSHOTS, len(folders))).round().astype(int))
    agents = [load_agent(folders[place]) for place in places]
    steps = [int(agent.facts.get("env_steps", 0)) for agent in agents]
    return [
        Player(agent.policy, None, f"{step:,} env steps", env_steps=step)
        for agent, step in zip(agents, steps, strict=True)
    ]


class Stage:
    """An environment that is drawn, and the player in it."""

    def __init__(self, env_arguments: Mapping[str, Any], player: Player) -> None:
        self.env, self.player, self.strip = env_arguments["env"], player, Strip()
        self.environment = _make_drawing(**env_arguments)
        # A class of the user's own has no spec: Gymnasium gives one to what its registry makes.
        given = {} if self.environment.spec is None else self.environment.spec.kwargs
        self._is_small = "width" in given and env_arguments.get("pixels", False)

    def reset(self, seed: int) -> None:
        """A new episode."""
        self._observation, _ = self.environment.reset(seed=seed)
        self.strip.clear()
        self.ended, self.step_number = False, 0

    def rehearse(self, seed: int, max_steps: int) -> None:
        """Play the episode unseen, so that its scales and the observed returns are known when it is filmed."""
        self.reset(seed)
        rewards: list[float] = []
        values: list[float] = []
        while not self.ended and self.step_number < max_steps:
            reward, value = self.step()
            rewards.append(reward)
            values += [] if value is None else [value]
        self.strip.expect(rewards, values, self.player.gamma)

    def step(self) -> tuple[float, float | None]:
        """One env step: its reward, and what critic 1 predicted for it."""
        action, critic = self.player.policy.act(self._observation), self.player.critic
        value = None if critic is None else critic(np.ravel(self._observation), np.ravel(action))
        self._observation, reward, terminated, truncated, _ = self.environment.step(action)
        self.strip.add(float(reward), value)
        self.ended, self.step_number = bool(terminated or truncated), self.step_number + 1
        return float(reward), value

    def image(self, with_strip: bool) -> Array:
        """What is seen now."""
        frame = _frame(self.environment, self.env)
        if self._is_small:  # drawn at the size that an agent learns from, too small for the strip
            frame = frame.repeat(2, 0).repeat(2, 1)
        if not with_strip:
            return frame
        label = f"{self.player.label}   return {short_number(self.strip.total)}".lstrip()
        return self.strip.under(frame, label)


class Screen:
    """A film that is being written; what cannot work is told before anything is played.

    It is written under a temporary name and renamed when it is whole: on a full disk an earlier film stays.
    """

    def __init__(self, env: str | Mapping[str, Any], path: Path) -> None:
        self.env_arguments: dict[str, Any] = {"env": env} if isinstance(env, str) else dict(env)
        prepare_film(self.env_arguments["env"])
        self.path, self.frames = path, 0
        self.stages: list[Stage] = []
        self._writer: Any = None
        self._written = _temporary(path, ".mp4")

    def stage(self, player: Player) -> Stage:
        """An environment for one player; the first one settles the speed."""
        self.stages.append(Stage(self.env_arguments, player))
        drawn_per_second = self.stages[0].environment.metadata.get("render_fps")
        if not isinstance(drawn_per_second, int | float) or not 0 < drawn_per_second < math.inf:
            drawn_per_second = FRAMES_PER_SECOND
        steps_per_second = drawn_per_second / int(self.env_arguments.get("action_repeat", 1))
        self.every = max(1, round(steps_per_second / FRAMES_PER_SECOND))
        self.frames_per_second = steps_per_second / self.every
        return self.stages[-1]

    def show(self, frame: Array) -> None:
        """The next picture."""
        import imageio_ffmpeg

        try:
            if self._writer is None:
                size, options = (frame.shape[1], frame.shape[0]), {"macro_block_size": 2, "quality": 7}
                self._writer = imageio_ffmpeg.write_frames(
                    str(self._written), size, fps=self.frames_per_second, ffmpeg_log_level="quiet", **options
                )
                self._writer.send(None)
            self._writer.send(np.ascontiguousarray(frame))
        except (OSError, StopIteration):
            raise _not_written(self.path) from None
        self.frames += 1

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *faults: object) -> None:
        """Finish the file, and close every environment; after a fault nothing of it is left."""
        try:
            if self._writer is not None:
                self._writer.close()
                if faults[0] is None:
                    self._finish()
        finally:
            self._written.unlink(missing_ok=True)
            for stage in self.stages:
                stage.environment.close()

    def _finish(self) -> None:
        try:
            if not _is_whole(self._written):
                raise _not_written(self.path)
            if self.path.suffix == ".gif":
                # A GIF has 256 colors for the whole film: they are chosen when all of it is known.
                to_gif(self._written, self.path)
            else:
                self._written.replace(self.path)
        except OSError:
            raise _not_written(self.path) from None


def to_gif(film: Path, path: Path) -> None:
    """The film as a GIF that loops: 15 pictures a second, at most 480 wide, colors chosen from the whole film."""
    import imageio_ffmpeg

    chain = "fps=15,scale='min(480,iw)':-2:flags=lanczos,split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=bayer"
    written = _temporary(path, ".gif")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-y", "-i", str(film), "-vf", chain, str(written)]
    try:
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0 or written.stat().st_size == 0:
            raise _not_written(path)
        written.replace(path)
    except OSError:
        raise _not_written(path) from None
    finally:
        written.unlink(missing_ok=True)


def _temporary(path: Path, suffix: str) -> Path:
    """An empty file of ours beside the one to be written, which says that it can be; links are not followed."""
    if path.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"a video is written as .mp4 or .gif, but {path} was given.")
    temporary = path.with_name(f".{path.name}.part{suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.unlink(missing_ok=True)  # of a process that was killed
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except OSError as error:
        raise RunError(f"the video {path} cannot be written ({error.strerror}): give another --out.") from None
    return temporary


def _is_whole(film: Path) -> bool:
    """Whether an mp4 has its index, which is written last, and ends where its last part says that it does."""
    size, at, found = film.stat().st_size, 0, set()
    with film.open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            length, kind = int.from_bytes(file.read(4)), file.read(4)
            length = int.from_bytes(file.read(8)) if length == 1 else length
            if length < 8:
                return False
            found.add(kind)
            at += length
    return at == size and b"moov" in found


def _not_written(path: Path) -> RunError:
    full = shutil.disk_usage(path.parent).free < 1 << 20
    why = "no space is left on its disk" if full else "ffmpeg failed, or its disk is full"
    return RunError(f"the video {path} could not be written ({why}): make room, or give another --out.")


def saved_critic(folder: Path) -> Callable[[Array, Array], float] | None:
    """Critic 1 of a saved agent, in numpy; None where only the actor was kept."""
    tensors = load_file(folder / "agent.safetensors")
    layers: list[tuple[Array, Array]] = []
    while f"critic_1.{len(layers)}.weight" in tensors:
        name = f"critic_1.{len(layers)}"
        layers.append((tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]))
    if not layers:
        return None
    policy = load_agent(folder).policy

    def score(state: Array, action: Array) -> float:
        seen = policy.seen(state[None])[0]
        inputs = np.concatenate((seen, action)).astype(np.float32)
        return float(forward(layers, inputs, policy.activation)[0])

    return score


def _require_positive(**numbers: int) -> None:
    for name, given in numbers.items():
        if given < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, but {given!r} was given.")


def _make_drawing(env: str, **env_arguments: Any) -> Any:
    family = family_of(env)
    # The camera that follows the body, where the model has one; MuJoCo falls back to its free camera.
    is_mujoco = family is not None and family.extra == "mujoco" and not env_arguments.get("pixels")
    view: dict[str, Any] = {"width": 320, "height": 240, "camera_name": "track"} if is_mujoco else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no such renderer is said below, as an error
            environment = make_environment(env, **env_arguments, render_mode="rgb_array", **view)
    except EnvironmentFault as fault:
        if "render_mode" in str(fault):
            raise pixels.no_renderer(env) from None
        raise
    if environment.render_mode != "rgb_array":
        environment.close()
        raise pixels.no_renderer(env)
    return environment


def _frame(environment: Any, env: str) -> Array:
    try:
        frame = environment.render()
    except NotImplementedError:
        raise pixels.no_renderer(env) from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise pixels.no_renderer(env)
    return frame
