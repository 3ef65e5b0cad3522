"""Needs MuJoCo Warp, which cannot be installed beside the pinned mujoco: an environment of its own has it."""

import json

import pytest
import torch

pytest.importorskip("mujoco_warp", reason="MuJoCo Warp is not installed: see lab/td3_lab/worlds/README.md")

from td3_lab.worlds.learn import Training, train
from td3_lab.worlds.parity import FUNCTION_TOLERANCE, compare_functions, compare_step, record
from td3_lab.worlds.settings import Settings
from td3_lab.worlds.tasks import TASKS, HalfCheetah, Hopper
from td3_lab.worlds.worlds import Worlds

STATES = 24
SLIDING_STEEP_CAPSULES = {"Ant-v5"}
"""MuJoCo Warp 3.11 turns the friction pyramid under a steep capsule, so of these only the median is compared."""


@pytest.fixture(scope="module", params=sorted(TASKS))
def recorded(request):
    return request.param, record(request.param, STATES)


def test_equal_states_give_gymnasiums_observation_reward_and_termination(recorded):
    name, steps = recorded
    errors = compare_functions(name, steps)
    assert errors.pop("terminations_that_differ") == 0
    assert max(errors.values()) < FUNCTION_TOLERANCE, errors


def test_an_env_step_from_equal_states_gives_nearly_gymnasiums(recorded):
    name, steps = recorded
    errors = compare_step(name, steps)
    assert errors["terminations_that_differ"] == 0
    assert errors["observation_0.5"] < 1e-3, errors
    assert errors["reward_0.5" if name in SLIDING_STEEP_CAPSULES else "reward_0.99"] < 1e-3, errors
    assert errors["worlds_over_the_contact_limits"] == errors["worlds_blown_up"] == 0


def quiet(worlds):
    return torch.zeros(worlds.count, worlds.actions)


def test_a_time_limit_gives_the_last_observation_and_then_starts_anew():
    worlds = Worlds(HalfCheetah(), 3, spread_clocks=False)
    worlds.clock[1] = 998
    worlds.step(quiet(worlds))
    assert not worlds.step(quiet(worlds)).truncated[0]
    worlds.clock[1] = 999
    step = worlds.step(quiet(worlds))
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any()
    assert torch.equal(step.observation[0], worlds.observation[0])
    assert not torch.equal(step.observation[1], worlds.observation[1])
    assert worlds.clock.tolist() == [3, 0, 3]
    assert worlds.observation[1].abs().max() < 1


def test_a_fall_is_terminal_and_starts_anew():
    worlds = Worlds(Hopper(), 2, spread_clocks=False)
    worlds.state.qpos[1, 1] = 0.5
    step = worlds.step(quiet(worlds))
    assert step.terminated.tolist() == [False, True]
    assert step.observation[1, 0] < 0.7
    assert worlds.observation[1, 0] > 1.2


def test_a_world_that_blows_up_is_reset_and_counted():
    worlds = Worlds(HalfCheetah(), 2, spread_clocks=False)
    before = worlds.observation.clone()
    worlds.state.qvel[1, 2] = float("nan")
    step = worlds.step(quiet(worlds))
    assert step.truncated.tolist() == [False, True]
    assert step.reward[1] == 0
    assert torch.equal(step.observation[1], before[1])
    assert torch.isfinite(worlds.observation).all()
    assert int(worlds.blown_up) == 1
    assert torch.isfinite(worlds.step(quiet(worlds)).observation).all()


def test_contacts_beyond_the_limits_are_counted():
    class Cramped(HalfCheetah):
        constraints = 1

    worlds = Worlds(Cramped(), 2, spread_clocks=False)
    for _ in range(30):
        worlds.step(quiet(worlds))
    assert int(worlds.overflowed) > 0


def test_clocks_are_spread_at_the_start():
    worlds = Worlds(HalfCheetah(), 64)
    assert worlds.clock.float().std() > 100


@pytest.fixture
def host_reads(monkeypatch):
    """The names of the ways by which the host reads a tensor, as they are used."""
    used = []
    for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__"):
        original = getattr(torch.Tensor, name)

        def counted(*args, _name=name, _original=original, **options):
            used.append(_name)
            return _original(*args, **options)

        monkeypatch.setattr(torch.Tensor, name, counted)
    return used


def test_a_round_reads_nothing_from_the_device_and_a_log_row_one_tensor(host_reads):
    # Without updates: on a CPU the optimizer reads its own counter, on a GPU a capture forbids every read.
    training = Training(Settings(worlds=4, buffer_size=200, random_rounds=1000), "cpu")
    host_reads.clear()
    for _ in range(3):
        training.play_round()
    assert host_reads == []
    training.read()
    assert host_reads == ["tolist"]


def test_training_on_a_cpu_writes_log_and_policies(tmp_path):
    settings = Settings(
        worlds=4,
        batch=16,
        updates=2,
        random_rounds=3,
        max_rounds=12,
        n_step=2,
        buffer_size=200,
        actor_layers=(8,),
        critic_layers=(16,),
        seconds=600.0,
        save_every=600.0,
        log_every=600.0,
    )
    row = train(settings, tmp_path, "cpu")
    assert row["env_steps"] == 48
    assert row["updates"] == 2 * 8
    assert json.loads((tmp_path / "settings.json").read_text())["task"] == "HalfCheetah-v5"
    assert (tmp_path / "policy_00.npz").is_file()
