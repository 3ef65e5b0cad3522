"""A seed learns the same alone and in company, and the same command gives the same files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import td3.training
from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import ReplayBuffer, make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.config import resolve
from td3.engine import update_once
from td3.run.directory import Run
from td3.settings import TD3Config
from td3.training import Trainer

SEEDS = (0, 1, 2, 3)
WARM_UP, UPDATES = 300, 100


def member_of(tensors: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    return {
        name: tensor[..., index : index + 1] if name.endswith("steps") else tensor[..., index : index + 1, :]
        for name, tensor in tensors.items()
    }


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max((ours[name].double() - theirs[name].double()).abs().max().item() for name in ours)


class Trained:
    """A short training on Pendulum: its tensors at birth and after it, and its buffer."""

    def __init__(self, path: Path, seed: int, seeds: int, threads: int) -> None:
        config = resolve(
            "Pendulum-v1",
            steps=WARM_UP + UPDATES,
            seed=seed,
            seeds=seeds,
            threads=threads,
            device="cpu",
            out=path,
            eval_every=0,
            eval_episodes=1,
            hidden_sizes=(64, 64),
            batch_size=64,
            learning_starts=WARM_UP,
        )
        kept = []

        class KeptTrainer(Trainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                kept.append((self, {name: tensor.clone() for name, tensor in self.agent.tensors().items()}))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("td3.training.api.Trainer", KeptTrainer)
            td3.training.train_run(config)
        ((training, self.born),) = kept
        self.grown, self.rows, self.updates = training.agent.tensors(), training.buffer.rows, training.agent.updates


@pytest.fixture(scope="module", params=[1, 2], ids=["one thread", "a thread each"])
def together(request, tmp_path_factory):
    return Trained(tmp_path_factory.mktemp("together"), SEEDS[0], len(SEEDS), request.param)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return [Trained(tmp_path_factory.mktemp(f"seed_{seed}"), seed, 1, 1) for seed in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_born_with_the_same_weights_in_company(together, alone, seed):
    born = member_of(together.born, seed)
    assert all(torch.equal(tensor, born[name]) for name, tensor in alone[seed].born.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_warms_up_with_the_same_transitions_in_company(together, alone, seed):
    assert together.rows.shape[1] == WARM_UP + UPDATES
    assert torch.equal(together.rows[seed, :WARM_UP], alone[seed].rows[0, :WARM_UP])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_makes_the_same_first_100_updates_in_company(together, alone, seed):
    assert together.updates.tolist() == [UPDATES] * len(SEEDS)
    assert alone[seed].updates.tolist() == [UPDATES]
    assert largest_difference(alone[seed].born, alone[seed].grown) > 1e-2
    assert largest_difference(member_of(together.grown, seed), alone[seed].grown) <= 1e-5


def test_no_two_seeds_are_alike(together):
    for first in SEEDS:
        for second in range(first):
            weights = [member_of(together.born, seed) for seed in (first, second)]
            for name in ("actor", "actor_target", "critics", "critics_target"):
                assert not torch.equal(weights[0][name], weights[1][name])
            assert not torch.equal(together.rows[first, 0], together.rows[second, 0])
            assert (together.rows[first, :WARM_UP, 3] != together.rows[second, :WARM_UP, 3]).all()


def agent_and_memory(seeds: tuple[int, ...], settings: TD3Config) -> tuple[Agent, ReplayBuffer]:
    """Learners of these seeds, each with the same thousand rows of its own wherever it stands."""
    low, high = (-2.0, 0.5), (1.0, 3.0)
    agent = Agent.create(Task(5, low, high), settings, seeds)
    buffer = make_replay_buffer(len(seeds), 1_000, 5, 2)
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1_000 + seed)
        columns = torch.randn(1_000, 5 + 2 + 5 + 1, generator=generator)
        terminated = (torch.rand(1_000, 1, generator=generator) < 0.1).float()
        rows.append(torch.cat((columns, terminated), 1))
    buffer.add_(torch.stack(rows))
    return agent, buffer


def test_a_member_draws_the_same_numbers_in_company():
    together, filled = MemberStreams(SEEDS), torch.tensor(1_000)
    lone = [MemberStreams((seed,)) for seed in SEEDS]
    for _ in range(UPDATES):  # more than one block
        rows, noise = together.rows(filled, 64), together.normal(64, 2)
        for index, streams in enumerate(lone):
            assert torch.equal(rows[index], streams.rows(filled, 64)[0])
            assert torch.equal(noise[index], streams.normal(64, 2)[0])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_members_updated_in_one_batch_equal_members_updated_one_by_one(optimizer):
    settings = TD3Config(hidden_sizes=(64, 64), batch_size=64, optimizer=optimizer)
    agent, buffer = agent_and_memory(SEEDS, settings)
    streams = MemberStreams(SEEDS)
    batched = [update_once(agent, buffer, streams, settings) for _ in range(UPDATES)]
    assert agent.updates.tolist() == [UPDATES] * len(SEEDS)

    for index, seed in enumerate(SEEDS):
        lone, lone_memory = agent_and_memory((seed,), settings)
        assert torch.equal(lone_memory.rows[0], buffer.rows[index])
        lone_streams = MemberStreams((seed,))
        for together in batched:
            losses = update_once(lone, lone_memory, lone_streams, settings)
            assert losses.critic.item() == pytest.approx(together.critic[index].item(), abs=1e-5)
            assert losses.mean_q.item() == pytest.approx(together.mean_q[index].item(), abs=1e-5)
            assert (losses.actor is None) == (together.actor is None)
            if losses.actor is not None and together.actor is not None:
                assert losses.actor.item() == pytest.approx(together.actor[index].item(), abs=1e-5)
        assert largest_difference(member_of(agent.tensors(), index), lone.tensors()) <= 1e-5


def test_slices_of_an_agent_learn_as_the_whole_agent_does():
    settings = TD3Config(hidden_sizes=(64, 64), batch_size=64)
    whole, buffer = agent_and_memory(SEEDS, settings)
    sliced, _ = agent_and_memory(SEEDS, settings)
    streams = MemberStreams(SEEDS)
    for _ in range(UPDATES):
        update_once(whole, buffer, streams, settings)
    for index, seed in enumerate(SEEDS):
        member, own_memory, own_streams = sliced.member(index), buffer.member(index), MemberStreams((seed,))
        for _ in range(UPDATES):
            update_once(member, own_memory, own_streams, settings)
    assert sliced.updates.tolist() == whole.updates.tolist() == [UPDATES] * len(SEEDS)
    assert largest_difference(sliced.tensors(), whole.tensors()) <= 1e-5


@pytest.fixture(scope="module")
def same_command_twice(tmp_path_factory):
    """Two runs of one command, in processes that hash strings differently."""
    runs = []
    for number in range(2):
        out = tmp_path_factory.mktemp("command") / "run"
        command = [sys.executable, "-m", "td3", "train", "Pendulum-v1", "--steps", "2000", "--seeds", "2"]
        command += ["--eval-every", "1000", "--eval-episodes", "3", "--device", "cpu", "--threads", "1"]
        command += ["--td3.hidden-sizes", "64", "64", "--td3.batch-size", "64", "--td3.learning-starts", "500"]
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        subprocess.run([*command, "--out", str(out)], check=True, env=environment, capture_output=True)
        runs.append(Run(out))
    return runs


FILES = ("metrics.csv", "evaluations.csv", "last/agent.safetensors", "best/agent.safetensors")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_command_writes_the_same_bytes(same_command_twice, seed, file):
    first, second = (run.folder(seed) / file for run in same_command_twice)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("file", FILES)
def test_two_seeds_write_different_bytes(same_command_twice, file):
    first, second = (same_command_twice[0].folder(seed) / file for seed in (0, 1))
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_compared_runs_did_learn(same_command_twice, seed):
    metrics = np.genfromtxt(same_command_twice[0].folder(seed) / "metrics.csv", delimiter=",", names=True)
    assert metrics["updates"].tolist() == [500, 1_500]
    assert np.isfinite(metrics["critic_loss"]).all()
    steps, _ = same_command_twice[0].evaluations(seed)
    assert steps.tolist() == [0, 1_000, 2_000]
