"""Callbacks get every event, may stop a run, keep their state over a resume, and end a run with their name."""

import errno
import inspect
import json
import os

import pytest
from scripted import SMALL

import td3
from td3.callbacks import Callback, CallbackList
from td3.config import resolve
from td3.errors import CallbackError
from td3.run.checkpoints import Checkpoints
from td3.run.directory import write_json
from td3.training import resume_run, train_run

FIELDS = {**SMALL, "steps": 120, "eval_every": 30, "save_every": 30, "device": "cpu"}


class StopAtReturn(td3.Callback):
    """Ends training at an evaluation."""

    def __init__(self, env_steps: int) -> None:
        self.env_steps = env_steps

    def on_evaluation(self, trainer, evaluation):
        assert evaluation.mean_return.shape == (trainer.config.seeds,)
        if evaluation.env_steps >= self.env_steps:
            trainer.stop("good enough")


class Counting(Callback):
    """Counts episodes and env steps, over interruptions."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.counted, self.interrupt_at, self.ended = {"episodes": 0, "rounds": 0}, interrupt_at, []

    def on_episode_end(self, trainer, episode):
        self.counted["episodes"] += 1

    def on_env_step(self, trainer):
        self.counted["rounds"] += 1
        if trainer.env_steps == self.interrupt_at:
            raise KeyboardInterrupt

    def on_training_end(self, trainer):
        self.ended.append(trainer.status)

    def state(self):
        return self.counted

    def load_state(self, state):
        self.counted = dict(state)


def failure_in(function) -> str:
    """The exception that a function of this file raises in its last line, and that line, as errors name them."""
    lines, first = inspect.getsourcelines(function)
    return f"ValueError: no such thing (test_callback.py, line {first + len(lines) - 1})"


class Failing(Callback):
    """Raises in one event."""

    def __init__(self, event: str) -> None:
        self.event = event

    def on_episode_end(self, trainer, episode):
        self._fail("on_episode_end")

    def on_log(self, trainer, rows):
        self._fail("on_log")

    def on_evaluation(self, trainer, evaluation):
        if evaluation.env_steps:
            self._fail("on_evaluation")

    def _fail(self, event):
        if event == self.event:
            raise ValueError("no such thing")


FAILURE = failure_in(Failing._fail)


def test_a_callback_stops_a_run_which_is_saved_evaluated_and_resumable(tmp_path):
    run = td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[StopAtReturn(60)], **FIELDS)
    status = json.loads((run.path / "status.json").read_text())
    assert (status["status"], status["reason"], status["env_steps"]) == ("stopped", "good enough", 60)
    assert run.evaluations(0)[0].tolist() == [0, 30, 60]
    td3.resume(run.path)
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
    whole = td3.train("Scripted-v0", out=tmp_path / "whole", **FIELDS)
    for name in ("metrics.csv", "evaluations.csv", "diagnostics.csv"):
        assert (run.folder(0) / name).read_bytes() == (whole.folder(0) / name).read_bytes()


def test_the_state_of_a_callback_is_part_of_an_exact_resume(tmp_path):
    whole = Counting()
    td3.train("Scripted-v0", out=tmp_path / "whole", callbacks=[whole], **FIELDS)
    assert whole.ended == ["finished"]
    first = Counting(interrupt_at=75)
    with pytest.raises(KeyboardInterrupt):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[first], **FIELDS)
    assert first.ended == ["interrupted"]
    second = Counting()
    td3.resume(tmp_path / "run", callbacks=[second])
    assert second.counted == whole.counted
    assert second.counted["rounds"] == 120


@pytest.mark.parametrize("event", ["on_episode_end", "on_log", "on_evaluation"])
def test_a_callback_that_raises_ends_the_run_with_its_name_and_a_whole_checkpoint(tmp_path, event):
    with pytest.raises(CallbackError) as caught:
        train_run(resolve("Scripted-v0", out=tmp_path / "run", **FIELDS), [Failing(event)])
    assert str(caught.value).startswith(f"callback Failing failed in {event}: {FAILURE}. The checkpoint")
    assert isinstance(caught.value.__cause__, ValueError)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "failed"
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps == status["env_steps"]
    resume_run(tmp_path / "run")
    whole = train_run(resolve("Scripted-v0", out=tmp_path / "whole", **FIELDS))
    for name in ("metrics.csv", "evaluations.csv"):
        assert (tmp_path / "run" / "seed_0" / name).read_bytes() == (whole.folder(0) / name).read_bytes()


def test_a_state_that_is_not_json_and_two_callbacks_of_one_name_are_refused(tmp_path):
    odd = Counting()
    odd.counted = {"episodes": object()}
    with pytest.raises(CallbackError, match="callback Counting has a state that is not JSON"):
        CallbackList([odd]).state()
    with pytest.raises(CallbackError, match="two callbacks are called Counting"):
        CallbackList([Counting(), Counting()]).state()


def test_only_callbacks_that_override_an_event_are_called():
    told = []

    class Listening(Callback):
        def on_warning(self, trainer, text):
            told.append(text)

    events = CallbackList([Callback(), Listening(), Counting()])
    events.on_warning(None, "careful")
    events.on_log(None, [])
    assert told == ["careful"]


class Events(Callback):
    """Writes down the order of events, and what was on disk by then."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_training_start(self, trainer):
        self.told.append(f"training start {(trainer.path / 'status.json').exists()}")

    def on_loop_start(self, trainer):
        self.told.append(f"loop start {trainer.resumed}")

    def on_evaluation(self, trainer, evaluation):
        rows = (trainer.path / "seed_0" / "evaluations.csv").read_text().splitlines()
        saved = (trainer.path / "seed_0" / "best" / "agent.json").exists()
        self.told.append(f"evaluation {evaluation.env_steps} {rows[-1].split(',')[0]} {saved}")
        assert evaluation.agent is not None

    def on_env_step(self, trainer):
        if trainer.is_due(50):
            self.told.append(f"step {trainer.env_steps}")

    def on_checkpoint(self, trainer):
        self.told.append(f"checkpoint {trainer.env_steps} {Checkpoints(trainer.path).has(trainer.env_steps)}")

    def on_checkpoint_saved(self, trainer):
        self.told.append(f"saved {trainer.env_steps} {Checkpoints(trainer.path).has(trainer.env_steps)}")

    def on_interruption(self, trainer):
        self.told.append("interruption")

    def on_loop_end(self, trainer):
        self.told.append("loop end")

    def on_training_end(self, trainer):
        status = json.loads((trainer.path / "status.json").read_text())["status"]
        self.told.append(f"training end {status} {(trainer.path / 'seed_0' / 'last' / 'agent.json').exists()}")


