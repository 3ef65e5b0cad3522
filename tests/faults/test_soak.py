"""Hours of training in which something goes wrong every minute; here minutes, in which it does every 15 seconds.

The hour is `python tests/faults/soak.py Pendulum-v1 60 OUT`; docs/reliability.md has its figures.
"""

import pytest

from faults.soak import KINDS, Soak


@pytest.mark.long
@pytest.mark.parametrize("task", ["Pendulum-v1", "HalfCheetah-v5"])
def test_a_run_with_a_fault_every_15_seconds_loses_no_row(task, tmp_path):
    soak = Soak(task, 3, tmp_path / "run", every=15)
    soak.run()
    found = soak.figures()
    assert {*found["faults"]} == {*KINDS}
    assert found["restarts"] >= 5
    assert found["refused_checkpoints"] == []
    assert found["rows_in_memory"] == found["rows_expected"] == found["env_steps"] > 2_000
    assert found["all_finite"]
    assert not found["metrics_rows_missing_or_double"]
