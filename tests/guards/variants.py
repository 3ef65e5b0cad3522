"""Guards of the variants, and the faults that they must catch."""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from shapes import unchecked
from torch import Tensor, nn
from variants.episodes import Episodes, every_row
from variants.priorities import Learner, zeros

from td3 import training
from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import StackedMLP, parameter_count
from td3.algorithm.replacing import StepChanges
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.backends import torch_backend
from td3.config import TrainConfig
from td3.settings import TD3Config
from td3.variants import n_step, prioritized

from .bugs import Plant, bug
from .guards import guard
from .worlds import HIGH, LOW, SETTINGS, SHORT_TASK, STATE_SIZE

# n-step


@guard
def n_step_returns_are_those_of_a_slow_reference() -> None:
    for seed, envs, capacity in ((0, 1, 20), (1, 1, 200), (2, 3, 40), (3, 2, 37)):
        episodes = Episodes(seed, envs, capacity, 40)
        batch = every_row(episodes, n_step.n_step_batch, TD3Config(n_step=3, gamma=0.5))
        for index in range(len(episodes.buffer)):
            reward, state, factor = episodes.n_step(index, 3, 0.5)
            assert abs(batch.reward[0, index].item() - reward) < 1e-9
            assert batch.next_state[0, index, 0].item() == state
            assert abs(0.5 * (1 - batch.terminated[0, index].item()) - factor) < 1e-9


def n_step_with(**missing: bool):
    """The replacement of step 4 in other words, without one of its conditions."""

    def sample(buffer, random, batch_size, original, settings):
        batch, capacity = original(buffer, random, batch_size), buffer.capacity
        stride = 1 if "stride" in missing else buffer.stride
        size, last, first = buffer.widths[0], batch.indices.clone(), 1 if "first_power" in missing else 0
        reward, power = batch.reward.clone(), torch.zeros_like(batch.reward)
        for member, index in torch.cartesian_prod(*map(torch.arange, last.shape)).tolist():
            place = int(last[member, index])
            for steps in range(1, settings.n_step):
                following, row = (place + stride) % capacity, buffer.rows[member, place]
                next_row = buffer.rows[member, following]
                age = (buffer.added - 1 - place) % capacity
                ends = ("termination" not in missing and row[-1] == 1) or ("age" not in missing and age < stride)
                same = torch.equal(next_row[:size], row[-2 - size : -2])
                if ends or not (same or "state" in missing) or next_row.isnan().any():
                    break
                reward[member, index] += settings.gamma ** (steps + first) * next_row[-2]
                power[member, index] += 1
                place = following
            last[member, index] = place
        end = buffer.gather(batch.indices if "next_state" in missing else last)
        discount = settings.gamma ** (0 * power if "power" in missing else power)
        terminated = end.terminated if "power" in missing else 1 - discount * (1 - end.terminated)
        return batch._replace(reward=reward, next_state=end.next_state, terminated=terminated)

    return sample


N_STEP = "n_step_returns_are_those_of_a_slow_reference"


@bug(N_STEP)
def a_return_runs_into_the_next_episode(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(state=True))


@bug(N_STEP)
def a_return_of_several_environments_mixes_them(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(stride=True))


@bug(N_STEP)
def a_return_runs_from_the_newest_row_to_the_oldest(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(age=True, state=True, termination=True))


@bug(N_STEP)
def later_rewards_are_discounted_once_too_often(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(first_power=True))


@bug(N_STEP)
def the_value_after_n_steps_is_discounted_once(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(power=True))


@bug(N_STEP)
def the_value_after_n_steps_is_that_of_the_first_next_state(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(next_state=True))


# layer-norm