def test_events_come_in_order_and_results_are_on_disk_before_a_callback_is_told(tmp_path):
    events = Events()
    fields = {**FIELDS, "steps": 100, "eval_every": 50, "save_every": 50}
    td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[events], **fields)
    first = ["training start True", "evaluation 0 0 True", "loop start False", "checkpoint 0 False", "saved 0 True"]
    middle = ["evaluation 50 50 True", "step 50", "checkpoint 50 False", "saved 50 True"]
    last = ["evaluation 100 100 True", "step 100", "loop end", "checkpoint 100 False", "saved 100 True"]
    assert events.told == [*first, *middle, *last, "training end finished True"]


@pytest.mark.parametrize("method", ["state", "load_state"])
def test_a_callback_whose_state_fails_is_named(tmp_path, method):
    class Broken(Counting):
        def state(self):
            return super().state() if method == "load_state" else {}["missing"]

        def load_state(self, state):
            raise KeyError("missing")

    def run():
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Broken()], **FIELDS)
        td3.resume(tmp_path / "run", steps=150, callbacks=[Broken()])

    with pytest.raises(CallbackError, match=f"callback Broken failed in {method}: KeyError: 'missing'") as caught:
        run()
    hint = "There is no checkpoint yet." if method == "state" else "The checkpoint at env step 120 is whole"
    assert hint in str(caught.value)


def test_a_checkpoint_that_cannot_be_restored_leaves_the_saved_agents_alone(tmp_path):
    class Broken(Counting):
        def load_state(self, state):
            raise KeyError("missing")

    run = td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Counting()], **FIELDS)
    before = (run.folder(0) / "last" / "agent.safetensors").read_bytes()
    broken = Broken()
    Broken.__name__ = "Counting"
    with pytest.raises(CallbackError, match="failed in load_state"):
        td3.resume(run.path, steps=150, callbacks=[broken])
    assert (run.folder(0) / "last" / "agent.safetensors").read_bytes() == before


def test_errors_of_essential_callbacks_end_the_run_as_they_are():
    class Essential(Callback):
        essential = True

        def on_log(self, trainer, rows):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        CallbackList([Essential()]).on_log(None, [])


def test_a_resume_without_a_callback_that_has_a_state_says_that_it_is_not_restored(tmp_path):
    run = td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Counting()], **FIELDS)
    with pytest.warns(UserWarning, match="state of callback Counting was not restored, because .*: resume the run"):
        td3.resume(run.path, steps=150)


def test_a_callback_that_was_not_started_is_not_ended(tmp_path, caplog):
    class Broken(Counting):
        def load_state(self, state):
            raise KeyError("missing")

    run = td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Broken()], **FIELDS)
    broken = Broken()
    with pytest.raises(CallbackError, match="failed in load_state"):
        td3.resume(run.path, steps=150, callbacks=[broken])
    assert broken.ended == []
    assert "left out" not in caplog.text


class Misspelled(Callback):
    def on_evalution(self, trainer, evaluation):
        pass


class Unknown(Callback):
    def on_lunch(self, trainer):
        pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([Counting], r"the callback Counting is a class: give an object of it,  Counting\(\)"),
        ([print], "<built-in function print> is no callback: derive its class from td3.Callback"),
        (Counting(), r"callbacks=Counting\(\) is no list: give  callbacks=\[...\]"),
        (3, "callbacks=3 is no list"),
        ([Misspelled()], "Misspelled has a method on_evalution, and .* such event: did you mean on_evaluation?"),
        ([Unknown()], "on_lunch, and there is no such event: give it another name; events are on_training_start"),
    ],
)
def test_what_is_no_callback_is_refused_in_one_sentence_before_the_run(tmp_path, given, said):
    with pytest.raises(CallbackError, match=said):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=given, **FIELDS)
    assert not (tmp_path / "run").exists()


