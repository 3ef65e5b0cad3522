"""Types of arguments that several commands share, and option names of other libraries."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Commands = dict[str, tuple[type, Callable[[Any], int]]]
"""Commands by name: the dataclass of the arguments, and the function that runs it and returns the exit code."""
SPELLINGS = {
    **dict.fromkeys(("-n", "--total-timesteps", "--n-timesteps", "--max-timesteps"), "--steps"),
    **dict.fromkeys(("--num-envs", "--n-envs"), "--envs"),
    "--eval-freq": "--eval-every",
}
"""Option names of the author's code, CleanRL, Stable-Baselines3 and RL Zoo, and ours with the same meaning."""
TRAIN_SPELLINGS = SPELLINGS | {
    **dict.fromkeys(("--start-timesteps", "--random-steps", "--learning-starts"), "--td3.learning-starts"),
    **dict.fromkeys(("--expl-noise", "--exploration-noise"), "--td3.exploration-noise"),
    **dict.fromkeys(("--policy-noise", "--target-policy-noise"), "--td3.target-policy-noise"),
    **dict.fromkeys(("--noise-clip", "--target-noise-clip"), "--td3.target-noise-clip"),
    **dict.fromkeys(("--policy-freq", "--policy-frequency", "--policy-delay"), "--td3.policy-delay"),
    **dict.fromkeys(("--discount", "--gamma"), "--td3.gamma"),
    **{f"--{name}": f"--td3.{name}" for name in ("batch-size", "buffer-size", "tau")},
    "--from": "--init-from",
}
ENV_SPELLINGS = ("--env", "--env-id")


def own_names(words: Sequence[str], command: str = "train") -> list[str]:
    """The same arguments with our option names; where the environment is positional, --env is left out."""
    renamed: list[str] = []
    env_is_option = command in ("ladder", "offline")
    spellings = TRAIN_SPELLINGS if command in ("train", "offline") else SPELLINGS
    for word in words:
        name, equals, value = word.partition("=")
        if name in ENV_SPELLINGS and env_is_option:
            renamed.append("--env" + equals + value)
        elif name in ENV_SPELLINGS:
            renamed += [value] if equals else []
        else:
            renamed.append(spellings.get(name.replace("_", "-"), name) + equals + value)
    return renamed


def read_kwargs(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as a dictionary, values as JSON if they are and else as text; or one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return dict(json.loads(words[0]))
        except ValueError:
            raise ValueError(f"{words[0]} is not JSON") from None
        except RecursionError:
            raise ValueError("the JSON object is nested too deeply") from None
    pairs = [word.partition("=") for word in words]
    if wrong := [word for word, (key, equals, _) in zip(words, pairs, strict=True) if not (key and equals)]:
        raise ValueError(f"{wrong[0]!r} is neither KEY=VALUE nor a JSON object")
    return {key: _as_json(value) for key, _, value in pairs}


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


EnvKwargs = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=read_kwargs,
        is_instance=lambda given: isinstance(given, dict),
        str_from_instance=lambda given: [f"{key}={json.dumps(value)}" for key, value in given.items()],
    ),
]
HIDDEN = (tyro.conf.Fixed, tyro.conf.Suppress)
"""Of a field that a command inherits and does not offer."""
EnvName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="The run directory.")]
BestSeed = Annotated[
    int | None, tyro.conf.arg(help="Which seed's agent; by default the one whose last evaluation was highest.")
]
Which = Annotated[
    Literal["best", "last"], tyro.conf.arg(help="The agent at its best evaluation, or at the end of training.")
]
Json = Annotated[bool, tyro.conf.arg(help="Print the results as one JSON object instead of text.")]
Trust = Annotated[
    bool,
    tyro.conf.arg(
        help="Allow importing the module in the environment's name (module:Class) and the files of replaced steps."
    ),
]
