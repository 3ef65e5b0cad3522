import pytest
from scripted import SMALL

import td3
from td3.cli import main
from td3.cli.parsing import parse_arguments
from td3.cli.search import SweepCommand, sweep_runs
from td3.errors import ConfigError
from td3.run.directory import write_facts
from td3.sweep import SweepRun, _require_same, train_on_machine

from .conftest import SMALL_SETTINGS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "td3.tao=1,2"], "--set cannot vary 'td3.tao': did you mean td3.tau?"),
        (["--set", "td3.tau"], "--set must be a setting and its values, as in td3.tau=0.005,0.01"),
        (["--set", "td3.tau=0.1,"], "--set must be a setting and its values"),
        (["--set", "td3.tau=0.1,0.1"], "has a value twice"),
        (["--set", "seed=1,2"], "--set cannot vary 'seed'"),
        (["--set", "td3.tau=2"], "tau must be within [0, 1], but 2.0 was given"),
        (["--set", "td3.tau=high"], "'high' is not a number"),
        (["--set", "pixels=yes"], "--set pixels takes true or false, but 'yes' was given"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--gpus", "-1"], "--gpus must be 0 or more, but -1.0 was given"),
        (["--ray-address", "nowhere"], "--ray-address must be HOST:PORT"),
    ],
)
def test_a_sweep_that_cannot_be_gets_one_sentence(words, sentence, tmp_path, capsys):
    assert main(["sweep", "Rail-v0", "--out", str(tmp_path / "sweep"), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_switches_and_combinations_of_variants_can_be_varied(tmp_path):
    words = ["--set", "normalize-observations=true,false", "--set", "td3.critic-layer-norm=false"]
    combined = ["--set", "variant=layer-norm n-step,prioritized"]
    command = parse_arguments(SweepCommand, "td3 sweep", ["Rail-v0", "--seeds", "1", *words, *combined], "sweep", [])
    runs = sweep_runs(command)
    assert [(run.config.normalize_observations, run.config.variant) for run in runs] == [
        (normalize, variant) for normalize in (True, False) for variant in (("layer-norm", "n-step"), ("prioritized",))
    ]


def test_a_folder_with_other_settings_is_not_mixed_in(tmp_path, capsys):
    td3.train("Rail-v0", steps=30, gamma=0.5, eval_every=0, out=tmp_path / "Rail-v0" / "seed_0", **SMALL)
    words = ["sweep", "Rail-v0", "--seeds", "1", "--out", str(tmp_path), *SMALL_SETTINGS]
    assert main([*words, "--steps", "30"]) == 2
    assert "holds a run with another td3.gamma than this sweep has" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["author", "paper"])
def test_longer_runs_of_a_preset_are_the_same_sweep(tmp_path, preset):
    def config(steps, **changed):
        return td3.config.resolve("Rail-v0", preset, steps=steps, out=tmp_path, **changed)

    write_facts(tmp_path / "config.json", config(200).to_json())
    _require_same(SweepRun("Rail-v0", "", config(300)))
    extended = config(300, learning_starts=20)  # what it began with
    write_facts(tmp_path / "config.json", extended.to_json())
    _require_same(SweepRun("Rail-v0", "", config(300)))
    with pytest.raises(ConfigError, match=r"another td3\.learning_starts than"):
        _require_same(SweepRun("Rail-v0", "", config(300, learning_starts=25)))
    with pytest.raises(ConfigError, match="another eval_every than"):
        _require_same(SweepRun("Rail-v0", "", config(300, learning_starts=20, eval_every=100)))


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path):
    config = td3.config.resolve("Rail-v0", steps=30, out=tmp_path / "Rail-v0" / "seed_0", **SMALL)
    assert "does not see" in train_on_machine(config, tmp_path, "a token that is not there", [])
    assert not (tmp_path / "Rail-v0").exists()
