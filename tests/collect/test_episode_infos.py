"""Every episode brings the numbers of its last info, wherever and however its environments are stepped."""

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import HIGH, LOW, FormulaPolicy, Told

from td3.collect.collector import Collector
from td3.collect.ray_collector import Collecting
from td3.environments import WorkerBackend, place

KINDS = {"none": WorkerBackend(), "threads": WorkerBackend("threads", 2), "processes": WorkerBackend("processes", 2)}


def collected(environments, rounds=40):
    collector = Collector(environments, [0], LOW, HIGH, 0.0)
    episodes = [episode for _ in range(rounds) for episode in collector.step(collector.act(FormulaPolicy()))[1]]
    collector.close()
    return episodes


@pytest.fixture(scope="module")
def expected():
    return collected(place(Told, 2, WorkerBackend(), 60.0))


def test_an_episode_has_the_numbers_of_its_last_info(expected):
    assert len(expected) > 10
    for episode in expected:
        known = {"steps": episode.length, "share": 0.5, "one": 2.0}
        assert {**episode.info, "is_success": 0} == {**known, "is_success": 0}
    assert {episode.info.get("is_success") for episode in expected} == {0.0, 1.0, None}


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_kind_of_worker_changes_nothing(kind, expected):
    assert collected(place(Told, 2, KINDS[kind], 60.0)) == expected


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_the_way_of_resetting_changes_nothing(mode):
    episodes = collected(SyncVectorEnv([Told, Told], autoreset_mode=mode))
    assert len(episodes) > 10
    for episode in episodes:
        assert {name: episode.info[name] for name in ("steps", "share", "one")} == {
            "steps": episode.length,
            "share": 0.5,
            "one": 2.0,
        }
    assert {episode.info.get("is_success") for episode in episodes} == {0.0, 1.0, None}


def test_a_list_of_infos_in_place_of_arrays_is_understood():
    class Listing(SyncVectorEnv):
        def step(self, actions):
            *result, infos = super().step(actions)
            if "final_info" in infos:
                infos["final_info"] = [{"steps": 7, "text": "x"} for _ in range(self.num_envs)]
            return *result, infos

    episodes = collected(Listing([Told, Told], autoreset_mode=AutoresetMode.SAME_STEP))
    assert [episode.info for episode in episodes] == [{"steps": 7.0}] * len(episodes)


def test_collectors_of_a_cluster_send_infos_with_their_episodes():
    far = Collecting(Told, [0, 1], 0, 0, LOW, HIGH, 0.1)
    far.greet()
    episodes = far.collect(None, 30).episodes
    assert episodes
    assert all(episode.info["steps"] == episode.length for _, episode in episodes)


class FailsOnce(Told):
    """Its environment fails at its third step; in a new one the same round is done again, and may end an episode."""

    failed = False

    def __init__(self) -> None:
        super().__init__(lengths=(1,))

    def step(self, action):
        if self.total_steps == 2 and not FailsOnce.failed:
            FailsOnce.failed = True
            raise RuntimeError("once")
        return super().step(action)


def test_an_episode_that_ends_in_a_repeated_round_has_its_info():
    episodes = collected(place(FailsOnce, 1, WorkerBackend(), 60.0), rounds=6)
    assert FailsOnce.failed
    assert [episode.info["steps"] for episode in episodes] == [1.0] * 6
    assert np.unique([episode.length for episode in episodes]).tolist() == [1]


def test_environments_of_gymnasium_pass_their_infos(tmp_path):
    from td3.environments import make_environment

    (episode,) = collected_from_hopper(partial(make_environment, "Hopper-v5", env_kwargs={"max_episode_steps": 5}))
    assert {"x_position", "reward_forward", "reward_ctrl"} <= {*episode.info}


def collected_from_hopper(make):
    collector = Collector(place(make, 1, WorkerBackend(), 60.0), [0], [-1.0] * 3, [1.0] * 3, 0.0)
    episodes = [episode for _ in range(5) for episode in collector.step(collector.act(None))[1]]
    collector.close()
    return episodes
