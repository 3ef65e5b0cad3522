"""Classes of notebook cells, which no worker process can import."""

import os
import sys
from pathlib import Path

from scripted import needs

CELL = """
import gymnasium as gym
import numpy as np
import td3


class Toy(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self.age += 1
        return self.np_random.random(2, np.float32), float(action[0]), False, self.age == LENGTH, {}


LENGTH = 10
gym.register("Toy-v0", Toy)
"""
TRAIN = """
fields = {"steps": 60, "envs": 2, "hidden_sizes": (8, 8), "batch_size": 8, "learning_starts": 20, "device": "cpu"}
tried = [(Toy, "none"), (Toy, "processes"), ("Toy-v0", "processes")]
runs = [td3.train(env, workers=kind, out=f"run_{n}", eval_episodes=1, **fields) for n, (env, kind) in enumerate(tried)]
all(run.evaluations(0)[1].tolist() == runs[0].evaluations(0)[1].tolist() for run in runs)
"""


def test_a_class_of_a_cell_is_trained_in_worker_processes_as_in_this_one(tmp_path, monkeypatch):
    needs("nbclient")
    needs("ipykernel")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    source = Path(sys.modules["td3"].__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), *sys.path]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (CELL, TRAIN)])
    client = NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    (output,) = (one for one in notebook.cells[1].outputs if one.output_type == "execute_result")
    assert output.data["text/plain"] == "True"
