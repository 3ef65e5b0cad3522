"""Tables of a stranger's run: large ones are refused by one sentence, and the process stays small."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from td3.report.run_files import DIAGNOSTICS_COLUMNS, METRICS_COLUMNS, read_table

PROGRAM = """
import json, resource, sys
from td3.cli import main
main(["doctor", sys.argv[1]])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
codes = [main([command, sys.argv[2]]) for command in ("report", "doctor")]
print(json.dumps([codes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10]))
"""
TABLES = {
    "short rows": (b"env_steps\n" + b"0\n" * 20_000_000, "has more than 1,000,000 rows, which no run writes"),
    "a long row": (b"env_steps\n" + b"," * 20_000_000 + b"\n", "row 2: it has "),
    "many columns": (
        b"env_steps" + b",x" * 10_000_000 + b"\n",
        "row 1: the names of its columns are not those of a run",
    ),
    "empty rows": (b"\n" * 20_000_000, "row 1: the names of its columns are not those of a run"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_large_table_is_refused_in_little_memory(name, trained, tmp_path):
    content, reason = TABLES[name]
    shutil.copytree(trained.path, tmp_path / "run")
    (tmp_path / "run" / "seed_0" / "metrics.csv").write_bytes(content)
    command = [sys.executable, "-c", PROGRAM, str(trained.path), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes, megabytes = json.loads(done.stdout.splitlines()[-1])
    assert codes == [2, 2]
    assert done.stderr.count("\n") == 2
    assert reason in done.stderr
    assert megabytes < 250


def test_a_table_is_the_same_where_it_is_read_in_several_parts(tmp_path):
    rows = np.arange(2_500)
    lines = [f"{row},{row / 3},[1]" for row in rows.tolist()]
    (tmp_path / "table.csv").write_text("env_steps,mean_q,policy_actions\n" + "\n".join(lines) + "\n2500,0")
    metrics = read_table(tmp_path / "table.csv", METRICS_COLUMNS)
    diagnostics = read_table(tmp_path / "table.csv", DIAGNOSTICS_COLUMNS)
    assert metrics["env_steps"].tolist() == rows.tolist()
    assert metrics["mean_q"].tolist() == (rows / 3).tolist()
    assert np.isnan(metrics["actor_loss"]).all()
    assert metrics["actor_loss"].shape == (2_500,)
    assert [bars.tolist() for bars in diagnostics["policy_actions"]] == [[1]] * 2_500
    assert [bars.tolist() for bars in diagnostics["played_actions"]] == [[]] * 2_500
