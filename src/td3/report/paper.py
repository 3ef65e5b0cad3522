"""Results of the paper, for comparison: arXiv 1802.09477, table 1 (TD3) and the table of its ablations.

Table 1: the highest mean over ten seeds at any evaluation of one million env steps, and one standard deviation over the
seeds at that moment. Ablations: the mean over the last ten evaluations, same seeds.
"""

from typing import NamedTuple

ENGINE = "Gym's v1 tasks through mujoco-py, as they were in 2018"
STEPS = 1_000_000


class Published(NamedTuple):
    """The paper's results for one task."""

    highest: float
    spread: float
    last_ten: float | None


PAPER = {
    "HalfCheetah": Published(9636.95, 859.065, 9532.99),
    "Hopper": Published(3564.07, 114.74, 3304.75),
    "Walker2d": Published(4682.82, 539.64, 4565.24),
    "Ant": Published(4372.44, 1000.33, 4185.06),
    "Reacher": Published(-3.60, 0.56, None),
    "InvertedPendulum": Published(1000.0, 0.0, None),
    "InvertedDoublePendulum": Published(9337.47, 14.96, None),
}
ABLATIONS = {
    "no-delay": {"HalfCheetah": 9590.65, "Hopper": 2407.42, "Walker2d": 4695.50, "Ant": 3754.26},
    "no-smoothing": {"HalfCheetah": 8987.69, "Hopper": 2392.59, "Walker2d": 4033.67, "Ant": 4155.24},
    "no-twin": {"HalfCheetah": 9792.80, "Hopper": 1837.32, "Walker2d": 2579.39, "Ant": 849.75},
    "ddpg": {"HalfCheetah": 8401.02, "Hopper": 1061.77, "Walker2d": 2362.13, "Ant": 564.07},
}
"""The last ten evaluations with one idea removed. DDPG has TD3's networks and settings: the paper's row AHE."""


def published(env: str) -> Published | None:
    """The paper's results for a task of Gymnasium's MuJoCo family, whatever its version."""
    task, _, version = env.partition("-v")
    return PAPER.get(task) if version.isdigit() else None


def engine_warning(env: str, versions: dict[str, str]) -> str:
    """Why a run and the paper's table are not directly comparable."""
    engine = f"mujoco {versions['mujoco']}" if "mujoco" in versions else "another engine"
    return (
        f"The paper used {ENGINE}; this run used {env} on {engine}. Engine and tasks have changed since (contacts, "
        "integrators, rewards), so the paper's result is an orientation, not a target."
    )


def engines_differ(versions: list[dict[str, str]]) -> str | None:
    """A warning if compared runs used different physics."""
    engines = sorted({by_name["mujoco"] for by_name in versions if "mujoco" in by_name}, key=_as_numbers)
    if len(engines) < 2:
        return None
    return (
        f"These runs were made with different mujoco versions ({', '.join(engines)}). Versions 3.5 and 4.0 changed the "
        "physics of Ant, Hopper and Humanoid: a difference between such runs may be the engine's."
    )


def _as_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]
