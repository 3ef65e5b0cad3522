import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scripted import HIGH, LOW, SMALL, Scripted, linear_policy

import td3
from td3 import policy
from td3.algorithm.agent import Agent, Task
from td3.backends.backend import NORM_EPSILON
from td3.environments import TaskSpaces
from td3.errors import ConfigError, EnvironmentFault, MissingExtra, RunError
from td3.policy import Policy
from td3.report.video import record, record_learning, record_run
from td3.report.video_drawing import GAP, LABEL, STRIP, Strip, discounted, grid_of, narrowed, short_number, with_curve
from td3.report.video_file import to_gif
from td3.report.video_stage import Player, saved_critic
from td3.run.agent_file import save_agent
from td3.settings import TD3Config

ONE = [Player(linear_policy())]


def frames_in(path: Path, width: int, height: int) -> list[np.ndarray]:
    """Every image of a film, as a player sees it."""
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
    """Draws one gray image after another."""

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
    film = record([Player(pendulum)], {"env": "Pendulum-v1"}, tmp_path / "deep" / "film.mp4", max_steps=8, plain=True)
    images = frames_in(film.path, 500, 500)
    assert film.frames == len(images) == 8
    assert images[0].std() > 5
    assert len(film.returns) == 1


def test_a_film_shows_real_time_at_thirty_frames_a_second(drawn, tmp_path):
    film = record(ONE, {"env": drawn}, tmp_path / "film.mp4", episodes=2, plain=True)
    images = frames_in(film.path, 64, 48)
    assert film.frames == len(images) == 2 * 5  # 9 steps at 60 a second: every other one
    assert len(film.returns) == 2
    grays = [round(float(image.mean()) / 20) for image in images]
    assert grays == [0, 2, 4, 6, 8] * 2


def test_a_film_can_be_cut_short(drawn, tmp_path):
    assert record(ONE, {"env": drawn}, tmp_path / "film.mp4", max_steps=3).frames == 2


