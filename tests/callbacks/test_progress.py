import io
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import td3
from td3.callbacks import progress
from td3.callbacks.callback import CallbackList
from td3.callbacks.notebook import NotebookOutput
from td3.callbacks.progress import ProgressDisplay, RetryingConsole, describe
from td3.config import resolve
from td3.evaluate import Evaluation

SMALL_RUN = {
    "learning_starts": 20,
    "hidden_sizes": (4, 4),
    "batch_size": 4,
    "eval_episodes": 1,
    "device": "cpu",
    "threads": 1,
}
LOSSES = {"critic_loss": 1.25, "actor_loss": -3.5, "mean_q": 2.0}
UNKNOWN = dict.fromkeys(LOSSES, float("nan"))


def evaluation(seeds: int = 1, updates: int = 1) -> Evaluation:
    returns = np.arange(10.0 * seeds).reshape(seeds, 10) * 1000
    agent: Any = SimpleNamespace(updates=np.full(seeds, updates))
    return Evaluation(returns, np.full((seeds, 10), 1000), agent=agent)


def trainer_of(config, path) -> Any:
    """As much of a trainer as a display looks at."""
    fields = {"config": config, "path": Path(path), "placement": "cpu", "env_steps": 0, "callbacks": CallbackList([])}
    engine = SimpleNamespace(description="Updates are executed eagerly.")
    return SimpleNamespace(**fields, engine=engine, agent=SimpleNamespace(updates=np.zeros(1, int)))


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is moved."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def trained_on(console: Console, clock, seeds: int = 1, path: str = "runs/x", **fields) -> ProgressDisplay:
    """A display that has seen a run of 3,000 steps: 100 a second, and ten times as many until learning starts."""
    display = ProgressDisplay(console)
    trainer = trainer_of(resolve("HalfCheetah-v5", steps=3_000, seeds=seeds, **fields), path)
    display.on_training_start(trainer)
    display.on_evaluation(trainer, evaluation(seeds))
    for trainer.env_steps in range(100, 3_001, 100):
        trainer.agent.updates[:] = max(0, trainer.env_steps - trainer.config.td3.learning_starts)
        learns = trainer.agent.updates.any()
        clock[0] += 1 if learns else 0.1
        if trainer.env_steps % 1_000 == 0:
            display.on_log(trainer, [LOSSES if learns else UNKNOWN] * seeds)
            evaluated = evaluation(seeds, trainer.agent.updates[0])
            display.on_evaluation(trainer, evaluated._replace(env_steps=trainer.env_steps))
        display.on_env_step(trainer)
    display.close()
    return display


def test_the_rate_of_several_seeds_is_that_of_each(clock):
    console = Console(file=io.StringIO(), width=80)
    trained_on(console, clock, seeds=3, learning_starts=1_000)
    assert shown(console).count("   100 steps/s per seed  ETA 0:10") == 1


def test_without_a_terminal_there_is_one_unbroken_line_per_event(clock):
    console = Console(file=io.StringIO(), width=80)
    trained_on(console, clock, learning_starts=1_000)
    described, losses = "return 4,500.0 +- 2,872.3 over 10 episodes", "loss critic 1.25 actor -3.5"
    assert shown(console).splitlines() == [
        "Training HalfCheetah-v5 for 3,000 env steps, seed 0, preset author, on cpu.",
        "Results: runs/x. Ctrl-C saves and stops.",
        f"        0 env steps: {described}",
        f"    1,000 env steps: {described} (nothing learned yet)   1,000 steps/s  warm-up",
        f"    2,000 env steps: {described}   100 steps/s  ETA 0:10  {losses}",
        f"    3,000 env steps: {described}   100 steps/s  {losses}",
    ]


def test_the_time_left_is_that_of_steps_with_updates(clock):
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None, legacy_windows=False)
    trained_on(console, clock, learning_starts=1_000)
    left = re.findall(r"ETA (\d:\d\d)", shown(console))
    assert left[0] == "0:18", "1,200 of 3,000 env steps are done, 100 of them in the last second"
    assert "1,000 steps/s  warm-up" in shown(console)


def test_how_updates_are_executed_is_said_to_those_who_ask(clock):
    for verbose in (False, True):
        console = Console(file=io.StringIO(), width=80)
        ProgressDisplay(console, verbose).on_loop_start(trainer_of(resolve("Ant-v5"), "x"))
        assert shown(console) == "Updates are executed eagerly.\n" * verbose


def test_a_warning_stands_on_one_line_of_its_own(clock):
    console = Console(file=io.StringIO(), width=40)
    trained_on(console, clock, learning_starts=25_000)
    assert shown(console).splitlines()[2] == (
        "Warning: No update will happen: the run has 3,000 env steps and the first 25,000 are random. "
        "Lower --td3.learning-starts or raise --steps."
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_in_a_terminal_a_bar_lives_on_one_line(clock, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    trained_on(console, clock, learning_starts=1_000)
    plain = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "\r", shown(console))
    bars = [line for line in re.split(r"[\r\n]+", plain) if "━" in line]
    assert len(bars) > 25
    assert all(len(bar) <= width and re.match(r"\d+|\d,\d{3} steps", bar) for bar in bars)
    assert all("steps/s" in bar and ("ETA" in bar or "warm-up" in bar) for bar in bars[14:-2])
    assert "3,000 steps" in bars[-1]
    assert "100%" in bars[-1]


def test_the_bar_tells_speed_time_left_last_evaluation_and_losses(clock):
    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None, legacy_windows=False)
    trained_on(console, clock, learning_starts=1_000)
    assert re.search(
        r"2,500 steps .* 83% +100 steps/s +ETA 0:05 +last evaluation 4,500.0 +loss critic 1.25", shown(console)
    )


