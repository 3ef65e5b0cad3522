"""The recorder sees everything and changes nothing."""

import inspect

import numpy as np
import pytest
import torch

from td3.algorithm.registry import STEPS as ALL_STEPS
from td3_lessons.explain.rail_run import SEED, SEEDS, SETTINGS, WINDOWS, rail
from td3_lessons.explain.record import Recorder, flat, new_learner, train_on
from td3_lessons.explain.trace import Trace, lesson_trace

FEW = 1_000 + 104
EARLY = tuple(number for number in lesson_trace().facts["updates"] if number <= 104)


def record_updates(agent, buffer, environments, chosen):
    """Train, and keep the chosen updates as flat arrays by name; also which stored rows were time-outs."""
    recorder, kept = Recorder(), {}

    def around(number, one):
        if number in chosen:
            with recorder.looking() as calls:
                one()
            kept[number] = flat(calls)
        else:
            one()

    return kept, train_on(agent, buffer, environments, SETTINGS, SEED, FEW, around=around)


@pytest.fixture(scope="module")
def watched():
    torch.set_num_threads(1)
    environments = rail()
    agent, buffer = new_learner(SETTINGS, SEED, environments, FEW)
    kept, ends = record_updates(agent, buffer, environments, EARLY)
    return agent, buffer, kept, ends


def test_a_watched_run_equals_an_unwatched_one_bit_for_bit(watched):
    agent, buffer, _, _ = watched
    environments = rail()
    other, other_memory = new_learner(SETTINGS, SEED, environments, FEW)
    train_on(other, other_memory, environments, SETTINGS, SEED, FEW)
    assert torch.equal(buffer.rows, other_memory.rows)
    assert int(agent.updates[0]) == FEW - SETTINGS.learning_starts
    for name, tensor in agent.tensors().items():
        assert torch.equal(tensor, other.tensors()[name]), name


def test_a_fresh_recording_agrees_with_the_one_that_is_shipped(watched):
    # Later updates may drift apart between kinds of processors, whose sums round differently.
    _, buffer, kept, ends = watched
    shipped = lesson_trace()
    assert np.allclose(shipped.arrays["memory"][:FEW], buffer.rows[0], atol=1e-3)
    assert np.array_equal(shipped.arrays["timed_out"][:FEW], ends)
    firsts = shipped.facts["updates"][::2]
    assert all(low <= first <= high for first, (low, high) in zip(firsts, WINDOWS, strict=True))
    assert len(EARLY) == 4
    for index, number in enumerate(EARLY):
        for name, value in kept[number].items():
            if f"{name}.{index}" in shipped.arrays:
                assert np.allclose(shipped.arrays[f"{name}.{index}"], value, rtol=1e-3, atol=1e-3), (number, name)


def test_the_record_holds_what_each_step_read_made_and_changed(watched):
    _, buffer, kept, _ = watched
    for number, record in kept.items():
        rows = buffer.rows[0].numpy()[record["rows"].astype(int)]
        assert np.array_equal(record["state"], rows[:, :2])
        assert np.array_equal(record["reward"], rows[:, 5])
        blur = np.clip(record["normal"] * 0.2, -0.5, 0.5)
        assert np.allclose(record["smoothed_action"], np.clip(record["next_action"] + blur, -1, 1), atol=1e-6)
        assert np.array_equal(record["next_q"], record["target_q_values"].min(0))
        assert ("actor_after" in record) == (number % 2 == 0)
        assert not np.array_equal(record["critics_before"], record["critics_after"])
        assert np.array_equal(record.get("still", np.zeros(3)), np.zeros(3)), (
            "step 13 moves no critic, nothing a target"
        )
    assert np.array_equal(kept[1]["critics_after"], kept[2]["critics_before"])


def test_only_the_registered_functions_and_what_they_ask_for_are_watched():
    recorder = Recorder()
    assert set(recorder._names) == {inspect.unwrap(step.function).__code__ for step in ALL_STEPS.values()}
    assert len(recorder._names) == 15


def test_looking_ends_even_when_the_run_fails():
    import sys

    with pytest.raises(RuntimeError), Recorder().looking():
        raise RuntimeError
    assert sys.getprofile() is None


def test_a_trace_survives_its_file(tmp_path):
    trace = Trace({"a.0": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"env": "x", "low": [-1.0]})
    trace.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    assert again.facts == trace.facts
    assert np.array_equal(again.arrays["a.0"], trace.arrays["a.0"])
    assert again.payload()["arrays"] == {"a.0": [0, [2, 3]]}


def test_what_every_update_of_ten_seeds_did_is_shipped():
    for name in ("approach", "falls", "largest"):
        values = lesson_trace().arrays[f"census.{name}"]
        assert values.shape == (len(SEEDS), 28)
        assert ((values >= 0) & (values <= 1)).all()


def test_the_recorded_loop_is_the_one_of_td3_train(tmp_path):
    from dataclasses import replace

    from safetensors.numpy import load_file

    import td3
    from td3.environments import InProcessVectorEnv, make_environment
    from td3.run.agent_file import network_tensors

    few = {"hidden_sizes": (16, 16), "learning_starts": 60, "batch_size": 16, "exploration_noise": 0.3}
    run = td3.train("Rail-v0", steps=120, seed=SEED, out=tmp_path / "run", threads=1, eval_episodes=1, **few)
    environments = InProcessVectorEnv([make_environment("Rail-v0")])
    settings = replace(run.config.td3, buffer_size=120)
    agent, buffer = new_learner(settings, SEED, environments, 120)
    train_on(agent, buffer, environments, settings, SEED, 120)
    trained = load_file(run.folder(SEED) / "last" / "agent.safetensors")
    for name, tensor in network_tensors(agent, 0).items():
        assert np.array_equal(tensor, trained[name]), name
