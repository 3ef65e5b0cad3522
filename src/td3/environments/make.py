"""Create a Gymnasium environment by name, and report a missing package."""

import contextlib
import difflib
import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv

from td3.environments.exact_reset import with_exact_reset
from td3.environments.observations import as_vector
from td3.environments.quiet import without_output
from td3.environments.spec import FROM_PYTHON, EnvFactory, class_named, found_here, name_of, not_found
from td3.environments.vector import vector_source_named
from td3.errors import EnvironmentFault, MissingExtra, UserError, missing_extra
from td3.pixels.wrappers import RepeatAction, prepare_headless_rendering, render_as_observation
from td3.user_code import describe, with_lines


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
            "HumanoidFlagrun",
            "InvertedDoublePendulumBullet",
            "InvertedPendulumBullet",
            "InvertedPendulumSwingupBullet",
            "PusherBullet",
            "ReacherBullet",
            "ThrowerBullet",
            "Walker2DBullet",
        ),
        ("Walker2DBulletEnv-v0", "AntBulletEnv-v0", "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0"),
    ),
    Family(
        "Box2D",
        "box2d",
        "Box2D",
        None,
        ("LunarLander", "BipedalWalker", "CarRacing"),
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
# Pendulum and MountainCar run without pygame; only their images need it.
RUNS_BARE = {"classic"}


def family_of(env: str) -> Family | None:
    """The family that an environment's name belongs to."""
    return next((family for family in FAMILIES if env.startswith(family.beginnings)), None)


def families() -> list[tuple[Family, bool]]:
    """Every known family, and whether it can be trained on this machine."""
    return [(family, _installed(family) or family.extra in RUNS_BARE) for family in FAMILIES]


def make_environment(
    env: str | EnvFactory,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    pixels: bool = False,
    frames: int = 3,
    image_size: int = 84,
    action_repeat: int = 1,
    **kwargs: Any,
) -> gym.Env[Any, Any]:
    """The environment of this name, or of a function, with observations as one vector; errors are one sentence.

    With `pixels`, its observations are its last few images instead (pixels.py).
    """
    family = family_of(env) if isinstance(env, str) else None
    if pixels:
        kwargs = {"render_mode": "rgb_array", **_small_view(family, image_size), **kwargs}
    if kwargs.get("render_mode") == "rgb_array":
        prepare_headless_rendering(family and family.package)
    if family and not _installed(family) and (family.extra not in RUNS_BARE or "render_mode" in kwargs):
        raise missing_family(str(env), family)
    name, arguments = env if isinstance(env, str) else name_of(env), {**(env_kwargs or {}), **kwargs}
    with without_output() if family and family.extra == "pybullet" else contextlib.nullcontext():
        try:
            if family and family.registers and family.registers not in sys.modules:
                _register(family.registers, aloud=name.startswith("Adroit"))
            made = _made(env, arguments)
            if isinstance(made, VectorEnv):
                raise EnvironmentFault(
                    f"{name} made the vector environment {type(made.unwrapped).__name__}, and of such a function td3 "
                    "asks for a number of environments: give the function an argument num_envs."
                )
            if not isinstance(made, gym.Env):
                raise EnvironmentFault(f"{name} turned out to be {made!r}, and not an environment of Gymnasium.")
            made = with_exact_reset(made, family.extra if family else "")
            if action_repeat > 1:
                made = RepeatAction(made, action_repeat)
            return render_as_observation(made, name, image_size, frames) if pixels else as_vector(made)
        except (UserError, KeyboardInterrupt):
            raise
        except ModuleNotFoundError as error:
            module = error.name or name.partition(":")[0]
            if module == FROM_PYTHON:
                raise not_found(name) from None
            fault = EnvironmentFault(f"{name} needs the module {module!r}, which cannot be found.")
            raise with_lines(fault, error) from error
        except gym.error.DependencyNotInstalled as error:
            raise EnvironmentFault(f"{name} needs a package that is not installed: {_one_line(error)}") from None
        except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv):
            if vector_source_named(name):
                raise EnvironmentFault(
                    f"{name} makes vector environments, and this needs a single one: give one by its name or class."
                ) from None
            raise (not_found(name) if ":" in name and "-v" not in name else EnvironmentFault(_unknown(name))) from None
        except BaseException as error:  # of code that is not ours, or of arguments that it does not take; sys.exit()
            raise with_lines(EnvironmentFault(f"{name} cannot be made: {_one_line(error)}"), error) from error


def _made(env: str | EnvFactory, arguments: dict[str, Any]) -> Any:
    with found_here(env) if isinstance(env, str) else contextlib.nullcontext():
        return _made_of(env, arguments)


def _made_of(env: str | EnvFactory, arguments: dict[str, Any]) -> Any:
    factory = class_named(env) if isinstance(env, str) else env
    if factory is not None:
        limit = arguments.pop("max_episode_steps", None)  # which `gym.make` understands for all that are registered
        made = factory(**arguments)
        return made if limit is None else gym.wrappers.TimeLimit(made, limit)
    with warnings.catch_warnings():
        # An old version that was asked for by name needs no warning, and unknown ones are refused above.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", module="glfw")
        # Gymnasium's checker only prints; check.py raises errors instead.
        return gym.make(env, disable_env_checker=True, **arguments)  # type: ignore[arg-type]  # a name, here


def _register(package: str, aloud: bool) -> None:
    """Import the package, which registers its environments; its messages are about Adroit only."""
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(printed):
        warnings.filterwarnings("ignore", module="glfw")  # a missing window is no problem for headless rendering
        gym.register_envs(importlib.import_module(package))
    if aloud:
        print(printed.getvalue(), end="", file=sys.stderr)


def missing_family(purpose: str, family: Family) -> MissingExtra:
    """The error for a family whose packages are not installed."""
    error = missing_extra(purpose, family.extra)
    note = note_on(family)
    return MissingExtra(f"{error} ({note})") if note else error


def note_on(family: Family) -> str:
    """Why a family cannot be installed on this Python; empty if it can."""
    if family.extra == "pybullet" and sys.version_info[:2] != (3, 11):
        here = ".".join(map(str, sys.version_info[:2]))
        return f"PyBullet has a ready package for Python 3.11 only, and this is {here}: pip would have to compile it"
    return ""


def _small_view(family: Family | None, image_size: int) -> dict[str, Any]:
    """Gymnasium's MuJoCo tasks render at any size: twice as fine as needed, with the camera that follows the body."""
    if family is None or family.extra != "mujoco":
        return {}
    return {"width": 2 * image_size, "height": 2 * image_size, "camera_name": "track"}


def _installed(family: Family) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        needed = [family.package, *([family.registers] if family.registers else [])]
        return all(importlib.util.find_spec(name) is not None for name in needed)
    return False


def _one_line(error: BaseException) -> str:
    sentence = describe(error)
    return sentence.partition(": ")[2] or sentence if isinstance(error, gym.error.Error | TypeError) else sentence


def _unknown(env: str) -> str:
    # Gymnasium's names with a slash are variants that need JAX.
    names = [
        *(name for name in gym.registry if "/" not in name),
        *(name for family in FAMILIES for name in family.examples),
    ]
    by_lower_case = {name.lower(): name for name in names}
    near = difflib.get_close_matches(env.lower(), by_lower_case, 3, 0.6)
    if near:
        return f"there is no environment {env!r}: did you mean {' or '.join(by_lower_case[name] for name in near)}?"
    return f"there is no environment {env!r}: `td3 envs` lists what can be trained here."
