import sys
import types

import numpy as np
import pytest
import torch
from td3_lab.bench import learners

from td3.errors import ConfigError
from td3.settings import TD3Config

CPU = torch.device("cpu")


@pytest.fixture
def made(monkeypatch) -> list:
    """The other libraries' objects, as the benchmarks make them."""
    found, make = [], learners._their_learner
    monkeypatch.setattr(learners, "_their_learner", lambda *arguments: found.append(make(*arguments)) or found[-1])
    return found


def test_made_up_rows_look_like_transitions():
    rows = learners.synthetic_rows(1_000)
    assert rows.shape == (1_000, 42)
    assert np.abs(rows[:, 17:23]).max() <= 1
    assert set(rows[:, -1]) == {0.0, 1.0}
    assert np.array_equal(rows, learners.synthetic_rows(1_000))


@pytest.mark.parametrize("members", [1, 3])
def test_our_lane_updates_every_member(members, small, monkeypatch):
    agents = []
    create = learners.Agent.create
    monkeypatch.setattr(learners.Agent, "create", lambda *a, **k: agents.append(create(*a, **k)) or agents[-1])
    case = learners.td3_updates(learners.synthetic_buffer(members, 500, CPU), 8, 16, 1)
    case.prepare()
    noted = TD3Config().policy_delay  # one of each kind, before anything is measured
    assert [case.work() for _ in range(2)] == [members, members]
    assert agents[0].updates.tolist() == [noted + 2] * members


def test_the_authors_code_is_given_the_same_transitions(checkout, small, monkeypatch):
    modules = learners.import_checkout(checkout)
    monkeypatch.setattr(learners, "import_checkout", lambda path: modules)
    case = learners.author_updates(checkout, 32, CPU, 1)
    case.prepare()
    assert case.work() == 1
    sizes, device, buffer, batch_size = modules["TD3"].TD3.calls[-1]
    assert (sizes, device, batch_size) == ((17, 6, 1.0), CPU, 32)
    rows = learners.synthetic_rows(500)
    assert buffer.size == 500
    assert np.array_equal(buffer.next_state[:500], rows[:, 23:40])
    assert np.array_equal(buffer.reward[:500, 0], rows[:, 40])
    assert np.array_equal(buffer.not_done[:500, 0], 1 - rows[:, 41])


def test_a_checkout_leaves_no_trace_in_the_import_system(checkout, monkeypatch):
    ours = types.ModuleType("utils")
    monkeypatch.setitem(sys.modules, "utils", ours)
    path = list(sys.path)
    modules = learners.import_checkout(checkout)
    assert modules["utils"] is not ours
    assert modules["TD3"].utils is modules["utils"]
    assert sys.modules["utils"] is ours
    assert "TD3" not in sys.modules
    assert sys.path == path


def test_two_checkouts_do_not_mix(checkout, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "TD3.py").write_text("class TD3: mark = 2\n")
    (other / "utils.py").write_text("class ReplayBuffer: mark = 2\n")
    assert not hasattr(learners.import_checkout(checkout)["TD3"].TD3, "mark")
    assert learners.import_checkout(other)["TD3"].TD3.mark == 2


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no directory .*nowhere: give --author a checkout"):
        learners.import_checkout(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("TD3.py", None, "is not a checkout of the author's code: it has no TD3.py."),
        ("utils.py", None, "is not a checkout of the author's code: it has no utils.py."),
        ("utils.py", "x = 1\n", "is not a checkout of the author's code: its utils.py has no ReplayBuffer."),
        ("TD3.py", "import no_such_thing\n", "cannot be imported: No module named 'no_such_thing'"),
    ],
)
def test_what_is_no_checkout_is_refused_and_leaves_no_trace(checkout, name, content, said):
    if content is None:
        (checkout / name).unlink()
    else:
        (checkout / name).write_text(content)
    path = list(sys.path)
    with pytest.raises(ConfigError) as caught:
        learners.import_checkout(checkout)
    assert str(caught.value).endswith(said)
    assert sys.path == path
    assert not {"TD3", "utils"} & set(sys.modules)


def test_a_checkout_of_2018_is_refused(checkout):
    (checkout / "utils.py").write_text("class ReplayBuffer: pass\n")
    with pytest.raises(ConfigError, match="is not a current checkout of the author's code: "):
        learners.author_updates(checkout, 8, CPU, 1)


def test_stable_baselines3_updates_from_the_same_transitions(small, made):
    case = learners.sb3_updates(32, 8, CPU, 1)
    (learner,) = made
    before = learner.actor.mu[0].weight.detach().clone()
    assert [case.work() for _ in range(2)] == [1, 1]
    assert not torch.equal(before, learner.actor.mu[0].weight)
    assert [layer.out_features for layer in learner.actor.mu if hasattr(layer, "out_features")] == [8, 8, 6]
    assert learner.replay_buffer.size() == 500
    assert np.array_equal(learner.replay_buffer.rewards[:, 0], learners.synthetic_rows(500)[:, 40])


def test_our_loop_makes_one_update_per_env_step(small):
    loop = learners.Td3Loop("Pendulum-v1", 2, 8, 16, CPU, 1)
    training = loop._training
    assert training.buffer.added == 30
    assert [loop.case.work() for _ in range(3)] == [2, 2, 2]
    assert training.buffer.added == 36
    assert training.agent.updates.tolist() == [6]
    loop.close()


def test_their_loop_is_warm_when_it_is_measured(small, made):
    case = learners.their_loop("stable_baselines3", "Pendulum-v1", 16, 8, CPU, 1)
    (learner,) = made
    assert learner.num_timesteps > learners.WARM_UP_STEPS
    updates = learner._n_updates
    assert updates > 0
    assert case.work() == learners.CHUNK
    assert learner._n_updates == updates + learners.CHUNK
