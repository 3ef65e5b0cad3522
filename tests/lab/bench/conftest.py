"""A stand-in for a checkout of the author's code, and measurements small enough for a test."""

from pathlib import Path

import pytest

UTILS = """
import numpy as np

class ReplayBuffer:
    def __init__(self, state_dim, action_dim, max_size=1000):
        self.size = 0
        self.state = np.zeros((max_size, state_dim))
        self.action = np.zeros((max_size, action_dim))
        self.next_state = np.zeros((max_size, state_dim))
        self.reward = np.zeros((max_size, 1))
        self.not_done = np.zeros((max_size, 1))
"""
LEARNER = """
import torch
import utils

device = None

class TD3:
    calls = []

    def __init__(self, state_dim, action_dim, max_action):
        self.sizes = state_dim, action_dim, max_action

    def train(self, replay_buffer, batch_size):
        assert isinstance(replay_buffer, utils.ReplayBuffer)
        self.calls.append((self.sizes, device, replay_buffer, batch_size))
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "utils.py").write_text(UTILS)
    (folder / "TD3.py").write_text(LEARNER)
    return folder


@pytest.fixture
def small(monkeypatch):
    """Small memories, products and warm-ups: what is measured does not matter here."""
    from td3_lab.bench import learners, loop, machine

    monkeypatch.setattr(learners, "ROWS", 500)
    monkeypatch.setattr(learners, "WARM_UP_STEPS", 30)
    monkeypatch.setattr(loop, "SETTLE", 5)
    monkeypatch.setattr(machine, "CUBE", 16)
