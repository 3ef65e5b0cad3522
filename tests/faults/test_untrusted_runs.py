"""Runs made to do harm: links, pipes and folders under every name that a run can have, against every command.

After each command what lies outside the run is as it was, and the command has said one sentence or done its job.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import td3
from td3.cli import export, play, reports, train
from td3.config import resolve
from td3.config_file import read_config
from td3.errors import ConfigError, RunError, UserError
from td3.files import USED_IN_A_RUN, check_run_folder, open_plain, remove_folder, write_atomically
from td3.run.checkpoints import Checkpoints
from td3.run.directory import new_directory
from td3.run.lock import locked
from td3.run.tables import MemberWriter
from td3_lessons.commands import ExplainCommand, explain_command

COMMANDS: dict[str, Callable[[Path], object]] = {
    "report": lambda run: reports.report_command(reports.ReportCommand((run,))),
    "report of two": lambda run: reports.report_command(reports.ReportCommand((run, run), out=run / "report.html")),
    "doctor": lambda run: reports.doctor_command(reports.DoctorCommand(run)),
    "evaluate": lambda run: play.evaluate_command(play.EvaluateCommand(run, episodes=1)),
    "watch": lambda run: play.watch_command(play.WatchCommand(run)),
    "watch as GIF": lambda run: play.watch_command(play.WatchCommand(run, gif=True)),
    "watch --learning": lambda run: play.watch_command(play.WatchCommand(run, learning=True)),
    "resume": lambda run: train.resume_command(train.ResumeCommand(run, steps=90)),
    "export": lambda run: export.export_command(export.ExportCommand(run)),
    "export --sb3": lambda run: export.export_command(export.ExportCommand(run, sb3=True)),
    "explain --run": lambda run: explain_command(ExplainCommand(run / "page.html", run, open=False)),
    "td3.load": lambda run: td3.load(run),
}
TEMPORARY = (
    *(".writable", ".report.html.part", ".config.json.part", ".status.json.part", ".versions.json.part"),
    *("video.mp4", ".video.mp4", "video.gif", ".video.gif", "grid.mp4", "learning.mp4", ".learning.mp4"),
    *("export", "tensorboard", "wandb.json", "seed_0/.evaluations.npz", "seed_0/best/.agent.json.part"),
    *("seed_0/snapshots/000000099", "seed_0/best/.agent.safetensors.part", "checkpoints/.part"),
    *("checkpoints/000000000001", "checkpoints/.manifest.json.part", "checkpoints/replay_buffer/.000.safetensors.part"),
)
"""What a finished run does not have, and a command may write, remove or look into."""
FOLDERS = ("export", "tensorboard", ".part", "000000099", "000000000001")


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("untrusted") / "run"
    shutil.copytree(trained.path, folder)
    return folder


@pytest.fixture(scope="module")
def names(run) -> list[str]:
    there = [str(path.relative_to(run)) for path in sorted(run.rglob("*"))]
    return [*there, *(name for name in TEMPORARY if name not in there)]


@pytest.fixture
def outside(tmp_path) -> Path:
    """What must stay as it is: files, and a folder that looks like one of a run."""
    folder = tmp_path / "outside"
    (folder / "docs" / "seed_0").mkdir(parents=True)
    for name in ("letter.txt", "docs/thesis.txt", "docs/manifest.json", "docs/seed_0/metrics.csv"):
        (folder / name).write_text("dear reader\n" * 300)
    return folder


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in [folder, *folder.rglob("*")]:
        found[str(path)] = (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


@contextlib.contextmanager
def in_place_of(path: Path, put: Callable[[Path], object], beside: Path) -> Iterator[None]:
    """Have something else under this name for a while."""
    was = path.exists()
    if was:
        path.rename(beside / "was")
    put(path)
    try:
        yield
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if was:
            (beside / "was").rename(path)


@contextlib.contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """Ends what waits for ever, such as for the other end of a pipe."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_out_of_a_run_is_refused_under_every_name_and_nothing_behind_it_changes(
    command, run, names, outside, tmp_path
):
    before = state_of(outside)
    for name in names:
        folder = (run / name).is_dir() or name.endswith(FOLDERS)
        targets = [outside / "docs" if folder else outside / "letter.txt"]
        if name.startswith(".") or "/." in name:
            targets.append(outside / "nothing yet")
        for target in targets:
            with in_place_of(run / name, lambda path, target=target: path.symlink_to(target), tmp_path):
                with pytest.raises(UserError) as said:
                    COMMANDS[command](run)
                assert (run / name).is_symlink()
            assert f"{run / name} is a link that leads out of its run: remove it" in str(said.value)
            assert str(said.value).count("\n") == 0
            assert state_of(outside) == before, (name, target)


def test_a_new_run_does_not_go_into_a_folder_with_links_out(run, names, outside, tmp_path):
    before = state_of(outside)
    with in_place_of(run / "config.json", lambda path: None, tmp_path):
        for name in names:
            if name != "config.json":
                target = outside / "docs" if (run / name).is_dir() else outside / "letter.txt"
                (tmp_path / "second").mkdir(exist_ok=True)
                with (
                    in_place_of(run / name, lambda path, target=target: path.symlink_to(target), tmp_path / "second"),
                    pytest.raises(RunError, match="is a link that leads out of its run"),
                ):
                    new_directory(run)
    assert state_of(outside) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_refused_under_every_name_without_waiting_for_it(command, run, names, tmp_path):
    for name in names:
        with in_place_of(run / name, os.mkfifo, tmp_path):
            with pytest.raises(UserError) as said, no_longer_than(20):
                COMMANDS[command](run)
            assert f"{run / name} is neither a file nor a folder: remove it" in str(said.value)


