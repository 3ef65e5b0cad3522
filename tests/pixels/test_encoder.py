"""The encoder reads images of every layout, learns from the critics' loss alone, and is followed by its target."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.backends.torch_backend import TORCH
from td3.engine import Engine, live_policy, update_once
from td3.environments import TaskSpaces
from td3.pixels.encoder import shifted
from td3.pixels.frame_buffer import FrameReplayBuffer
from td3.settings import TD3Config
from td3.training.setup import encoder_plan

RATES = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
SETTINGS = TD3Config(hidden_sizes=(8, 8), batch_size=4, learning_starts=0, tau=0.25, **RATES)
SHAPES = {
    "H W C": ((20, 24, 3), 1),
    "C H W": ((3, 20, 24), 1),
    "N H W": ((3, 40, 36), 3),
    "N H W C": ((2, 20, 24, 3), 2),
}


def spaces_of(shape, frames):
    return TaskSpaces(int(np.prod(shape)), (-1.0,), (2.0,), shape, (1,), frames=frames)


def new_learner(spaces, seeds=(0,), settings=SETTINGS):
    plan = encoder_plan(spaces, settings)
    return Agent.create(Task(spaces.state_size, spaces.action_low, spaces.action_high, encoder=plan), settings, seeds)


def filled_buffer(spaces, members=1, rows=30):
    size = spaces.state_size // spaces.frames
    buffer, generator = FrameReplayBuffer(members, 50, spaces.frames, size, 1), torch.Generator().manual_seed(5)
    for _ in range(rows):
        states = torch.randint(0, 256, (members, 1, 2 * spaces.state_size), generator=generator).float()
        state, next_state = states.split(spaces.state_size, -1)
        others = torch.rand(members, 1, 3, generator=generator)
        buffer.add_(torch.cat((state, others[..., :1], next_state, others[..., 1:2], others[..., 2:].round()), -1))
    return buffer


@pytest.mark.parametrize("layout", SHAPES)
def test_numpy_and_torch_read_the_same_in_every_layout(layout):
    spaces = spaces_of(*SHAPES[layout])
    agent = new_learner(spaces, seeds=(3, 4))
    images = np.random.default_rng(0).integers(0, 256, (2, 5, spaces.state_size)).astype(np.float32)
    by_torch = agent.actor(agent.features(torch.from_numpy(images))).detach().numpy()
    np.testing.assert_allclose(live_policy(agent)(images), by_torch, atol=1e-4)
    np.testing.assert_allclose(live_policy(agent).member(1)(images[1]), by_torch[1], atol=1e-4)
    assert np.abs(by_torch[0] - by_torch[1]).max() > 1e-3


def test_channels_stay_together_whichever_side_they_stand_on():
    last, first = (new_learner(spaces_of(shape, 1)) for shape in ((20, 24, 3), (3, 20, 24)))
    image = torch.randint(0, 256, (1, 1, 20, 24, 3))
    features = [
        agent.features(states.reshape(1, 1, -1)) for agent, states in ((last, image), (first, image.movedim(-1, 2)))
    ]
    torch.testing.assert_close(*features)


def test_the_critics_loss_trains_it_and_the_actor_only_reads_it():
    spaces = spaces_of((3, 40, 36), 3)
    agent, buffer, streams = new_learner(spaces), filled_buffer(spaces), MemberStreams([0])
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    update_once(agent, buffer, streams, SETTINGS)
    changed = {name for name, tensor in agent.tensors().items() if not torch.equal(tensor, before[name])}
    assert {"critics", "encoder", "encoder_optimizer.first_moment"} <= changed
    assert not changed & {"actor", "actor_target", "critics_target", "encoder_target"}

    class Still:
        """Critics and encoder that do not learn: what still changes is the actor's doing."""

        learning_rate, rate, backend, active = 0.0, torch.tensor(0.0), TORCH, torch.ones(1, dtype=torch.int32)

        def step_(self, *gradients): ...
        def state(self): ...
        def member(self, parameters, index): ...
        def copied(self, parameters, backend): ...

    agent.critics_optimizer = Still()
    before = agent.encoder.parameters.clone()
    actor = agent.actor.parameters.clone()
    update_once(agent, buffer, streams, SETTINGS)
    assert torch.equal(agent.encoder.parameters, before)
    assert not torch.equal(agent.actor.parameters, actor)


