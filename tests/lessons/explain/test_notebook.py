"""The notebook runs from the first cell to the last."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[3] / "notebooks/td3_in_15_steps.ipynb"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=900, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
code = [cell for cell in book.cells if cell.cell_type == "code"]
print(sum(cell.execution_count is not None for cell in code), len(code))
print(sum("image/svg+xml" in output.get("data", {}) for cell in code for output in cell.outputs))
"""


def executed(**environment):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(NOTEBOOK.parent)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PLATFORM_DIRS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts, drawings = done.stdout.strip().splitlines()[-2:]
    ran, all_ = counts.split()
    assert ran == all_
    assert int(drawings) == 15


def test_the_notebook_runs_in_its_short_form():
    executed(TD3_NOTEBOOK_FAST="1")


@pytest.mark.long
def test_the_notebook_runs_in_full():
    executed(TD3_NOTEBOOK_FAST="")


def test_the_notebook_comes_with_its_outputs():
    import nbformat

    book = nbformat.read(NOTEBOOK, 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in code)
    assert sum("image/svg+xml" in output.get("data", {}) for cell in code for output in cell.outputs) == 15
    assert sum("image/png" in output.get("data", {}) for cell in code for output in cell.outputs) >= 2
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
