"""Everything a user does with a run, done with one that learned from images."""

import json
import resource
import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import td3
from td3.cli import main
from td3.config import TrainConfig, resolve
from td3.environments import make_environment
from td3.errors import AgentFileError, ConfigError, UserError
from td3.pixels.layout import Layout, layout_of

SMALL = {"hidden_sizes": (8, 8), "batch_size": 4, "eval_episodes": 1, "threads": 1, "device": "cpu"}
PIXELS = {"pixels": True, "image_size": 40, "action_repeat": 20}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A small run of Rail from pixels; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "seen"
    return td3.train("Rail-v0", steps=40, learning_starts=20, out=out, **SMALL, **PIXELS)


def observation_of(run):
    environment = make_environment(**run.config.env_arguments)
    environment.reset(seed=1)
    observation = environment.step(environment.action_space.sample())[0]
    environment.close()
    return observation


def test_the_settings_say_how_it_sees():
    config = resolve("Rail-v0", pixels=True, action_repeat=2)
    assert config.env_arguments == {
        "env": "Rail-v0",
        "env_kwargs": {},
        "pixels": True,
        "frames": 3,
        "image_size": 84,
        "action_repeat": 2,
    }
    assert resolve("Rail-v0").env_arguments == {"env": "Rail-v0", "env_kwargs": {}}
    assert (config.td3.random_shift, config.td3.image_features) == (4, 50)
    for name, given in (
        ("frames", 0),
        ("image_size", 300),
        ("action_repeat", 0),
        ("random_shift", -1),
        ("pixels", 1),
    ):
        with pytest.raises(ConfigError, match=f"{name} must be"):
            resolve("Rail-v0", **{name: given})


def test_runs_from_before_pictures_are_still_read():
    values = resolve("Rail-v0").to_json()
    for name in ("pixels", "frames", "image_size", "action_repeat"):
        del values[name]
    for name in ("image_features", "random_shift"):
        del values["td3"][name]
    assert TrainConfig.from_json(values) == resolve("Rail-v0")


@pytest.mark.parametrize(
    ("shape", "frames", "layout"),
    [
        ((84, 84, 3), 1, Layout(1, 3, 84, 84, True)),
        ((3, 84, 84), 1, Layout(1, 3, 84, 84, False)),
        ((4, 60, 80), 4, Layout(4, 1, 60, 80, False)),
        ((2, 60, 80, 3), 2, Layout(2, 3, 60, 80, True)),
        ((2, 3, 60, 80), 2, Layout(2, 3, 60, 80, False)),
        ((7, 9), 1, None),
        ((84,), 1, None),
    ],
)
def test_layouts(shape, frames, layout):
    assert layout_of(shape, frames) == layout


def test_a_saved_agent_acts_on_pictures_without_pytorch(seen):
    agent = td3.load(seen.path)
    observation = observation_of(seen)
    action = agent.act(observation)
    assert action.shape == (1,)
    np.testing.assert_allclose(agent.act(np.stack([observation, observation // 2]))[0], action, atol=1e-6)
    assert not np.allclose(agent.act(255 - observation), action, atol=1e-7)
    with pytest.raises(UserError, match=r"observations of shape \(3, 40, 40\)"):
        agent.act(observation[0])
    acting = f"td3.load({str(seen.path)!r}).act(numpy.zeros((3, 40, 40)))"
    code = f"import sys, numpy, td3; {acting}; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"


def test_an_agent_whose_pictures_make_no_sense_is_refused(seen, tmp_path):
    facts = json.loads((seen.folder(0) / "last" / "agent.json").read_text())
    for change in ({"frames": 2}, {"strides": [4, 2]}, {"strides": [4, 2, 0]}, {"frames": 0}, {"strides": None}):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "agent.json").write_text(json.dumps(facts | change))
        (folder / "agent.safetensors").write_bytes((seen.folder(0) / "last" / "agent.safetensors").read_bytes())
        with pytest.raises(AgentFileError, match="does not hold a usable agent"):
            td3.load(folder)


@pytest.mark.parametrize("side", [300, 20_000, 200_000])
def test_an_agent_of_few_bytes_cannot_ask_for_pictures_of_many(seen, tmp_path, side):
    """With strides that make the encoder's shapes fit, an observation of zeros would take gigabytes."""
    shutil.copytree(seen.folder(0) / "last", tmp_path / "agent")
    facts = json.loads((tmp_path / "agent" / "agent.json").read_text())
    wide = {"observation_shape": [3, side, side], "strides": [(side - 8) // 8, 2, 1]}
    (tmp_path / "agent" / "agent.json").write_text(json.dumps(facts | wide))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AgentFileError, match=r"larger than any that train|other layers than td3 makes"):
        td3.load(tmp_path / "agent")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # in kB


def test_evaluate_report_and_doctor_read_it(seen, tmp_path, capsys):
    assert main(["evaluate", str(seen.path), "--episodes", "1", "--json"]) == 0
    assert np.isfinite(json.loads(capsys.readouterr().out)["mean_return"]["0"])
    assert main(["report", str(seen.path), "--out", str(tmp_path / "report.html")]) == 0
    assert main(["doctor", str(seen.path)]) in (0, 1)
    capsys.readouterr()


def test_watch_films_it(seen, tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg", reason="comes with an extra")
    film = tmp_path / "film.mp4"
    assert main(["watch", str(seen.path), "--out", str(film), "--max-steps", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] >= 1
    assert film.stat().st_size > 0


def test_export_writes_files_that_read_bytes(seen, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime", reason="comes with an extra")
    assert main(["export", str(seen.path), "--out", str(tmp_path / "export"), "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["difference"].values()) < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "export" / "actor.onnx")
    observation = observation_of(seen)
    (action,) = session.run(None, {"observation": observation[None]})
    np.testing.assert_allclose(action[0], td3.load(seen.path).act(observation), atol=1e-4)
    said = subprocess.run(
        [sys.executable, tmp_path / "export" / "infer.py"], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("[")
    assert td3.load(tmp_path / "export").act(observation).shape == (1,)


def test_what_cannot_be_done_with_pictures_is_refused_in_one_sentence(seen, capsys, tmp_path):
    pytest.importorskip("onnxruntime", reason="comes with an extra")
    assert main(["export", str(seen.path), "--out", str(tmp_path / "export"), "--sb3"]) == 2
    assert "its encoder cannot be written as sb3.zip: leave --sb3 out." in capsys.readouterr().err
    assert not (tmp_path / "export").exists()
    assert main(["explain", "--run", str(seen.path), "--no-open", "--out", str(tmp_path / "page.html")]) == 2
    assert "was trained from images, and the page draws states of a few numbers" in capsys.readouterr().err


def test_the_drop_in_for_stable_baselines_leaves_images_to_their_update():
    from td3_sb3 import TD3
    from td3_sb3.updates import why_not

    class Camera(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)
        action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    assert "a replay buffer of the class ReplayBuffer" in why_not(TD3("MlpPolicy", Camera(), buffer_size=10))


def test_the_command_line_trains_from_pixels(tmp_path, capsys):
    words = ["train", "--pixels", "Rail-v0", "--image-size", "20", "--action-repeat", "20", "--steps", "20"]
    options = ["--td3.learning-starts", "10", "--td3.batch-size", "4", "--eval-episodes", "1", "--threads", "1"]
    assert main([*words, *options, "--device", "cpu", "--out", str(tmp_path / "run"), "--json"]) == 0
    assert td3.Run(tmp_path / "run").config.pixels
    capsys.readouterr()
    assert main(["train", "CarryOn-v0", "--pixels"]) == 2
