import importlib
import importlib.util

import numpy as np
import pytest
import torch
from td3_lab.worlds.learner import Learner, Support
from td3_lab.worlds.networks import Networks, cross_entropy, expected, projected, resampling
from td3_lab.worlds.policy import Policy
from td3_lab.worlds.replay import ReplayBuffer
from td3_lab.worlds.settings import Settings
from td3_lab.worlds.task import Step
from td3_lab.worlds.tasks import task_named

from td3.errors import UserError

CPU = torch.device("cpu")


def filled_buffer(ends, terminal=()):
    """One world whose observation is the time, with reward 1, 10, 100, ...; `ends` are the times of last steps."""
    buffer = ReplayBuffer(8, 1, 1, 1, CPU)
    for time in range(8):
        terminated, truncated = (torch.tensor([time in times]) for times in (terminal, set(ends) - set(terminal)))
        outcome = Step(torch.full((1, 1), time + 0.5), torch.tensor([10.0**time]), terminated, truncated)
        buffer.add(torch.full((1, 1), float(time)), torch.zeros(1, 1), outcome)
    return buffer


def by_time(batch):
    """The first sample of each time: its return, discount and next observation."""
    times = batch.observation[:, 0].long().tolist()
    return {
        time: (batch.reward[i].item(), batch.discount[i].item(), batch.next_observation[i, 0].item())
        for i, time in enumerate(times)
    }


def sampled(buffer, n_step):
    return by_time(buffer.sample(400, n_step, 0.5, torch.Generator().manual_seed(0)))


def test_an_unknown_task_is_named_beside_the_known_ones():
    with pytest.raises(UserError, match=r"no GPU model of the task 'Ant-v4'; there is one of .*Ant-v5"):
        task_named("Ant-v4")


def test_worlds_without_warp_say_what_to_install():
    if importlib.util.find_spec("mujoco_warp"):
        pytest.skip("MuJoCo Warp is installed")
    with pytest.raises(UserError, match=r"pip install mujoco==3\.11\.0 mujoco-warp==3\.11\.0"):
        importlib.import_module("td3_lab.worlds.worlds")


def test_a_one_step_sample_is_the_stored_transition():
    samples = sampled(filled_buffer(ends=()), 1)
    assert sorted(samples) == list(range(8))
    assert samples[3] == (1000.0, 0.5, 3.5)


def test_an_n_step_return_discounts_later_rewards_and_bootstraps_after_them():
    samples = sampled(filled_buffer(ends=()), 3)
    assert sorted(samples) == list(range(6))  # the last two have no three steps yet
    assert samples[0] == (1 + 5 + 25, 0.125, 2.5)


def test_an_n_step_return_stops_at_a_time_limit_and_bootstraps_from_the_last_observation():
    samples = sampled(filled_buffer(ends=(1,)), 3)
    assert samples[0] == (1 + 5, 0.25, 1.5)
    assert samples[1] == (10, 0.5, 1.5)
    assert samples[2] == (100 + 500 + 2500, 0.125, 4.5)


def test_a_terminal_state_has_no_value():
    samples = sampled(filled_buffer(ends=(1,), terminal=(1,)), 3)
    assert samples[0][:2] == (6, 0)
    assert samples[1][:2] == (10, 0)


def test_a_full_ring_forgets_the_oldest_round():
    buffer = filled_buffer(ends=())
    outcome = Step(torch.full((1, 1), 8.5), torch.tensor([4.0]), torch.tensor([False]), torch.tensor([False]))
    buffer.add(torch.full((1, 1), 8.0), torch.zeros(1, 1), outcome)
    samples = sampled(buffer, 2)
    assert sorted(samples) == list(range(1, 8))
    assert samples[7] == (10.0**7 + 2, 0.25, 8.5)


