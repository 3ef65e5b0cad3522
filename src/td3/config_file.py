"""A configuration from a file, for `td3 train --config`."""

import json
import tomllib
from pathlib import Path
from typing import Any

from td3.config import TrainConfig, resolve
from td3.errors import ConfigError
from td3.files import read_regular_file
from td3.variant_settings import VARIANTS, are_names, listed

LARGEST_CONFIG = 1 << 20
"""Larger config files (in bytes) are not read."""


def _names(variant: Any) -> tuple[str, ...]:
    """Names of variants; none where they are none, which `resolve` refuses."""
    names = listed(variant)
    return names if are_names(names) else ()


def read_config(path: Path, **given: Any) -> TrainConfig:
    """The configuration in a TOML or JSON file, overridden by `given`; everything else comes from the preset.

    A run's file has every setting: those of its variants do not stay where others are given, nor override theirs.
    """
    try:
        text = read_regular_file(path, LARGEST_CONFIG).decode()
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON (a file of TOML must end in .toml)"
        raise ConfigError(f"--config {path} is not {kind}: {error}.") from None
    if not isinstance(values, dict) or not isinstance(values.get("td3", {}), dict):
        raise ConfigError(f"--config {path} must hold settings by name, those of the algorithm under td3.")
    of_td3 = values.get("td3", {})
    if "variant" in given:
        changed = {*_names(values.get("variant", ()))} ^ {*_names(given["variant"])}
        settings_of_them = {name for variant in changed for name in VARIANTS.get(variant, {})}
        of_td3 = {name: value for name, value in of_td3.items() if name not in settings_of_them}
    # A run's config.json must not send another run to the same directory.
    chosen = {"preset": "author", **values, **of_td3, **given}
    settings = {name: value for name, value in chosen.items() if name not in ("td3", "out", "env", "preset")}
    if "env" not in chosen:
        raise ConfigError(f"--config {path} names no env: give it before the option, `td3 train ENV --config {path}`.")
    try:
        return resolve(chosen["env"], chosen["preset"], **settings)
    except ConfigError as error:
        raise ConfigError(f"in {path}: {error}") from None
