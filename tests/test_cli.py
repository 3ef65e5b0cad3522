import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripted import FAULTY, SMALL_OPTIONS

import td3
from td3 import resources
from td3.cli import main, parse
from td3.cli.options import own_names
from td3.cli.train import train_defaults
from td3.environments import make

CHANGED_SENTENCES = {
    "DiscreteActions-v0": "has Discrete actions, and TD3 needs continuous ones",
    "DictActions-v0": "has Dict actions, and TD3 needs continuous ones",
    "InfiniteActions-v0": "and TD3 needs finite ones",
    "ZeroWidthActions-v0": "has an action dimension without width",
    "WrongShape-v0": "shape (3,), but its observation_space says (5,)",
    "NanAtReset-v0": "NaN or infinity",
}


def refused(capsys, *words: str) -> str:
    """The one sentence that a command is refused with."""
    assert main(words) == 2
    output, sentence = capsys.readouterr()
    assert output == ""
    assert sentence.startswith("td3: ")
    assert sentence.endswith("\n")
    assert sentence.count("\n") == 1, "more than one line"
    assert "Traceback" not in sentence
    return sentence[5:-1]


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(trained.path, tmp_path / "copy"))


def test_an_unknown_environment_is_told_the_nearest_names(capsys):
    assert "there is no environment 'HalfCheeta-v5': did you mean HalfCheetah-v5" in refused(
        capsys, "train", "HalfCheeta-v5"
    )


@pytest.mark.parametrize("env", CHANGED_SENTENCES)
def test_an_environment_that_cannot_be_trained_is_refused(capsys, tmp_path, env):
    assert env in FAULTY
    assert CHANGED_SENTENCES[env] in refused(capsys, "train", env, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_cart_pole_is_refused_in_a_process_of_its_own():
    command = [sys.executable, "-m", "td3", "train", "CartPole-v1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"td3: CartPole-v1 has Discrete actions, and TD3 needs continuous ones .*\n", done.stderr)


def test_the_installed_command_is_the_module():
    command = [str(Path(sys.executable).with_name("td3")), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"td3 {td3.__version__}\n", "")


@pytest.mark.parametrize("parent", ["/proc", "/etc/passwd"])
def test_a_directory_that_cannot_be_written_is_refused(capsys, parent):
    sentence = refused(capsys, "train", "Scripted-v0", "--out", f"{parent}/run")
    assert re.fullmatch(rf"{parent}/run cannot be written \([\w ]+\): give another --out\.", sentence)


def test_a_directory_that_holds_a_run_is_refused(capsys, trained):
    sentence = refused(capsys, "train", "Scripted-v0", "--out", str(trained.path))
    start = f"{trained.path} already holds a run: give another --out"
    assert sentence == f"{start}, or go on with it by  td3 resume {trained.path}"


def test_a_missing_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr(make, "_installed", lambda family: False)
    sentence = refused(capsys, "train", "Walker2DBulletEnv-v0")
    assert sentence == "Walker2DBulletEnv-v0 needs the extra 'pybullet': install it with  pip install 'td3[pybullet]'"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("command", ["evaluate", "watch"])
@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("agent.safetensors", truncate, "is damaged"),
        ("agent.safetensors", flip_a_bit, "is damaged"),
        ("agent.safetensors", Path.unlink, "has no readable agent.safetensors"),
        ("agent.json", truncate, "is not JSON"),
        ("agent.json", lambda path: path.write_text('{"algo": "sac"}'), "was not written by td3"),
        ("agent.json", Path.unlink, "is not an agent"),
    ],
    ids=["truncated", "bit flipped", "no weights", "half JSON", "another tool", "no JSON"],
)
def test_a_damaged_or_foreign_agent_is_refused(capsys, copied, command, name, damage, said):
    for path in copied.glob(f"seed_*/*/{name}"):
        damage(path)
    assert said in refused(capsys, command, str(copied))


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_what_is_no_run_is_refused(capsys, tmp_path, command):
    assert refused(capsys, command, str(tmp_path)).startswith(f"{tmp_path} is not a run: it has no config.json.")


def test_an_unknown_command_is_told_the_nearest(capsys):
    assert refused(capsys, "trian", "Pendulum-v1") == "there is no command 'trian': did you mean `td3 train`?"
    assert refused(capsys, "qqq").startswith(
        "there is no command 'qqq': the commands are train, resume, offline, evaluate, watch, envs"
    )


