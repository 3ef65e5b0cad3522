"""Help in groups, and suggestions for what was mistyped or is called so elsewhere."""

import re
import shlex
from dataclasses import fields

import pytest

from td3.cli.help import FIRST, help_text
from td3.cli.main import COMMANDS, main, parse
from td3.cli.parsing import option_names
from td3.cli.train import TrainCommand
from td3.config import resolve
from td3.errors import ConfigError
from td3.spellings import SPELLINGS


def said(capsys, *words: str) -> str:
    assert main(list(words)) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return output


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err.strip().removeprefix("td3: ")


def options_in(text: str) -> list[str]:
    return re.findall(r"^  (--[^ ]+)", text, re.MULTILINE)


def test_the_help_of_train_has_twenty_options_in_groups_and_three_examples(capsys):
    text = said(capsys, "train", "--help")
    groups = ["Run:", "Environment:", "Evaluation and saving:", "Speed:", "TD3 (td3.", "Variants:", "Examples:"]
    assert [text.index(group) for group in groups] == sorted(text.index(group) for group in groups)
    assert len(options_in(text)) == len(FIRST) == 20
    assert "Cluster:" not in text
    assert "These are 20 of 6" in text
    assert "`td3 train --help-all` lists them all." in text
    assert len(re.findall(r"^  td3 train ", text, re.MULTILINE)) == 3


def test_all_options_are_listed_once_by_help_all(capsys):
    text = said(capsys, "train", "--help-all")
    listed = options_in(text)
    assert sorted(listed) == sorted(o for o in option_names(TrainCommand) if "--no-" not in o and ".no-" not in o)
    assert "Cluster:\n  --ray-address TEXT" in text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_every_help_fits_the_terminal_in_plain_words(capsys, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = said(capsys, *command.split(), "--help-all")
    assert text.startswith(f"Usage: td3 {command}")
    examples = text.partition("Example")[2]
    assert f"\n  td3 {command}" in examples
    assert max(map(len, text.removesuffix(examples).splitlines())) <= min(100, int(columns))
    assert not re.search(r"None|\(default: \)|MISSING|\{\}|\| ", text.removesuffix(examples))
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_sentence(command):
    kind, _ = COMMANDS[command]
    text = help_text(command, kind)
    assert not re.search(r"^  --[^ ]+( [A-Z{][^ ]*)?( \.\.\.)?$\n  --", text, re.MULTILINE)
    options = re.findall(r"^  --[a-z].*(?:\n {10,}\S.*)*", text, re.MULTILINE)
    assert options
    assert all(re.search(r"[A-Za-z]+,? [a-z]+", option) for option in options)


def test_the_examples_of_train_can_be_parsed(capsys):
    for example in re.findall(r"^  td3 (train .*)", said(capsys, "train", "--help"), re.MULTILINE):
        assert parse(shlex.split(example)).env


def test_help_is_a_command_too(capsys):
    assert said(capsys, "help") == said(capsys, "--help")
    assert said(capsys, "help", "evaluate") == said(capsys, "evaluate", "-h")


def test_aliases_are_shown(capsys):
    text = " ".join(said(capsys, "train", "--help").split())
    assert "Also -n, --total-timesteps, --n-timesteps, --max-timesteps." in text
    assert "Also --lr (actor and critics), --learning-rate (actor and critics)." in text


def test_a_name_of_another_library_is_a_setting_of_ours():
    ours = {f.name for f in fields(TrainCommand)} | {f.name for f in fields(type(resolve("Ant-v5").td3))}
    for name, own in SPELLINGS.items():
        assert {*own} <= ours, name
        assert name not in ours


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--lr 1e-3", {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}),
        ("--td3.lr=0.5", {"actor_learning_rate": 0.5, "critic_learning_rate": 0.5}),
        ("--learning-rate 0.1 --lr-not-there", None),
        ("--net-arch 64,64", {"hidden_sizes": (64, 64)}),
        ("--net_arch 64 32", {"hidden_sizes": (64, 32)}),
        ("--td3.hidden-sizes 64,32,16", {"hidden_sizes": (64, 32, 16)}),
        ("--critic-hidden-sizes 8,8", {"critic_hidden_sizes": (8, 8)}),
        ("--utd-ratio 2", {"utd_ratio": 2.0}),
        ("--buffer-size 1e4", {"buffer_size": 10_000}),
    ],
)
def test_settings_of_td3_have_short_and_other_names(words, found):
    command = ["train", "Ant-v5", *words.split()]
    if found is None:
        with pytest.raises(ConfigError, match="has no option --lr-not-there"):
            parse(command)
        return
    settings = parse(command).td3
    assert {name: getattr(settings, name) for name in found} == found


