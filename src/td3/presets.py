"""Presets: hyperparameters of published TD3 code, where they differ from the author's current code (config.py)."""

from typing import Any

from td3.errors import ConfigError

WARM_UP_PART = 10
"""A preset's random steps are at most this fraction (1/10) of the run, so that a short run learns too."""


BULLET: dict[str, Any] = {
    "hidden_sizes": (400, 300),
    "actor_learning_rate": 7e-4,
    "critic_learning_rate": 7e-4,
    "buffer_size": 200_000,
    "learning_starts": 10_000,
    "gamma": 0.98,
}
"""RL Zoo's tuned settings for PyBullet."""
TUNED: dict[str, dict[str, Any]] = {
    # Measured here: docs/hyperparameters.md has the figures.
    "Pendulum-v1": {
        "hidden_sizes": (64, 64),
        "batch_size": 64,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "gamma": 0.95,
    },
    # RL Zoo.
    **{f"{body}BulletEnv-v0": BULLET for body in ("Ant", "HalfCheetah", "Hopper", "Walker2D")},
}
"""Settings that fit a task, where they are known; what is not named is the author's."""


def preset_fields(name: str, env: str, steps: int) -> dict[str, Any]:
    """The fields of `TD3Config` that a preset sets for a run of so many env steps."""
    of_2018 = {
        "hidden_sizes": (400, 300),
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "batch_size": 100,
        "train_freq": "episode",
    }
    presets: dict[str, dict[str, Any]] = {
        "author": {},
        "paper": {
            **of_2018,
            "buffer_size": max(steps, 100),  # the whole history
            "learning_starts": 10_000 if env.startswith(("HalfCheetah", "Ant")) else 1_000,
        },
        "course": {**of_2018, "buffer_size": 20_000, "learning_starts": 10_000},
        "bullet": BULLET,
        "tuned": TUNED.get(env, {}),
    }
    if name not in presets:
        raise ConfigError(f"there is no preset {name!r}: choose one of {', '.join(presets)}.")
    if name == "tuned" and env and env not in TUNED:  # without a task, its help was asked for
        raise ConfigError(
            f"no tuned settings are known for {env}, only for {', '.join(TUNED)}: leave --preset tuned out for the "
            "author's settings, or search for better ones with td3 tune."
        )
    return presets[name]