def test_projection_splits_a_mass_between_its_neighbors():
    atoms = torch.tensor([0.0, 1.0, 2.0])
    mass = torch.tensor([[0.0, 1.0, 0.0]])
    # 0.25 + 0.5 * 1 = 0.75: a quarter to 0, three quarters to 1
    target = projected(mass, atoms, torch.tensor([0.25]), torch.tensor([0.5]))
    torch.testing.assert_close(target, torch.tensor([[0.25, 0.75, 0.0]]))


def test_projection_clamps_at_the_ends():
    target = projected(torch.tensor([[0.0, 0.0, 1.0]]), torch.arange(3.0), torch.tensor([9.0]), torch.tensor([1.0]))
    torch.testing.assert_close(target, torch.tensor([[0.0, 0.0, 1.0]]))


def test_cross_entropy_sums_over_the_critics_and_averages_over_the_batch():
    logits = torch.zeros(2, 5, 4)
    loss = cross_entropy(logits, torch.full((5, 4), 0.25))
    assert loss.item() == pytest.approx(2 * np.log(4))


def test_equal_atoms_leave_the_logits_as_they_are():
    atoms = torch.linspace(-1, 1, 11)
    matrix, bias = resampling(atoms, atoms.clone())
    assert torch.equal(matrix, torch.eye(11))
    assert not bias.any()


def test_wider_atoms_keep_the_expected_value():
    old, new = torch.linspace(-10, 10, 101), torch.linspace(-14, 20, 101)
    logits = -((old - 3) ** 2) / 8
    matrix, bias = resampling(old, new)
    assert expected(matrix @ logits + bias, new).item() == pytest.approx(3, abs=0.01)


def test_the_support_grows_with_the_returns_and_keeps_the_values():
    support = Support(Settings(), CPU)
    generator = torch.Generator().manual_seed(0)
    critics = Networks.initialized(2, (3, 8, 101), layer_norm=True, precision=torch.float32, generator=generator)
    inputs = torch.randn(20, 3, generator=generator)
    with torch.no_grad():
        critics.layers[-1][1].copy_(-50 * support.atoms.new_tensor(np.linspace(-1, 1, 104) ** 2))
        before = expected(critics(inputs), support.atoms)
        support.observe(torch.full((200,), 2.0))
        support.grow([critics])
    assert support.high.item() == pytest.approx(2.6)
    assert support.low.item() == -1
    torch.testing.assert_close(expected(critics(inputs), support.atoms), before, atol=0.05, rtol=0)


def test_a_single_world_does_not_move_the_support():
    support = Support(Settings(), CPU)
    support.observe(torch.tensor([1e6] + [0.5] * 299))
    support.grow([])
    assert support.high.item() == 1


def test_the_policy_on_the_host_acts_as_the_actor(tmp_path):
    learner = Learner(Settings(actor_layers=(16, 8), critic_layers=(16,), seed=3), 5, 3, CPU)
    observation = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    learner.normalizer.observe(3 * observation + 1)
    learner.policy(learner.policy_tensors()).save(tmp_path / "policy.npz")
    policy = Policy.load(tmp_path / "policy.npz")
    with torch.no_grad():
        want = learner.act(observation)
    got = np.stack([policy(row) for row in observation.numpy()])
    np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def test_updates_raise_the_value_of_rewarded_actions():
    settings = Settings(
        actor_layers=(16,), critic_layers=(32,), batch=64, low=-1.0, high=1.0, learning_rate=1e-2, gamma=0.0
    )
    learner = Learner(settings, 1, 1, CPU)
    buffer = ReplayBuffer(64, 8, 1, 1, CPU)
    generator = torch.Generator().manual_seed(0)
    for _ in range(64):
        observation, action = torch.randn(8, 1, generator=generator), 2 * torch.rand(8, 1, generator=generator) - 1
        never = torch.zeros(8, dtype=torch.bool)
        buffer.add(observation, action, Step(observation, -(action[:, 0] - 0.5).abs(), never, never))
    for update in range(300):
        learner.update(buffer, move_actor=update % 2 == 1)
    with torch.no_grad():
        assert learner.act(torch.zeros(1, 1)).item() == pytest.approx(0.5, abs=0.1)
