"""Settings of the fast learner, each with its unit and its source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What can be set; FastTD3 is arXiv 2505.22642, the prototype is the first measurement of this recipe."""

    task: str = "HalfCheetah-v5"
    worlds: int = 1024
    seconds: float = 30.0
    """Seconds of training, without compiling and evaluation."""
    max_rounds: int = 1_000_000_000
    """Rounds after which the training ends even earlier."""
    save_every: float = 5.0
    """Seconds between policies that are saved for evaluation."""
    log_every: float = 1.0
    seed: int = 0
    batch: int = 8192
    updates: int = 4
    """Updates per round, that is, per env step of every world."""
    policy_delay: int = 2
    gamma: float = 0.99
    tau: float = 0.05
    learning_rate: float = 3e-4
    weight_decay: float = 0.0
    actor_layers: tuple[int, ...] = (512, 256, 128)
    """Widths of the actor's hidden layers (FastTD3)."""
    critic_layers: tuple[int, ...] = (1024, 512, 256)
    layer_norm: bool = True
    atoms: int = 101
    low: float | None = None
    """Lowest atom; None lets the support follow the discounted returns that are seen."""
    high: float | None = None
    support_margin: float = 1.3
    """An end of the support that is moved lies beyond the returns by this factor."""
    support_reach: float = 0.0
    """If positive, the first highest atom lies this many standard deviations of the random rounds' rewards above their
    mean, over 1 - gamma, and the lowest an eighth of that below: room for optimism. 0 begins with the narrowest."""
    support_every: int = 10
    """Rounds between looks at whether the support must grow."""
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    noise_low: float = 0.01
    """Smallest scale of exploration noise; each episode draws one between this and `noise_high` (FastTD3)."""
    noise_high: float = 0.4
    n_step: int = 1
    random_rounds: int = 10
    buffer_size: int = 2_000_000
    """Transitions in the replay buffer."""
    bf16: bool = True
    """Whether matrix products are in bfloat16; parameters stay float32."""
    compiled: bool = True
    """Whether torch.compile fuses the losses, on a GPU."""
    fused: bool = True
    """Whether kernels of our own (`fused.py`) replace PyTorch's, on a GPU."""
    solver_iterations: int | None = None
    """Largest number of the contact solver's iterations; None keeps the model's."""

    @property
    def automatic_support(self) -> bool:
        """Return whether the support of the atoms follows the returns."""
        return self.low is None or self.high is None
