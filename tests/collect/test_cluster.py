"""All tests on a cluster, in one file: each process of the test run would start another cluster."""

import contextlib
import csv
import json
import os
import signal
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cluster_worlds import length_of
from scripted import SMALL

import td3
from td3.callbacks.callback import WarningsCallback
from td3.cli import main
from td3.collect import RayCollector, require_cluster
from td3.collect.ray_collector import CHUNKS_WITHIN_BOUND, Collecting
from td3.config import resolve
from td3.engine import Engine
from td3.environments import check_environment, make_environment
from td3.environments.guarded import MOST_FAULTS
from td3.errors import ConfigError, EnvironmentFault
from td3.policy import Policy
from td3.run.checkpoints import Checkpoints
from td3.run.directory import Run, read_facts
from td3.statistics import interquartile_mean, iqm_interval
from td3.sweep import SweepRun, run_sweep
from td3.training import resume_run, train_run

from .conftest import SMALL_SETTINGS, stat_of, wait_for

LEARNER = {**SMALL, "buffer_size": 100_000}


def small(env="Counting-v0", **fields):
    return resolve(f"cluster_worlds:{env}", **{**LEARNER, "workers": "ray", "eval_every": 0, **fields})


@contextlib.contextmanager
def collecting(config):
    spaces = check_environment(make_environment(**config.env_arguments), config.env)
    with contextlib.closing(RayCollector(config, spaces)) as collector:
        yield collector


def zero_policy(members=1):
    layers = [(np.zeros((members, 4, 1), np.float32), np.zeros((members, 1), np.float32))]
    return Policy(layers, (-1.0,), (1.0,), (4,), (1,))


def collect_rounds(collector, rounds, updates=lambda round_: 0):
    """Rows `[member, count, row]` and episodes of so many rounds."""
    rows, episodes = [], []
    while len(rows) < rounds:
        collector.send(updates(len(rows)), lambda: zero_policy(len(collector.config.member_seeds)))
        found = collector.take(updates(len(rows)))
        if found is not None:
            rows.append(found[0])
            episodes += found[1]
    return np.concatenate(rows, 1), episodes


def names(rows):
    """The episode of every row."""
    return [(int(high) << 16) + int(low) for high, low in rows[:, :2]]


def check_rows(rows):
    """Every transition once, every episode from its beginning, without a gap; returns unfinished and all episodes."""
    seen = defaultdict(list)
    for episode, row in zip(names(rows), rows, strict=True):
        seen[episode].append(np.split(row, [4, 5, 9, 10]))
    unfinished = 0
    for episode, parts in seen.items():
        parts.sort(key=lambda part: part[0][2])
        assert [int(part[0][2]) for part in parts] == list(range(len(parts))), f"episode {episode}"
        for before, after in pairwise(parts):
            assert before[2].tobytes() == after[0].tobytes()
        for step, (_, action, next_state, reward, terminated) in enumerate(parts, 1):
            # The last observation is that of the episode itself, and not the first of the next one.
            assert next_state.tolist() == [episode >> 16, episode & 0xFFFF, step, action[0]]
            assert reward[0] == step
            assert terminated[0] == (step == length_of(episode) and episode % 2 == 0)
        assert len(parts) <= length_of(episode)
        unfinished += len(parts) < length_of(episode)
    return unfinished, len(seen)


def stored_rows(path):
    checkpoint, _ = Checkpoints(path).newest()
    return np.concatenate([rows for _, rows in checkpoint.rows()], 1)


def updates_of(path):
    return int(Checkpoints(path).newest()[0].tensors["updates"][0])


def test_every_transition_arrives_once_with_its_own_next_state_and_ending(cluster):
    config = small(envs=3, seeds=2, ray_address=cluster.address, learning_starts=60)
    with collecting(config) as collector:
        rows, episodes = collect_rounds(collector, 150)
        figures = collector.figures()["collectors"]
    assert rows.shape == (2, 450, 11)
    for member in range(2):
        unfinished, begun = check_rows(rows[member])
        assert unfinished <= 3, "at the end each of the three has one episode under way"
        assert len([e for e in episodes if e.member == member]) == begun - unfinished
    assert not {*names(rows[0])} & {*names(rows[1])}, "members have episodes of their own"
    # A policy of zeros acts with noise of 0.1: larger actions can only be random ones, and 60 of those were asked for.
    random = np.abs(rows[0, :, 4]) > 0.6
    assert 10 < random.sum() <= 60
    assert not random[60 + 2 * 3 * collector.chunk_steps :].any()
    assert figures["stored_steps"] == 450
    assert figures["replaced"] == figures["discarded_steps"] == 0


