"""A run stays in its folder: whatever an environment does to the current one, and whoever moves or removes it."""

import os
import shutil
from pathlib import Path

import gymnasium as gym
import pytest

import td3
from faults.fingerprint import fingerprint
from faults.test_resume import Stop, Stopping, config
from td3.environments.rail import Rail
from td3.errors import RunError
from td3.training import resume_run, train_run

FIELDS = {"steps": 400, "eval_every": 200}


class Moving(Rail):
    """Changes the current folder in one of its methods, as asset loaders and game engines do."""

    def __init__(self, where: str, folder: str, render_mode=None):
        super().__init__()
        self.where, self.folder, self.steps = where, folder, 0
        self.go("init")

    def go(self, method: str) -> None:
        if self.where == method:
            os.chdir(self.folder)

    def reset(self, **options):
        self.go("reset")
        return super().reset(**options)

    def step(self, action):
        self.steps += 1
        if self.steps == 250:
            self.go("step")
        return super().step(action)


@pytest.fixture
def moving():
    gym.register("Moving-v0", entry_point=Moving, max_episode_steps=50)
    yield
    del gym.registry["Moving-v0"]


@pytest.mark.parametrize("out", ["mine", None])
@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_environment_that_changes_the_current_folder_leaves_the_run_whole(tmp_path, monkeypatch, moving, where, out):
    for folder in ("work", "assets"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    given = {"env_kwargs": {"where": where, "folder": str(tmp_path / "assets")}, **FIELDS}
    with pytest.raises(Stop):
        train_run(config(out and Path(out), "Moving-v0", **given), [Stopping(330)])
    assert Path.cwd() == tmp_path / "assets"
    monkeypatch.chdir(tmp_path / "work")
    folder = tmp_path / "work" / (out or "runs/Moving-v0/latest")
    run = resume_run(folder.relative_to(tmp_path / "work"))
    assert run.path == folder.resolve()
    assert [*(tmp_path / "assets").iterdir()] == []
    train_run(config(tmp_path / "whole", "Moving-v0", **given))
    assert fingerprint(folder) == fingerprint(tmp_path / "whole")


def test_an_agent_to_start_from_is_found_wherever_the_environment_goes(tmp_path, monkeypatch, moving):
    monkeypatch.chdir(tmp_path)
    train_run(config(Path("first"), **FIELDS))
    (tmp_path / "assets").mkdir()
    kwargs = {"where": "init", "folder": str(tmp_path / "assets")}
    run = train_run(config(Path("second"), "Moving-v0", init_from="first", env_kwargs=kwargs, **FIELDS))
    assert run.config.init_from == str(tmp_path / "first")


def test_a_run_that_is_resumed_through_a_link_stays_what_it_was(tmp_path):
    """The link `latest` is another run's as soon as that begins."""
    for name in ("one", "other"):
        with pytest.raises(Stop):
            train_run(config(tmp_path / name, **FIELDS), [Stopping(150)])
    (tmp_path / "latest").symlink_to("one")
    before = content(tmp_path / "other")

    class Linking(Stopping):
        def on_env_step(self, trainer):
            if trainer.env_steps == 250:
                (tmp_path / "latest").unlink()
                (tmp_path / "latest").symlink_to("other")

    run = resume_run(tmp_path / "latest", callbacks=[Linking()])
    assert run.path == tmp_path / "one"
    assert content(tmp_path / "other") == before


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Away(Stopping):
    """Moves the run away at env step 150, and puts something in its place, or removes it."""

    def __init__(self, run: Path, instead: str) -> None:
        super().__init__()
        self.run, self.instead = run, instead

    def on_env_step(self, trainer) -> None:
        if trainer.env_steps == 150:
            if self.instead == "removed":
                shutil.rmtree(self.run)
                return
            self.run.rename(self.run.with_name("moved"))
            if self.instead == "a folder":
                self.run.mkdir()
            elif self.instead == "a file":
                self.run.write_text("mine")
            elif self.instead == "a run":
                shutil.copytree(self.run.with_name("another"), self.run)


@pytest.mark.parametrize("save_every", [100, 0])
@pytest.mark.parametrize("instead", ["nothing", "a folder", "a file", "a run"])
def test_a_run_that_was_moved_ends_with_the_command_that_continues_it(tmp_path, instead, save_every):
    out, moved = tmp_path / "run", tmp_path / "moved"
    another = train_run(config(tmp_path / "another", **FIELDS)).path if instead == "a run" else None
    with pytest.raises(RunError) as ended:
        train_run(config(out, save_every=save_every, **FIELDS), [Away(out, instead)])
    said = str(ended.value)
    assert said.startswith(f"{out} was moved or removed while the run trained. ")
    if instead == "nothing":
        assert not out.exists()
    elif instead == "a file":
        assert out.read_text() == "mine"
    else:
        left = {path.relative_to(out): text for path, text in content(out).items()}
        assert left == ({p.relative_to(another): text for p, text in content(another).items()} if another else {})
    if save_every == 0:
        assert said.endswith("There is no checkpoint yet.")
        return
    if Path("/proc/self/fd").exists():
        assert said.endswith(f"The checkpoint at env step 100 is whole: td3 resume {moved} goes on from there.")
    resume_run(moved)
    train_run(config(tmp_path / "whole", **FIELDS))
    assert fingerprint(moved) == fingerprint(tmp_path / "whole")


def test_a_run_that_was_removed_ends_in_one_sentence_and_stays_removed(tmp_path, capfd):
    out = tmp_path / "run"
    with pytest.raises(RunError) as ended:
        train_run(config(out, **FIELDS), [Away(out, "removed")])
    assert str(ended.value) == (
        f"{out} was moved or removed while the run trained. If it was moved: td3 resume FOLDER goes on from its "
        "checkpoints."
    )
    assert not out.exists()
    assert "Traceback" not in capfd.readouterr().err


def test_what_a_callback_writes_goes_into_no_other_folder(tmp_path):
    class Writing(td3.Callback):
        def on_env_step(self, trainer):
            if trainer.env_steps == 160:
                (trainer.path / "mine.txt").write_text("here")

    out = tmp_path / "run"
    with pytest.raises(RunError, match="was moved or removed while the run trained"):
        train_run(config(out, **FIELDS), [Away(out, "a folder"), Writing()])
    assert [*out.iterdir()] == []
