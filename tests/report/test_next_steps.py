"""After a run, the commands that are suggested fit that run."""

from pathlib import Path

import numpy as np
import pytest

from td3.config import TrainConfig
from td3.report.next_steps import next_steps, renders

LOW, HIGH = np.full((1, 10), -100.0), np.full((1, 10), 50.0)
RUN = Path("runs/x")


@pytest.mark.parametrize(
    ("settings", "interrupted", "before", "after", "expected"),
    [
        ({}, True, LOW, HIGH, ["td3 report runs/x"]),
        ({}, False, HIGH, LOW, ["td3 doctor runs/x", "td3 watch runs/x"]),
        ({"steps": 20_000}, False, LOW, HIGH, ["td3 watch runs/x", "td3 resume runs/x --steps 80000"]),
        ({}, False, LOW, HIGH, ["td3 watch runs/x", "td3 train Pendulum-v1 --steps 1000000 --seeds 5"]),
        ({"seeds": 3}, False, LOW, HIGH, ["td3 watch runs/x", "td3 export runs/x"]),
        (
            {"replace_steps": ("a.py:b",), "steps": 20_000},
            False,
            LOW,
            HIGH,
            ["td3 watch runs/x", "td3 resume runs/x --trust --steps 80000"],
        ),
    ],
)
def test_the_suggestion_fits_the_run(settings, interrupted, before, after, expected):
    config = TrainConfig(env="Pendulum-v1", **settings)
    assert next_steps(RUN, config, interrupted, before, after) == expected


def test_what_cannot_be_drawn_is_not_to_be_watched():
    assert renders(TrainConfig(env="Rail-v0"))
    assert not renders(TrainConfig(env="Nowhere-v0"))
    assert next_steps(RUN, TrainConfig(env="Nowhere-v0"), False, HIGH, LOW) == ["td3 doctor runs/x"]
