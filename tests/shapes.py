"""Shape checks (jaxtyping) off for a while, where whole runs would be checked again and again."""

import contextlib


@contextlib.contextmanager
def unchecked(really: bool = True):
    """Neither calls are checked nor functions inside of functions wrapped, which takes a millisecond for each."""
    import jaxtyping
    from jaxtyping import _decorator

    before, wrap = jaxtyping.config.jaxtyping_disable, _decorator._apply_typechecker
    if really and not before:
        jaxtyping.config.update("jaxtyping_disable", True)
        _decorator._apply_typechecker = lambda checker, function: (
            function if "<locals>" in getattr(function, "__qualname__", "") else wrap(checker, function)
        )
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
        _decorator._apply_typechecker = wrap
