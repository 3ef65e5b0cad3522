"""The interface between a run and everything that watches or steers it."""

import difflib
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partialmethod
from typing import TYPE_CHECKING, Any, TypeVar

from td3.errors import CallbackError
from td3.policy import Array
from td3.user_code import describe, with_lines

if TYPE_CHECKING:
    from td3.collect.base import Episode
    from td3.evaluate import Evaluation
    from td3.run.checkpoints import Checkpoint
    from td3.training import Trainer

Kind = TypeVar("Kind", bound="Callback")


class Callback:
    """Override the events that you need; each gets the trainer, and may call `trainer.stop(reason)`.

    Events come in the main thread, between two rounds of env steps. What a callback keeps between events is part of an
    exact resume: return it from `state`, and take it back in `load_state`.
    """

    optional = False
    """Whether training continues without this callback when it raises, as it does without a tracker; else it ends."""
    essential = False
    """Whether what it raises ends the run at once, as it is: for parts of the run itself, such as evaluation."""

    @property
    def name(self) -> str:
        """What errors and checkpoints call it; callbacks of one run need different names."""
        return type(self).__name__

    def on_training_start(self, trainer: "Trainer") -> None:
        """The run directory exists, a resumed run is restored, and training is about to begin."""

    def on_loop_start(self, trainer: "Trainer") -> None:
        """The first env step comes next; a new run is evaluated and saved now, as it is before training."""

    def on_env_step(self, trainer: "Trainer") -> None:
        """Another round of env steps, one of every environment, is done: keep it cheap."""

    def on_episode_end(self, trainer: "Trainer", episode: "Episode") -> None:
        """An episode of training has ended: its member, return, length, whether it was truncated, its last `info`."""

    def on_log(self, trainer: "Trainer", rows: Sequence[dict[str, Any]]) -> None:
        """A row of metrics.csv per seed was written; `row["info"]` has the means of the episodes' infos."""

    def on_evaluation(self, trainer: "Trainer", evaluation: "Evaluation") -> None:
        """All seeds were evaluated as they were at `evaluation.env_steps`; frozen ones have NaN."""

    def on_diagnostics(self, trainer: "Trainer", env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of diagnostics.csv per seed was written."""

    def on_timing(self, trainer: "Trainer", seconds: dict[str, float]) -> None:
        """Where the time went since the last call."""

    def on_checkpoint(self, trainer: "Trainer") -> None:
        """A checkpoint is about to be written; `state` is asked for next."""

    def on_checkpoint_saved(self, trainer: "Trainer") -> None:
        """The checkpoint is on disk."""

    def on_seed_frozen(self, trainer: "Trainer", member: int, reason: str) -> None:
        """A member diverged, or its environments failed for good: it stays as it is, and the others go on."""

    def on_warning(self, trainer: "Trainer", text: str) -> None:
        """Something went wrong that training survives."""

    def on_hint(self, trainer: "Trainer", text: str) -> None:
        """The doctor found a problem that it had not named before."""

    def on_info(self, trainer: "Trainer", text: str) -> None:
        """Something worth knowing about how this run is executed, as it starts."""

    def on_interruption(self, trainer: "Trainer") -> None:
        """The round is complete and the last: Ctrl-C, SIGTERM, SIGHUP, or a callback that failed. The run is saved."""

    def on_loop_end(self, trainer: "Trainer") -> None:
        """The last env step is done, or `stop` was called: pending evaluations are finished and the run is saved."""

    def on_training_end(self, trainer: "Trainer") -> None:
        """Training has ended, however: `trainer.status` is finished, stopped, interrupted or failed."""

    def state(self) -> Mapping[str, Any]:
        """JSON values to store in every checkpoint, by name."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned when the checkpoint was written."""


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def checked_callbacks(callbacks: Any) -> list[Callback]:
    """Callbacks as given from Python; raises `CallbackError` for what is none, and for methods named like no event."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise CallbackError(f"callbacks={_named(callbacks)} is no list: give  callbacks=[...]")
    checked = list(callbacks)
    for entry in checked:
        if isinstance(entry, type):
            raise CallbackError(f"the callback {entry.__name__} is a class: give an object of it,  {entry.__name__}()")
        if not isinstance(entry, Callback):
            raise CallbackError(f"{_named(entry)} is no callback: derive its class from td3.Callback.")
        for method in dir(type(entry)):
            if method.startswith("on_") and method not in EVENTS and callable(getattr(type(entry), method)):
                close = difflib.get_close_matches(method, EVENTS, 1)
                listed = f"give it another name; events are {', '.join(EVENTS)}."
                advice = f"did you mean {close[0]}?" if close else listed
                raise CallbackError(
                    f"callback {entry.name} has a method {method}, and there is no such event: {advice}"
                )
    return checked


def _named(value: Any) -> str:
    return f"{type(value).__name__}()" if isinstance(value, Callback) else f"{value!r:.60}"


class CallbackList(Callback):
    """Passes every event on to the callbacks that override it, in order.

    One that was not started is not ended, except for parts of the run. A callback that raises gets no more events but
    `on_training_end`, to release what it holds. If it is neither optional nor essential, `failure` says so, and the
    trainer ends the run when the round is complete, with a whole checkpoint.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = list(callbacks)
        self.failure: CallbackError | None = None
        """The first failure that the trainer has not raised yet."""
        self._started: set[int] = set()
        self._failed: set[int] = set()
        self._handlers: dict[str, tuple[tuple[Callback, Callable[..., None]], ...]] = {
            event: tuple(
                (c, getattr(c, event))
                for c in self.callbacks
                if getattr(type(c), event) is not getattr(Callback, event) or event == "on_training_start"
            )
            for event in EVENTS
        }

    def all_of(self, wanted: type[Kind]) -> list[Kind]:
        """The callbacks of this class, in order."""
        return [callback for callback in self.callbacks if isinstance(callback, wanted)]

    def state(self) -> dict[str, Any]:
        """What the callbacks want to have back, by name."""
        states: dict[str, Any] = {}
        for callback in self.callbacks:
            try:
                state = dict(callback.state())
            except Exception as error:
                raise _failed(callback, "state", error) from error
            if state and callback.name in states:
                raise CallbackError(f"two callbacks are called {callback.name}: give each a name of its own.")
            if state:
                states[callback.name] = _plain(callback.name, state)
        return states

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Hand each callback what it returned; one that was not there then gets nothing."""
        for callback in self.callbacks:
            if callback.name in state:
                try:
                    callback.load_state(state[callback.name])
                except Exception as error:
                    raise _failed(callback, "load_state", error) from error

    def _call(self, event: str, *arguments: Any) -> None:
        is_end = event == "on_training_end"
        for callback, handler in self._handlers[event]:
            if is_end and id(callback) not in self._started and not callback.essential:
                continue
            failed_before = id(callback) in self._failed
            if failed_before and not is_end:
                continue
            if event == "on_training_start":
                self._started.add(id(callback))  # also where it raises: it may hold something by then
            try:
                handler(*arguments)
            except Exception as error:
                if callback.essential:
                    raise
                if not failed_before:  # else its failure is known
                    self._leave_out(callback, event, error)

    def _leave_out(self, callback: Callback, event: str, error: Exception) -> None:
        self._failed.add(id(callback))
        if callback.optional:
            # Hours of training are worth more than a curve in a browser.
            fault = f"{type(error).__name__}: {error}"
            logging.getLogger("td3").warning("%s failed and is left out (%s)", callback.name, fault)
        elif self.failure is None:
            self.failure = _failed(callback, event, error)
        else:
            logging.getLogger("td3").warning("%s", _failed(callback, event, error))


def _failed(callback: Callback, event: str, error: Exception) -> CallbackError:
    failure = with_lines(CallbackError(f"callback {callback.name} failed in {event}: {describe(error)}."), error)
    failure.__cause__ = error
    return failure


for _event in EVENTS:
    setattr(CallbackList, _event, partialmethod(CallbackList._call, _event))


def _plain(name: str, state: Mapping[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError) as error:
        raise CallbackError(f"callback {name} has a state that is not JSON ({error}): return plain values.") from None


class RunCallback(Callback):
    """A part of every run: its errors are the run's own, and it may keep arrays in the checkpoint."""

    essential = True

    def facts(self) -> dict[str, Any]:
        """JSON values for the checkpoint's manifest, by the name that they have there."""
        return {}

    def arrays(self) -> dict[str, Array]:
        """Arrays for the checkpoint, by the name that they have there."""
        return {}

    def restore(self, trainer: "Trainer", checkpoint: "Checkpoint") -> None:
        """Take back facts and arrays; agent, buffer, engine and collector have theirs already."""


class WarningsCallback(Callback):
    """Warnings of a run as Python's own, where no display prints them."""

    def on_warning(self, trainer: "Trainer", text: str) -> None:
        """Warn."""
        warnings.warn(text, stacklevel=2)