@pytest.mark.parametrize(("typed", "steps"), [("1e4", 10_000), ("2.5E3", 2_500), ("1_000", 1_000)])
def test_a_whole_number_may_have_an_exponent(typed, steps):
    assert parse(["train", "Ant-v5", "--steps", typed]).steps == steps


@pytest.mark.parametrize("typed", ["1.5e0", "1e400", "e", "1e", "nan", "ten"])
def test_other_numbers_are_refused(capsys, typed):
    sentence = f"--steps: {typed!r} is not a whole number (`td3 train --help` says more)"
    assert refused(capsys, "train", "Ant-v5", "--steps", typed) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--lrr 1", "`td3 train` has no option --lrr: did you mean --lr?"),
        ("--xyz 1", "`td3 train` has no option --xyz: `td3 train --help-all` lists them all."),
        ("--policy-kwargs 1", "`td3 train` has no option --policy-kwargs: `td3 train --help-all` lists them all."),
        ("--learning-rates 1", "`td3 train` has no option --learning-rates: did you mean --learning-rate?"),
        ("--step 1", "`td3 train` has no option --step: did you mean --steps?"),
        ("--batchsize 1", "`td3 train` has no option --batchsize: did you mean --td3.batch-size?"),
        ("--no-trak", "`td3 train` has no option --no-trak: did you mean --no-track?"),
        ("--hidden-sizes 64,x", "--td3.hidden-sizes: 'x' is not a whole number (`td3 train --help` says more)"),
        ("--lr --steps 5", "--td3.actor-learning-rate needs a value (`td3 train --help` says more)"),
    ],
)
def test_a_suggestion_is_similar_or_there_is_none(capsys, words, sentence):
    assert refused(capsys, "train", "Ant-v5", *words.split()) == sentence


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("lap", "prioritized"), ("PER", "prioritized"), ("her", "hindsight"), ("td3+bc", "behavior-cloning")],
)
def test_a_variant_may_be_called_as_in_its_paper(capsys, typed, meant):
    sentence = refused(capsys, "train", "Ant-v5", "--variant", typed)
    assert sentence.endswith(f"but {typed!r} was given: did you mean {meant}?")


def test_a_mistyped_run_is_told_which_there_are(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("2026-01-01_10-00-00", "2026-01-02_10-00-00"):
        (tmp_path / "runs/Ant-v5" / name).mkdir(parents=True)
        (tmp_path / "runs/Ant-v5" / name / "config.json").write_text("{}")
    (tmp_path / "runs/Ant-v5/latest").symlink_to("2026-01-02_10-00-00")
    meant = "is not a run: it has no config.json. Did you mean runs/Ant-v5/latest? Others are runs/Ant-v5/2026-01-0"
    for typed in ("runs/Ant-v5/lastest", "runs/Ant-v5", "Ant-v5"):
        assert refused(capsys, "evaluate", typed).startswith(f"{typed} {meant}")
    nothing = "runs/Hopper-v5/latest is not a run: it has no config.json. `td3 train` makes one."
    assert refused(capsys, "evaluate", "runs/Hopper-v5/latest") == nothing


def test_settings_from_python_have_the_same_other_names():
    config = resolve("Ant-v5", total_timesteps=5_000, lr=0.1, net_arch=[8, 8], n_envs=2, discount=0.5)
    assert (config.steps, config.envs, config.td3.gamma, config.td3.hidden_sizes) == (5_000, 2, 0.5, (8, 8))
    assert config.td3.actor_learning_rate == config.td3.critic_learning_rate == 0.1
    with pytest.raises(ConfigError, match=r"gamma is given twice, once as 'discount': leave one out\."):
        resolve("Ant-v5", discount=0.5, gamma=0.9)
    with pytest.raises(ConfigError, match="there is no setting 'lrr': the fields are"):
        resolve("Ant-v5", lrr=0.5)
