"""Variants of TD3 as a configuration sees them: the settings that each changes, and which cannot be used together."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from td3.errors import ConfigError
from td3.spellings import nearest

Settings = TypeVar("Settings")
VARIANTS: dict[str, dict[str, Any]] = {
    "no-delay": {"policy_delay": 1},
    "no-smoothing": {"target_policy_noise": 0.0},
    "no-twin": {},
    "ddpg": {"policy_delay": 1, "target_policy_noise": 0.0},
    "layer-norm": {"critic_layer_norm": True},
    "prioritized": {"priority_exponent": 0.4},
    "n-step": {"n_step": 3},
    "behavior-cloning": {},
    "hindsight": {},
}
"""The settings that each variant changes; the steps that they replace are in `td3.variants`."""
OWN_SETTINGS: Mapping[str, str] = {
    "n_step": "n-step",
    "priority_exponent": "prioritized",
    "bc_alpha": "behavior-cloning",
    "hindsight_goals": "hindsight",
}
"""Settings of TD3 that only one variant reads, and that variant."""
OTHER_NAMES = {
    **dict.fromkeys(("lap", "per"), "prioritized"),
    **dict.fromkeys(("bc", "td3+bc"), "behavior-cloning"),
    "her": "hindsight",
}
"""What papers call some of them."""
EXCLUDED: tuple[tuple[str, str, str], ...] = (
    ("n-step", "hindsight", "a relabelled transition is not followed by the next one of its episode"),
)
"""Pairs of variants that cannot be used together, and why."""

NEEDED: tuple[tuple[str, str, Any, str], ...] = (
    ("prioritized", "train_freq", "step", "new transitions get their priority one env step after another"),
)
"""Settings that a variant cannot do without, and why."""


def with_variant(settings: Settings, names: Any) -> Settings:
    """The settings with those of variants over them; an unknown name gets its sentence from `TrainConfig`."""
    for name in listed(names) if are_names(listed(names)) else ():
        settings = replace(settings, **VARIANTS.get(name, {}))  # type: ignore[type-var]  # a dataclass
    return settings


def check_variants(names: tuple[str, ...], settings: Any) -> None:
    """Refuse variants that exclude each other, and settings of a variant that is not among them."""
    for one, other, why in EXCLUDED:
        if one in names and other in names:
            raise ConfigError(f"variants {one} and {other} cannot be used together ({why}): leave one of them out.")
    for name, setting, needed, why in NEEDED:
        if name in names and getattr(settings, setting) != needed:
            option = f"--td3.{setting.replace('_', '-')} {needed}"
            raise ConfigError(f"variant {name} needs {setting} {needed} ({why}): give {option}.")
    defaults = {field.name: field.default for field in fields(settings)}
    for name, variant in OWN_SETTINGS.items():
        given = getattr(settings, name)
        if given != defaults[name] and variant not in names:
            wanted = ",".join((*names, variant))
            raise ConfigError(f"is {given}, but only the variant {variant} reads it: give --variant {wanted}.", name)


def listed(names: Any) -> Any:
    """Names from "a,b", ("a", "b") or, as in JSON, ["a", "b"]; anything else as it is."""
    words = [names] if isinstance(names, str) else names
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return names
    return tuple(name.strip() for word in words for name in word.split(","))


def function_names(given: Any) -> Any:
    """Names FILE.py:NAME, from "a.py:f,b.py:g" or several of them; the path of a file may have commas."""
    names: list[str] = []
    unfinished = ""
    pieces = listed(given)
    if not are_names(pieces):
        return pieces
    for piece in pieces:
        unfinished += piece
        if ":" in piece.rpartition("/")[2]:
            names.append(unfinished)
            unfinished = ""
        else:
            unfinished += ","
    return (*names, *[unfinished.removesuffix(",")] * bool(unfinished))


def variant_names(given: Any) -> Any:
    """Names of variants, each once; refuses one that is nearly a name, as `TrainConfig` does all others."""
    names = listed(given)
    if not are_names(names):
        return names
    for name in names:
        if name not in VARIANTS and (near := OTHER_NAMES.get(name.lower()) or nearest(name, VARIANTS)):
            among = ", ".join(VARIANTS)
            raise ConfigError(f"must be names among {among}, but {name!r} was given: did you mean {near}?", "variant")
    return tuple(dict.fromkeys(names))


def are_names(given: Any) -> bool:
    """Whether these are names: a tuple of texts, none of them empty."""
    return isinstance(given, tuple) and all(isinstance(name, str) and name for name in given)
