"""A run, and what people do with it after training: tables, evaluation, report, plot and video."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from td3.environments import in_batch
from td3.environments.source import environment_maker
from td3.environments.spec import parse_env
from td3.environments.vector import VectorSource
from td3.errors import ConfigError, UserError
from td3.evaluate import Evaluation, Evaluator, held_out
from td3.policy import Policy
from td3.report.notebook import figure_html
from td3.report.records import read_run
from td3.report.render import write_report
from td3.report.run_files import DIAGNOSTICS_COLUMNS, EVALUATIONS_COLUMNS, METRICS_COLUMNS, read_table
from td3.report.summary import describe_runs, figures
from td3.resources import available_threads
from td3.run import directory

COLUMNS = {"metrics": METRICS_COLUMNS, "evaluations": EVALUATIONS_COLUMNS, "diagnostics": DIAGNOSTICS_COLUMNS}
WHOLE = ("env_steps", "updates", "episodes", "timeouts")
"""Columns of whole numbers."""


class Run(directory.Run):
    """A run directory, `td3.Run("runs/Pendulum-v1/latest")`: its agents, tables, evaluation, report, plot and video."""

    def frame(self, table: Literal["metrics", "evaluations", "diagnostics"] = "metrics") -> Any:
        """A table of all seeds, with a column `seed`: a pandas DataFrame, or a dict of arrays without pandas."""
        if table not in COLUMNS:
            raise ConfigError(f"a run has the tables {', '.join(COLUMNS)}; {table!r} is none of them.")
        parts = [read_table(self.folder(seed) / f"{table}.csv", COLUMNS[table]) for seed in self.seeds]
        rows = [len(part["env_steps"]) for part in parts]
        columns = {"seed": np.repeat(self.seeds, rows)}
        for name in COLUMNS[table]:
            values = np.concatenate([part[name] for part in parts])
            columns[name] = values.astype(np.int64) if name in WHOLE and np.isfinite(values).all() else values
        try:
            import pandas as pd
        except ImportError:
            return columns
        return pd.DataFrame(columns)

    def evaluate(
        self,
        episodes: int = 10,
        env_kwargs: Mapping[str, Any] | None = None,
        which: Literal["best", "last"] = "best",
        seeds: Sequence[int] | None = None,
        episode_seed: int = 0,
        env: Any = None,
        trust: bool = False,
    ) -> Evaluation:
        """Play held-out episodes without exploration noise: `returns` and `lengths` are `[seed, episode]`.

        `env_kwargs` change the environment, such as `{"gravity": 5}`; `env` is another one, by name, class or function.
        `trust` allows importing the module of a run on `module:Class`, which giving the class as `env` does too.
        """
        arguments = {**self._env_arguments(env, trust), "env_kwargs": {**self.config.env_kwargs, **(env_kwargs or {})}}
        chosen = self.seeds if seeds is None else seeds
        found = [
            evaluate_policy(self.agent(seed, which).policy, seed, arguments, episodes, episode_seed) for seed in chosen
        ]
        successes = [each.successes for each in found if each.successes is not None]
        return Evaluation(
            np.concatenate([each.returns for each in found]),
            np.concatenate([each.lengths for each in found]),
            successes=np.concatenate(successes) if len(successes) == len(found) else None,
        )

    def _env_arguments(self, env: Any, trust: bool) -> dict[str, Any]:
        if env is None:
            return self.env_arguments(trust, f"td3 evaluate {self.path}")
        given = parse_env(env)
        return {**self.config.env_arguments, "env": given.env if given.factory is None else given.factory}

    def report(self, out: Path | str | None = None) -> Path:
        """Write the report, by default report.html in the run's folder, and return its path."""
        path = self.path / "report.html" if out is None else Path(out)
        write_report([read_run(self.path)], path)
        return path

    def plot(self, ax: Any = None) -> Any:
        """Draw the learning curve with matplotlib, and return the axes. Several runs: `td3.compare(...).plot()`."""
        from td3.report.comparison import RunComparison

        return RunComparison([read_run(self.path)]).plot(ax)

    def watch(self, out: Path | str | None = None, **options: Any) -> Any:
        """Write a video of an agent; the options are those of `td3 watch`, such as `grid=True` or `seed=1`."""
        from td3.report.video import record_run

        return record_run(self.path, None if out is None else Path(out), **options)

    def _repr_html_(self) -> str:
        """Learning curves and results, for notebooks."""
        try:
            records = read_run(self.path)
            return figure_html([records], "\n".join(describe_runs(figures([records]))))
        except UserError as error:
            return figure_html([], f"{self!r}\n{error}")


def evaluate_policy(
    policy: Policy, seed: int, env_arguments: Mapping[str, Any], episodes: int, episode_seed: int
) -> Evaluation:
    """One seed's agent in held-out episodes of an environment with these arguments of `make_environment`."""
    purpose = held_out(episode_seed)
    with environment_maker(env_arguments) as make:
        batch = None if isinstance(make, VectorSource) else in_batch(make, available_threads())
        evaluator = Evaluator(make, [seed], episodes, worker_backend=batch, purpose=purpose)
        try:
            return evaluator(policy)
        finally:
            evaluator.close()