def test_what_was_acted_with_weights_older_than_the_bound_is_not_stored(cluster):
    config = small(envs=2, ray_address=cluster.address, learning_starts=0, max_staleness=120)

    def collect(sent, taken):
        """Chunks asked for after so many updates, and taken after so many."""
        collector.send(sent, zero_policy)
        wait_for(lambda: arrived(collector), "all chunks")
        return collector.take(taken)

    with collecting(config) as collector:
        assert collector.chunk_steps == 120 // (CHUNKS_WITHIN_BOUND * 2) == 10
        assert collect(0, 0) is None, "they only say that they are there"
        assert collect(0, 120) is not None
        assert collector.most_stale == 120
        waiting = collector.queued_steps
        assert waiting > 0
        assert collector.take(121) is None
        assert collector.figures()["collectors"]["discarded_steps"] == waiting
        assert any("more than 120 updates old" in sentence for sentence in collector.said)
        # Whoever was late sends half as much the next time, and more again when it is in time.
        assert collect(121, 121) is not None
        assert collector.queued_steps == 2 * 5 - 2
        while collector.queued_steps:
            collector.take(121)
        assert collect(121, 121) is not None
        assert collector.queued_steps == 2 * 10 - 2
        figures = collector.figures()["collectors"]["staleness_in_updates"]
    assert (figures["bound"], figures["most"]) == (120, 120)


def arrived(collector):
    ready, _ = collector._ray.wait(list(collector._pending), num_returns=len(collector._pending), timeout=0)
    return len(ready) == len(collector._pending)


def test_an_environment_that_goes_on_failing_ends_the_run_with_its_words(cluster):
    config = small("Failing-v0", ray_address=cluster.address)
    with (
        pytest.raises(EnvironmentFault, match=r"the gripper is stuck.*fault 3 of environment 0 of seed 0"),
        collecting(config) as collector,
    ):
        collect_rounds(collector, 100)


def test_only_faults_of_a_collector_end_a_run_not_the_loss_of_its_machines(cluster, monkeypatch):
    from ray.core.generated.common_pb2 import ActorDiedErrorContext
    from ray.exceptions import ActorDiedError

    def died(because):
        def get(reference, timeout):
            raise ActorDiedError(ActorDiedErrorContext(actor_id=b"0" * 16, error_message=because))

        monkeypatch.setattr(collector._ray, "get", get)
        collector.send(0, zero_policy)
        wait_for(lambda: arrived(collector), "the greeting")
        collector.take(0)

    with collecting(small(ray_address=cluster.address)) as collector:
        for _ in range(MOST_FAULTS + 1):
            died("The actor died because its node has died. Node Id: 1de1f8")
        assert collector.said == ["collector 0 lost its machine and was replaced."] * (MOST_FAULTS + 1)
        for _ in range(MOST_FAULTS - 1):
            died("Worker unexpectedly exits with a connection error code 2.")
        assert collector.said[-1] == "collector 0 died (ActorDiedError) and was replaced."
        with pytest.raises(EnvironmentFault, match=r"died \(ActorDiedError\); this was time 3 in a row"):
            died("Worker unexpectedly exits with a connection error code 2.")


@pytest.mark.parametrize("init_from", [None, "an/agent"])
def test_only_runs_without_saved_weights_begin_with_random_actions(init_from, cluster):
    config = small(ray_address=cluster.address, learning_starts=50)
    with collecting(replace(config, init_from=init_from)) as collector:
        collector.send(0, zero_policy)
        wait_for(lambda: arrived(collector), "the greeting")
        collector.take(0)
        collector.send(0, zero_policy)
        assert [asked.random for asked in collector._pending.values()] == [init_from is None]


def test_a_collector_has_random_numbers_of_its_own():
    config = small()

    def first_rows(number, life):
        inside = Collecting(
            lambda: make_environment(**config.env_arguments), (0, 1), number, life, (-1.0,), (1.0,), 0.1
        )
        inside.greet()
        return inside.collect(None, 8).rows.tobytes()

    different = {first_rows(number, life) for number, life in ((0, 0), (1, 0), (0, 1))}
    assert len(different) == 3
    assert first_rows(0, 0) in different


@pytest.mark.long
def test_a_learner_that_works_by_graphs_stores_the_same_rows(cluster, tmp_path, monkeypatch):
    # As beside a GPU: rows travel in pieces of fixed size, and the actors are copied to where numpy can read them.
    def by_graphs(agent, buffer, config, threads):
        return Engine(agent, buffer, config.member_seeds, config.td3, "graph", envs=config.envs)

    monkeypatch.setattr("td3.training.parts.make_engine", by_graphs)
    config = small(envs=2, seeds=2, steps=101, ray_address=cluster.address, out=tmp_path / "run")
    train_run(config)
    rows = stored_rows(tmp_path / "run")
    assert rows.shape == (2, 102, 11), "the last round is a whole one"
    for member in range(2):
        assert check_rows(rows[member])[0] <= 2
    assert updates_of(tmp_path / "run") == 102 - LEARNER["learning_starts"]


