"""Every setting with its default, unit, source and valid values.

Sources: "author" is the current code of the paper's first author, "paper" is arXiv 1802.09477 (2018) with the code
published with it, "course" the fifteen-step lesson, "bullet" RL Zoo's tuned values for PyBullet, "tuned" what
fits a task where that is known.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from td3.errors import ConfigError
from td3.intervals import default_eval_every, default_log_every
from td3.presets import WARM_UP_PART, preset_fields
from td3.rules import Rule, are_kwargs, check_fields, is_a, one_of, optional, up_to, whole
from td3.settings import TD3Config
from td3.spellings import nearest, own_settings
from td3.variant_settings import VARIANTS, are_names, check_variants, function_names, variant_names, with_variant

Preset = Literal["author", "paper", "course", "bullet", "tuned"]
Device = Literal["auto", "cpu", "cuda"]
BufferDevice = Literal["auto", "gpu", "host"]
Precision = Literal["float32", "tf32"]
Workers = Literal["auto", "none", "threads", "processes", "ray"]
EngineName = Literal["auto", "eager", "recorded", "graph"]

ADDED_LATER = (
    *("save_every", "env_timeout", "buffer_device", "workers", "ray_address", "max_staleness"),
    *("env_kwargs", "normalize_observations", "pixels", "frames", "image_size", "action_repeat"),
    *("engine", "variant", "replace_steps", "dataset", "init_from", "log_every"),
)
"""Fields that the first version did not have: its runs are read with the default."""
MOST_ENVIRONMENTS = 10_000
"""Maximum environments of a run, for training and for evaluation: each takes memory and time."""
MOST_STEPS = 10**12 - MOST_ENVIRONMENTS
"""Maximum env steps of a run: those of its last round have at most 12 digits, as names of checkpoints do."""


@dataclass(frozen=True)
class TrainConfig:
    """One run: environment, length, seeds, output directory and hyperparameters."""

    env: str
    """Gymnasium's name of the environment, such as HalfCheetah-v5; or module:Name-v0, module:Class, or module:function
    of a function that makes vector environments."""
    steps: int = 1_000_000
    """Env steps of each seed."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """Seeds trained together in one process: seed, seed + 1, ..."""
    preset: Preset = "author"
    """Source of the defaults under td3."""
    device: Device = "auto"
    """Device of networks and replay buffer; auto uses a GPU if there is one."""
    out: Path | None = None
    """The run's directory; by default runs/ENV/DATE-TIME."""
    envs: int = 1
    """Parallel environments per seed, which share its replay buffer."""
    workers: Workers = "auto"
    """How environments are stepped; none: sequentially, in the main process; auto measures what is fastest."""
    pixels: bool = False
    """Learn from rendered frames instead of the environment's observations."""
    frames: int = 3
    """With --pixels: stacked frames per observation; a single one shows no motion."""
    image_size: int = 84
    """With --pixels: side of the grayscale image in pixels."""
    action_repeat: int = 1
    """Repeat each action for this many steps of the environment; together they count as one env step."""
    eval_every: int | None = None
    """Env steps between evaluations; by default a round number that gives 20 to 30; 0: at the start and the end only
    (paper: 5,000)."""
    eval_episodes: int = 10
    """Noise-free episodes of an evaluation (paper: 10)."""
    log_every: int | None = None
    """Env steps between rows of metrics.csv; by default 1,000, more in long runs, for at most 1,000 rows."""
    save_every: int | None = None
    """Env steps between checkpoints; 0 makes none; by default as often as costs 2 % of the time at most."""
    env_timeout: float = 120.0
    """Seconds that one call of an environment in a worker process or thread may take before it is replaced as hung."""
    ray_address: str | None = None
    """With workers ray: HOST:PORT of a cluster; without it, one is started on this machine for the run."""
    max_staleness: int = 1_000
    """With workers ray: maximum policy lag, in updates, of a stored transition."""
    engine: EngineName = "auto"
    """Execution of updates: eager (as written), recorded (CPU) or graph (CUDA graphs, GPU); auto takes the fastest."""
    threads: int = 0
    """CPU threads for the updates; 0 takes what the machine allows."""
    precision: Precision = "float32"
    """Precision of matrix products on a GPU; tf32 is faster, with 10 bits of mantissa instead of 23."""
    buffer_device: BufferDevice = "auto"
    """Where the replay buffer of a GPU run is stored; auto: on the GPU if it fits, else in host RAM."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    normalize_observations: bool = False
    """Normalize observations by running mean and standard deviation, and clip to +-10."""
    variant: tuple[str, ...] = ()
    """Variants of TD3, by name (`td3 steps` lists them); several as a,b."""
    replace_steps: tuple[str, ...] = ()
    """Functions in the place of steps, as FILE.py:NAME, each marked with @td3.replace_step(NUMBER)."""
    init_from: str | None = None
    """Start from the weights of this agent, with new optimizers: a run directory or an agent's (short: --from)."""
    dataset: str | None = None
    """Train offline on these transitions (`td3 offline`), without collecting any."""
    td3: TD3Config = field(default_factory=TD3Config)
    """Hyperparameters of TD3."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        if isinstance(self.out, str):
            object.__setattr__(self, "out", Path(self.out))
        if isinstance(self.init_from, Path):
            object.__setattr__(self, "init_from", str(self.init_from))
        object.__setattr__(self, "variant", variant_names(self.variant))
        object.__setattr__(self, "replace_steps", function_names(self.replace_steps))
        check_fields(self, _TRAIN_RULES)
        # Numbers from here on: a run that is extended keeps its schedule.
        if self.eval_every is None:
            object.__setattr__(self, "eval_every", default_eval_every(self.steps))
        if self.log_every is None:
            object.__setattr__(self, "log_every", default_log_every(self.steps, self.envs))
        check_variants(self.variant, self.td3)
        if self.workers == "ray" and self.td3.train_freq == "episode":
            raise ConfigError(
                "workers ray has many episodes under way at once and updates after every env step, but train_freq is "
                "'episode' (presets paper and course): give --td3.train-freq step, or other workers."
            )
        for name in ("envs", "eval_episodes"):
            if (count := self.seeds * getattr(self, name)) > MOST_ENVIRONMENTS:
                raise ConfigError(
                    f"{self.seeds:,} seeds with {name} {getattr(self, name):,} need {count:,} environments, and at "
                    f"most {MOST_ENVIRONMENTS:,} are made: lower --{name.replace('_', '-')} or train fewer seeds."
                )
        for engine, device, needs in (("graph", "cpu", "a GPU"), ("recorded", "cuda", "a CPU")):
            if self.engine == engine and self.device == device:
                raise ConfigError(
                    f"engine {engine} needs {needs}, but device is {device}: use --engine auto or eager, or another "
                    "--device."
                )
        if self.dataset is not None:
            _require_offline(self)
        if self.workers != "ray" and self.ray_address is not None:
            raise ConfigError(f"ray_address {self.ray_address!r} is given, but workers is not ray: add --workers ray.")

    @property
    def member_seeds(self) -> tuple[int, ...]:
        """The seed of each member."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def rows_per_round(self) -> int:
        """Transitions that each seed stores in a round of its environments."""
        return self.envs * (1 + self.td3.hindsight_goals if "hindsight" in self.variant else 1)

    @property
    def env_arguments(self) -> dict[str, Any]:
        """Arguments of `make_environment`."""
        pixels = {"pixels": True, "frames": self.frames, "image_size": self.image_size} if self.pixels else {}
        repeat = {"action_repeat": self.action_repeat} if self.action_repeat > 1 else {}
        return {"env": self.env, "env_kwargs": self.env_kwargs, **pixels, **repeat}

    def warnings(self) -> list[str]:
        """Warnings about settings that are valid but probably a mistake."""
        found = [f"No update will happen: {reason}"] if (reason := self._no_update()) else []
        if self.td3.exploration_noise == 0:
            found.append("exploration_noise is 0: after the random steps the agent does not explore.")
        return found

    def require_updates(self) -> None:
        """Refuse a new run that would never update its networks."""
        if reason := self._no_update():
            raise ConfigError(f"no update would happen: {reason}")

    def _no_update(self) -> str:
        """Why the networks would never be updated, and what to change; empty if they are."""
        settings, rounds = self.td3, -(-self.steps // self.envs)
        if settings.train_freq == "episode":
            return ""  # the first episode is followed by as many updates as it has steps
        length = f"the run has {self.steps:,} env steps"
        if settings.learning_starts >= rounds * self.envs:
            return (
                f"{length} and the first {settings.learning_starts:,} are random. Lower --td3.learning-starts or "
                "raise --steps."
            )
        if rounds == 1:
            return f"{length}, and {self.envs:,} environments take them all at once. Raise --steps or lower --envs."
        if int((rounds * self.envs - settings.learning_starts) * settings.utd_ratio) == 0:
            return f"{length} and makes {settings.utd_ratio:g} updates for each. Raise --td3.utd-ratio."
        return ""

    @property
    def unit(self) -> str:
        """What its steps are."""
        return "updates" if self.dataset else "env steps"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return {**asdict(self), "out": str(self.out) if self.out else None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The configuration that `to_json` wrote."""
        try:
            usual = cls(env="any")
            values = {**{name: getattr(usual, name) for name in ADDED_LATER}, **values}
            missing = {f.name for f in fields(cls)} - set(values)
            if missing:
                raise ConfigError(f"the configuration is damaged: it lacks {', '.join(sorted(missing))}.")
            td3 = {"hidden_sizes": values["td3"]["hidden_sizes"], **values["td3"]}
            out = None if values["out"] is None else Path(values["out"])
            return cls(**{**values, "out": out, "td3": TD3Config(**td3)})
        except KeyError as error:
            raise ConfigError(f"the configuration is damaged: its td3 lacks {error}.") from None
        except TypeError as error:
            raise ConfigError(f"the configuration is damaged: {error}.") from None


def preset_config(name: str, env: str, steps: int) -> TD3Config:
    """The numbers of a preset; the paper's depend on the task, and the warm-up of all on the length of the run."""
    preset = TD3Config(**preset_fields(name, env, steps))
    return replace(preset, learning_starts=min(preset.learning_starts, steps // WARM_UP_PART))


def _require_offline(config: TrainConfig) -> None:
    """Refuse settings that change what is collected, or when it is updated, in a run that collects nothing."""
    if "hindsight" in config.variant:
        raise ConfigError("hindsight changes what is collected, and offline nothing is: leave it out.", "variant")
    settings = config.td3
    if (config.envs, settings.learning_starts, settings.train_freq, settings.utd_ratio) != (1, 0, "step", 1.0):
        raise ConfigError(
            "an offline run makes one update per step: leave out envs, learning_starts, train_freq and utd_ratio."
        )


def resolve(env: str, preset: str = "author", **given: Any) -> TrainConfig:
    """A full configuration from a preset and the fields that were given, of the run or of the algorithm."""
    for name, text in (("env", env), ("preset", preset)):
        if not isinstance(text, str):
            raise ConfigError(f"must be a name, but {text!r} was given.", name)
    own = {f.name for f in fields(TrainConfig)} - {"env", "preset", "td3"}
    known = own | {f.name for f in fields(TD3Config)}
    given = own_settings(given)
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"the fields are {', '.join(sorted(known))}."
            raise ConfigError(f"there is no setting {name!r}: {hint}")
    run_fields = {name: value for name, value in given.items() if name in own}
    default_steps = next(f.default for f in fields(TrainConfig) if f.name == "steps")
    assert default_steps is not MISSING
    steps = run_fields.get("steps", default_steps)
    # An invalid number of steps is refused by TrainConfig below.
    base = preset_config(preset, env, steps if whole(1)(steps) else default_steps)
    chosen: Preset = preset  # type: ignore[assignment]  # preset_config has refused every other name
    td3 = replace(with_variant(base, given.get("variant", ())), **{k: v for k, v in given.items() if k not in own})
    return TrainConfig(env=env, preset=chosen, td3=td3, **run_fields)


_TRAIN_RULES: tuple[Rule, ...] = (
    ("env", "the name of an environment", lambda given: isinstance(given, str) and given != ""),
    ("steps", f"a whole number from 1 to {MOST_STEPS:,}", whole(1, MOST_STEPS)),
    ("seed", "a whole number of at least 0", whole(0)),
    ("seeds", "a whole number from 1 to 10,000", whole(1, 10_000)),
    ("preset", f"one of {', '.join(get_args(Preset))}", one_of(Preset)),
    ("device", f"one of {', '.join(get_args(Device))}", one_of(Device)),
    ("out", "a path", optional(is_a(Path))),
    ("envs", "a whole number of at least 1", whole(1)),
    ("pixels", "True or False", is_a(bool)),
    ("frames", "a whole number from 1 to 16", whole(1, 16)),
    ("image_size", "a whole number from 16 to 256", whole(16, 256)),
    ("action_repeat", "a whole number of at least 1", whole(1)),
    ("eval_every", "a whole number of at least 0", optional(whole(0))),
    ("eval_episodes", "a whole number of at least 1", whole(1)),
    ("log_every", "a whole number of at least 1", optional(whole(1))),
    ("save_every", "a whole number of at least 0", optional(whole(0))),
    ("env_timeout", "a positive number of seconds, at most 1,000,000", up_to(1e6)),
    ("workers", f"one of {', '.join(get_args(Workers))}", one_of(Workers)),
    ("ray_address", "HOST:PORT", optional(is_a(str))),
    ("max_staleness", "a whole number of at least 1", whole(1)),
    ("engine", f"one of {', '.join(get_args(EngineName))}", one_of(EngineName)),
    ("threads", "a whole number from 0 to 10,000", whole(0, 10_000)),
    ("precision", f"one of {', '.join(get_args(Precision))}", one_of(Precision)),
    ("buffer_device", f"one of {', '.join(get_args(BufferDevice))}", one_of(BufferDevice)),
    ("env_kwargs", "plain, finite values by name, and not render_mode, which each command chooses", are_kwargs),
    ("normalize_observations", "True or False", is_a(bool)),
    ("variant", f"names among {', '.join(VARIANTS)}", lambda given: are_names(given) and {*given} <= {*VARIANTS}),
    ("replace_steps", "functions as FILE.py:NAME", are_names),
    ("init_from", "a path", optional(is_a(str))),
    ("dataset", "a path or a name", optional(is_a(str))),
    ("td3", "a TD3Config", is_a(TD3Config)),
)