class FailingAtTheEnd(Counting):
    """Raises when training has ended."""

    def on_training_end(self, trainer):
        raise ValueError("no such thing")


FAILURE_AT_THE_END = failure_in(FailingAtTheEnd.on_training_end)


def test_a_callback_that_fails_at_the_end_is_named_and_the_run_is_finished(tmp_path):
    with pytest.raises(CallbackError) as caught:
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[FailingAtTheEnd()], **FIELDS)
    assert str(caught.value) == (
        f"callback FailingAtTheEnd failed in on_training_end: {FAILURE_AT_THE_END}. The run itself is finished, "
        f"and saved in {tmp_path / 'run'}."
    )
    assert isinstance(caught.value.__cause__, ValueError)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "finished"


@pytest.mark.filterwarnings("ignore:exploration_noise is 0")
def test_a_callback_that_fails_at_a_hint_of_the_last_report_is_named(tmp_path):
    class Unhinted(Callback):
        def on_hint(self, trainer, text):
            raise ValueError("no such thing")

    with pytest.raises(CallbackError, match="callback Unhinted failed in on_hint: ValueError: no such thing"):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Unhinted()], exploration_noise=0.0, **FIELDS)


def test_a_callback_that_fails_at_the_end_hides_no_error_and_is_logged(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[FailingAtTheEnd(interrupt_at=75)], **FIELDS)
    assert caplog.messages == [f"callback FailingAtTheEnd failed in on_training_end: {FAILURE_AT_THE_END}."]


def test_of_two_callbacks_that_fail_the_second_is_logged(tmp_path, caplog):
    class Second(Failing):
        pass

    failing = [Failing("on_evaluation"), Second("on_evaluation")]
    with pytest.raises(CallbackError, match="callback Failing failed"):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=failing, **FIELDS)
    assert caplog.messages == [f"callback Second failed in on_evaluation: {FAILURE}."]


def test_a_run_is_stopped_without_a_reason(tmp_path):
    class Stopping(Callback):
        def on_env_step(self, trainer):
            if trainer.env_steps == 40:
                trainer.stop("")

    run = td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[Stopping()], **FIELDS)
    status = json.loads((run.path / "status.json").read_text())
    assert (status["status"], status["env_steps"]) == ("stopped", 40)


class Holding(Callback):
    """Fails in an event, and holds something until the end."""

    def __init__(self, event: str, optional: bool) -> None:
        self.event, self.optional, self.told = event, optional, []

    def _hear(self, event):
        self.told.append(event)
        if event == self.event:
            raise ValueError("no such thing")

    def on_training_start(self, trainer):
        self._hear("on_training_start")

    def on_evaluation(self, trainer, evaluation):
        self._hear("on_evaluation")

    def on_timing(self, trainer, seconds):
        self._hear("on_timing")

    def on_env_step(self, trainer):
        if trainer.is_due(30):  # of an evaluation, whose events come first
            self._hear("on_env_step")

    def on_training_end(self, trainer):
        self._hear("on_training_end")
        raise OSError("what it holds is gone")


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize(
    ("event", "told"),
    [("on_training_start", []), ("on_timing", ["on_training_start", "on_evaluation"])],
)
def test_a_callback_that_fails_gets_the_end_alone_and_fails_there_in_silence(tmp_path, caplog, event, told, optional):
    holding = Holding(event, optional)

    def run():
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[holding], **FIELDS)

    if optional:
        run()
        assert caplog.messages == ["Holding failed and is left out (ValueError: no such thing)"]
    else:
        with pytest.raises(CallbackError, match=f"callback Holding failed in {event}: ValueError: no such thing"):
            run()
        assert caplog.messages == []
    assert holding.told == [*told, event, "on_training_end"]


def test_a_round_that_is_saved_is_not_saved_again_where_the_run_ends_early(tmp_path, monkeypatch):
    saved, real = [], Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, *rest: (saved.append(step), real(self, step, *rest)))

    class FailingAt(Callback):
        def on_env_step(self, trainer):
            if trainer.env_steps == 60:
                raise ValueError("no such thing")

    with pytest.raises(CallbackError, match="The checkpoint at env step 60 is whole"):
        td3.train("Scripted-v0", out=tmp_path / "run", callbacks=[FailingAt()], **FIELDS)
    assert saved == [0, 30, 60]


def test_a_status_that_cannot_be_written_is_not_called_a_checkpoint_that_cannot(tmp_path, monkeypatch):
    def full_at_60(path, values):
        if values["env_steps"] == 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, values)

    monkeypatch.setattr("td3.callbacks.checkpoints.write_json", full_at_60)
    said = "status.json could not be written at env step 60 .No space left on device.; the checkpoint was written"
    with pytest.warns(UserWarning, match=said):
        run = td3.train("Scripted-v0", out=tmp_path / "run", **FIELDS)
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
