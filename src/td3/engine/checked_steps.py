"""Replaced steps in the trial before a run: what they raise or return becomes one sentence."""

import functools
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from td3.algorithm.optimizer import NonFinite
from td3.algorithm.registry import STEPS
from td3.algorithm.replacing import Replacement
from td3.algorithm.step_01_replay_buffer import Batch
from td3.errors import ConfigError
from td3.user_code import with_lines

AXES = {"2": "the two critics", "member": "the seeds", "batch": "the batch"}
"""Axes of most tensors, as the annotations of the steps name them, and in words."""
LEARNED_FROM = {10: (11, 12), 11: (12,)}
"""Steps whose result must have a gradient, unless one of these is replaced too, which may do without."""


class CheckedSteps:
    """The same replacements, with their results checked."""

    def __init__(
        self, replacements: Sequence[Replacement], members: int, batch_size: int, actor_sizes: Sequence[int]
    ) -> None:
        self._sizes = {
            "2": 2,
            "member": members,
            "batch": batch_size,
            "action": actor_sizes[-1],
            "state": actor_sizes[0],
        }
        self._numbers = {one.number for one in replacements}
        self.replacements = tuple(one._replace(function=self._checked(one)) for one in replacements)
        self.warnings: list[str] = []

    def __str__(self) -> str:
        return " and ".join(_name(one) for one in self.replacements)

    def _checked(self, replacement: Replacement) -> Callable[..., Any]:
        function = replacement.function

        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            given = _tensors({**dict(zip(inspect.signature(function).parameters, arguments, strict=False)), **keywords})
            versions = [tensor._version for _, tensor in given]
            try:
                result = function(*arguments, **keywords)
            except (NonFinite, ConfigError):  # of a step that this one wraps
                raise
            except Exception as error:
                refused = ConfigError(f"{_name(replacement)}, failed{_reason(replacement, error)}")
                raise with_lines(refused, error) from error
            for (argument, tensor), version in zip(given, versions, strict=True):
                if tensor._version != version:
                    raise ConfigError(
                        f"{_name(replacement)}, changes {argument} in place, which later steps read too: "
                        f"change a copy, {argument}.clone()."
                    )
            self._check(replacement, result)
            return result

        return checked

    def _check(self, replacement: Replacement, result: Any) -> None:
        number, name = replacement.number, f"{_name(replacement)}, returned"
        if number == 4:
            if not isinstance(result, Batch):
                raise ConfigError(
                    f"{name} {type(result).__name__}, and a Batch is needed: return buffer.gather(indices), or a batch "
                    "with other values by batch._replace(...)."
                )
            needed = {field: Batch.__annotations__[field] for field in Batch._fields}
            for field, tensor in zip(Batch._fields, result, strict=True):
                self._check_tensor(f"{name} a batch whose {field} is", tensor, needed[field].dim_str.split())
            return
        annotation = inspect.signature(STEPS[number].function).return_annotation
        if annotation is None:
            return
        self._check_tensor(name, result, annotation.dim_str.split())
        if number in LEARNED_FROM and not self._numbers & {*LEARNED_FROM[number]} and not result.requires_grad:
            raise ConfigError(
                f"{name} a tensor without a gradient, from which the critics cannot learn: leave out detach(), item() "
                "and torch.no_grad()."
            )

    def _check_tensor(self, name: str, tensor: Any, needed: list[str]) -> None:
        wanted = f"[{', '.join(needed)}]"
        if not isinstance(tensor, Tensor):
            raise ConfigError(f"{name} {type(tensor).__name__}, and a tensor {wanted} is needed.")
        if tuple(tensor.shape) != tuple(self._sizes[axis] for axis in needed):
            sizes = ", ".join(f"{axis} {self._sizes[axis]}" for axis in needed if axis != "2")
            raise ConfigError(f"{name} {self._axes_and_advice(tensor, needed, f'{wanted} is needed ({sizes})')}.")
        finite = tensor.isfinite()
        if len(needed) > 1 and not finite.any():
            raise ConfigError(f"{name} no finite number in a trial on made-up transitions: correct it.")
        if not self.warnings and not finite.all():
            self.warnings.append(f"{name} numbers that are not finite in a trial on made-up transitions.")

    def _axes_and_advice(self, tensor: Tensor, needed: list[str], wanted: str) -> str:
        """The axes of a tensor of another shape, by their sizes, and which to reduce or to keep."""
        found: list[str] = []
        left = [axis for axis in self._sizes if axis in needed or axis in AXES]
        for size in tensor.shape:
            axis = next((axis for axis in left if self._sizes[axis] == size), None)
            found.append(axis or str(size))
            left = left if axis is None else left[left.index(axis) + 1 :]
        hints = [f"reduce the axis of {AXES[axis]}" for axis in found if axis in AXES and axis not in needed]
        if len(found) < len(needed):
            hints += [f"keep the axis of {AXES.get(axis, axis)}" for axis in needed if axis not in found]
        return f"[{', '.join(found)}], and {wanted}{': ' if hints else ''}{' and '.join(hints)}"


def _tensors(arguments: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """The tensors among a step's arguments, by name, and those of a batch; not `step_state`, a dictionary."""
    named = [(name, one) for name, one in arguments.items() if isinstance(one, Tensor)]
    batches = [(name, one) for name, one in arguments.items() if isinstance(one, Batch)]
    return named + [(f"{name}.{field}", one) for name, batch in batches for field, one in batch._asdict().items()]


def _name(replacement: Replacement) -> str:
    return f"step {replacement.number}, replaced by {replacement.function.__name__}"


def _reason(replacement: Replacement, error: Exception) -> str:
    """Where in the user's code it failed, and why."""
    code = inspect.unwrap(replacement.function).__code__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    place = f" in {Path(code.co_filename).name}, line {lines[-1]}" if lines else ""
    if (
        isinstance(error, KeyError)
        and error.args
        and "step_state" in inspect.signature(replacement.function).parameters
    ):
        key = error.args[0]
        if isinstance(key, str) and key not in replacement.state:
            declared = ", ".join(f'"{name}": {size!r}' for name, size in {**replacement.state, key: 1}.items())
            return (
                f"{place}: its step_state has no {key!r}; declare it: "
                f"@td3.replace_step({replacement.number}, state={{{declared}}})."
            )
    if "modified by an inplace operation" in str(error):
        return (
            f"{place}: something that the gradient needs was overwritten, by an operation in place or by a second call "
            "of the same network. Call a network once, for all inputs: actor(torch.cat([a, b], 1)).chunk(2, 1)."
        )
    return f"{place} ({type(error).__name__}: {error})."