class Events(WarningsCallback):
    """Does something at an env step, and remembers what was said."""

    def __init__(self, events=()):
        self.events, self.said, self.told_at, self.env_steps = list(events), [], [], 0

    def on_env_step(self, trainer):
        env_steps = trainer.env_steps
        self.env_steps = env_steps
        if self.events and self.events[0](env_steps, self.said):
            self.events.pop(0)

    def on_warning(self, trainer, text):
        self.said.append(text)
        self.told_at.append(self.env_steps)


def test_a_cluster_that_asks_for_a_token_is_said_so(cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another one")
    with pytest.raises(ConfigError, match="asks for a token: set RAY_AUTH_MODE=token"):
        require_cluster(cluster.address)


def sweep(out, address, *words):
    tasks = ["Rail-v0", "CartPole-v1"]
    varied = ["--seeds", "2", "--set", "td3.tau=0.005,0.5", "--steps", "100"]
    where = ["--out", str(out), "--ray-address", address]
    return main(["sweep", *tasks, *varied, *SMALL_SETTINGS, *where, *words])


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_trains_what_can_be_trained_gathers_one_table_and_goes_on(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweep("sweep", cluster.address) == 1
    printed = capsys.readouterr().out
    runs, results = table(tmp_path / "sweep" / "runs.csv"), table(tmp_path / "sweep" / "results.csv")
    assert "CartPole-v1 tau=0.5 seed 1: CartPole-v1 has Discrete actions" in printed
    assert [(r["task"], r["setting"], r["seed"], r["status"]) for r in runs] == [
        (task, f"tau={tau}", str(seed), status)
        for task, status in (("Rail-v0", "finished"), ("CartPole-v1", "not begun"))
        for tau in (0.005, 0.5)
        for seed in (0, 1)
    ]
    assert [r["unfinished"] for r in results] == ["0", "0", "2", "2"]
    # Each is the run that `td3 train` would have made.
    folder = tmp_path / "sweep" / "Rail-v0" / "tau=0.5" / "seed_1"
    alone = td3.train(
        "Rail-v0", steps=100, seed=1, tau=0.5, eval_every=0, progress=False, out=tmp_path / "alone", **SMALL
    )
    for file in ("evaluations.csv", "metrics.csv"):
        assert (alone.folder(1) / file).read_bytes() == (folder / "seed_1" / file).read_bytes()
    # The table is the report's statistics of the runs' last evaluations.
    q_values = np.array([Run(folder.parent / f"seed_{seed}").evaluations(seed)[1][-1].mean() for seed in (0, 1)])
    row = results[1]
    low, high = iqm_interval(q_values)
    assert [float(row[name]) for name in ("iqm", "low", "high")] == [interquartile_mean(q_values), low, high]
    assert (row["seeds"], row["unfinished"]) == ("2", "0")
    assert f"{row['task']}  " in printed
    assert (tmp_path / "sweep" / "report.html").exists()

    # Again: a run that lost its end is resumed, what is finished stays as it is.
    status = folder / "status.json"
    status.write_text(json.dumps({**read_facts(status), "status": "running"}))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").glob("*/*/*/config.json")}
    assert sweep("sweep", cluster.address, "--json") == 1
    figures = json.loads(capsys.readouterr().out)
    assert [r["seeds"] for r in figures["results"]] == [2, 2, 0, 0]
    assert len(figures["failed"]) == 4
    changed = {path.parent for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert changed == {folder}


def test_a_run_whose_process_dies_is_resumed_where_it_was(cluster, tmp_path, capsys):
    cluster.wound.touch()
    words = ["sweep", "cluster_worlds:Wounded-v0", "--seeds", "1", *SMALL_SETTINGS, "--set", "save-every=1"]
    words += ["--steps", "60", "--out", str(tmp_path / "sweep"), "--ray-address", cluster.address]
    assert main(words) == 0
    assert not cluster.wound.exists(), "its process has died once"
    path = tmp_path / "sweep" / "cluster_worlds_Wounded-v0" / "seed_0"
    whole = td3.train(
        "cluster_worlds:Wounded-v0", steps=60, eval_every=0, save_every=1, out=tmp_path / "whole", **SMALL
    )
    ends = [Checkpoints(run).newest()[0].tensors for run in (path, whole.path)]
    for name, tensor in ends[0].items():
        assert tensor.tobytes() == ends[1][name].tobytes(), name


@pytest.mark.long
def test_after_ctrl_c_runs_under_way_have_saved_themselves(cluster, tmp_path):
    def make(seed, steps):
        config = td3.config.resolve("Rail-v0", steps=steps, seed=seed, eval_every=0, out=tmp_path / f"{seed}", **SMALL)
        return SweepRun("Rail-v0", "", config)

    def interrupt(line):
        if line.startswith("[1 of 2]"):
            wait_for(
                lambda: read_facts(tmp_path / "1" / "status.json").get("env_steps", 0) > 0, "the other to be under way"
            )
            raise KeyboardInterrupt

    sweep = run_sweep([make(0, 60), make(1, 10**7)], tmp_path, cluster.address, say=interrupt)
    assert sweep.interrupted
    assert [outcome.status for outcome in sweep.outcomes] == ["finished", "interrupted"]
    done = read_facts(tmp_path / "1" / "status.json")["env_steps"]
    assert Checkpoints(tmp_path / "1").newest()[0].env_steps == done > 0
    assert [row["unfinished"] for row in sweep.table] == [1]


def test_a_run_outlives_a_killed_worker_a_hung_one_and_a_lost_machine_and_is_resumed(cluster, tmp_path):
    # The run does not wait for lost workers, and loses at most their unfinished chunks.
    happened, needed = [], 0
    for file in cluster.processes.iterdir():  # of other tests
        file.unlink()

    def at_work():
        """The collectors that are alive and were not stopped, with their parents, the raylets of their machines."""
        stats = {pid: stat_of(pid) for pid in cluster.pids()}
        return {pid: parent for pid, (state, parent) in stats.items() if state not in "TZ"}

    def once(do):
        """As soon as the last event was told of and all three are at work; again if `do` returns False."""

        def event(env_steps, sentences):
            nonlocal needed
            if env_steps < 60 or len(sentences) < needed or len(at_work()) < 3:
                return False
            needed = len(sentences) + 1
            if do() is False:
                return False
            happened.append(env_steps)
            return True

        return event

    def lose_second_machine():
        """Kill it, with the collectors on it; where none is there, have one replaced, on whichever machine."""
        if all(os.getpgid(parent) != cluster.second.pid for parent in at_work().values()):
            os.kill(min(at_work()), signal.SIGKILL)
            return False
        os.killpg(cluster.second.pid, signal.SIGKILL)
        return True

    events = Events(
        [
            once(lambda: os.kill(min(at_work()), signal.SIGKILL)),
            once(lambda: os.kill(min(at_work()), signal.SIGSTOP)),
            once(lose_second_machine),
            once(lambda: os.kill(os.getpid(), signal.SIGINT)),
        ]
    )
    path = tmp_path / "run"
    config = small("SlowCounting-v0", envs=3, steps=90_000, ray_address=cluster.address, out=path, env_timeout=1.0)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, [events])
    assert "died" in events.said[0]
    assert "gave no answer for 2 s and was replaced; the episode that it had begun is lost" in events.said[1]
    assert events.told_at[1] > happened[1] + 30, "the learner went on while one of three collectors hung"
    status = read_facts(path / "status.json")
    collectors, done = status["collectors"], status["env_steps"]
    assert status["status"] == "interrupted"
    assert done == collectors["stored_steps"]
    assert collectors["replaced"] == len(events.said) >= 3
    rows = stored_rows(path)
    unfinished, _ = check_rows(rows[0])
    assert unfinished <= collectors["lost_chunks"] + 3
    assert collectors["staleness_in_updates"]["most"] <= config.max_staleness
    assert updates_of(path) == done - LEARNER["learning_starts"], "one update per env step, as in any other run"

    later = Events([lambda env_steps, _: env_steps >= done + 60 and not os.kill(os.getpid(), signal.SIGINT)])
    with pytest.raises(KeyboardInterrupt):
        resume_run(path, None, [later], trust=True)
    assert later.said == [
        f"{config.env} is stepped on a cluster, where collectors begin anew: 3 unfinished episodes were lost, and the "
        "run goes on with new ones, not exactly as it would have."
    ]
    longer = stored_rows(path)
    assert longer[:, :done].tobytes() == rows.tobytes()
    assert not {*names(rows[0])} & {*names(longer[0, done:])}, "nothing that was done before is done again"
    check_rows(longer[0])
    status = read_facts(path / "status.json")
    assert status["collectors"]["stored_steps"] == status["env_steps"] == longer.shape[1]
    assert updates_of(path) == status["env_steps"] - LEARNER["learning_starts"]