@guard
def critics_with_layer_norm_have_the_values_and_gradients_of_autograd() -> None:
    generator, sizes = torch.Generator().manual_seed(0), (3, 6, 5, 1)
    parameters = torch.randn(2, 1, parameter_count(sizes), generator=generator, dtype=torch.float64).requires_grad_()
    network = StackedMLP(sizes, parameters, layer_norm=True)
    inputs = torch.randn(2, 1, 4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    hidden: Tensor = inputs
    for depth, (weight, bias) in enumerate(network.layers()):
        hidden = hidden @ weight + bias.unsqueeze(-2)
        if depth < 2:
            centered = hidden - hidden.mean(-1, keepdim=True)
            hidden = (centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()).relu()
    ours = network(inputs)
    assert torch.allclose(ours, hidden, rtol=1e-10)
    both = [torch.autograd.grad(out.square().sum(), (inputs, parameters)) for out in (hidden, network(inputs))]
    assert all(torch.allclose(one, other, rtol=1e-8, atol=1e-10) for one, other in zip(*both, strict=True))


@guard
def all_critics_of_a_run_have_layer_norm() -> None:
    spec = (
        Task(STATE_SIZE, LOW, HIGH),
        TD3Config(hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3, critic_layer_norm=True),
    )
    agent = Agent.create(*spec, (0, 1))
    state, action = torch.randn(2, 4, STATE_SIZE) * 100, torch.zeros(2, 4, 2)
    for one in (agent, agent.copied()):
        for critics in (one.critics, one.critics_target):
            _, hidden = critics.network.with_hidden(torch.cat((state, action), -1))
            assert all(layer.max() < 8**0.5 for layer in hidden)  # whatever the inputs
        assert torch.equal(one.critics.first_frozen(state, action), one.critics(state, action)[0])


VALUES = "critics_with_layer_norm_have_the_values_and_gradients_of_autograd"


@bug(VALUES)
def the_gradient_ignores_that_the_deviation_depends_on_the_units(plant: Plant) -> None:
    def normalize_backward(self, gradient, normalized, inverse_deviation):
        return (gradient - gradient.mean(-1, keepdim=True)) * inverse_deviation

    plant.method(torch_backend.TorchBackend, "normalize_backward", normalize_backward)


@bug(VALUES)
def units_are_normalized_over_the_batch(plant: Plant) -> None:
    right = torch_backend.TorchBackend.normalize_

    def normalize_(self, values, activation, keep):
        turned = values.mT.contiguous()
        kept = right(self, turned, activation, keep)
        values.copy_(turned.mT)
        return kept and (kept[0].mT, kept[1].mT.mean(-1, keepdim=True).expand(*values.shape[:2], 1))

    plant.method(torch_backend.TorchBackend, "normalize_", normalize_)


@bug("all_critics_of_a_run_have_layer_norm")
def targets_and_frozen_critics_are_not_normalized(plant: Plant) -> None:
    def over(self, parameters, backend=None):
        return StackedMLP(self.sizes, parameters, self.activation, backend or self.backend)

    plant.method(StackedMLP, "over", over)


# prioritized


@guard
def priorities_are_those_of_a_slow_reference() -> None:
    learner = Learner(capacity=70, envs=2)
    learner.store(30)
    for _ in range(40):
        learner.store(2)
        learner.learn(learner.sample(6), 4 * torch.randn(2, 1, 6, generator=learner.generator))
        differences = zip(learner.priorities, learner.expected, strict=True)
        assert max(abs(ours - theirs) for ours, theirs in differences) < 1e-4


@guard
def rows_are_drawn_as_often_as_their_priorities_say() -> None:
    members, rows, draws = 2, 100, 400
    buffer, state = ReplayBuffer(members, 128, 1, 1), zeros(members, 128)
    buffer.add_(torch.zeros(members, rows, 5))
    state["entered"][:] = rows
    random, counts = MemberStreams((0, 1)), torch.zeros(members, rows)
    unlike = torch.zeros(members, rows)
    unlike[0, 70], unlike[1, 5] = 24.0, 49.0
    prioritized._set(state, torch.arange(rows).expand(members, -1), unlike)
    for _ in range(draws):
        indices = prioritized.sample_by_priority(buffer, random, 64, state, TD3Config()).indices
        assert (indices < rows).all()
        counts.scatter_add_(1, indices, torch.ones(indices.shape))
    shares = counts / (64 * draws)
    assert torch.allclose(shares, (1 + unlike) / (1 + unlike).sum(-1, keepdim=True), atol=0.01)


@guard
def the_loss_of_prioritized_replay_is_hubers() -> None:
    learner, errors = Learner(capacity=10), torch.tensor([[[0.5, -3.0, 2.0]], [[0.1, 0.2, -7.0]]])
    learner.store(10)
    both = [nn.functional.huber_loss(one, torch.zeros(one.shape)) for one in errors]
    assert torch.allclose(learner.learn(learner.sample(3), errors), torch.stack(both).sum())


@guard
@unchecked()
def priorities_survive_a_resume() -> None:
    settings = replace(SETTINGS, priority_exponent=0.4)
    usual = {"env": SHORT_TASK, "variant": ("prioritized",), "td3": settings, "eval_every": 0, "eval_episodes": 1}
    agents = []
    with tempfile.TemporaryDirectory() as folder:
        for name, steps in (("cut", 30), ("whole", 50)):
            out = Path(folder) / name
            config = TrainConfig(**usual, steps=steps, threads=1, device="cpu", out=out, save_every=10)
            run = training.train_run(config)
            if steps < 50:
                run = training.resume_run(out, 50)
            agents.append((run.folder(0) / "last" / "agent.safetensors").read_bytes())
    assert agents[0] == agents[1]


PRIORITIES = "priorities_are_those_of_a_slow_reference"


@bug(PRIORITIES)
def a_new_row_inherits_the_priority_of_the_one_it_overwrites(plant: Plant) -> None:
    plant(prioritized._enter_new_rows, lambda state, buffer, settings: None)


@bug(PRIORITIES)
def only_the_newest_row_gets_the_largest_priority(plant: Plant) -> None:
    right = prioritized._enter_new_rows

    def enter(state, buffer, settings):
        buffer.rows_per_round, rows_per_round = 0, buffer.rows_per_round
        right(state, buffer, settings)
        buffer.rows_per_round = rows_per_round

    plant(prioritized._enter_new_rows, enter)


@bug(PRIORITIES, "the_loss_of_prioritized_replay_is_hubers")
def priorities_follow_the_first_critic_and_the_loss_is_squared(plant: Plant) -> None:
    right = prioritized.prioritized_loss

    def loss(q_values, target_q, step_state, settings, batch):
        right(q_values[:1].expand(2, -1, -1), target_q, step_state, settings, batch)
        return (q_values - target_q).square().mean(-1).sum(0)

    plant(prioritized.prioritized_loss, loss)


@bug("rows_are_drawn_as_often_as_their_priorities_say")
def sums_are_not_updated_with_their_rows(plant: Plant) -> None:
    plant(prioritized._set, lambda state, indices, excess: state["excess"].scatter_(1, indices, excess))


@bug("rows_are_drawn_as_often_as_their_priorities_say")
def all_members_have_the_priorities_of_the_first(plant: Plant) -> None:
    right = prioritized._block
    plant(prioritized._block, lambda level, indices: right(level[:1].expand_as(level).contiguous(), indices))


@bug("rows_are_drawn_as_often_as_their_priorities_say")
def places_that_hold_no_row_have_a_priority(plant: Plant) -> None:
    right = prioritized._stored
    plant(prioritized._stored, lambda remaining, count, rows: right(torch.full_like(remaining, 128), count, rows))


@bug("priorities_survive_a_resume")
def a_restored_buffer_has_not_counted_its_rows(plant: Plant) -> None:
    def set_cursor_(self, added, state):
        self._added[:] = added
        self.filled.fill_(len(self))

    plant.method(ReplayBuffer, "set_cursor_", set_cursor_)


@bug("priorities_survive_a_resume")
def priorities_are_not_restored(plant: Plant) -> None:
    def tensors(self):
        return {}

    plant.method(StepChanges, "tensors", tensors)