def test_the_bar_moves_at_most_four_times_a_second(clock):
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None, legacy_windows=False)
    display = ProgressDisplay(console)
    trainer = trainer_of(resolve("Ant-v5", steps=1_000_000), "x")
    display.on_training_start(trainer)
    for trainer.env_steps in range(1, 1_001):
        clock[0] += 0.01
        display.on_env_step(trainer)
    display.close()
    assert 38 <= shown(console).count("━╸") + shown(console).count("steps/s") <= 90
    assert display.env_steps == 1_000


def test_brackets_and_colons_are_shown_as_they_are(clock):
    console = Console(file=io.StringIO(), width=80)
    display = trained_on(console, clock, path="runs/[bold]x:smile:", learning_starts=10)
    display.say(f"The run is in {display.path}")
    assert shown(console).splitlines()[-1] == "The run is in runs/[bold]x:smile:"


def test_the_last_evaluation_is_kept(clock):
    display = trained_on(Console(file=io.StringIO()), clock, seeds=2)
    assert display.last is not None
    assert display.last.env_steps == display.env_steps == 3_000


def test_one_seed_is_described_over_episodes_and_several_over_seeds():
    assert describe(evaluation()) == "4,500.0 +- 2,872.3 over 10 episodes"
    assert describe(evaluation(3)) == "14,500.0 +- 10,000.0 over 3 seeds"
    assert describe(Evaluation(np.array([[7.0]]), np.array([[3]]))) == "7.0 +- 0.0 over 1 episode"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0:00"), (65.0, "1:05"), (3_600.0, "1:00:00"), (36_061.0, "10:01:01")]
)
def test_time_left_is_written_as_on_a_clock(seconds, words):
    assert progress._clock(seconds) == words


def test_who_reads_the_output_may_leave_and_training_goes_on():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        display = ProgressDisplay(RetryingConsole(file=file))
        os.close(reader)
        for _ in range(3):
            display.say("a line that nobody reads")


def test_output_on_a_full_disk_ends_and_training_goes_on(capsys, clock):
    with Path("/dev/full").open("w") as full:
        display = trained_on(RetryingConsole(file=full, width=80), clock, learning_starts=1_000)
        display.say("more")
    assert capsys.readouterr().err == "td3: the output cannot be written (No space left on device); training goes on.\n"


def test_from_python_the_display_is_a_callback_that_prints_and_takes_its_bar_away(tmp_path, capsys):
    display = td3.ProgressDisplay()
    td3.train("Rail-v0", steps=40, out=tmp_path / "run", callbacks=[display], **SMALL_RUN)
    assert capsys.readouterr().out.count("Training Rail-v0 for 40 env steps") == 1
    assert display._bar is None


def test_from_python_progress_is_printed_unless_it_is_turned_off(tmp_path, capsys):
    run = td3.train("Rail-v0", steps=40, out=tmp_path / "run", **SMALL_RUN)
    said = capsys.readouterr().out
    assert f"Results: {run.path}. Ctrl-C saves and stops." in said
    assert "Warm-up: 20 random steps first; nothing is learned until then." in said
    assert "recorded" not in said, "no talk of engines"
    td3.resume(run.path, steps=50, progress=False)
    td3.train("Rail-v0", steps=40, out=tmp_path / "quiet", progress=False, **SMALL_RUN)
    assert capsys.readouterr().out == ""


def test_from_python_a_warning_is_given_once(tmp_path, capsys):
    with pytest.warns(UserWarning, match="exploration_noise is 0"):
        td3.train("Rail-v0", steps=40, exploration_noise=0.0, out=tmp_path / "run", **SMALL_RUN)
    assert "Warning:" not in capsys.readouterr().out


def test_a_notebook_has_one_output_that_is_updated_in_place(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    train = f"run = td3.train('Pendulum-v1', steps=40, out={str(tmp_path / 'run')!r}, **{SMALL_RUN})"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"import td3\n{train}")])
    NotebookClient(book, timeout=120).execute()
    (output,) = book.cells[0].outputs
    said = output["data"]["text/plain"].splitlines()
    assert said[0] == "Training Pendulum-v1 for 40 env steps, seed 0, preset author, on cpu."
    assert said[-1].startswith("       40 env steps: return")
    assert output["data"]["text/html"].startswith("<pre")
    assert "<progress" not in output["data"]["text/html"], "training has ended"


def test_a_notebook_shows_a_bar_while_it_trains(monkeypatch):
    shown_bundles = []
    handle = SimpleNamespace(update=lambda bundle, raw: shown_bundles.append(bundle))
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown_bundles.append(bundle) or handle)
    output = NotebookOutput()
    output.say("Training <b> & more")
    output.show(0.25, "10 steps  5 steps/s")
    assert "Training &lt;b&gt; &amp; more" in shown_bundles[-1]["text/html"]
    assert "<progress value=0.2500></progress> 10 steps  5 steps/s" in shown_bundles[-1]["text/html"]
    output.end()
    assert shown_bundles[-1]["text/plain"] == "Training <b> & more"
