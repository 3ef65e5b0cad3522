"""Training that starts from a saved agent's weights: what is taken, what is new, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from scripted import SMALL

import td3
from td3.cli import main
from td3.collect.collector import Collector
from td3.environments.rail import Rail
from td3.errors import AgentFileError, UserError
from td3.run import initial_weights
from td3.run.checkpoints import Checkpoints
from td3.training import beginning

FIELDS = {**SMALL, "steps": 60, "device": "cpu", "normalize_observations": True}
NETWORKS = ("actor", "actor_target", "critics", "critics_target")


class WiderRail(Rail):
    """The same sizes with another range of actions."""

    def __init__(self):
        super().__init__()
        self.action_space = Box(-2, 2, (1,))


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Two seeds trained for 60 env steps."""
    return td3.train("Rail-v0", out=tmp_path_factory.mktemp("runs") / "first", seeds=2, **FIELDS)


class Seen(td3.Callback):
    """Keeps what a run began with, and what it said of it."""

    def __init__(self):
        self.said = []

    def on_loop_start(self, trainer):
        self.tensors = {name: tensor.clone().numpy() for name, tensor in trainer.agent.tensors().items()}
        self.stored = len(trainer.buffer)

    def on_info(self, trainer, text):
        self.said.append(text)


def started(tmp_path, source, name="second", **settings):
    seen = Seen()
    run = td3.train(
        "Rail-v0", out=tmp_path / name, init_from=source, callbacks=[seen], **{**FIELDS, "seeds": 2, **settings}
    )
    return run, seen


def weights(run):
    return Checkpoints(run.path).newest()[0].named("agent.")


def test_each_seed_starts_from_its_own_networks_with_new_optimizers_and_an_empty_buffer(first, tmp_path):
    run, seen = started(tmp_path, first.path)
    before = weights(first)
    for name in NETWORKS:
        assert np.array_equal(seen.tensors[name], before[name]), name
    for name, tensor in seen.tensors.items():
        if "optimizer" in name:
            assert (tensor == 0).all(), name
            assert (before[name] != 0).any(), name
    assert seen.stored == 0
    (said,) = [text for text in seen.said if text.startswith("Started from")]
    assert "actor, critics, target networks, normalizer after 60 env steps" in said
    assert "optimizers and replay buffer are new" in said
    assert any((weights(run)[name] != before[name]).any() for name in NETWORKS)
    assert run.config.init_from == str(first.path)


def test_each_seed_says_where_it_comes_from_those_that_the_run_does_not_have_too(first, tmp_path):
    _, seen = started(tmp_path, first.path, seeds=3)
    other = f"seed 2 from {first.path}/seed_{first.best_seed()}/last"
    assert any(f"(and likewise seed 1 from {first.path}/seed_1/last, {other})" in said for said in seen.said)


def test_what_normalizes_observations_goes_on_from_where_it_was(first, tmp_path):
    _, seen = started(tmp_path, first.path)
    before = weights(first)
    for name in ("mean", "scale", "count"):
        assert np.array_equal(seen.tensors[f"observations.{name}"], before[f"observations.{name}"]), name
    for name in ("exact_mean", "squares"):
        assert seen.tensors[f"observations.{name}"] == pytest.approx(before[f"observations.{name}"], rel=1e-4)


def test_every_seed_is_tried_in_one_agent_before_the_run(first, tmp_path, monkeypatch):
    made, real = [], beginning.make_agent
    monkeypatch.setattr(beginning, "make_agent", lambda *given: made.append(given[0].seeds) or real(*given))
    started(tmp_path, first.path, steps=30)
    assert made == [1]


def test_one_agent_is_for_every_seed_and_may_be_given_by_its_file(first, tmp_path):
    folder = first.path / "seed_1" / "last"
    for number, source in enumerate((folder, folder / "agent.safetensors", str(folder / "agent.json"))):
        _, seen = started(tmp_path, source, str(number), steps=30)
        for member in range(2):
            assert np.array_equal(seen.tensors["actor"][member], weights(first)["actor"][1])


def test_a_seed_that_the_run_does_not_have_starts_from_its_best(first, tmp_path):
    _, seen = started(tmp_path, first.path, seed=7, seeds=1, steps=30)
    assert np.array_equal(seen.tensors["actor"][0], weights(first)["actor"][first.best_seed()])


def test_a_snapshot_of_the_actor_gives_actor_and_target_and_leaves_the_critics_new(first, tmp_path):
    (folder, *_) = sorted((first.path / "seed_0" / "snapshots").iterdir(), reverse=True)
    _, seen = started(tmp_path, folder, seeds=1, steps=30)
    _, new = started(tmp_path, None, "new", seeds=1, steps=30)
    assert np.array_equal(seen.tensors["actor"], seen.tensors["actor_target"])
    assert np.array_equal(seen.tensors["critics"], new.tensors["critics"])
    assert (seen.tensors["actor"] != new.tensors["actor"]).any()


