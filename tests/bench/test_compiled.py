"""The compiled baseline does what the author's update does: it learns, and its targets follow."""

import pytest
import torch

from td3.bench import compiled, learners


@pytest.mark.long
def test_the_compiled_baseline_is_measured():
    buffer = learners.synthetic_buffer(1, 1_000, torch.device("cpu"))
    case = compiled.compiled_updates(buffer, 8, 16, 1)
    case.prepare()
    assert [case.work() for _ in range(3)] == [1.0, 1.0, 1.0]


def test_where_it_cannot_be_compiled_a_sentence_says_so(monkeypatch):
    def failing(function):
        def call(*arguments):
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(torch, "compile", failing)
    buffer = learners.synthetic_buffer(1, 1_000, torch.device("cpu"))
    with pytest.raises(learners.ConfigError, match=r"torch.compile failed here \(RuntimeError\): leave out --compile"):
        compiled.compiled_updates(buffer, 8, 16, 1)


def test_uncompiled_it_updates_all_networks(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    buffer = learners.synthetic_buffer(1, 1_000, torch.device("cpu"))
    case = compiled.compiled_updates(buffer, 8, 16, 1)
    assert sum(case.work() for _ in range(4)) == 4.0
