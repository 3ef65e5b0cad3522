"""Make a Gymnasium environment by name, and say what is missing when it cannot be made."""

import contextlib
import difflib
import importlib
import importlib.util
import warnings
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.wrappers import FlattenObservation

from td3.environments.pixels import RepeatAction, prepare_headless_rendering, seen_in_pixels
from td3.errors import EnvironmentFault, missing_extra


class Family(NamedTuple):
    """A group of environments that comes with one package, and the extra that installs it."""

    title: str
    extra: str
    package: str
    registers: str | None
    beginnings: tuple[str, ...]
    examples: tuple[str, ...]


FAMILIES = (
    Family(
        "MuJoCo",
        "mujoco",
        "mujoco",
        None,
        (
            "Ant-",
            "HalfCheetah-",
            "Hopper-",
            "Humanoid",
            "InvertedDoublePendulum-",
            "InvertedPendulum-",
            "Pusher-",
            "Reacher-",
            "Swimmer-",
            "Walker2d-",
        ),
        (
            "HalfCheetah-v5",
            "Hopper-v5",
            "Walker2d-v5",
            "Ant-v5",
            "Humanoid-v5",
            "Reacher-v5",
            "Swimmer-v5",
            "InvertedPendulum-v5",
            "InvertedDoublePendulum-v5",
            "HumanoidStandup-v5",
            "Pusher-v5",
        ),
    ),
    Family(
        "Classic control",
        "classic",
        "pygame",
        None,
        ("Pendulum-", "MountainCarContinuous-"),
        ("Pendulum-v1", "MountainCarContinuous-v0"),
    ),
    Family(
        "PyBullet",
        "pybullet",
        "pybullet",
        "pybullet_envs_gymnasium",
        (
            "AntBullet",
            "HalfCheetahBullet",
            "HopperBullet",
            "HumanoidBullet",
            "InvertedDoublePendulumBullet",
            "InvertedPendulumBullet",
            "InvertedPendulumSwingupBullet",
            "ReacherBullet",
            "Walker2DBullet",
        ),
        ("Walker2DBulletEnv-v0", "AntBulletEnv-v0", "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0"),
    ),
    Family(
        "Box2D",
        "box2d",
        "Box2D",
        None,
        ("LunarLander", "BipedalWalker"),
        ("LunarLanderContinuous-v3", "BipedalWalker-v3"),
    ),
    Family(
        "DeepMind Control",
        "dm-control",
        "dm_control",
        "shimmy",
        ("dm_control/",),
        ("dm_control/walker-walk-v0", "dm_control/cheetah-run-v0"),
    ),
    Family(
        "Gymnasium-Robotics",
        "robotics",
        "gymnasium_robotics",
        "gymnasium_robotics",
        ("Fetch", "HandReach", "HandManipulate", "AntMaze", "PointMaze", "AdroitHand", "FrankaKitchen"),
        ("FetchReachDense-v4",),
    ),
)
# Pendulum and MountainCar run without pygame; only their pictures need it.
RUNS_BARE = {"classic"}


def family_of(env: str) -> Family | None:
    """The family that an environment's name belongs to."""
    return next((family for family in FAMILIES if env.startswith(family.beginnings)), None)


def families() -> list[tuple[Family, bool]]:
    """Every known family, and whether it can be trained on this machine."""
    return [(family, _installed(family) or family.extra in RUNS_BARE) for family in FAMILIES]


def make_environment(
    env: str, *, pixels: bool = False, frames: int = 3, picture_size: int = 84, action_repeat: int = 1, **kwargs: Any
) -> gym.Env[Any, Any]:
    """The environment of this name, its observations flattened to a vector; faults come in one sentence.

    With `pixels`, its observations are its last few pictures instead (pixels.py).
    """
    family = family_of(env)
    if pixels:
        prepare_headless_rendering(family and family.package)
        kwargs = {"render_mode": "rgb_array", **_small_view(family, picture_size), **kwargs}
    if family and not _installed(family) and (family.extra not in RUNS_BARE or "render_mode" in kwargs):
        raise missing_extra(env, family.extra)
    if family and family.registers:
        # Importing the package is what registers its environments.
        gym.register_envs(importlib.import_module(family.registers))
    try:
        with warnings.catch_warnings():
            # That a version is old is no news where it is asked for by name, and unknown ones get a sentence below.
            warnings.simplefilter("ignore", DeprecationWarning)
            # Gymnasium's own checker only prints; what matters is checked once, with a sentence (check.py).
            made = gym.make(env, disable_env_checker=True, **kwargs)
    except ModuleNotFoundError as error:
        module = error.name or env.partition(":")[0]
        raise EnvironmentFault(f"{env} needs the module {module!r}, which cannot be found.") from None
    except gym.error.DependencyNotInstalled as error:
        raise EnvironmentFault(f"{env} needs a package that is not installed: {_one_line(error)}") from None
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv):
        raise EnvironmentFault(_unknown(env)) from None
    except (gym.error.Error, TypeError) as error:
        raise EnvironmentFault(f"{env} cannot be made: {_one_line(error)}") from error
    if action_repeat > 1:
        made = RepeatAction(made, action_repeat)
    if pixels:
        return seen_in_pixels(made, env, picture_size, frames)
    if isinstance(made.observation_space, gym.spaces.Dict | gym.spaces.Tuple):
        made = FlattenObservation(made)
    return made


def _small_view(family: Family | None, picture_size: int) -> dict[str, Any]:
    """Gymnasium's MuJoCo tasks draw at any size: twice as fine as needed, with the camera that follows the body."""
    if family is None or family.extra != "mujoco":
        return {}
    return {"width": 2 * picture_size, "height": 2 * picture_size, "camera_name": "track"}


def _installed(family: Family) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        needed = [family.package, *([family.registers] if family.registers else [])]
        return all(importlib.util.find_spec(name) is not None for name in needed)
    return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _unknown(env: str) -> str:
    # Gymnasium's names with a slash are variants that need JAX.
    known = [
        *(name for name in gym.registry if "/" not in name),
        *(name for family in FAMILIES for name in family.examples),
    ]
    by_lower_case = {name.lower(): name for name in known}
    near = difflib.get_close_matches(env.lower(), by_lower_case, 3, 0.6)
    if near:
        return f"there is no environment {env!r}: did you mean {' or '.join(by_lower_case[name] for name in near)}?"
    return f"there is no environment {env!r}: `td3 envs` lists what can be trained here."
