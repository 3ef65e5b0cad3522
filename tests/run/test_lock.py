"""One process trains a run; the others are told which one it is."""

import fcntl
import os
import platform
import signal
import stat

import pytest

from td3.cli import main
from td3.errors import RunError
from td3.run.lock import locked


@pytest.fixture
def files_only(monkeypatch):
    """A file system, as over a network, that locks no folders."""
    real = fcntl.flock

    def flock(descriptor, how):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(9, "Bad file descriptor")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)


def assert_refused(folder):
    with pytest.raises(RunError) as refused, locked(folder):
        pass
    who = f"process {os.getpid()} on {platform.node()}"
    assert str(refused.value) == f"{folder} is being trained by {who}: wait for it, or stop it first."


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path):
    with locked(tmp_path):
        assert_refused(tmp_path)
    with locked(tmp_path):
        pass


def test_so_it_is_on_a_file_system_that_locks_no_folders(tmp_path, files_only):
    with locked(tmp_path) as folder:
        assert_refused(tmp_path)
        (tmp_path / ".lock").unlink()
        assert folder.missing() == tmp_path / ".lock"


def test_a_removed_file_lets_no_second_writer_in(tmp_path):
    with locked(tmp_path) as folder:
        (tmp_path / ".lock").unlink()
        with pytest.raises(RunError, match="is being trained by another process"), locked(tmp_path):
            pass
        assert folder.missing() is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe 3", b"12 \x1b[2J", b"who am I", b"7" * 9_999])
def test_whatever_the_file_holds_the_refusal_is_one_sentence(tmp_path, content):
    with locked(tmp_path):
        (tmp_path / ".lock").write_bytes(content)
        with pytest.raises(RunError) as refused, locked(tmp_path):
            pass
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("kind", ["folders", "files"])
def test_a_process_that_an_environment_forks_does_not_keep_the_lock(tmp_path, kind, request):
    if kind == "files":
        request.getfixturevalue("files_only")
    begun, told = os.pipe()
    with locked(tmp_path):
        if (helper := os.fork()) == 0:
            os.write(told, b"!")
            signal.pause()
            os._exit(0)
        os.read(begun, 1)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)


def test_a_folder_knows_whether_it_was_moved_and_where_to(tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run") as folder:
        assert folder.missing() is None
        (tmp_path / "run").rename(tmp_path / "moved")
        assert folder.missing() == tmp_path / "run"
        assert folder.moved_to() in (tmp_path / "moved", None)
        (tmp_path / "run").mkdir()
        assert folder.missing() == tmp_path / "run", "another folder has its name"
        with pytest.raises(FileNotFoundError):
            folder.require_in_place()
        for file in (tmp_path / "moved").iterdir():
            file.unlink()
        (tmp_path / "moved").rmdir()
        assert folder.moved_to() is None


@pytest.mark.parametrize("given", ["photos", ""])
def test_a_resume_of_what_is_no_run_writes_nothing(tmp_path, monkeypatch, capsys, given):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["resume", given]) == 2
    assert "is not a run: it has no config.json" in capsys.readouterr().err
    assert [*tmp_path.rglob("*")] == [tmp_path / "photos"]
