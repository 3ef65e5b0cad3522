"""Write frames as mp4 or GIF with ffmpeg, atomically."""

import contextlib
import errno
import importlib.util
import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from td3.errors import ConfigError, EnvironmentFault, RunError, UserError, missing_extra
from td3.files import create
from td3.pixels.wrappers import render_frame
from td3.policy import Array
from td3.report.video_stage import Player, Stage, make_rendered
from td3.user_code import describe

FRAMES_PER_SECOND = 30


def require_video(env_arguments: Mapping[str, Any]) -> None:
    """Refuse what is missing for a video: a package, or an environment that can be drawn."""
    require_packages()
    with contextlib.closing(make_rendered(**env_arguments)) as environment:
        try:
            environment.reset(seed=0)
            render_frame(environment, env_arguments["env"])
        except UserError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"{env_arguments['env']} cannot be drawn for a video ({describe(error)})."
            ) from error


def require_packages() -> None:
    """Report a missing extra before anything is played."""
    if importlib.util.find_spec("imageio_ffmpeg") is None or importlib.util.find_spec("PIL") is None:
        raise missing_extra("writing a video", "video")


class VideoWriter:
    """A video while it is written; what cannot work is refused before anything is played.

    It has a temporary name until it is complete: on a full disk an earlier video is kept.
    """

    def __init__(self, env_arguments: Mapping[str, Any], path: Path) -> None:
        require_packages()
        self.env_arguments, self.path, self.frames = env_arguments, path, 0
        self.stages: list[Stage] = []
        self._writer: Any = None
        self._written = _temporary(path, ".mp4")

    def stage(self, player: Player) -> Stage:
        """An environment for one player; the first one decides the frame rate."""
        self.stages.append(Stage(self.env_arguments, player))
        stated = self.stages[0].environment.metadata.get("render_fps")
        is_rate = isinstance(stated, int | float) and 0 < stated < math.inf
        steps_per_second = (stated if is_rate else FRAMES_PER_SECOND) / int(self.env_arguments.get("action_repeat", 1))
        self.every = max(1, round(steps_per_second / FRAMES_PER_SECOND))
        self.frames_per_second = steps_per_second / self.every
        return self.stages[-1]

    def show(self, frame: Array) -> None:
        """Append a frame."""
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

    def __enter__(self) -> "VideoWriter":
        return self

    def __exit__(self, *faults: object) -> None:
        """Finish the file and close every environment; after an error the temporary file is removed."""
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
        import imageio_ffmpeg

        try:  # write_frames does not say whether ffmpeg could write the end of the file
            if imageio_ffmpeg.count_frames_and_secs(self._written)[0] != self.frames:
                raise _not_written(self.path)
            if self.path.suffix == ".gif":
                to_gif(self._written, self.path)
            else:
                self._written.replace(self.path)
        except (OSError, RuntimeError):
            raise _not_written(self.path) from None


def to_gif(video: Path, path: Path) -> None:
    """The video as a looping GIF: 15 frames a second, at most 480 pixels wide, colors chosen from the whole video."""
    import imageio_ffmpeg

    chain = "fps=15,scale='min(480,iw)':-2:flags=lanczos,split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=bayer"
    written = _temporary(path, ".gif")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-y", "-i", str(video), "-vf", chain, str(written)]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        written.replace(path)
    except (OSError, subprocess.CalledProcessError):
        raise _not_written(path) from None
    finally:
        written.unlink(missing_ok=True)


def _temporary(path: Path, suffix: str) -> Path:
    """An empty temporary file in the same folder, which shows that it can be written; links are not followed."""
    if path.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"a video is written as .mp4 or .gif, but {path} was given.")
    temporary = path.with_name(f".{path.name}.part{suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        os.close(create(temporary))
    except OSError as error:
        raise RunError(f"the video {path} cannot be written ({error.strerror}): give another --out.") from None
    return temporary


def _not_written(path: Path) -> RunError:
    full = shutil.disk_usage(path.parent).free < 1 << 20
    why = "no space is left on its disk" if full else "ffmpeg failed, or its disk is full"
    return RunError(f"the video {path} could not be written ({why}): make room, or give another --out.")
