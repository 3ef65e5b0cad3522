import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from scripted import Scripted, linear_policy

from td3.errors import ConfigError, EnvironmentFault, MissingExtra, RunError
from td3.policy import Policy
from td3.report import video
from td3.report.video import record


def frames_in(path: Path, width: int, height: int) -> list[np.ndarray]:
    """Every picture of a film, as a player sees it."""
    player = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    played = subprocess.run(player, capture_output=True, check=True)
    return list(np.frombuffer(played.stdout, np.uint8).reshape(-1, height, width, 3))


@pytest.fixture
def pendulum(monkeypatch) -> Policy:
    """An actor for Pendulum-v1, and no screen."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    layers = [(np.ones((3, 1), np.float32), np.zeros(1, np.float32))]
    return Policy(layers, [-2.0], [2.0], (3,), (1,))


class Drawn(Scripted):
    """Draws one grey picture after another."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012  # as Gymnasium has it

    def render(self):
        return np.full((48, 64, 3), 20 * self.step_number, np.uint8)


@pytest.fixture
def drawn():
    """The name of a scripted environment with a renderer."""
    gym.register("Drawn-v0", entry_point=Drawn, kwargs={"lengths": (9,)})
    yield "Drawn-v0"
    del gym.registry["Drawn-v0"]


def test_a_film_of_pendulum_can_be_played(pendulum, tmp_path):
    film = record(pendulum, "Pendulum-v1", tmp_path / "deep" / "film.mp4", max_steps=8)
    pictures = frames_in(film.path, 500, 500)
    assert film.frames == len(pictures) == 8
    assert pictures[0].std() > 5
    assert len(film.returns) == 1


def test_a_film_shows_real_time_at_thirty_frames_a_second(drawn, tmp_path):
    film = record(linear_policy(), drawn, tmp_path / "film.mp4", episodes=2)
    pictures = frames_in(film.path, 64, 48)
    assert film.frames == len(pictures) == 2 * 5  # 9 steps at 60 a second: every other one
    assert len(film.returns) == 2
    greys = [round(float(picture.mean()) / 20) for picture in pictures]
    assert greys == [0, 2, 4, 6, 8] * 2


def test_a_film_can_be_cut_short(drawn, tmp_path):
    assert record(linear_policy(), drawn, tmp_path / "film.mp4", max_steps=3).frames == 2


def test_half_cheetah_is_filmed_without_a_screen(tmp_path):
    """In a process of its own: how MuJoCo draws is settled when it is imported."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from td3.policy import Policy\n"
        "from td3.report.video import record\n"
        "policy = Policy([(np.ones((17, 6), np.float32), np.zeros(6, np.float32))], [-1] * 6, [1] * 6, (17,), (6,))\n"
        "film = record(policy, 'HalfCheetah-v5', Path(sys.argv[1]), max_steps=4)\n"
        "print(film.frames)\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")}
    command = [sys.executable, "-c", script, str(tmp_path / "film.mp4")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=bare)
    assert (done.stderr, done.returncode) == ("", 0)
    pictures = frames_in(tmp_path / "film.mp4", 320, 240)
    assert len(pictures) == int(done.stdout) == 4
    assert pictures[0].std() > 5


def test_an_environment_that_takes_no_render_mode_gets_a_sentence(tmp_path):
    class Blind(Scripted):
        def __init__(self):
            super().__init__()

    gym.register("Blind-v0", entry_point=Blind)
    with pytest.raises(EnvironmentFault, match="Blind-v0 has no renderer that gives pictures"):
        record(linear_policy(), "Blind-v0", tmp_path / "film.mp4")
    del gym.registry["Blind-v0"]


def test_an_environment_without_a_renderer_gets_a_sentence(tmp_path):
    with pytest.raises(EnvironmentFault, match="Scripted-v0 has no renderer that gives pictures"):
        record(linear_policy(), "Scripted-v0", tmp_path / "film.mp4")


def test_a_missing_drawing_library_gets_a_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(video.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(EnvironmentFault, match="needs the EGL library: on Debian and Ubuntu, apt-get install libegl1"):
        record(linear_policy(), "HalfCheetah-v5", tmp_path / "film.mp4")


def test_a_missing_writer_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"writing a video needs the extra 'video': .* pip install 'td3\[video\]'"):
        record(linear_policy(), "Pendulum-v1", tmp_path / "film.mp4")


@pytest.mark.parametrize("path", ["/proc/film.mp4", "/etc/passwd/film.mp4", "/proc/deep/film.mp4"])
def test_a_film_that_cannot_be_written_gets_a_sentence(drawn, path):
    with pytest.raises(RunError, match=rf"the video {path} cannot be written \(.*\): give another --out") as caught:
        record(linear_policy(), drawn, Path(path))
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind_gets_a_sentence(drawn, tmp_path):
    with pytest.raises(ConfigError, match=r"a video is written as .mp4, but .*film.gif was given"):
        record(linear_policy(), drawn, tmp_path / "film.gif")


@pytest.mark.parametrize(("name", "given"), [("episodes", 0), ("max_steps", -1)])
def test_nothing_to_show_is_refused(drawn, tmp_path, name, given):
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, but {given} was given"):
        record(linear_policy(), drawn, tmp_path / "film.mp4", **{name: given})
