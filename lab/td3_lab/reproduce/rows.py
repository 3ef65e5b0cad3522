"""The rows of the results tables: what is trained, with which settings, and what others published for the task."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from td3.config import TrainConfig, resolve
from td3.errors import ConfigError
from td3.settings import TD3Config

OUT = Path("runs/reproduce")
"""Where `td3 reproduce` trains, unless told otherwise."""


@dataclass(frozen=True)
class Row:
    """One run of several seeds; its data is in results/NAME once it was run."""

    name: str
    table: str
    env: str
    steps: int = 1_000_000
    seeds: int = 10
    preset: str = "author"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of TD3Config, or others of TrainConfig, that differ from the preset."""
    variant: str = ""
    """The variants of TD3, as `--variant` takes them; empty for TD3 as it is."""
    eval_every: int = 5_000
    """Env steps between evaluations."""
    change: str = ""
    """What the row changes, for tables that compare settings."""
    normalized: bool = False
    """Whether observations are normalized."""
    dataset: str = ""
    """The row whose transitions an offline run learns from; empty for a run that collects its own."""
    baseline: str = ""
    """The row that it is compared with, itself if it is the first; empty for the row of table 1 with the same task."""
    first_seed: int = 0
    """Other than 0 where some of its seeds are trained apart."""

    @property
    def task(self) -> str:
        """The environment, with what its options change."""
        return self.env + " (27 observations)" * ("include_cfrc_ext_in_observation" in self.env_kwargs)

    @property
    def family(self) -> str:
        """The task without its version."""
        return self.env.partition("-v")[0]

    @property
    def command(self) -> str:
        """The command line that trains it."""
        words = [f"td3 offline {OUT}/{self.dataset}" if self.dataset else f"td3 train {self.env}"]
        words += [
            f"--steps {self.steps}",
            *[f"--seed {self.first_seed}"] * bool(self.first_seed),
            f"--seeds {self.seeds}",
        ]
        if self.preset != "author":
            words.append(f"--preset {self.preset}")
        if self.variant or self.dataset:
            words.append(f"--variant {self.variant}".strip())  # none: no variant, not the usual one
        if self.normalized and not self.dataset:
            words.append("--normalize-observations")
        if self.eval_every != Row.eval_every:
            words.append(f"--eval-every {self.eval_every}")
        if self.env_kwargs:
            words.append("--env-kwargs " + " ".join(f"{k}={json.dumps(v)}" for k, v in self.env_kwargs.items()))
        for name, value in self.settings.items():
            values = " ".join(map(str, value)) if isinstance(value, tuple) else value
            words.append(f"--{'td3.' * (name in TD3Config.__dataclass_fields__)}{name.replace('_', '-')} {values}")
        return " ".join(words)

    def config(self, out: Path = OUT) -> TrainConfig:
        """The configuration that trains it; its dataset is a run in `out`."""
        offline = {"dataset": str(out / self.dataset), "learning_starts": 0} if self.dataset else {}
        given = {
            "steps": self.steps,
            "seed": self.first_seed,
            "seeds": self.seeds,
            "eval_every": self.eval_every,
            "env_kwargs": self.env_kwargs,
            "variant": tuple(self.variant.split(",")) if self.variant else (),
            "normalize_observations": self.normalized,
            **self.settings,
            **offline,
        }
        return resolve(self.env, self.preset, **given)


