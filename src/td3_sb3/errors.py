"""Errors of `td3_sb3`: one sentence each, of the kinds that code written for Stable-Baselines3 catches."""

from td3.errors import AgentFileError, ConfigError, Diverged


class SettingError(ConfigError, ValueError):
    """A setting that cannot be used."""


class DivergedError(Diverged, ValueError):
    """Learning whose numbers broke down; RL Zoo's `optimize` counts it as a failed trial."""


class ModelFileError(AgentFileError, ValueError):
    """A file that is damaged, or that holds more than data."""


class MissingFileError(AgentFileError, FileNotFoundError):
    """A file that is not there."""
