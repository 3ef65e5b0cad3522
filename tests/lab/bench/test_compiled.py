"""The compiled baseline does what the author's update does: it learns, and its targets follow."""

import pytest
import torch
from td3_lab.bench import compiled, learners


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch.compile's own import
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


def test_uncompiled_it_trains_actor_and_critics_and_moves_their_targets(monkeypatch):
    made, make, copied, copy_of = [], compiled._network, [], compiled.copy.deepcopy
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setattr(compiled, "_network", lambda *given: made.append(make(*given)) or made[-1])
    monkeypatch.setattr(compiled.copy, "deepcopy", lambda given: copied.append(copy_of(given)) or copied[-1])
    case = compiled.compiled_updates(learners.synthetic_buffer(1, 1_000, torch.device("cpu")), 8, 16, 1)
    assert (len(made), len(copied)) == (3, 2)
    before = [copy_of(list(network.parameters())) for network in (*made, *copied)]
    assert sum(case.work() for _ in range(2)) == 2.0
    for network, old in zip((*made, *copied), before, strict=True):
        assert any(not torch.equal(new, weight) for new, weight in zip(network.parameters(), old, strict=True))
