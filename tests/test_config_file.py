import json

import pytest

from td3.cli import main, parse
from td3.config import TrainConfig, preset_config, resolve
from td3.config_file import read_config
from td3.errors import ConfigError


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'env = "Hopper-v5"\npreset = "paper"\nsteps = 2000\n\n[td3]\ngamma = 0.9\nhidden_sizes = [32, 16]\n'
    )
    return path


def test_a_file_goes_over_its_preset(toml):
    expected = resolve("Hopper-v5", "paper", steps=2000, gamma=0.9, hidden_sizes=(32, 16))
    assert read_config(toml) == expected
    assert expected.td3.batch_size == preset_config("paper", "Hopper-v5", 2000).batch_size == 100


def test_words_go_over_the_file(toml):
    parsed = parse(["train", "Ant-v5", "--config", str(toml), "--td3.gamma", "0.8", "--steps", "300", "--seed", "3"])
    assert (parsed.env, parsed.steps, parsed.seed) == ("Ant-v5", 300, 3)
    assert (parsed.td3.gamma, parsed.td3.hidden_sizes) == (0.8, (32, 16))
    assert (parsed.td3.learning_starts, parsed.td3.buffer_size) == (30, 300)  # the paper's for 300 steps
    assert parse(["train", "--preset", "author", f"--config={toml}"]).td3.batch_size == 256


def test_the_environment_may_come_from_the_file_alone(toml):
    assert parse(["train", "--config", str(toml)]).env == "Hopper-v5"
    of_file = parse(["train", "--config", str(toml), "--variant", "no-twin", "layer-norm"])
    assert (of_file.env, of_file.variant) == ("Hopper-v5", ("no-twin", "layer-norm"))


def test_a_runs_own_config_trains_it_again_elsewhere(trained):
    found = read_config(trained.path / "config.json")
    assert found.out is None
    assert found.to_json() == trained.config.to_json() | {"out": None}


def test_a_variant_that_is_typed_has_its_own_settings_whatever_the_file_has(tmp_path):
    def read(variant, *typed, **changed):
        config = resolve("Hopper-v5", variant=variant, **changed).to_json()
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = parse(["train", "--config", str(tmp_path / "config.json"), "--variant", *typed])
        return found.variant, found.td3.n_step, found.td3.policy_delay, found.td3.gamma

    assert read((), "n-step", gamma=0.9) == (("n-step",), 3, 2, 0.9)
    assert read(("n-step",), "no-delay") == (("no-delay",), 1, 1, 0.99)
    assert read(("n-step",), "n-step", "no-delay", n_step=5) == (("n-step", "no-delay"), 5, 1, 0.99)
    assert read(("n-step", "no-delay")) == ((), 1, 2, 0.99)


@pytest.mark.parametrize("option", [["--td3.hidden-sizes", "64", "64"], ["--env-kwargs", "a=1"]])
def test_a_file_is_not_ignored_where_an_option_takes_env_for_its_last_value(tmp_path, option):
    file = tmp_path / "settings.toml"
    file.write_text('env = "Hopper-v5"\nsteps = 7000\nseeds = 3')
    with pytest.raises(ConfigError):
        parse(["train", "--config", str(file), *option, "Pendulum-v1"])
    found = parse(["train", "Pendulum-v1", "--config", str(file), *option])
    assert (found.env, found.steps, found.seeds) == ("Pendulum-v1", 7_000, 3)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.toml", None, "cannot be read: No such file or directory"),
        ("broken.toml", "env = ", "is not TOML"),
        ("broken.json", "{", r"is not JSON \(a file of TOML must end in \.toml\)"),
        ("list.json", "[1]", "must hold settings by name"),
        ("flat.json", '{"td3": 3}', "must hold settings by name"),
        ("nameless.toml", "steps = 3", "names no env: give it before the option"),
        ("unknown.toml", 'env = "Ant-v5"\ngama = 0.9', r"in .*unknown\.toml: there is no setting 'gama': did you mean"),
        ("wrong.toml", 'env = "Ant-v5"\n[td3]\ngamma = 2', "gamma must be within"),
        ("type.json", json.dumps({"env": "Ant-v5", "td3": {"hidden_sizes": "wide"}}), "hidden_sizes must be"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_sentence(tmp_path, capsys, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_config(tmp_path / name)
    assert main(["train", "--config", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith("td3: ")


def test_every_setting_of_a_run_can_stand_in_a_file(tmp_path):
    (tmp_path / "all.json").write_text(json.dumps(resolve("Ant-v5", seeds=3, tau=0.1).to_json()))
    assert read_config(tmp_path / "all.json") == TrainConfig("Ant-v5", seeds=3, td3=resolve("Ant-v5", tau=0.1).td3)
