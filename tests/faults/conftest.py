"""Whole trainings, many times over: here they run as fast as in training."""

import jaxtyping
import pytest


@pytest.fixture(scope="package", autouse=True)
def _without_shape_checks():
    """Shapes are checked in all other tests; checking them again here would take three quarters of the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