TABLES = {
    "table1": "The paper's tasks on Gymnasium v5",
    "table2": "Ablations: one idea of TD3 removed, or all three",
    "variants": "Variants of TD3",
    "offline": "Offline training",
    "goals": "Goals and hindsight",
    "changes": "Settings that implementations change silently",
    "bullet": "PyBullet, preset `bullet`",
    "course": "PyBullet, preset `course`",
}
BULLET_TASKS = {"halfcheetah": "HalfCheetahBulletEnv-v0", "walker2d": "Walker2DBulletEnv-v0", "ant": "AntBulletEnv-v0"}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "timeouts_terminate": ("time-outs stored as terminations", {"timeouts": "terminate"}),
    "no_exploration": ("no exploration noise", {"exploration_noise": 0.0}),
    "random_1000": ("1,000 initial random steps instead of 25,000", {"learning_starts": 1_000}),
    "batch_100": ("batch of 100 instead of 256", {"batch_size": 100}),
    "episode_updates": ("updates at the end of episodes", {"train_freq": "episode"}),
    "orthogonal": ("orthogonal initialization instead of PyTorch's", {"initialization": "orthogonal"}),
}
ABLATIONS = {
    "no_delay": ("no delayed policy updates", "no-delay"),
    "no_smoothing": ("no target policy smoothing", "no-smoothing"),
    "no_twin": ("no minimum of two critics", "no-twin"),
    "ddpg": ("none of the three (DDPG)", "ddpg"),
}
ABLATED = {"HalfCheetah-v5": "halfcheetah", "Walker2d-v5": "walker2d", "Hopper-v5": "hopper", "Ant-v5": "ant"}
"""The tasks of the ablations, and how their rows are named."""
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "layer_norm": ("LayerNorm in the critics", "layer-norm", {}),
    "utd_4": ("4 updates per env step", "", {"utd_ratio": 4.0}),
    "layer_norm_utd_4": ("LayerNorm, 4 updates per env step", "layer-norm", {"utd_ratio": 4.0}),
    "n_step": ("n-step returns, n = 3", "n-step", {}),
    "prioritized": ("prioritized replay (LAP)", "prioritized", {}),
    "layer_norm_prioritized": ("LayerNorm and prioritized replay", "layer-norm,prioritized", {}),
    "combined": ("LayerNorm, n-step and prioritized", "layer-norm,n-step,prioritized", {}),
}
BEGINNING = 200_000
"""Env steps after which the paper's seeds are far ahead of preset `author` on Hopper and Walker2d."""
SHORT = 300_000
"""Env steps of the easy tasks, which reach their limit long before, and of the comparisons of settings."""
ABLATED_STEPS = 500_000
"""Env steps of the ablations."""
DATA = "halfcheetah_v5_data"
"""The run whose replay buffer the offline rows learn from."""
ROWS = (
    Row("halfcheetah_v5", "table1", "HalfCheetah-v5"),
    Row("hopper_v5", "table1", "Hopper-v5"),
    Row("walker2d_v5", "table1", "Walker2d-v5"),
    Row("ant_v5", "table1", "Ant-v5"),
    Row("ant_v5_27", "table1", "Ant-v5", env_kwargs={"include_cfrc_ext_in_observation": False}),
    Row("humanoid_v5", "table1", "Humanoid-v5"),
    Row("reacher_v5", "table1", "Reacher-v5", SHORT),
    Row("inverted_pendulum_v5", "table1", "InvertedPendulum-v5", SHORT),
    Row("inverted_double_pendulum_v5", "table1", "InvertedDoublePendulum-v5", SHORT),
    *(
        Row(f"{task}_v5_{name}", "table2", env, ABLATED_STEPS, variant=variant, eval_every=10_000, change=change)
        for env, task in ABLATED.items()
        for name, (change, variant) in ABLATIONS.items()
    ),
    # Its row of table 1 is older than the recording of values.
    Row(
        "hopper_v5_again", "table2", "Hopper-v5", ABLATED_STEPS, eval_every=10_000, change="TD3 again, nothing removed"
    ),
    *(
        Row(f"{task}_v5_{name}", "variants", env, SHORT, 5, settings=settings, variant=variant, change=change)
        for task, env in (("halfcheetah", "HalfCheetah-v5"), ("walker2d", "Walker2d-v5"))
        for name, (change, variant, settings) in VARIANTS.items()
    ),
    Row(DATA, "offline", "HalfCheetah-v5", SHORT, 1, change="online: the data of the next rows", baseline=DATA),
    *(
        Row(
            *(f"halfcheetah_v5_offline{name}", "offline", "HalfCheetah-v5", SHORT, 5),
            variant=variant,
            normalized=True,
            dataset=DATA,
            baseline="halfcheetah_v5_offline",
            change=change,
        )
        for name, change, variant in (("", "TD3 offline", ""), ("_bc", "TD3+BC offline", "behavior-cloning"))
    ),
    *(
        Row(
            name,
            "goals",
            env,
            10_000,
            5,
            variant=variant,
            normalized=True,
            eval_every=500,
            change=change,
            baseline=task,
        )
        for task, env in (("rail_goal", "RailGoal-v0"), ("fetch_reach", "FetchReach-v4"))
        for name, change, variant in ((task, "TD3", ""), (f"{task}_hindsight", "hindsight", "hindsight"))
    ),
    *(
        Row(f"{task}_v5_{name}", "changes", env, SHORT, settings=settings, change=change)
        for task, env in (("halfcheetah", "HalfCheetah-v5"), ("hopper", "Hopper-v5"))
        for name, (change, settings) in CHANGES.items()
    ),
    *(
        Row(f"{task}_v5_paper", "changes", env, BEGINNING, preset="paper", change="preset `paper`")
        for task, env in (("hopper", "Hopper-v5"), ("walker2d", "Walker2d-v5"))
    ),
    Row(
        *("halfcheetah_v5_tf32", "changes", "HalfCheetah-v5", SHORT),
        settings={"precision": "tf32"},
        change="products in TF32 on a GPU",
    ),
    *(
        Row(f"{preset}_{task}", preset, env, SHORT, 3, preset, eval_every=10_000)
        for preset in ("bullet", "course")
        for task, env in BULLET_TASKS.items()
    ),
)
PUBLISHED = {
    "HalfCheetah": ("10,201 +- 773", "10,574"),
    "Hopper": ("3,472 +- 117", "3,226"),
    "Walker2d": ("3,982 +- 275", "3,946"),
    "Ant": ("5,116 +- 800", "-"),
    "Ant-v5 (27 observations)": ("-", "3,942"),
    "Humanoid": ("5,190 +- 179", "5,165"),
    "Reacher": ("-2.7 +- 0.2", "-"),
    "InvertedPendulum": ("1,000", "-"),
    "InvertedDoublePendulum": ("9,349 +- 14", "-"),
}
"""Highest mean over ten seeds in Tianshou's tables (v3). The author's code run again (v4): mean at 1M."""
PUBLISHED_BULLET = {
    "HalfCheetahBulletEnv": "2,774 +- 35",
    "Walker2DBulletEnv": "2,063 +- 185",
    "AntBulletEnv": "3,305 +- 43",
}
"""Stable-Baselines3: return at 1M (its documentation, 3 seeds)."""


def selected(names: tuple[str, ...]) -> list[Row]:
    """The rows of these names; the name of a table stands for all of its rows."""
    known = {row.name: [row] for row in ROWS} | {table: [r for r in ROWS if r.table == table] for table in TABLES}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no table or row {name!r}: `td3 reproduce` lists them.")
    return [row for name in names for row in known[name]]
