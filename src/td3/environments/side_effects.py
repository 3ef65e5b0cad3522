"""What an environment in this process may do to the whole process, so that nothing after it works."""

import contextlib
import dis
import sys
from collections.abc import Iterator

from td3.errors import EnvironmentFault, UserError

PROCESSES = "undo that before its method returns, or step it with  --workers processes  (in processes of its own)."


class ProcessState:
    """Whether standard output is open, and PyTorch's default device and inference mode, as they are now."""

    def __init__(self) -> None:
        import torch

        self._closed = bool(getattr(sys.stdout, "closed", False))
        self._device, self._inference = torch.get_default_device(), torch.is_inference_mode_enabled()

    def fault(self) -> EnvironmentFault | None:
        """What an environment has changed since then, in a sentence; None if nothing."""
        now = ProcessState()
        if now._closed > self._closed:
            return EnvironmentFault("an environment closed sys.stdout, which is the run's too: remove that call.")
        if now._inference > self._inference:
            return EnvironmentFault(f"an environment switched PyTorch to inference mode for the whole run: {PROCESSES}")
        if now._device != self._device:
            return EnvironmentFault(f"an environment set PyTorch's default device for the whole run: {PROCESSES}")
        return None

    def restore(self) -> None:
        """Give PyTorch its default device back."""
        import torch

        if torch.get_default_device() != self._device:
            torch.set_default_device(None if self._device.type == "cpu" else self._device)


@contextlib.contextmanager
def pytorch_kept() -> Iterator[None]:
    """Whatever environments do inside, PyTorch's default device and inference mode are the same afterwards.

    An error inside that comes of it becomes an `EnvironmentFault`.
    """
    import torch

    before = ProcessState()
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        try:
            yield
            if (fault := before.fault()) and "stdout" in str(fault):  # which cannot be opened again
                raise fault
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:
            if fault := before.fault():
                raise fault from error
            raise
        finally:
            before.restore()


def raised_by_code(error: BaseException) -> bool:
    """Whether a `raise` in Python raised it; a signal, as Ctrl-C sends it, comes between other instructions."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    return dis.opname[innermost.tb_frame.f_code.co_code[innermost.tb_lasti]] == "RAISE_VARARGS"
