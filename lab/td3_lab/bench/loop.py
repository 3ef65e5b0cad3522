"""`td3 bench loop`: where the time of a training run goes."""

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from td3.callbacks import Callback, CallbackList
from td3.callbacks.standard import standard_callbacks
from td3.config import TrainConfig
from td3.settings import TD3Config
from td3.training import Trainer, choose_device
from td3_lab.bench import learners, machine, timing
from td3_lab.bench.options import LoopBench

PARTS = {
    "act": "choose actions",
    "env": "step the environments",
    "store": "store transitions",
    "update": "update",
    "other": "everything else",
}
SETTLE = 100
"""Env steps with updates that are not measured."""


class Stopwatch(Callback):
    """Sums the time inside each part of the loop, in windows; everything is told apart by who is called."""

    def __init__(self, members: int, seconds: float, clock: timing.Clock = time.perf_counter) -> None:
        self.members, self.seconds, self.clock = members, seconds, clock
        self.window_seconds = min(1.0, seconds / 4)
        self.windows: list[dict[str, float]] = []
        self._spent: dict[str, float] = defaultdict(float)
        self._began: float | None = None

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time counted."""

        def call(*arguments: Any) -> Any:
            start = self.clock()
            result = function(*arguments)
            self._spent[part] += self.clock() - start
            return result

        return call

    def watch(self, trainer: Trainer) -> None:
        """Count the time in the calls that `Trainer.run` makes."""
        collector, engine = trainer.collector, trainer.engine
        for part, owner, method in (
            ("act", engine, "act_async"),
            ("act", engine, "act_wait"),
            ("act", collector, "act"),
            ("act", collector, "explore"),
            ("env", collector, "begin"),
            ("env", collector, "finish"),
            ("store", engine, "store"),
            ("update", engine, "update"),
        ):
            setattr(owner, method, self.timed(part, getattr(owner, method)))

    def on_env_step(self, trainer: Any) -> None:
        """Close a window when it is full; end the run when the time is over."""
        env_steps = trainer.env_steps
        if env_steps < learners.WARM_UP_STEPS + SETTLE:
            return
        now = self.clock()
        if self._began is None:
            self._began = now
            self._open(env_steps, now)
        elif now - self._opened >= self.window_seconds:
            self._close(env_steps, now)
            if now - self._began >= self.seconds:
                trainer.stop("the time to measure is over")
            self._open(env_steps, now)

    def _open(self, env_steps: int, now: float) -> None:
        self._spent.clear()
        self._opened, self._steps_before = now, env_steps

    def _close(self, env_steps: int, now: float) -> None:
        whole = now - self._opened
        shares = {part: self._spent[part] / whole for part in PARTS if part != "other"}
        steps = (env_steps - self._steps_before) * self.members
        self.windows.append(
            {
                **shares,
                "other": 1 - sum(shares.values()),
                "around": shares["act"] + shares["env"] + shares["store"],
                "steps_per_s": steps / whole,
            }
        )


def measure(options: LoopBench) -> tuple[dict[str, Any], str]:
    """Measure, and return results as data and text."""
    device = choose_device(options.device)
    facts = machine.describe_machine(device)
    stopwatch = Stopwatch(options.members, options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            options.env,
            steps=10**11,
            seeds=options.members,
            envs=options.envs,
            device=options.device,
            precision=options.precision,
            out=Path(folder),
            eval_every=options.eval_every,
            threads=options.threads,
            td3=TD3Config(learning_starts=learners.WARM_UP_STEPS),
        )
        trainer = learners.make_training(config, device)
        stopwatch.watch(trainer)
        machine.announce(f"Training {options.env} for {options.seconds:g} s, after a warm-up.")
        with contextlib.closing(trainer):
            trainer.run(CallbackList(standard_callbacks(trainer, [stopwatch])), None)
    found = {name: timing.summary([window[name] for window in stopwatch.windows]) for name in stopwatch.windows[0]}
    figures = {
        "env": options.env,
        "steps_per_s": found["steps_per_s"]["median"],
        "steps_per_s_spread": found["steps_per_s"],
        "mean_steps_per_s": sum(window["steps_per_s"] for window in stopwatch.windows) / len(stopwatch.windows),
        "threads": trainer.agent.backend.get_threads(),
        "members": options.members,
        "envs": options.envs,
        "eval_every": options.eval_every,
        "device": options.device,
        "share_around_updates": found["around"]["median"],
        "shares": {part: found[part]["median"] for part in PARTS},
        "shares_spread": {part: found[part] for part in (*PARTS, "around")},
        "rounds": len(stopwatch.windows),
        "machine": facts,
    }
    return figures, _text(figures)


def _text(figures: Mapping[str, Any]) -> str:
    spreads = figures["shares_spread"]
    rows = [[PARTS[part], _percent(spreads[part])] for part in PARTS]
    rows.append(["actions, environments and storing together", _percent(spreads["around"])])
    steps = timing.spread(figures["steps_per_s_spread"])
    if figures["eval_every"]:
        mean, every = figures["mean_steps_per_s"], figures["eval_every"]
        steps = f"With an evaluation every {every:,} env steps, on average {mean:,.0f}; median {steps}"
    return "\n".join(
        [
            f"{steps} env steps/s on {figures['env']}, one update for each, threads: {figures['threads']}",
            machine.machine_line(figures["machine"]),
            f"Medians over {figures['rounds']} windows, quartiles in brackets.",
            "",
            timing.table(["part of the loop", "% of the time"], rows),
        ]
    )


def _percent(share: Mapping[str, float]) -> str:
    return timing.spread({name: 100 * value for name, value in share.items()}, 1)
