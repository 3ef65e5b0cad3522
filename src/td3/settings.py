"""The hyperparameters of TD3, each with its default, unit and source.

Sources: "author" is the current code of the paper's first author, "paper" is arXiv 1802.09477 (2018) with the code
published with it. Presets of other sources are in `td3.presets`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from td3.errors import ConfigError
from td3.rules import Rule, are_sizes, check_fields, is_a, one_of, optional, up_to, whole, within

Initialization = Literal["uniform", "orthogonal"]
Timeouts = Literal["bootstrap", "terminate"]
Activation = Literal["relu", "tanh", "elu", "leaky_relu"]
Schedule = Literal["constant", "linear"]
SIZES = ("hidden_sizes", "actor_hidden_sizes", "critic_hidden_sizes")
"""Fields that hold the sizes of layers; a list is as good as a tuple."""


@dataclass(frozen=True)
class TD3Config:
    """Hyperparameters of TD3. Noise is in units of half the action range, per dimension."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, of the actor and of each critic."""
    actor_hidden_sizes: tuple[int, ...] | None = None
    """Units of each hidden layer of the actor; by default those of hidden_sizes."""
    critic_hidden_sizes: tuple[int, ...] | None = None
    """Units of each hidden layer of each critic; by default those of hidden_sizes."""
    activation: Activation = "relu"
    """Activation between layers; with any other than relu, updates are slower (PyTorch's own kernels)."""
    initialization: Initialization = "uniform"
    """Initial weights: uniform within 1 / sqrt(inputs), PyTorch's default, or orthogonal, with biases of 0."""
    critic_layer_norm: bool = False
    """LayerNorm, without learned scale and shift, before each activation of the critics; variant layer-norm sets it."""
    actor_learning_rate: float = 3e-4
    """Learning rate of the actor."""
    critic_learning_rate: float = 3e-4
    """Learning rate of the critics."""
    learning_rate_schedule: Schedule = "constant"
    """Learning rates over the run: constant, or linear, which falls to 0 at the last env step."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam, as in all published code, or plain sgd."""
    batch_size: int = 256
    """Transitions per update."""
    buffer_size: int = 1_000_000
    """Capacity of the replay buffer, in transitions; the oldest are overwritten."""
    learning_starts: int = 25_000
    """Env steps with uniformly random actions before learning; by default at most a tenth of the run."""
    exploration_noise: float = 0.1
    """Standard deviation of the exploration noise on training actions."""
    target_policy_noise: float = 0.2
    """Standard deviation of target policy smoothing, the noise on the target action (step 6)."""
    target_noise_clip: float = 0.5
    """Clipping range of that noise."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and the target networks (steps 13 to 15)."""
    gamma: float = 0.99
    """Discount factor per env step."""
    tau: float = 0.005
    """Polyak averaging coefficient of the target networks (steps 14 and 15)."""
    utd_ratio: float = 1.0
    """Updates per env step (update-to-data ratio), for any number of parallel environments."""
    train_freq: Literal["step", "episode"] = "step"
    """Update after every env step, or, as the code of 2018 did, at the end of every episode."""
    timeouts: Timeouts = "bootstrap"
    """The value after a time-out: the target critics' estimate (bootstrap), or 0 (terminate, a common mistake)."""
    n_step: int = 1
    """Variant n-step only: rewards that are summed before the next state's value; the variant sets 3."""
    priority_exponent: float = 0.0
    """Variant prioritized only: alpha of the priorities max(error, 1)^alpha; 0: all alike; the variant sets 0.4."""
    image_features: int = 50
    """Image encoder: feature dimension (SAC-AE, DrQ: 50)."""
    random_shift: int = 4
    """Image augmentation: maximum random shift in pixels, at most a twentieth of the side; 0 disables it (DrQ: 4)."""

    bc_alpha: float = 2.5
    """Variant behavior-cloning: weight of the Q-values against imitating the stored actions (paper: 2.5)."""
    hindsight_goals: int = 4
    """Variant hindsight: copies of every transition with another goal (paper: 4)."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        check_fields(self, _RULES)
        # Lists are accepted, but equal settings must give equal configurations.
        for name in SIZES:
            if (sizes := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(sizes))
        if self.batch_size > self.buffer_size:
            raise ConfigError(
                f"batch_size ({self.batch_size}) must not exceed buffer_size ({self.buffer_size}): "
                "make the batch smaller or the buffer larger."
            )

    @property
    def actor_sizes(self) -> tuple[int, ...]:
        """Units of each hidden layer of the actor."""
        return self.actor_hidden_sizes or self.hidden_sizes

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """Units of each hidden layer of each critic."""
        return self.critic_hidden_sizes or self.hidden_sizes

    def learning_rates(self, progress: float) -> tuple[float, float]:
        """The learning rates of the actor and of the critics; `progress` goes from 0 to 1 over the run."""
        share = 1 - progress if self.learning_rate_schedule == "linear" else 1.0
        return self.actor_learning_rate * share, self.critic_learning_rate * share


_RULES: tuple[Rule, ...] = (
    ("hidden_sizes", "one or more whole numbers of at least 1", are_sizes),
    ("actor_hidden_sizes", "one or more whole numbers of at least 1", optional(are_sizes)),
    ("critic_hidden_sizes", "one or more whole numbers of at least 1", optional(are_sizes)),
    ("activation", f"one of {', '.join(get_args(Activation))}", one_of(Activation)),
    ("initialization", "uniform or orthogonal", one_of(Initialization)),
    ("critic_layer_norm", "True or False", is_a(bool)),
    ("learning_rate_schedule", "constant or linear", one_of(Schedule)),
    # With larger ones a single step could leave the range of float32.
    ("actor_learning_rate", "above 0 and at most 100", up_to(100)),
    ("critic_learning_rate", "above 0 and at most 100", up_to(100)),
    ("optimizer", "adam or sgd", lambda given: given in ("adam", "sgd")),
    ("batch_size", "a whole number of at least 1", whole(1)),
    ("buffer_size", "a whole number of at least 1", whole(1)),
    ("learning_starts", "a whole number of at least 0", whole(0)),
    ("exploration_noise", "within [0, 1], a share of half the action range", within(0.0, 1.0)),
    ("target_policy_noise", "a number of at least 0", within(0.0, 1e9)),
    ("target_noise_clip", "a number of at least 0", within(0.0, 1e9)),
    ("policy_delay", "a whole number from 1 to 1,000,000", whole(1, 1_000_000)),
    ("gamma", "within [0, 1]", within(0.0, 1.0)),
    ("tau", "within [0, 1]", within(0.0, 1.0)),
    ("utd_ratio", "above 0 and at most 1,000", up_to(1_000)),
    ("train_freq", "step or episode", lambda given: given in ("step", "episode")),
    ("timeouts", "bootstrap or terminate", one_of(Timeouts)),
    ("n_step", "a whole number from 1 to 1,000", whole(1, 1_000)),
    ("priority_exponent", "within [0, 1]", within(0.0, 1.0)),
    ("image_features", "a whole number of at least 1", whole(1)),
    ("random_shift", "a whole number of at least 0", whole(0)),
    ("bc_alpha", "a number of at least 0", within(0.0, 1e9)),
    ("hindsight_goals", "a whole number from 1 to 100", whole(1, 100)),
)
