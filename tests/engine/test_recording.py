"""Recordings: the very numbers of eager execution, whatever an update is made of."""

import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.backends import cpu
from td3.engine import Engine, max_difference, update_once
from td3.engine import recording as recording
from td3.engine.losses import LossSums
from td3.engine.recording import Recording
from td3.settings import TD3Config

SETTINGS = {
    "as by default": {},
    "one layer": {"hidden_sizes": (24,)},
    "three layers": {"hidden_sizes": (24, 16, 8)},
    "gradient descent": {"optimizer": "sgd"},
    "the actor every time": {"policy_delay": 1},
    "the actor every third time": {"policy_delay": 3},
    "an odd batch": {"batch_size": 7},
}


def settings_of(**changed):
    return TD3Config(**{"hidden_sizes": (32, 32), "batch_size": 16, "buffer_size": 200, **changed})


def learner(settings, seeds=(5,), action_size=2):
    low, high = [-1.0] * action_size, [1.0] * action_size
    agent = Agent.create(
        Task(4, low, high),
        TD3Config(
            hidden_sizes=settings.hidden_sizes,
            actor_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            optimizer=settings.optimizer,
        ),
        seeds,
    )
    buffer = make_replay_buffer(len(seeds), 200, 4, action_size)
    rows = torch.randn(len(seeds), 150, 10 + action_size, generator=torch.Generator().manual_seed(1))
    rows[..., -1] = (rows[..., -1] > 1).float()
    buffer.add_(rows)
    return agent, buffer


def equal(agent, other):
    return all(torch.equal(tensor, other.tensors()[name]) for name, tensor in agent.tensors().items())


@pytest.mark.parametrize("name", SETTINGS)
def test_updates_are_those_of_plain_execution_bit_for_bit(name):
    settings, updates = settings_of(**SETTINGS[name]), 1_000 if name == "as by default" else 40
    (agent, buffer), (plain_agent, plain_memory) = learner(settings), learner(settings)
    engine = Engine(agent, buffer, [5], settings, "recorded")
    streams, losses = MemberStreams([5]), LossSums(1)
    more = torch.randn(1, 1, 12, generator=torch.Generator().manual_seed(2))
    for number in range(updates):
        if number % 10 == 0:  # the memory grows, and later forgets
            engine.store(more.numpy() + number / 1_000)
            plain_memory.add_(more + number / 1_000)
        engine.update([1])
        losses.add_(update_once(plain_agent, plain_memory, streams, settings))
    assert equal(agent, plain_agent)
    assert int(agent.updates[0]) == updates
    assert engine.mean_losses([updates]) == losses.take([updates])


def test_after_a_return_to_an_earlier_moment_the_same_updates_follow():
    settings = settings_of()
    agent, buffer = learner(settings)
    engine = Engine(agent, buffer, [5], settings, "recorded")
    engine.update([31])
    saved = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    engine.update([50])
    expected = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    for name, tensor in agent.tensors().items():
        tensor.copy_(saved[name])
    agent.updates[:] = 31
    engine.seek()
    engine.update([50])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in agent.tensors().items())


def test_a_new_learning_rate_is_learned_at():
    settings = settings_of()
    (agent, buffer), (plain_agent, plain_memory) = learner(settings), learner(settings)
    engine = Engine(agent, buffer, [5], settings, "recorded")
    plain = Engine(plain_agent, plain_memory, [5], settings, "eager")
    for rate in (1e-3, 1e-2, 1e-2):
        engine.set_learning_rates(rate, rate / 2)
        plain.set_learning_rates(rate, rate / 2)
        engine.update([6])
        plain.update([6])
    assert equal(agent, plain_agent)