def test_the_policy_acts_from_the_first_env_step_on(first, tmp_path, monkeypatch):
    calls = []
    real = Collector.collect

    def watched(self, trainer):
        calls.append(self.act.__name__)
        monkeypatch.setattr(self, "act", lambda policy: pytest.fail("a random action"))
        return real(self, trainer)

    monkeypatch.setattr(Collector, "collect", watched)
    started(tmp_path, first.path, seeds=1, steps=30)
    assert len(calls) == 30


def test_a_resumed_run_does_not_start_again(first, tmp_path):
    whole, _ = started(tmp_path, first.path, steps=60)
    cut, _ = started(tmp_path, first.path, "cut", steps=40)
    (resumed,) = [td3.resume(cut.path, steps=60)]
    for name, tensor in weights(whole).items():
        assert np.array_equal(weights(resumed)[name], tensor), name


def test_the_latest_run_may_be_started_from_although_the_new_one_becomes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = td3.train("Rail-v0", **{**FIELDS, "steps": 30})
    seen = Seen()
    second = td3.train("Rail-v0", init_from="runs/Rail-v0/latest", callbacks=[seen], **{**FIELDS, "steps": 30})
    assert np.array_equal(seen.tensors["actor"], weights(first)["actor"])
    assert second.config.init_from == str(first.path.resolve())
    third = td3.train_offline("runs/Rail-v0/latest", steps=10, batch_size=8, hidden_sizes=(8, 8), eval_episodes=1)
    assert third.config.dataset == str(second.path.resolve())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"hidden_sizes": (8, 9)},
            r"has actor.1.bias of shape \(8,\), and this run \(9,\): give the same",
        ),
        ({"hidden_sizes": (8,)}, "give the same hidden sizes"),
        ({"critic_hidden_sizes": (9, 9)}, r"critic_1\.\d\.(bias|weight) of shape"),
        ({"critic_layer_norm": True}, "has critic layer norm False, and this run True"),
        ({"activation": "tanh"}, "has activation relu, and this run tanh"),
        ({"normalize_observations": False}, "reads normalized observations: add --normalize-observations"),
        ({"init_from": "nowhere"}, "is not a run"),
        ({"env": "Pendulum-v1"}, r"has observation shape \[2\], and this run \[3\]"),
        ({"env": lambda: gym.wrappers.TimeLimit(WiderRail(), 20)}, r"has action low \[-1.0\], and this run \[-2.0\]"),
    ],
)
def test_an_agent_that_does_not_fit_is_refused_before_anything_is_written(first, tmp_path, changed, said):
    settings = {"env": "Rail-v0", "init_from": first.path, **FIELDS, **changed}
    with pytest.raises(UserError, match=said) as refused:
        td3.train(out=tmp_path / "run", **settings)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_an_agent_of_raw_observations_is_refused_where_they_are_normalized(tmp_path):
    raw = td3.train("Rail-v0", out=tmp_path / "raw", **{**FIELDS, "normalize_observations": False, "steps": 30})
    with pytest.raises(AgentFileError, match="does not read normalized observations: leave out"):
        td3.train("Rail-v0", out=tmp_path / "run", init_from=raw.path, **FIELDS)


def test_offline_then_online_on_the_command_line(first, tmp_path, capsys):
    small = ["--td3.hidden-sizes", "8", "8", "--td3.batch-size", "8", "--eval-episodes", "1", "--device", "cpu"]
    offline, online = str(tmp_path / "offline"), str(tmp_path / "online")
    assert main(["offline", str(first.path), "--steps", "30", "--out", offline, *small]) == 0
    start = ["train", "Rail-v0", "--from", offline, "--normalize-observations", "--steps", "40", "--out", online]
    assert main([*start, "--td3.learning-starts", "10", *small]) == 0
    said = capsys.readouterr().out
    assert f"Started from {offline}/seed_0/last: actor, critics, target networks, normalizer after 30 updates" in said
    assert "       30 updates: return" in said
    before = td3.load(f"{offline}/seed_0/last").act(np.ones(2))
    first_actor = td3.load(f"{online}/seed_0/snapshots/000000000").act(np.ones(2))
    assert first_actor == pytest.approx(before)


@pytest.mark.parametrize("count", [np.ones(3), np.array(1.0), np.zeros(1)])
def test_a_count_of_another_shape_or_below_1_gets_one_sentence(tmp_path, count):
    with pytest.raises(AgentFileError, match="a count below 1: it cannot be started from"):
        initial_weights._require_usable(tmp_path, {}, {"observation.count": count})
