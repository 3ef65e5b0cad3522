"""Errors that a user can fix: each is one sentence that says what was given and what to do."""


class UserError(Exception):
    """Shown as one sentence, without a traceback; the command line exits with code 2."""


class ConfigError(UserError):
    """A setting that cannot be used; `field` is its name, with which the sentence begins."""

    def __init__(self, problem: str, field: str = "") -> None:
        self.problem, self.field = problem, field
        super().__init__(self.with_name(field))

    def with_name(self, name: str) -> str:
        """The sentence with another name of the field: an option of the command line, or another library's."""
        return f"{name} {self.problem}" if self.field else self.problem


class EnvironmentFault(UserError):
    """An environment that cannot be trained, or that broke while it ran."""


class Diverged(UserError):
    """Learning whose numbers broke down."""


class MissingExtra(UserError):
    """A package that is needed here and is not installed."""


class RunError(UserError):
    """A run directory that cannot be written, read or used."""


class CallbackError(UserError):
    """A callback that raised, or that cannot be used."""


class AgentFileError(UserError):
    """A saved agent that is damaged or is not one of ours."""


def missing_extra(purpose: str, extra: str) -> MissingExtra:
    """The error for a package that an extra of this project would have installed."""
    return MissingExtra(f"{purpose} needs the extra '{extra}': install it with  pip install 'td3[{extra}]'")