def test_an_unknown_preset_is_refused(capsys):
    sentence = refused(capsys, "train", "Pendulum-v1", "--preset", "fast")
    assert sentence == "there is no preset 'fast': choose one of author, paper, course, bullet, tuned."


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--td3.batchsize", "--td3.batch-size"),
        ("--td3.learning_start", "--td3.learning-starts"),
        ("--stepz", "--steps"),
        ("--td3.gama=0.9", "--td3.gamma"),
    ],
)
def test_an_unknown_option_is_told_the_nearest(capsys, typed, meant):
    sentence = refused(capsys, "train", "Pendulum-v1", typed, "5")
    assert sentence == f"`td3 train` has no option {typed.partition('=')[0]}: did you mean {meant}?"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "many"], "--steps: 'many' is not a whole number"),
        (["--steps"], "--steps needs a value"),
        (["--device", "tpu"], "--device must be one of auto, cpu, cuda, but 'tpu' was given"),
        (["--td3.hidden-sizes", "64", "x"], "--td3.hidden-sizes: "),
        (["--td3.tau", "small"], "--td3.tau: 'small' is not a number"),
        (["--save-every", "often"], "--save-every: "),
        (["--td3.tau", "2"], "--td3.tau must be within [0, 1], but 2.0 was given."),
        (["--td3.batch-size", "0"], "--td3.batch-size must be a whole number of at least 1, but 0 was given."),
        (["--td3.buffer-size", "100"], "batch_size (256) must not exceed buffer_size (100)"),
        (["--seeds", "0"], "--seeds must be a whole number from 1 to 10,000, but 0 was given."),
        (["--steps", "-5"], "--steps must be a whole number from 1 to 999,999,990,000, but -5 was given."),
        (["another"], "`td3 train` takes no argument 'another' here"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_value_that_cannot_be_used_is_refused(capsys, words, said):
    assert said in refused(capsys, "train", "Pendulum-v1", *words)


@pytest.mark.parametrize("command", ["train", "evaluate", "watch"])
def test_a_command_without_its_object_is_refused(capsys, command):
    assert "ENV" in (sentence := refused(capsys, command)) or "RUN" in sentence
    assert f"`td3 {command} --help` says more" in sentence


@pytest.mark.parametrize(
    "words", [["--steps", "many"], ["--device", "tpu"], ["--stepz", "5"], ["another"]], ids=" ".join
)
def test_a_refusal_is_one_plain_sentence_in_a_terminal_with_colors(capsys, monkeypatch, words):
    monkeypatch.setenv("FORCE_COLOR", "1")
    sentence = refused(capsys, "train", "Pendulum-v1", *words)
    assert sentence.isprintable()
    assert not {*"│╭╰─"} & {*sentence}


def test_an_unknown_option_is_named_even_if_it_takes_the_place_of_the_environment(capsys):
    assert refused(capsys, "train", "--stepz", "5") == "`td3 train` has no option --stepz: did you mean --steps?"


def test_settings_are_checked_with_the_defaults_of_the_chosen_preset(capsys):
    words = ["train", "Pendulum-v1", "--td3.buffer-size", "150"]
    assert parse([*words, "--preset", "paper"]).td3.batch_size == 100
    assert "batch_size (256) must not exceed buffer_size (150)" in refused(capsys, *words)


def test_without_the_structured_errors_of_tyro_its_own_message_is_printed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tyro._errors", None)  # a version that has none
    with pytest.raises(SystemExit) as ended:
        main(["train", "Pendulum-v1", "--stepz", "5"])
    assert ended.value.code == 2
    assert "--stepz" in capsys.readouterr().err


def test_a_shell_can_complete_commands_and_options(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["--tyro-write-completion", "bash", str(tmp_path / "td3")])
    assert not ended.value.code
    script = (tmp_path / "td3").read_text()
    assert all(word in script for word in ("train", "bench", "collectors", "--td3.learning-starts"))


def test_a_gpu_that_is_not_there_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    sentence = refused(capsys, "train", "Pendulum-v1", "--device", "cuda")
    assert sentence == "device cuda was asked for, but PyTorch finds no GPU here: use --device cpu or auto."


def test_a_memory_that_does_not_fit_is_refused(capsys, tmp_path):
    huge = ["--steps", "999999990000", "--td3.buffer-size", "1000000000000", "--device", "cpu"]
    sentence = refused(capsys, "train", "Pendulum-v1", *huge, "--out", str(tmp_path / "run"))
    asked = r"the replay buffer needs 36000\.0 GB for 1 x 999,999,990,000 transitions"
    assert re.match(
        rf"{asked}, and this machine has [\d.]+ GB free: lower --td3.buffer-size to at most [\d,]+", sentence
    )
    assert not (tmp_path / "run").exists()


def test_a_huge_memory_is_no_trouble_for_a_short_run(monkeypatch, tmp_path):
    monkeypatch.setattr(resources, "available_memory", lambda: 10_000_000)
    options = [*SMALL_OPTIONS, "--td3.buffer-size", "1000000000", "--steps", "25", "--out", str(tmp_path / "run")]
    assert main(["train", "Scripted-v0", *options]) == 0


@pytest.mark.parametrize("words", [["evaluate", "RUN", "--episodes", "0"], ["watch", "RUN", "--episodes", "-1"]])
def test_no_episodes_are_refused(capsys, trained, words):
    sentence = refused(capsys, *(str(trained.path) if word == "RUN" else word for word in words))
    assert sentence == f"--episodes must be a whole number of at least 1, but {words[-1]} was given."


def test_a_seed_that_was_not_trained_is_refused(capsys, trained):
    assert "has no seed 9: it trained seeds 0 to 1" in refused(capsys, "watch", str(trained.path), "--seed", "9")


def test_a_video_without_a_renderer_is_refused(capsys, trained, tmp_path):
    sentence = refused(capsys, "watch", str(trained.path), "--out", str(tmp_path / "film.mp4"))
    assert sentence.startswith("Scripted-v0 has no renderer that gives images")


def test_training_prints_what_it_did_and_what_to_type_next(capsys, tmp_path):
    out = tmp_path / "run"
    assert main(["train", "Scripted-v0", "--steps", "30", *SMALL_OPTIONS, "--out", str(out)]) == 0
    output, errors = capsys.readouterr()
    lines = output.splitlines()
    assert errors == ""
    assert lines[0] == "Training Scripted-v0 for 30 env steps, seed 0, preset author, on cpu."
    assert lines[-6].startswith("Before training: return ")
    assert lines[-5].startswith("After training:  return ")
    assert lines[-4] == f"The run is in    {out}"
    assert lines[-3] == f"The report is    {out / 'report.html'}"
    # No renderer, so nothing to watch; thirty env steps did not improve it, or are worth extending.
    assert lines[-2] == "Next:"
    assert lines[-1] in (f"  td3 doctor {out}", f"  td3 resume {out} --steps 120")


def test_train_as_json_is_one_object_on_stdout(capsys, tmp_path):
    out = str(tmp_path / "run")
    assert main(["train", "Scripted-v0", "--steps", "30", "--seeds", "2", "--json", *SMALL_OPTIONS, "--out", out]) == 0
    output, errors = capsys.readouterr()
    figures = json.loads(output)
    assert (figures["run"], figures["env_steps"], figures["interrupted"]) == (out, 30, False)
    assert len(figures["before"]) == len(figures["after"]) == 2
    assert "Training Scripted-v0" in errors


def evaluated(capsys, run, *words) -> dict:
    assert main(["evaluate", str(run.path), "--episodes", "12", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_evaluate_does_not_play_the_episodes_on_which_best_was_selected(capsys, trained, monkeypatch):
    drawn = []
    seeds_of = td3.evaluate.evaluation_seeds
    monkeypatch.setattr("td3.evaluate.evaluation_seeds", lambda *given: drawn.append(seeds_of(*given)) or drawn[-1])
    evaluated(capsys, trained, "--which", "best")
    selected_on = seeds_of(trained.seeds, trained.config.eval_episodes)
    assert len(drawn) == len(trained.seeds)
    assert {*np.ravel(drawn).tolist()}.isdisjoint(np.ravel(selected_on).tolist())


def test_evaluate_plays_held_out_episodes_and_can_repeat_them(capsys, trained):
    first, again, other = (evaluated(capsys, trained, *words) for words in ([], [], ["--episode-seed", "1"]))
    assert (first["env"], first["which"], first["episode_seed"], other["episode_seed"]) == ("Scripted-v0", "best", 0, 1)
    assert first == again
    for seed in trained.seeds:
        name = str(seed)
        assert first["mean_return"][name] == pytest.approx(np.mean(first["returns"][name]))
        assert first["returns"][name] != other["returns"][name]


def test_an_episode_seed_below_0_is_refused(capsys, trained):
    assert main(["evaluate", str(trained.path), "--episode-seed", "-1"]) == 2
    assert "--episode-seed must be a whole number of at least 0" in capsys.readouterr().err


def test_evaluate_in_words(capsys, trained):
    assert main(["evaluate", str(trained.path), "--episodes", "1"]) == 0
    first, second, both = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"seed 0, best agent, env step \d+: return [\d.]+ \+- 0.0 over 1 episode \(held-out, --episode-seed 0\)", first
    )
    assert second.startswith("seed 1, best agent, env step ")
    assert both.startswith("all 2 seeds: mean return ")


def test_the_environments_are_listed_with_their_extras(capsys, monkeypatch):
    monkeypatch.setattr(make, "_installed", lambda family: family.extra == "mujoco")
    assert main(["envs"]) == 0
    output = capsys.readouterr().out
    assert "MuJoCo (ready)\n  HalfCheetah-v5  " in output
    assert "Classic control (ready)" in output
    for extra in ("pybullet", "box2d", "dm-control", "robotics"):
        assert f"(missing: pip install 'td3[{extra}]')" in output
    assert "td3 train your_module:YourEnv-v0" in output


def test_the_environments_as_json(capsys):
    assert main(["envs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["MuJoCo"]["available"] is True
    assert "HalfCheetah-v5" in listed["MuJoCo"]["environments"]
    assert {family["extra"] for family in listed.values()} >= {"mujoco", "classic", "pybullet", "box2d"}


def test_the_overview_names_every_command_and_an_example(capsys):
    assert main(["--help"]) == 0
    output, errors = capsys.readouterr()
    assert all(f"td3 {command} " in output for command in ("train", "evaluate", "watch", "envs"))
    assert "Example: td3 train HalfCheetah-v5 --steps 50000" in output
    assert errors == ""


def test_nothing_typed_gets_the_overview_and_a_failure(capsys):
    assert main([]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert "td3 COMMAND --help says more" in errors


def configured(tmp_path: Path, *words: str) -> td3.TrainConfig:
    """The configuration of a run started with these words."""
    assert main(["train", *words, *SMALL_OPTIONS, "--out", str(tmp_path / "run")]) == 0
    return td3.Run(tmp_path / "run").config


@pytest.mark.parametrize(
    "words",
    [
        ["Scripted-v0", "--steps", "25"],
        ["--env", "Scripted-v0", "-n", "25"],
        ["--env-id=Scripted-v0", "--total-timesteps=25"],
        ["--n-timesteps", "25", "--env-id", "Scripted-v0"],
    ],
    ids=" ".join,
)
def test_spellings_from_elsewhere_mean_the_same(tmp_path, words):
    config = configured(tmp_path, *words)
    assert (config.env, config.steps) == ("Scripted-v0", 25)


def test_option_names_of_other_libraries_mean_the_same():
    words = ["--max_timesteps", "30", "--start_timesteps", "5", "--expl_noise", "0.2", "--policy_noise", "0.3"]
    words += [
        "--noise_clip",
        "0.4",
        "--policy_freq",
        "3",
        "--discount",
        "0.9",
        "--batch-size",
        "7",
        "--eval_freq",
        "10",
    ]
    config = parse(["train", "Scripted-v0", *words])
    assert (config.steps, config.eval_every) == (30, 10)
    td3 = config.td3
    assert (td3.learning_starts, td3.exploration_noise, td3.target_policy_noise) == (5, 0.2, 0.3)
    assert (td3.target_noise_clip, td3.policy_delay, td3.gamma, td3.batch_size) == (0.4, 3, 0.9, 7)


def test_environments_side_by_side_may_be_spelled_num_envs(tmp_path):
    assert configured(tmp_path, "Scripted-v0", "--steps", "24", "--num-envs", "2").envs == 2


def test_underscores_are_as_good_as_dashes(tmp_path):
    assert configured(tmp_path, "Scripted-v0", "--steps", "25", "--td3.policy_delay", "3").td3.policy_delay == 3


@pytest.mark.parametrize(
    "words",
    [
        ["Ant-v5", "--preset", "paper", "--steps", "0"],
        ["--preset", "paper", "--steps", "0", "Ant-v5"],
        ["--steps", "0", "--json", "Ant-v5", "--preset=paper"],
        ["--td3.hidden-sizes", "4", "4", "--seed", "1", "--preset", "paper", "--env", "Ant-v5"],
    ],
    ids=" ".join,
)
def test_the_paper_preset_sees_the_environment_wherever_it_stands(words):
    assert train_defaults(own_names(words)).td3.learning_starts == 10_000


def test_the_paper_preset_sees_the_steps(tmp_path):
    assert train_defaults(["Ant-v5", "--preset", "paper", "--steps", "1_234"]).td3.buffer_size == 1_234
    assert train_defaults(["Ant-v5", "--preset", "paper"]).td3.buffer_size == 1_000_000


def test_the_help_shows_the_numbers_of_the_preset(capsys):
    assert main(["train", "Ant-v5", "--preset", "bullet", "--help"]) == 0
    assert "(default: 0.98)" in capsys.readouterr().out


TASK = """
import gymnasium, numpy
from gymnasium.spaces import Box

class Task(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,)), Box(-1, 1, (1,))
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(2, numpy.float32), 1.0, False, False, {}

    def render(self):
        return numpy.zeros((32, 32, 3), numpy.uint8)

gymnasium.register("Task-v0", entry_point=Task, max_episode_steps=6)
"""


def test_a_task_of_ones_own_is_trained_evaluated_and_filmed(tmp_path):
    """From the directory where its module lies, with the installed command: train, film, evaluate."""
    (tmp_path / "my_task.py").write_text(TASK)
    command = str(Path(sys.executable).with_name("td3"))
    train = ["train", "my_task:Task-v0", "--steps", "25", *SMALL_OPTIONS, "--capture-video", "--json"]
    done = subprocess.run([command, *train], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["after"] == [6.0]
    assert (tmp_path / figures["video"]).stat().st_size > 500
    again = subprocess.run(
        [command, "watch", "runs/my_task_Task-v0/latest", "--trust", "--max-steps", "3", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert again.returncode == 0
    assert again.stderr.startswith("Warning: the best agent of seed 0 is untrained")  # all returns are equal
    assert json.loads(again.stdout)["frames"] == 3


def test_a_video_that_cannot_be_made_is_refused_before_the_training(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sentence = refused(capsys, "train", "Scripted-v0", "--capture-video", "--out", str(tmp_path / "run"))
    assert sentence.startswith("writing a video needs the extra 'video'")
    assert not (tmp_path / "run").exists()


def test_a_renderer_that_is_missing_is_refused_before_the_training(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pygame", None)
    options = ("--steps", "600", *SMALL_OPTIONS, "--capture-video", "--out", str(tmp_path / "run"))
    sentence = refused(capsys, "train", "Pendulum-v1", *options)
    assert sentence.startswith("Pendulum-v1 needs the extra 'classic': install it with  pip install")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--env-kwargs", '{"g": 1e999}'), "--env-kwargs must be plain, finite values by name"),
        (("--buffer-device", "gpu"), "--buffer-device gpu needs a GPU, and this run is on the CPU"),
        (("--steps", "9007199254740993"), "--steps must be a whole number from 1 to 999,999,990,000"),
        (("--steps", "1000000000000"), "--steps must be a whole number from 1 to 999,999,990,000"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(capsys, tmp_path, given, said):
    sentence = refused(capsys, "train", "Pendulum-v1", *SMALL_OPTIONS, *given, "--out", str(tmp_path / "run"))
    assert sentence.startswith(said)
    assert not (tmp_path / "run").exists()


def test_ctrl_c_ends_with_130_and_what_was_learned(capsys, monkeypatch, tmp_path):
    from td3.callbacks.progress import ProgressDisplay

    def interrupt(self, trainer):
        self.env_steps = trainer.env_steps
        if trainer.env_steps == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressDisplay, "on_env_step", interrupt)
    words = ["train", "Scripted-v0", "--steps", "1000", *SMALL_OPTIONS, "--out", str(tmp_path / "run")]
    assert main(words) == 130
    output, errors = capsys.readouterr()
    assert "Stopped at 30 env steps; the agents are saved." in output
    assert output.count("td3 resume") == 1
    assert ("Before training: return" in output, "At env step 0: return" in output) == (True, False)
    assert errors == ""
    assert td3.load(tmp_path / "run", which="last").facts["env_steps"] == 30


def test_a_reader_who_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m td3 envs --json | head -c 20"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(done.stdout) == 20
