"""`td3 ladder` on the command line."""

import json

import pytest

from td3.cli import main


def refused(capsys, *words: str) -> str:
    """The one sentence that a command is refused with."""
    assert main(words) == 2
    output, sentence = capsys.readouterr()
    assert output == ""
    assert sentence.startswith("td3: ")
    assert sentence.count("\n") == 1
    return sentence[5:-1]


def test_the_rungs_are_listed(capsys):
    assert main(["ladder"]) == 0
    output = capsys.readouterr().out
    for line in ("1  Q-learning in a table", "2  deep Q-learning (", "6  TD3, twin delayed DDPG ("):
        assert line in output
    assert "rung_4_actor_critic.py" in output
    assert "td3 ladder all" in output


def test_the_list_as_json(capsys):
    assert main(["ladder", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["1", "2", "3", "4", "5", "6"]
    assert listed["5"]["changed_lines"] > 0


def test_one_rung_is_run_drawn_and_described(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["ladder", "4", "--steps", "2", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Rung 4, actor-critic, on Rail-v0: 2 env steps in ")
    assert lines[3].startswith("Optimum:       -4.8")
    assert lines[-1] == "The plot is runs/ladder/rung_4_actor_critic.png"
    assert (tmp_path / "runs/ladder/rung_4_actor_critic.png").stat().st_size > 5_000


@pytest.mark.parametrize("words", [["--env", "FrozenLake-v1"], ["--env=FrozenLake-v1"], ["--env-id", "FrozenLake-v1"]])
def test_another_task_is_an_option(capsys, tmp_path, words):
    out = tmp_path / "deep" / "lake.svg"
    assert main(["ladder", *words, "1", "--steps", "50", "--out", str(out), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["env"], figures["rung"], figures["env_steps"][-1]) == ("FrozenLake-v1", 1, 50)
    assert "optimum" not in figures
    assert out.exists()


def test_all_rungs_are_run_and_written_as_one_page(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("td3_lessons.ladder.climb.available_threads", lambda: 1)  # each process takes seconds to start
    out, image = tmp_path / "page.html", tmp_path / "picture.png"
    words = ["--seeds", "1", "--steps", "2", "--out", str(out), "--plot", str(image), "--json"]
    assert main(["ladder", "all", *words]) == 0
    output, progress = capsys.readouterr()
    figures = json.loads(output)
    assert figures["seeds"] == [0]
    assert figures["page"] == str(out)
    assert progress.count("\n") == 12
    assert "12/12  rung " in progress
    assert "td3 ladder all --seeds 1 --steps 2" in out.read_text(encoding="utf-8")
    assert image.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["7"], "there is no rung '7': give 1 to 6, or all; `td3 ladder` lists them."),
        (["0"], "there is no rung '0': give 1 to 6, or all; `td3 ladder` lists them."),
        (["three"], "there is no rung 'three': give 1 to 6, or all; `td3 ladder` lists them."),
        (["3", "--steps", "0"], "steps must be a whole number of at least 1, but 0 was given."),
        (["3", "--seed", "-1"], "seed must be a whole number of at least 0, but -1 was given."),
        (["all", "--seeds", "0"], "seeds must be a whole number of at least 1, but 0 was given."),
        (["3", "--reward-noise", "-1"], "--reward-noise must be a number of at least 0, but -1.0 was given."),
        (["3", "--reward-noise", "nan"], "--reward-noise must be a number of at least 0, but nan was given."),
        (["all", "--env", "Pendulum-v1"], "`td3 ladder all` compares the rungs on Rail-v0 as it is"),
        (["3", "--out", "x.gif"], "this is written as .png or .svg, but x.gif was given: give another --out."),
        (["all", "--out", "x.png"], "this is written as .html, but x.png was given: give another --out."),
        (["3", "--out", "/proc/x.png"], "/proc/x.png cannot be written"),
        (["5", "--env", "CartPole-v1"], "cannot learn it: rung 2 can."),
        (["2", "--env", "CartPol-v1"], "there is no environment 'CartPol-v1': did you mean CartPole-v1"),
        (["2", "--env", "CartPole-v1", "--reward-noise", "1"], "reward_noise is made for Rail-v0"),
        (["2", "--episodes", "5"], "`td3 ladder` has no option --episodes"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_cannot_be_done_is_refused_in_one_sentence(capsys, words, sentence):
    assert sentence in refused(capsys, "ladder", *words)


def test_without_matplotlib_the_extra_is_named_before_anything_is_trained(capsys, monkeypatch):
    monkeypatch.setattr("td3_lessons.ladder.plots.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("td3_lessons.ladder.report.run_rung", lambda *_: pytest.fail("it trained"))
    sentence = refused(capsys, "ladder", "3")
    assert sentence == "drawing the ladder needs the extra 'plots': install it with  pip install 'td3[plots]'"


def test_the_help_has_an_example(capsys):
    assert main(["ladder", "--help"]) == 0
    assert "  td3 ladder 3\n" in capsys.readouterr().out