def test_its_target_glides_with_the_critics_target():
    spaces = spaces_of((3, 40, 36), 3)
    agent, buffer, streams = new_learner(spaces), filled_buffer(spaces), MemberStreams([0])
    born = agent.encoder_target.parameters.clone()
    update_once(agent, buffer, streams, SETTINGS)
    update_once(agent, buffer, streams, SETTINGS)
    online, target = agent.encoder.parameters.detach(), agent.encoder_target.parameters
    torch.testing.assert_close(target, born + 0.25 * (online - born))


def test_the_next_state_is_read_by_the_target():
    spaces = spaces_of((3, 40, 36), 3)
    agent, buffer = new_learner(spaces, settings=replace(SETTINGS, random_shift=0)), filled_buffer(spaces)
    agent.encoder_target.parameters.add_(0.1)
    batch = buffer.gather(torch.arange(4)[None])
    seen = agent.encode_batch(batch, MemberStreams([0]))
    torch.testing.assert_close(seen.next_state, agent.encoder_target(batch.next_state))
    torch.testing.assert_close(seen.state, agent.encoder(batch.state))
    assert seen.state.requires_grad
    assert not seen.next_state.requires_grad


def test_members_learn_in_company_as_they_do_alone():
    spaces, seeds = spaces_of((3, 40, 36), 3), (7, 8)
    together, buffer = new_learner(spaces, seeds), filled_buffer(spaces, members=2)
    engine = Engine(together, buffer, seeds, SETTINGS, "recorded")
    engine.update([4, 4])
    for index, seed in enumerate(seeds):
        alone = new_learner(spaces, [seed])
        engine = Engine(alone, buffer.member(index), [seed], SETTINGS, "recorded")
        engine.update([4])
        for name, tensor in together.member(index).tensors().items():
            assert torch.equal(tensor, alone.tensors()[name]), name


def test_a_copy_learns_as_the_original_and_apart_from_it():
    spaces = spaces_of((3, 40, 36), 3)
    agent, buffer = new_learner(spaces), filled_buffer(spaces)
    update_once(agent, buffer, MemberStreams([0]), SETTINGS)
    copy = agent.copied()
    for one in (agent, copy):
        update_once(one, buffer, MemberStreams([0], position=1), SETTINGS)
    assert all(torch.equal(tensor, copy.tensors()[name]) for name, tensor in agent.tensors().items())
    assert copy.critics.encoder.parameters.data_ptr() != agent.encoder.parameters.data_ptr()
    copy.critics_optimizer.learning_rate = 0.5
    assert copy.critics_optimizer.encoder.learning_rate == 0.5


def test_a_picture_is_moved_and_its_edge_repeated():
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 1, 3, 3)
    shifts = torch.tensor([[[1, 1], [0, 2], [2, 0]]])
    found = shifted(image.expand(1, 3, 1, 3, 3), shifts, 1)[0, :, 0].tolist()
    assert found[0] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert found[1] == [[2, 3, 3], [2, 3, 3], [5, 6, 6]]
    assert found[2] == [[4, 4, 5], [7, 7, 8], [7, 7, 8]]


def test_pictures_are_moved_by_the_members_own_numbers_and_frames_together():
    spaces = spaces_of((3, 40, 36), 3)
    plan = new_learner(spaces).critics.encoder.plan
    assert plan.shift == 1  # a twentieth of 36
    assert encoder_plan(spaces_of((3, 84, 84), 3), SETTINGS).shift == 4
    assert encoder_plan(spaces_of((3, 84, 84), 3), replace(SETTINGS, random_shift=0)).shift == 0
    pair, alone = MemberStreams([1, 2]), MemberStreams([2])
    assert torch.equal(pair.shifts(6, 2)[1:], alone.shifts(6, 2))
    numbers = torch.cat([MemberStreams([3]).shifts(500, 8)])
    assert numbers.unique().tolist() == list(range(9))
    assert not torch.equal(MemberStreams([2], position=1).shifts(6, 2), MemberStreams([2]).shifts(6, 2))


def test_learning_from_vectors_has_no_trace_of_it():
    agent = Agent.create(
        Task(3, (-1.0,), (1.0,)),
        TD3Config(hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        [0],
    )
    assert agent.encoder is None
    assert agent.critics.learning == (agent.critics.parameters,)
    assert not any("encoder" in name for name in agent.tensors())
    buffer = make_replay_buffer(1, 4, 3, 1)
    buffer.add_(torch.rand(1, 4, 9))
    batch = buffer.gather(torch.arange(4)[None])
    assert agent.encode_batch(batch, MemberStreams([0])) is batch
    assert agent.features(batch.state) is batch.state