def test_half_cheetah_is_filmed_without_a_screen(tmp_path):
    """In a process of its own: how MuJoCo draws is settled when it is imported."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from td3.policy import Policy\n"
        "from td3.report.video_stage import Player\n"
        "from td3.report.video import record\n"
        "policy = Policy([(np.ones((17, 6), np.float32), np.zeros(6, np.float32))], [-1] * 6, [1] * 6, (17,), (6,))\n"
        "film = record([Player(policy)], {'env': 'HalfCheetah-v5'}, Path(sys.argv[1]), max_steps=4, plain=True)\n"
        "print(film.frames)\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")}
    command = [sys.executable, "-c", script, str(tmp_path / "film.mp4")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=bare)
    assert (done.stderr, done.returncode) == ("", 0)
    images = frames_in(tmp_path / "film.mp4", 320, 240)
    assert len(images) == int(done.stdout) == 4
    assert images[0].std() > 5


def test_an_environment_that_takes_no_render_mode_gets_a_sentence(tmp_path):
    class Blind(Scripted):
        def __init__(self):
            super().__init__()

    class Bare(gym.Env):
        observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    for name, kind in {"Blind-v0": Blind, "Bare-v0": Bare}.items():
        gym.register(name, entry_point=kind)
        with pytest.raises(EnvironmentFault, match=f"{name} has no renderer that gives images"):
            record(ONE, {"env": name}, tmp_path / "film.mp4")
        del gym.registry[name]


def test_an_environment_without_a_renderer_gets_a_sentence(tmp_path):
    with pytest.raises(EnvironmentFault, match="Scripted-v0 has no renderer that gives images"):
        record(ONE, {"env": "Scripted-v0"}, tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_drawing_library_gets_a_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(EnvironmentFault, match="needs the EGL library: on Debian and Ubuntu, apt-get install libegl1"):
        record(ONE, {"env": "HalfCheetah-v5"}, tmp_path / "film.mp4")


def test_a_missing_writer_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"writing a video needs the extra 'video': .* pip install 'td3\[video\]'"):
        record(ONE, {"env": "Pendulum-v1"}, tmp_path / "film.mp4")


@pytest.mark.parametrize("path", ["/proc/film.mp4", "/etc/passwd/film.mp4", "/proc/deep/film.mp4"])
def test_a_film_that_cannot_be_written_gets_a_sentence(drawn, path):
    with pytest.raises(RunError, match=rf"the video {path} cannot be written \(.*\): give another --out") as caught:
        record(ONE, {"env": drawn}, Path(path))
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind_gets_a_sentence(drawn, tmp_path):
    with pytest.raises(ConfigError, match=r"a video is written as .mp4 or .gif, but .*film.avi was given"):
        record(ONE, {"env": drawn}, tmp_path / "film.avi")


@pytest.mark.parametrize(("name", "given"), [("episodes", 0), ("max_steps", -1)])
def test_nothing_to_show_is_refused(drawn, tmp_path, name, given):
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, but {given} was given"):
        record(ONE, {"env": drawn}, tmp_path / "film.mp4", **{name: given})


def test_reward_and_q_run_along_below_the_picture(drawn, tmp_path):
    def critic(state, action):
        return float(state[2])

    player = Player(linear_policy(), critic, "seed 3")
    film = record([player], {"env": drawn}, tmp_path / "film.mp4")
    images = frames_in(film.path, 64, 48 + LABEL + STRIP)
    assert [round(float(image[LABEL : LABEL + 48].mean()) / 20) for image in images] == [0, 2, 4, 6, 8]
    assert all(image[:LABEL].max() > 150 for image in images)  # text on a dark line
    first, last = (image[LABEL + 48 :].astype(int) for image in (images[0], images[-1]))
    assert last.std() > first.std()


def test_a_strip_draws_the_newest_steps_and_starts_afresh():
    strip, image = Strip(), np.zeros((10, 200, 3), np.uint8)
    for step in range(300):
        strip.add(1.0, float(step))
    assert sum(strip.rewards) == 300
    full = strip.under(image)
    assert full.shape == (10 + STRIP, 200, 3)
    assert (full[10:] == (79, 176, 238)).all(-1).any()  # a line for Q
    lines = (full[10:] == (255, 159, 67)).all(-1).any(0)  # and one for the reward, all across its half
    assert lines[8:92].mean() > 0.9
    strip.clear()
    strip.add(2.0, None)
    assert strip.rewards == [2]
    assert not (strip.under(image)[10:] == (79, 176, 238)).all(-1).any()


@pytest.mark.parametrize(
    ("value", "words"), [(-0.0001, "0.00"), (3.14159, "3.14"), (-99.5, "-99.50"), (12345.6, "12,346")]
)
def test_numbers_in_a_film_are_short(value, words):
    assert short_number(value) == words


def test_a_grid_has_every_picture_in_its_place():
    images = [np.full((4, 6, 3), 10 * number, np.uint8) for number in range(1, 6)]
    grid = grid_of(images)
    assert grid.shape == (2 * 4 + GAP, 3 * 6 + 2 * GAP, 3)
    assert grid[0, 0, 0] == 10
    assert grid[0, 6 + GAP, 0] == 20
    half = (6 + GAP) // 2  # the last row is not full: it stands in the middle
    assert grid[4 + GAP, half, 0] == 40
    assert grid[4 + GAP, half + 6 + GAP, 0] == 50
    assert grid[4 + GAP, 0, 0] == 21  # the background


def test_three_seeds_stand_side_by_side_without_a_dark_quarter():
    images = [np.full((4, 6, 3), 100, np.uint8) for _ in range(3)]
    assert grid_of(images).shape == (4, 3 * 6 + 2 * GAP, 3)


def test_the_strips_scale_is_fixed_by_an_episode_played_before():
    strip, image = Strip(), np.zeros((10, 400, 3), np.uint8)
    for reward, value in ((0.0, 5.0), (1.0, 6.0), (10.0, 7.0)):
        strip.add(reward, value)
    strip.set_scales(gamma=0.5)
    strip.clear()
    assert strip.spans["reward"] == (0.0, 10.0)
    assert discounted([0.0, 1.0, 10.0], 0.5) == [3.0, 6.0, 10.0]
    assert strip.spans["Q"] == (3.0, 10.0)
    for reward, value in ((0.0, 5.0), (1.0, 6.0)):
        strip.add(reward, value)
    panel = strip.under(image)[10:]
    rows = np.flatnonzero((panel == (255, 159, 67)).all(-1).any(1))
    assert rows.min() > STRIP / 2, "1 of 10 stays near the bottom, whatever the window shows"
    assert (panel == (163, 170, 180)).all(-1)[22:].any(), "the observed return is drawn beside Q"


def test_the_learning_curve_stands_beside_the_picture():
    image = np.zeros((200, 320, 3), np.uint8)
    beside = with_curve(image, [0.0, 100.0, 200.0], [-50.0, 10.0, 20.0], 200.0)
    assert beside.shape == (200, 320 + 240, 3)
    marked = np.argwhere((beside == (255, 159, 67)).all(-1))
    assert marked[:, 1].mean() > 500, "the mark is at the end of the curve"


def test_pictures_are_made_narrow_with_even_sides():
    assert narrowed(np.zeros((101, 200, 3), np.uint8), 99).shape == (50, 100, 3)
    assert narrowed(np.zeros((48, 64, 3), np.uint8), 320).shape == (48, 64, 3)


def test_a_film_of_several_seeds_runs_until_all_are_done(drawn, tmp_path):
    players = [Player(linear_policy(seed), None, f"seed {seed}") for seed in range(3)]
    film = record(players, {"env": drawn}, tmp_path / "g.mp4")
    assert film.frames == 5
    assert len(film.returns) == 3
    height = 48 + LABEL + STRIP
    images = frames_in(film.path, 3 * 64 + 2 * GAP, height)
    assert len(images) == 5


def test_wide_pictures_are_made_smaller_for_a_grid(tmp_path):
    class Wide(Drawn):
        def render(self):
            return np.zeros((300, 640, 3), np.uint8)

    gym.register("Wide-v0", entry_point=Wide, kwargs={"lengths": (2,)})
    try:
        film = record(ONE * 2, {"env": "Wide-v0"}, tmp_path / "g.mp4")
    finally:
        del gym.registry["Wide-v0"]
    assert len(frames_in(film.path, 2 * 320 + GAP, 2 * round((300 + LABEL + STRIP) / 4))) == film.frames


def test_who_is_done_early_is_darkened(tmp_path):
    class Unequal(Drawn):
        def reset(self, **options):
            observation, info = super().reset(**options)
            self.lengths = (12 if getattr(self, "late", False) else 4,)
            return observation, info

    made = []

    def make(**options):
        made.append(Unequal(**options))
        made[-1].late = len(made) == 2
        return made[-1]

    gym.register("Unequal-v0", entry_point=make)
    try:
        film = record(ONE * 2, {"env": "Unequal-v0"}, tmp_path / "g.mp4")
    finally:
        del gym.registry["Unequal-v0"]
    assert film.frames == 6
    last = frames_in(film.path, 2 * 64 + GAP, 48 + LABEL + STRIP)[-1]
    assert last[LABEL : LABEL + 48, :64].mean() == pytest.approx(0.45 * 40, abs=6)
    assert last[LABEL : LABEL + 48, 64 + GAP :].mean() == pytest.approx(200, abs=6)


def test_learning_is_shown_in_equal_parts(drawn, tmp_path):
    players = [Player(linear_policy(seed), None, f"{seed} env steps") for seed in range(4)]
    film = record_learning(players, {"env": drawn}, tmp_path / "l.mp4", seconds=2.0)
    assert film.frames == 60  # thirty a second
    assert len(film.returns) == 4


def test_a_gif_can_be_played_and_leaves_no_other_file(drawn, tmp_path):
    film = record(ONE, {"env": drawn}, tmp_path / "film.gif", plain=True)
    assert film.path.read_bytes()[:6] == b"GIF89a"
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]
    assert len(frames_in(film.path, 64, 48)) >= 2


def test_rail_has_pictures():
    environment = gym.make("Rail-v0", render_mode="rgb_array")
    environment.reset(seed=0, options={"state": (-1.0, 0.0)})
    left = environment.render()
    environment.reset(seed=0, options={"state": (1.0, 0.0)})
    right = environment.render()
    assert left.shape == right.shape == (160, 320, 3)
    np.testing.assert_array_equal(left[86:110, 64 + 10 : 120], right[86:110, ::-1][:, 64 + 10 : 120])
    cart = np.array((0, 114, 178))
    assert np.flatnonzero((left == cart).all(-1).any(0)).mean() == pytest.approx(160 - 65, abs=1)
    environment.close()
    bare = gym.make("Rail-v0")
    bare.reset(seed=0)
    assert bare.unwrapped.render() is None


@pytest.fixture(scope="module")
def rail_run(tmp_path_factory):
    """Two seeds on Rail, a few steps."""
    out = tmp_path_factory.mktemp("films") / "rail"
    return td3.train("Rail-v0", steps=60, seeds=2, eval_every=20, out=out, **SMALL)


def test_a_run_is_filmed_with_its_own_critic(rail_run, tmp_path):
    score = saved_critic(rail_run.folder(1) / "last")
    assert score is not None
    tensors = load_file(rail_run.folder(1) / "last" / "agent.safetensors")
    flow = np.array([0.5, -0.2, 0.1], np.float32)
    for depth in range(3):
        flow = tensors[f"critic_1.{depth}.weight"] @ flow + tensors[f"critic_1.{depth}.bias"]
        flow = np.maximum(flow, 0) if depth < 2 else flow
    assert score(np.array([0.5, -0.2]), np.array([0.1])) == pytest.approx(float(flow[0]), rel=1e-5)
    film = record_run(rail_run.path, tmp_path / "film.mp4", max_steps=5)
    assert film.frames == 5
    step = rail_run.agent(rail_run.best_seed(), "best").facts["env_steps"]
    untrained = "" if step else " (untrained)"
    assert film.shown == f"best agent of seed {rail_run.best_seed()}, env step {step}{untrained}"
    assert record_run(rail_run.path, tmp_path / "plain.mp4", max_steps=5, plain=True).frames == 5
    assert frames_in(tmp_path / "plain.mp4", 320, 160)[0].shape == (160, 320, 3)


def test_an_agent_that_was_best_before_training_is_called_untrained(rail_run, tmp_path, monkeypatch):
    agent = rail_run.agent(0, "best")
    monkeypatch.setattr("td3.report.video.Run.agent", lambda *_: agent._replace(facts=agent.facts | {"env_steps": 0}))
    film = record_run(rail_run.path, tmp_path / "first.mp4", seed=0, max_steps=2)
    assert film.shown == "best agent of seed 0, env step 0 (untrained)"


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "leaky_relu"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_q_value_of_a_video_is_that_of_the_critic_in_torch(tmp_path, activation, layer_norm):
    options = {"activation": activation, "critic_layer_norm": layer_norm}
    agent = Agent.create(
        Task(3, LOW, HIGH),
        TD3Config(hidden_sizes=(16, 9), actor_learning_rate=1e-3, critic_learning_rate=1e-3, **options),
        [0, 1],
    )
    save_agent(tmp_path / "agent", agent, 1, TaskSpaces(3, LOW, HIGH, (3,), (2,)), {})
    q_value, generator = saved_critic(tmp_path / "agent"), torch.Generator().manual_seed(0)
    states, actions = (torch.randn(2, 20, size, generator=generator) for size in (3, 2))
    expected = agent.critics(states, actions)[0, 1].detach().numpy()
    found = [q_value(*row) for row in zip(states[1].numpy(), actions[1].numpy(), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_layer_norm_has_one_epsilon():
    assert policy.NORM_EPSILON == NORM_EPSILON


def test_a_runs_learning_is_filmed_from_its_snapshots(rail_run, tmp_path):
    snapshots = rail_run.folder(0) / "snapshots"
    assert saved_critic(snapshots / "000000020") is None
    weights = [load_file(folder / "agent.safetensors")["actor.0.weight"] for folder in sorted(snapshots.iterdir())]
    assert [np.array_equal(weights[0], other) for other in weights] == [True, True, False, False]  # 20 random steps
    film = record_run(rail_run.path, tmp_path / "film.mp4", learning=True)
    assert film.frames == 200  # ten seconds at Rail's twenty steps a second
    assert len(film.returns) == 4  # 0, 20, 40 and 60 env steps


def test_all_seeds_of_a_run_are_filmed_at_once(rail_run):
    film = record_run(rail_run.path, grid=True, max_steps=3)
    assert film.path == rail_run.path / "grid.mp4"
    assert len(film.returns) == 2
    film.path.unlink()


@pytest.mark.parametrize("other", [{"learning": True}, {"seed": 1}])
def test_a_grid_of_learning_or_of_one_seed_is_refused(rail_run, other):
    with pytest.raises(ConfigError, match="give one of the two"):
        record_run(rail_run.path, grid=True, **other)


def test_a_grid_shows_several_episodes_and_may_be_plain(rail_run, tmp_path):
    film = record_run(rail_run.path, tmp_path / "film.mp4", grid=True, episodes=2, plain=True, max_steps=3)
    assert (film.frames, len(film.returns)) == (6, 4)
    assert frames_in(film.path, 2 * 320 + GAP, 160)[0].shape == (160, 2 * 320 + GAP, 3)


def test_a_run_without_snapshots_gets_a_sentence(rail_run, tmp_path):
    shutil.copytree(rail_run.path, tmp_path / "old")
    shutil.rmtree(tmp_path / "old" / "seed_0" / "snapshots")
    with pytest.raises(RunError, match="has no snapshots"):
        record_run(tmp_path / "old", learning=True, seed=0)
    with pytest.raises(RunError, match="has no seed 7"):
        record_run(tmp_path / "old", learning=True, seed=7)


def test_a_run_on_a_class_of_the_users_own_is_filmed(tmp_path):
    run = td3.train("report.test_video:Drawn", steps=30, eval_every=0, out=tmp_path / "run", **SMALL)
    film = record_run(run.path, max_steps=3, plain=True, trust=True)  # such an environment has no spec
    assert film.path == run.path / "video.mp4"
    assert film.frames == 2


@pytest.fixture(params=["at once", "at the end", "leaving half a file"])
def failing_ffmpeg(request, tmp_path, monkeypatch):
    """As on a full disk: ffmpeg ends early, or has read everything and could not write its end."""
    script = tmp_path / "tools" / "ffmpeg"
    script.parent.mkdir()
    commands = {
        "at once": "exit 1",
        "at the end": "cat > /dev/null; exit 1",
        "leaving half a file": 'cat > /dev/null; for out; do :; done; [ "$out" = - ] || printf "half" > "$out"; exit 1',
    }
    script.write_text(f"#!/bin/sh\n{commands[request.param]}\n")
    script.chmod(0o755)
    for module in (imageio_ffmpeg, imageio_ffmpeg._io):
        monkeypatch.setattr(module, "get_ffmpeg_exe", lambda: str(script))
    monkeypatch.setattr(imageio_ffmpeg._io, "get_first_available_h264_encoder", lambda: "libx264")


# imageio_ffmpeg leaves its pipe open when ffmpeg is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_that_does_not_fit_on_the_disk_leaves_the_earlier_one_and_a_sentence(
    drawn, failing_ffmpeg, tmp_path, name, capfd
):
    films = tmp_path / "films"
    films.mkdir()
    (films / name).write_bytes(b"the earlier film")
    with pytest.raises(
        RunError, match=rf"the video .*{name} could not be written \(ffmpeg failed, or its disk is full"
    ):
        record(ONE, {"env": drawn}, films / name, episodes=50)
    assert [path.name for path in films.iterdir()] == [name]
    assert (films / name).read_bytes() == b"the earlier film"
    assert capfd.readouterr().err == ""


def test_a_gif_that_does_not_fit_beside_its_film_gets_a_sentence(failing_ffmpeg, tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"a film")
    with pytest.raises(RunError, match=r"the video .*film.gif could not be written"):
        to_gif(tmp_path / "film.mp4", tmp_path / "film.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4", "tools"]


def test_a_film_replaces_a_link_and_does_not_follow_it(drawn, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"not ours")
    for name in ("film.mp4", ".film.mp4.part.mp4"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    record(ONE, {"env": drawn}, tmp_path / "film.mp4", max_steps=3)
    assert (tmp_path / "elsewhere").read_bytes() == b"not ours"
    assert not (tmp_path / "film.mp4").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "film.mp4"]
