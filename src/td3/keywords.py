"""The settings that `td3.train` takes as keyword arguments, with types for editors; a test compares config.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from td3.config import BufferDevice, Device, EngineName, Precision, Workers
from td3.settings import Activation, Initialization, Schedule, Timeouts


class Settings(TypedDict, total=False):
    """Settings of a run and of TD3, whose defaults are in config.py, and their names in other libraries."""

    steps: int
    """Env steps of each seed."""
    seed: int
    """The first seed."""
    seeds: int
    """Seeds trained together in one process: seed, seed + 1, ..."""
    device: Device
    """Device of networks and replay buffer; auto uses a GPU if there is one."""
    out: Path | str | None
    """The run's directory; by default runs/ENV/DATE-TIME."""
    envs: int
    """Parallel environments per seed, which share its replay buffer."""
    workers: Workers
    """How environments are stepped; none: sequentially, in the main process; auto measures what is fastest."""
    pixels: bool
    """Learn from rendered frames instead of the environment's observations."""
    frames: int
    """With --pixels: stacked frames per observation; a single one shows no motion."""
    image_size: int
    """With --pixels: side of the grayscale image in pixels."""
    action_repeat: int
    """Repeat each action for this many steps of the environment; together they count as one env step."""
    eval_every: int | None
    """Env steps between evaluations; by default a round number that gives 20 to 30; 0: at the start and the end
    only (paper: 5,000)."""
    eval_episodes: int
    """Noise-free episodes of an evaluation (paper: 10)."""
    log_every: int | None
    """Env steps between rows of metrics.csv; by default 1,000, more in long runs, for at most 1,000 rows."""
    save_every: int | None
    """Env steps between checkpoints; 0 makes none; by default as often as costs 2 % of the time at most."""
    env_timeout: float
    """Seconds that one call of an environment in a worker process or thread may take before it is replaced as hung."""
    ray_address: str | None
    """With workers ray: HOST:PORT of a cluster; without it, one is started on this machine for the run."""
    max_staleness: int
    """With workers ray: maximum policy lag, in updates, of a stored transition."""
    engine: EngineName
    """Execution of updates: eager (as written), recorded (CPU) or graph (CUDA graphs, GPU); auto takes the fastest."""
    threads: int
    """CPU threads for the updates; 0 takes what the machine allows."""
    precision: Precision
    """Precision of matrix products on a GPU; tf32 is faster, with 10 bits of mantissa instead of 23."""
    buffer_device: BufferDevice
    """Where the replay buffer of a GPU run is stored; auto: on the GPU if it fits, else in host RAM."""
    env_kwargs: dict[str, Any]
    """Arguments of the environment, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    normalize_observations: bool
    """Normalize observations by running mean and standard deviation, and clip to +-10."""
    variant: str | Sequence[str]
    """Variants of TD3, by name (`td3 steps` lists them); several as a,b."""
    init_from: Path | str | None
    """Start from the weights of this agent, with new optimizers: a run directory or an agent's (short: --from)."""
    dataset: str | None
    """Train offline on these transitions (`td3 offline`), without collecting any."""
    hidden_sizes: Sequence[int]
    """Units of each hidden layer, of the actor and of each critic."""
    actor_hidden_sizes: Sequence[int] | None
    """Units of each hidden layer of the actor; by default those of hidden_sizes."""
    critic_hidden_sizes: Sequence[int] | None
    """Units of each hidden layer of each critic; by default those of hidden_sizes."""
    activation: Activation
    """Activation between layers; with any other than relu, updates are slower (PyTorch's own kernels)."""
    initialization: Initialization
    """Initial weights: uniform within 1 / sqrt(inputs), PyTorch's default, or orthogonal, with biases of 0."""
    critic_layer_norm: bool
    """LayerNorm, without learned scale and shift, before each activation of the critics; variant layer-norm sets it."""
    actor_learning_rate: float
    """Learning rate of the actor."""
    critic_learning_rate: float
    """Learning rate of the critics."""
    learning_rate_schedule: Schedule
    """Learning rates over the run: constant, or linear, which falls to 0 at the last env step."""
    optimizer: Literal["adam", "sgd"]
    """adam, as in all published code, or plain sgd."""
    batch_size: int
    """Transitions per update."""
    buffer_size: int
    """Capacity of the replay buffer, in transitions; the oldest are overwritten."""
    learning_starts: int
    """Env steps with uniformly random actions before learning; by default at most a tenth of the run."""
    exploration_noise: float
    """Standard deviation of the exploration noise on training actions."""
    target_policy_noise: float
    """Standard deviation of target policy smoothing, the noise on the target action (step 6)."""
    target_noise_clip: float
    """Clipping range of that noise."""
    policy_delay: int
    """Updates of the critics per update of the actor and the target networks (steps 13 to 15)."""
    gamma: float
    """Discount factor per env step."""
    tau: float
    """Polyak averaging coefficient of the target networks (steps 14 and 15)."""
    utd_ratio: float
    """Updates per env step (update-to-data ratio), for any number of parallel environments."""
    train_freq: Literal["step", "episode"]
    """Update after every env step, or, as the code of 2018 did, at the end of every episode."""
    timeouts: Timeouts
    """The value after a time-out: the target critics' estimate (bootstrap), or 0 (terminate, a common mistake)."""
    n_step: int
    """Variant n-step only: rewards that are summed before the next state's value; the variant sets 3."""
    priority_exponent: float
    """Variant prioritized only: alpha of the priorities max(error, 1)^alpha; 0: all alike; the variant sets 0.4."""
    image_features: int
    """Image encoder: feature dimension (SAC-AE, DrQ: 50)."""
    random_shift: int
    """Image augmentation: maximum random shift in pixels, at most a twentieth of the side; 0 disables it (DrQ: 4)."""
    bc_alpha: float
    """Variant behavior-cloning: weight of the Q-values against imitating the stored actions (paper: 2.5)."""
    hindsight_goals: int
    """Variant hindsight: copies of every transition with another goal (paper: 4)."""
    total_timesteps: int
    """As steps."""
    n_timesteps: int
    """As steps."""
    max_timesteps: int
    """As steps."""
    num_envs: int
    """As envs."""
    n_envs: int
    """As envs."""
    eval_freq: int | None
    """As eval_every."""
    start_timesteps: int
    """As learning_starts."""
    random_steps: int
    """As learning_starts."""
    expl_noise: float
    """As exploration_noise."""
    policy_noise: float
    """As target_policy_noise."""
    noise_clip: float
    """As target_noise_clip."""
    policy_freq: int
    """As policy_delay."""
    policy_frequency: int
    """As policy_delay."""
    discount: float
    """As gamma."""
    net_arch: Sequence[int]
    """As hidden_sizes."""
    lr: float
    """As actor_learning_rate and critic_learning_rate."""
    learning_rate: float
    """As actor_learning_rate and critic_learning_rate."""