READ = (
    *("config.json", "versions.json", "status.json", "times.csv", "report.html", ".lock", ".report.html.part"),
    *("seed_0/metrics.csv", "seed_0/evaluations.csv", "seed_0/evaluations.npz", "seed_0/diagnostics.csv"),
    *("seed_0/monitor.csv", "seed_0/infos.csv", "seed_0/best/agent.json", "seed_0/best/agent.safetensors"),
    "seed_0/last/agent.json",
    *("checkpoints/000000000060/manifest.json", "checkpoints/000000000060/state.safetensors"),
)


@pytest.mark.parametrize("command", ["report", "doctor", "evaluate", "td3.load", "resume"])
def test_a_folder_in_place_of_a_file_gives_a_sentence_or_is_not_needed(command, trained, tmp_path):
    refused = []
    for number, name in enumerate(READ):
        copy = tmp_path / f"run_{number}"
        shutil.copytree(trained.path, copy)
        with in_place_of(copy / name, Path.mkdir, tmp_path), no_longer_than(60):
            try:
                COMMANDS[command](copy)
            except UserError as error:
                refused.append(str(error))
    assert all("\n" not in said for said in refused)
    assert len(refused) >= (1 if command == "doctor" else 2)


def test_a_run_reached_through_a_link_is_read_and_resumed(trained, tmp_path, capsys):
    shutil.copytree(trained.path, tmp_path / "disk" / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "disk" / "run")
    for command in ("report", "doctor", "evaluate", "resume", "td3.load"):
        COMMANDS[command](tmp_path / "latest")
    assert td3.Run(tmp_path / "latest").config.steps == 90


def test_links_within_a_run_and_those_that_td3_does_not_use_are_left_alone(run, outside, tmp_path):
    before = state_of(outside)
    for name in ("notes", "wandb"):
        with in_place_of(run / name, lambda path: path.symlink_to(outside / "docs"), tmp_path):
            COMMANDS["report"](run)
    with in_place_of(run / "tensorboard" / "newest", lambda path: path.symlink_to("seed_0"), tmp_path):
        COMMANDS["report"](run)
    assert state_of(outside) == before


def test_everything_that_a_run_and_its_commands_write_is_checked(run, trained):
    assert [path.name for path in run.iterdir() if not path.name.lstrip(".").startswith(USED_IN_A_RUN)] == []


@pytest.mark.parametrize("name", ["checkpoints/.part", "checkpoints/000000000001"])
def test_a_link_in_place_of_a_folder_to_be_removed_goes_and_its_target_stays(name, trained, tmp_path):
    """Also where it leads to another part of the run, which is not refused."""
    shutil.copytree(trained.path, tmp_path / "run")
    kept = tmp_path / "run" / "kept"
    kept.mkdir()
    (kept / "manifest.json").write_text("mine")
    (tmp_path / "run" / name).symlink_to(kept)
    COMMANDS["resume"](tmp_path / "run")
    assert (kept / "manifest.json").read_text() == "mine"
    assert not (tmp_path / "run" / name).is_symlink()


def test_no_helper_writes_or_removes_through_a_link(outside, tmp_path):
    """Each on its own, without the check of the whole run before it."""
    before = state_of(outside)
    for temporary in (".file.part", "file"):
        (tmp_path / temporary).symlink_to(outside / "letter.txt")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    (tmp_path / "folder").symlink_to(outside / "docs")
    remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").is_symlink()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "replay_buffer").symlink_to(outside / "docs")
    Checkpoints(tmp_path).start_new()
    (tmp_path / "checkpoints" / "replay_buffer").symlink_to(outside / "docs")
    Checkpoints(tmp_path)._remove_what_is_over()
    (tmp_path / "metrics.csv").symlink_to(outside / "letter.txt")
    for mode in ("w", "r+", "a+"):
        with pytest.raises(OSError, match="symbolic link"):
            open_plain(tmp_path / "metrics.csv", mode)
    with pytest.raises(OSError, match="symbolic link"):
        MemberWriter(tmp_path, "Rail-v0")
    (tmp_path / ".lock").symlink_to(outside / "nothing yet")
    with pytest.raises(RunError, match="cannot be written"), locked(tmp_path):
        pass
    assert state_of(outside) == before


def test_a_folder_that_is_no_run_is_not_searched(outside, tmp_path):
    """A wrong path, such as a home folder, is answered at once, whatever links it has."""
    (tmp_path / "link").symlink_to("/")
    check_run_folder(tmp_path)
    with pytest.raises(RunError, match="is not a run: it has no"):
        td3.Run(tmp_path)


@pytest.mark.parametrize("name", ["study.db", "trial_0000", "best.toml", "tuning.png"])
def test_a_study_with_links_out_is_refused(name, outside, tmp_path):
    pytest.importorskip("optuna", reason="comes with an extra")
    from td3.tune import tune

    before = state_of(outside)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / name).symlink_to(outside / "docs" if name == "trial_0000" else outside / "letter.txt")
    with pytest.raises(RunError, match="is a link that leads out of its study: remove it"):
        tune("Scripted-v0", tmp_path / "study", 1, ["gamma"], steps=50)
    assert state_of(outside) == before


def test_a_sweep_does_not_follow_links_out_of_its_folder(outside, tmp_path):
    from td3.sweep import SweepRun, run_sweep

    before = state_of(outside)
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "Scripted-v0").symlink_to(outside / "docs")
    config = resolve("Scripted-v0", out=tmp_path / "sweep" / "Scripted-v0" / "seed_0")
    with pytest.raises(RunError, match="is behind a link that leads out of its sweep"):
        run_sweep([SweepRun("Scripted-v0", "", config)], tmp_path / "sweep")
    assert state_of(outside) == before


def test_a_config_file_that_is_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="it is not a regular file"), no_longer_than(20):
        read_config(tmp_path / "config.json")