@pytest.mark.parametrize("where", ["reward", "actor"])
def test_numbers_that_break_down_are_caught_before_an_optimizer_follows_them(where):
    settings = settings_of(policy_delay=1)
    agent, buffer = learner(settings)
    engine = Engine(agent, buffer, [5], settings, "recorded")
    engine.update([4])
    if where == "reward":
        buffer.rows[..., -2] = torch.inf
    else:
        agent.critics.parameters.data[0, 0, -1] = torch.inf
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    with pytest.raises(NonFinite, match="too large or not a number"):
        engine.update([1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.tensors().items())


def test_an_update_that_breaks_down_counts_as_it_does_plainly():
    counts = []
    for recorded in (True, False):
        settings = settings_of(policy_delay=1)
        agent, buffer = learner(settings)
        engine = Engine(agent, buffer, [5], settings, "recorded" if recorded else "eager")
        engine.update([4])
        agent.actor.parameters.detach()[:, -1] = torch.nan  # the critics are improved before that is found
        with pytest.raises(NonFinite):
            engine.update([1])
        counts.append((int(agent.updates[0]), agent.critics_optimizer.state()["steps"].tolist()))
    assert counts[0] == counts[1]


def test_threads_are_left_as_they_were():
    settings = settings_of()
    agent, buffer = learner(settings)
    before = torch.get_num_threads(), cpu.get_threads()
    engine = Engine(agent, buffer, [5], settings, "recorded", threads=3)
    engine.update([40])
    engine.close()
    assert (torch.get_num_threads(), cpu.get_threads()) == before


def test_the_check_sees_a_recording_that_repeats_something_else(monkeypatch):
    settings = settings_of()
    agent, _ = learner(settings)

    def engine(agent, buffer):
        return Engine(agent, buffer, [5], settings, "recorded")

    assert max_difference(agent, [5], settings, engine) == 0
    ready = MemberStreams._ready
    monkeypatch.setattr(MemberStreams, "_ready", lambda self, *given: ready(self, *given).clone())  # read once
    assert max_difference(agent, [5], settings, engine) > 0


def test_the_self_check_leaves_numbers_that_break_down_to_the_run():
    settings = settings_of()
    agent, _ = learner(settings)
    agent.critics.parameters.data *= 1e30
    assert max_difference(agent, [5], settings, lambda *given: Engine(*given, [5], settings, "recorded")) == 0


def test_a_recording_repeats_views_copies_and_results_of_several_parts():
    source, total = torch.arange(6.0).reshape(2, 3), torch.zeros(())

    def work():
        largest = source.T.reshape(-1).max(dim=0)  # a copy, then values and indices
        ones = torch.ones_like(source)
        ones.mul_(2)
        total.add_(largest.values + largest.indices + (source * ones).sum())

    recorded_work = Recording(work)
    assert float(total) == 5 + 5 + 30
    source[0, 0] = 7
    recorded_work.replay()
    assert float(total) == 40 + 7 + 0 + 44


def test_numbers_stay_where_they_are_and_are_those_of_the_plain_streams():
    held, plain = MemberStreams([3], held=True), MemberStreams([3])
    filled = torch.tensor(50)
    place = None
    for number in range(140):  # beyond the first two blocks
        held.follow([number], [0])
        numbers = held.normal(4, 2)
        place = place or held._numbers["smoothing"].data_ptr()
        assert held._numbers["smoothing"].data_ptr() == place
        assert torch.equal(held.rows(filled, 4), plain.rows(filled, 4))
        assert torch.equal(numbers, plain.normal(4, 2))
        held.cursor.add_(1)
    held.seek(5)
    plain.seek(5)
    held.follow([5], [0])
    assert torch.equal(held.rows(filled, 4), plain.rows(filled, 4))


def recorded_update():
    settings = settings_of()
    agent, buffer = learner(settings)
    streams = MemberStreams([5], held=True)
    return Recording(lambda: LossSums(1).add_(update_once(agent, buffer, streams, settings)))


def test_most_operations_are_called_by_pytorchs_own_functions(monkeypatch):
    monkeypatch.setattr(cpu, "_load", lambda: (None, "a test wants it so"))
    functions = [getattr(call, "func", None) for call in recorded_update()._calls]
    quick = [function for function in functions if type(function).__name__ == "builtin_function_or_method"]
    copied = [function for function in functions if function is recording._copy_again]
    assert len(quick) > len(functions) / 2
    assert len(copied) < len(functions) / 10


@pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")
def test_with_kernels_of_our_own_few_calls_are_left():
    calls = recorded_update()._calls
    programs = [call for call in calls if isinstance(call, cpu.Program)]
    assert sum(len(program.instructions) for program in programs) > 40
    assert len(calls) - len(programs) <= 5


def test_without_kernels_of_our_own_updates_are_those_of_plain_execution_too(monkeypatch):
    monkeypatch.setattr(cpu, "_load", lambda: (None, "a test wants it so"))
    settings = settings_of()
    (agent, buffer), (plain_agent, plain_memory) = learner(settings), learner(settings)
    Engine(agent, buffer, [5], settings, "recorded").update([40])
    Engine(plain_agent, plain_memory, [5], settings, "eager").update([40])
    assert equal(agent, plain_agent)


def test_a_range_that_is_written_to_is_a_range_again_in_every_replay():
    given, found = torch.zeros(5), torch.zeros(5)

    def work():
        places = torch.arange(5, dtype=torch.float32)
        places += given
        found.copy_(places + torch.arange(5))

    recorded = Recording(work)
    for number in range(3):
        given.fill_(number)
        recorded.replay()
        assert found.tolist() == [2 * place + number for place in range(5)]
