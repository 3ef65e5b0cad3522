"""`from td3_sb3 import TD3` against Stable-Baselines3's own: the same words, the same defaults, the same events."""

import base64
import copy
import inspect
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from scripted import HIGH, LOW, Scripted
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from td3.backends import cpu
from td3.engine import Engine, update_once
from td3.errors import AgentFileError, ConfigError, UserError
from td3_sb3 import TD3, updates
from td3_sb3.buffer import RowReplayBuffer

SMALL = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 8, "buffer_size": 1000, "device": "cpu", "seed": 0}


def make(env="Scripted-v0", policy="MlpPolicy", **settings):
    return TD3(policy, gym.make(env) if isinstance(env, str) else env, **SMALL | settings)


def vector(count):
    return DummyVecEnv([Scripted for _ in range(count)])


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model after 60 steps, and the file it was saved to; not to be changed."""
    noise = NormalActionNoise(np.zeros(2), 0.1 * np.ones(2))
    model = make(learning_starts=20, action_noise=noise).learn(60)
    path = tmp_path_factory.mktemp("models") / "model"
    model.save(path)
    return model, path


def observations(count=20):
    return np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)


def arguments(function):
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("name", ["__init__", "learn", "predict", "save", "load", "set_env", "get_env", "set_logger"])
def test_arguments_and_defaults_are_theirs(name):
    assert arguments(getattr(TD3, name)) == arguments(getattr(stable_baselines3.TD3, name))


def test_networks_and_counters_are_theirs_by_default():
    ours = TD3("MlpPolicy", Scripted(), buffer_size=10)
    theirs = stable_baselines3.TD3("MlpPolicy", Scripted(), buffer_size=10)
    assert ours.policy.net_arch == theirs.policy.net_arch == [400, 300]
    assert ours.action_noise is theirs.action_noise is None
    assert type(ours.actor.optimizer) is type(theirs.actor.optimizer) is torch.optim.Adam


QUICK_START = """
import gymnasium as gym
import numpy as np

from td3_sb3 import TD3
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise

env = gym.make("Pendulum-v1", render_mode="rgb_array")

n_actions = env.action_space.shape[-1]
action_noise = NormalActionNoise(mean=np.zeros(n_actions), sigma=0.1 * np.ones(n_actions))

model = TD3("MlpPolicy", env, action_noise=action_noise, verbose=1)
model.learn(total_timesteps=10_000, log_interval=10)
model.save("td3_pendulum")
vec_env = model.get_env()

del model

model = TD3.load("td3_pendulum")

obs = vec_env.reset()
while True:
    action, _states = model.predict(obs)
    obs, rewards, dones, info = vec_env.step(action)
    vec_env.render("rgb_array")
"""
SHORTER = {
    "total_timesteps=10_000, log_interval=10": "total_timesteps=210, log_interval=1",
    "while True": "for _ in range(3)",
}
"""The example of their TD3 page with the import changed; it trains for less, ends, and opens no window."""


def shortened(program):
    for usual, short in SHORTER.items():
        assert usual in program
        program = program.replace(usual, short)
    return program


def test_their_quick_start_runs_with_the_import_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    names = {}
    exec(compile(shortened(QUICK_START), "quick start", "exec"), names)
    assert names["obs"].shape == (1, 3)
    assert abs(names["action"]).max() <= 2
    assert "ep_rew_mean" in capsys.readouterr().out
    assert (tmp_path / "td3_pendulum.zip").exists()


def test_without_stable_baselines3_one_sentence_says_what_to_install():
    program = "import importlib.util as u; u.find_spec = lambda name: None; import td3_sb3"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "td3_sb3 needs the extra 'sb3': install it with  pip install 'td3[sb3]'" in done.stderr


class Watching(BaseCallback):
    """Notes how far training is at every event."""

    def __init__(self):
        super().__init__()
        self.events = []

    def _on_training_start(self):
        self.events.append("start")

    def _on_rollout_start(self):
        self.events.append("rollout")

    def _on_step(self):
        self.events.append((self.num_timesteps, self.model._n_updates, self.locals["dones"].tolist()))
        return True

    def _on_rollout_end(self):
        self.events.append("rolled out")

    def _on_training_end(self):
        self.events.append("end")


@pytest.mark.parametrize(
    ("envs", "settings"),
    [
        (1, {}),
        (1, {"learning_starts": 0, "train_freq": 3, "gradient_steps": 2}),
        (1, {"train_freq": (2, "episode"), "gradient_steps": -1}),
        (1, {"train_freq": (4, "step"), "gradient_steps": 0}),
        (3, {"learning_starts": 7}),
        (3, {"train_freq": 2, "gradient_steps": -1}),
    ],
)
def test_events_come_in_their_order_and_number(envs, settings):
    usual = {"learning_starts": 10, "action_noise": NormalActionNoise(np.zeros(2), np.zeros(2))}
    events = []
    for kind in (TD3, stable_baselines3.TD3):
        watching = Watching()
        model = kind("MlpPolicy", vector(envs), **SMALL | usual | settings)
        model.learn(40, watching)
        events.append([*watching.events, model.num_timesteps, model._n_updates, model._episode_num])
    # The scripted episodes depend on the seed of the environment, which each library derives in its own way.
    ours, theirs = ([event[:2] if isinstance(event, tuple) else event for event in told] for told in events)
    if settings.get("train_freq") == (2, "episode"):
        ours, theirs = ([event for event in told if isinstance(event, str)][:3] for told in (ours, theirs))
    else:
        ours, theirs = ours[:-1], theirs[:-1]
    assert ours == theirs
    assert ("start" in ours, "rollout" in ours) == (True, True)


class SeededAlike(Scripted):
    """The same episodes whatever the seed, so that two libraries see the same."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if seed is None else 5)


def test_the_memory_holds_what_theirs_holds():
    settings = SMALL | {"learning_starts": 0, "gradient_steps": 0}
    ours = TD3("MlpPolicy", DummyVecEnv([SeededAlike, SeededAlike]), **settings)
    theirs = stable_baselines3.TD3("MlpPolicy", DummyVecEnv([SeededAlike, SeededAlike]), **settings)
    ours.set_parameters(theirs.get_parameters())
    ours.learn(80)
    theirs.learn(80)
    rows = ours.replay_buffer.rows[:80]
    buffer = theirs.replay_buffer
    expected = np.concatenate(
        [
            buffer.observations[:40].reshape(80, -1),
            buffer.actions[:40].reshape(80, -1),
            buffer.next_observations[:40].reshape(80, -1),
            buffer.rewards[:40].reshape(80, 1),
            (buffer.dones[:40] * (1 - buffer.timeouts[:40])).reshape(80, 1),
        ],
        axis=1,
    )
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    assert 0 < rows[:, -1].sum() < buffer.dones.sum()  # some episodes terminated, some were only cut
    states = observations()
    np.testing.assert_allclose(ours.predict(states)[0], theirs.predict(states)[0], atol=1e-5)


def test_random_actions_come_first_and_then_the_actors(monkeypatch):
    model = make(learning_starts=15, gradient_steps=0)
    model.learn(40)
    actions = model.replay_buffer.rows[:40, 3:5]
    states = model.replay_buffer.rows[:40, :3]
    low, high = np.array(LOW), np.array(HIGH)
    asked = (model.predict(states)[0] - low) / (high - low) * 2 - 1
    different = np.abs(actions - asked).max(1) > 1e-4
    assert different[:15].all()
    assert not different[15:].any()


def test_noise_is_a_share_of_half_the_range_and_stays_inside():
    noise = NormalActionNoise(np.zeros(2), 0.5 * np.ones(2))
    model = make(learning_starts=0, gradient_steps=0, action_noise=noise).learn(200)
    actions, states = (model.replay_buffer.rows[:200, columns] for columns in (slice(3, 5), slice(3)))
    asked = (model.predict(states)[0] - np.array(LOW)) / (np.array(HIGH) - np.array(LOW)) * 2 - 1
    assert np.abs(actions).max() <= 1
    inside = np.abs(actions) < 1
    added = (actions - asked)[inside]
    assert 0.2 < added.std() < 0.6


class Counting(ActionNoise):
    """A noise that counts its calls and resets."""

    def __init__(self):
        self.calls, self.resets = 0, 0

    def __call__(self):
        self.calls += 1
        return np.zeros(2)

    def reset(self):
        self.resets += 1


def test_every_environment_has_its_own_noise_that_starts_anew_with_its_episodes():
    counts = []
    for kind in (TD3, stable_baselines3.TD3):
        watching = Watching()
        model = kind("MlpPolicy", vector(3), **SMALL | {"action_noise": Counting()}).learn(60, watching)
        ended = sum(event[2][0] for event in watching.events if isinstance(event, tuple))
        noise = model.action_noise.noises[0]
        counts.append((noise.calls, noise.resets - ended))
    assert counts[0] == counts[1]
    assert counts[0][0] == 20
    assert ended > 2


def test_one_seed_repeats_and_two_differ():
    def actions(seed):
        noise = NormalActionNoise(np.zeros(2), 0.1 * np.ones(2))
        return make(seed=seed, learning_starts=20, action_noise=noise).learn(50).predict(observations())[0]

    np.testing.assert_array_equal(actions(1), actions(1))
    assert np.abs(actions(1) - actions(2)).max() > 1e-3


def test_a_model_without_a_seed_is_new_every_time():
    first, second = (make(seed=None).predict(observations())[0] for _ in range(2))
    assert np.abs(first - second).max() > 1e-3


def test_updates_run_and_move_the_actor():
    model = make("Rail-v0", learning_starts=20)
    before = model.predict(observations()[:, :2])[0].copy()
    model.learn(60)
    assert model._n_updates == 40
    assert np.abs(model.predict(observations()[:, :2])[0] - before).max() > 1e-3


def test_predict_takes_one_observation_or_many(learned):
    model, _ = learned
    many, state = model.predict(observations(), state=None, episode_start=np.ones(20, bool), deterministic=True)
    one, _ = model.predict(observations()[0])
    assert (many.shape, one.shape, state) == ((20, 2), (2,), None)
    np.testing.assert_allclose(one, many[0], atol=1e-6)
    assert (many >= np.float32(LOW)).all()
    assert (many <= np.float32(HIGH)).all()


def test_evaluate_policy_works_on_it(learned):
    returns, lengths = evaluate_policy(learned[0], Monitor(Scripted()), n_eval_episodes=4, return_episode_rewards=True)
    assert len(returns) == 4
    assert set(lengths) <= {2, 3, 4, 5}


def test_learning_goes_on_where_it_stopped():
    model = make(learning_starts=10)
    model.learn(30)
    model.learn(20, reset_num_timesteps=False)
    assert (model.num_timesteps, model._n_updates, model.replay_buffer.size()) == (50, 40, 50)
    model.learn(15)
    assert (model.num_timesteps, model._n_updates) == (15, 45)


def test_learning_leaves_the_threads_of_others_alone_and_finds_its_own_again(monkeypatch):
    monkeypatch.setattr(updates, "available_threads", lambda: 2)
    torch.set_num_threads(3)
    cpu.set_threads(4)
    torch.set_num_threads(3)
    try:
        model = make(learning_starts=10).learn(60)
        assert (torch.get_num_threads(), cpu.get_threads()) == (3, 4)
        used = []
        engine = model._shared._engine
        update = engine.update
        engine._tuner._try(1)  # it chooses two threads
        cpu.set_threads(1)  # and somebody else has set another number since
        monkeypatch.setattr(engine, "update", lambda counts: used.append(cpu.get_threads()) or update(counts))
        model.train(1, batch_size=8)
        assert used == [2]  # after this update the tuner may choose again: it goes by the clock
    finally:
        cpu.set_threads(1)
        torch.set_num_threads(1)


def test_a_second_learn_sees_other_episodes():
    model = make(learning_starts=100).learn(20)
    model.learn(20)
    first, second = model.replay_buffer.rows[:20], model.replay_buffer.rows[20:40]
    assert not np.array_equal(first, second)


def test_a_learning_rate_that_falls_is_followed():
    asked = []

    def falling(remaining):
        asked.append(remaining)
        return 1e-3 * remaining

    model = make(learning_rate=falling, learning_starts=0)
    model.learn(10, log_interval=None)
    assert {round(remaining, 6) for remaining in asked} >= {round(1 - step / 10, 6) for step in range(1, 11)}
    assert model._shared._agent.actor_optimizer.learning_rate == pytest.approx(0)
    assert model.actor.optimizer.param_groups[0]["lr"] == pytest.approx(0)
    still = make("Rail-v0", learning_rate=lambda remaining: 1e-12, learning_starts=0)
    before = still.predict(observations()[:, :2])[0].copy()
    np.testing.assert_allclose(still.learn(60).predict(observations()[:, :2])[0], before, atol=1e-6)


def test_actor_and_critics_may_have_sizes_of_their_own():
    model = make(policy_kwargs={"net_arch": {"pi": [4], "qf": [6, 5]}}).learn(120)
    assert [layer.out_features for layer in updates.linears(model.actor.mu)] == [4, 2]
    assert [layer.out_features for layer in updates.linears(model.critic.q_networks[1])] == [6, 5, 1]
    assert (model._n_updates, model.updates_by) == (20, "td3")


@pytest.mark.parametrize("envs", [1, 3])
def test_the_engine_of_a_gpu_learns_the_same(monkeypatch, envs):
    def learn():
        settings = {"learning_starts": 30, "buffer_size": 75}  # it wraps
        model = make(DummyVecEnv([lambda: gym.make("Rail-v0") for _ in range(envs)]), **settings)
        model.learn(60)
        model.learn(60, reset_num_timesteps=False)
        return model

    plain = learn()
    monkeypatch.setattr(updates, "make_engine", graphs)  # on a CPU it calls what it would have recorded
    monkeypatch.setattr(updates.SharedUpdates, "_shares_rows", lambda self: False)  # and it has rows of its own
    graph = learn()
    engine = graph._shared._engine
    assert engine.asynchronous
    engine.flush()
    np.testing.assert_array_equal(sorted(engine.buffer.rows[0].tolist()), sorted(graph.replay_buffer.rows.tolist()))
    assert graph._n_updates == plain._n_updates > 20
    np.testing.assert_allclose(graph.replay_buffer.rows, plain.replay_buffer.rows, rtol=0, atol=1e-3)
    for name, weight in plain.policy.state_dict().items():
        torch.testing.assert_close(graph.policy.state_dict()[name], weight, rtol=0, atol=1e-3)


def graphs(agent, buffer, config, threads):
    return Engine(agent, buffer, config.member_seeds, config.td3, "graph", envs=config.envs)


# Callbacks and logs


def test_their_callbacks_work(tmp_path):
    evaluating = EvalCallback(
        Monitor(Scripted()),
        eval_freq=20,
        n_eval_episodes=2,
        best_model_save_path=tmp_path,
        log_path=tmp_path,
        verbose=0,
    )
    saving = CheckpointCallback(25, tmp_path / "checkpoints", save_replay_buffer=True)
    make(learning_starts=10).learn(60, callback=CallbackList([evaluating, saving]))
    with np.load(tmp_path / "evaluations.npz") as arrays:
        assert arrays["timesteps"].tolist() == [20, 40, 60]
    best = TD3.load(tmp_path / "best_model")
    assert best.predict(observations())[0].shape == (20, 2)
    found = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert found == [
        "rl_model_25_steps.zip",
        "rl_model_50_steps.zip",
        "rl_model_replay_buffer_25_steps.pkl",
        "rl_model_replay_buffer_50_steps.pkl",
    ]


def test_a_callback_can_stop_training():
    model = make().learn(1000, callback=StopTrainingOnMaxEpisodes(3))
    assert model._episode_num == 2  # as in theirs, it is asked before the third is counted
    assert model.num_timesteps < 20


def test_a_function_is_a_callback_and_none_is_no_reason_to_stop():
    seen = []

    def note(local_names, global_names):
        seen.append(local_names["self"].num_timesteps)
        return False if len(seen) == 7 else None

    make().learn(100, callback=[note])
    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_the_log_has_their_names():
    model = make(learning_starts=5)
    logged = {}

    class Logger:
        def record(self, key, value, exclude=None):
            logged[key] = value

        def dump(self, step):
            logged["step"] = step

    model.set_logger(Logger())
    model.learn(40, log_interval=1)
    assert set(logged) == {
        *("time/episodes", "time/fps", "time/time_elapsed", "time/total_timesteps", "step"),
        *("rollout/ep_rew_mean", "rollout/ep_len_mean"),
        *("train/learning_rate", "train/n_updates", "train/critic_loss", "train/actor_loss"),
    }
    assert all(np.isfinite(value) for value in logged.values())


# Files


def test_a_saved_model_comes_back_whole(learned):
    model, path = learned
    loaded = TD3.load(path, device="cpu")
    np.testing.assert_array_equal(loaded.predict(observations())[0], model.predict(observations())[0])
    for name, tensor in model.policy.state_dict().items():
        torch.testing.assert_close(loaded.policy.state_dict()[name], tensor, rtol=0, atol=0)
    assert (loaded.num_timesteps, loaded._n_updates, loaded._episode_num) == (60, 40, model._episode_num)
    for name in (*arguments(TD3.__init__),):
        if name in vars(model) and name not in ("action_noise", "policy_kwargs", "env", "policy"):
            assert getattr(loaded, name) == getattr(model, name), name
    assert loaded.action_noise._sigma.tolist() == [0.1, 0.1]
    assert loaded.observation_space == model.observation_space
    assert loaded.action_space == model.action_space


def test_a_loaded_model_goes_on_learning(learned):
    loaded = TD3.load(learned[1], env=Scripted(), device="cpu", learning_rate=5e-4)
    loaded.learn(40, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded._n_updates) == (100, 80)
    assert loaded.actor.optimizer.param_groups[0]["lr"] == 5e-4


def test_a_model_can_be_written_into_an_open_file(learned):
    buffer = io.BytesIO()
    learned[0].save(buffer)
    np.testing.assert_array_equal(
        TD3.load(io.BytesIO(buffer.getvalue())).predict(observations())[0], learned[0].predict(observations())[0]
    )


def test_code_in_a_file_is_left_out_with_a_warning_and_read_when_the_file_is_trusted(tmp_path):
    make(learning_rate=lambda remaining: 1e-4 * remaining, learning_starts=5).learn(20).save(tmp_path / "model.zip")
    with pytest.warns(UserWarning, match=r"learning_rate in .* was left out \(the learning rate stays at"):
        assert TD3.load(tmp_path / "model.zip").learning_rate < 1e-4
    assert TD3.load(tmp_path / "model.zip", custom_objects={"learning_rate": 0.0}).lr_schedule(1) == 0.0
    assert TD3.load(tmp_path / "model.zip", trust=True).learning_rate(0.5) == 5e-5


def test_the_replay_buffer_is_saved_and_read(tmp_path):
    model = make(buffer_size=30, learning_starts=100).learn(50)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    stream = io.BytesIO()
    model.save_replay_buffer(stream)
    for source in (tmp_path / "buffer.pkl", tmp_path / "buffer", io.BytesIO(stream.getvalue())):
        other = make(buffer_size=100, learning_starts=10)
        other.load_replay_buffer(source)
        assert isinstance(other.replay_buffer, RowReplayBuffer)
        np.testing.assert_array_equal(other.replay_buffer.rows, model.replay_buffer.rows)
        assert other.replay_buffer.size() == 30
    other.learn(40)
    assert other.updates_by == "td3"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        other.load_replay_buffer(tmp_path / "nothing")


def damaged(learned, tmp_path, change):
    content = bytearray(learned[1].with_suffix(".zip").read_bytes())
    path = tmp_path / "damaged.zip"
    path.write_bytes(change(content))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-300],
        lambda content: (
            content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
        ),
        lambda content: b"",
        lambda content: b"PK" + content[5:],
    ],
    ids=["truncated", "bit flipped", "empty", "no zip"],
)
def test_a_damaged_file_is_refused(learned, tmp_path, change):
    with pytest.raises(AgentFileError, match="damaged"):
        TD3.load(damaged(learned, tmp_path, change))


class Runs:
    """Executes code when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch executed",)


def rewritten(source, target, change):
    """A copy of a model's file with its description changed."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            copy.writestr(name, json.dumps(change(json.loads(content))) if name == "data" else content)


@pytest.mark.parametrize("key", ["policy_class", "policy_kwargs", "observation_space", "action_noise", "_last_obs"])
def test_nothing_in_a_file_is_executed(learned, tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    bad = {":type:": "", ":serialized:": base64.b64encode(pickle.dumps(Runs())).decode()}
    rewritten(learned[1].with_suffix(".zip"), tmp_path / "bad.zip", lambda data: data | {key: bad})
    if key in ("action_noise", "_last_obs"):
        with pytest.warns(UserWarning, match=f"{key} in .* could not be read without executing code"):
            TD3.load(tmp_path / "bad.zip")
    else:
        with pytest.raises(ValueError, match=f"holds {key} as code, which is not executed"):
            TD3.load(tmp_path / "bad.zip")
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(AgentFileError, match=r"it names \w+\.system, which is not data"):
        make().load_replay_buffer(tmp_path / "bad.pkl")
    assert not (tmp_path / "executed").exists()


def test_a_file_names_a_class_only_to_be_used_as_such(learned, tmp_path):
    for named in (zipfile.ZipFile, Runs):
        entry = {":type:": "", ":serialized:": base64.b64encode(pickle.dumps(named)).decode()}
        rewritten(
            learned[1].with_suffix(".zip"), tmp_path / "bad.zip", lambda data, e=entry: data | {"policy_class": e}
        )
        with pytest.raises(AgentFileError, match="which is not data"):
            TD3.load(tmp_path / "bad.zip")


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_not_a_regular_file_is_refused_without_waiting_for_it(tmp_path, put):
    for name in ("model.zip", "buffer.pkl"):
        put(tmp_path / name)
    with pytest.raises(AgentFileError, match="is not a regular file"):
        TD3.load(tmp_path / "model.zip")
    with pytest.raises(AgentFileError, match="is not a regular file"):
        make().load_replay_buffer(tmp_path / "buffer")


def test_models_go_both_ways_with_stable_baselines3(tmp_path):
    """The largest difference of weights, moments and actions after a file went from one to the other is 0."""
    env, states = SeededAlike(), observations()
    for first, second in ((TD3, stable_baselines3.TD3), (stable_baselines3.TD3, TD3)):
        noise = NormalActionNoise(np.zeros(2), 0.1 * np.ones(2))
        model = first("MlpPolicy", env, **SMALL | {"learning_starts": 10, "action_noise": noise, "gamma": 0.9})
        model.learn(60)
        model.save(tmp_path / "model")
        model.save_replay_buffer(tmp_path / "buffer")
        other = second.load(tmp_path / "model", env=env)
        other.load_replay_buffer(tmp_path / "buffer")
        assert type(other) is second
        assert largest_difference(model.get_parameters(), other.get_parameters()) == 0
        np.testing.assert_allclose(other.predict(states)[0], model.predict(states)[0], rtol=0, atol=1e-6)
        for name in ("observations", "actions", "next_observations", "rewards", "dones", "timeouts"):
            np.testing.assert_array_equal(getattr(other.replay_buffer, name), getattr(model.replay_buffer, name))
        assert (other.gamma, other._n_updates, other.num_timesteps) == (0.9, 50, 60)
        other.learn(40, reset_num_timesteps=False)
        assert (other._n_updates, other.num_timesteps) == (90, 100)
    assert other.updates_by == "td3"


def largest_difference(ours, theirs):
    """Over all tensors of two nested states."""
    if isinstance(ours, torch.Tensor):
        return float((ours - theirs).abs().max())
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        return max((largest_difference(value, theirs[name]) for name, value in ours.items()), default=0)
    return 0 if ours == theirs else float("inf")


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TD3.load(tmp_path / "nothing")


# What is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"buffer_size": 0}, "buffer_size must be a whole number of at least 1, but 0 was given"),
        ({"learning_rate": -1.0}, "learning_rate must be a number from 0 to 100 or a function, but -1.0"),
        ({"target_policy_noise": -1.0}, "target_policy_noise must be a number of at least 0"),
        ({"target_noise_clip": -1.0}, "target_noise_clip must be a number of at least 0"),
        ({"train_freq": (1, "hour")}, "must be either 'step' or 'episode' not 'hour'"),
        ({"train_freq": 0}, "train_freq must be a whole number of at least 1"),
        ({"gradient_steps": -2}, "gradient_steps must be a whole number of at least -1"),
        ({"learning_starts": -1}, "learning_starts must be a whole number of at least 0"),
        ({"env": None}, "env must be an environment or its name"),
        ({"env": 3}, "env must be an environment or its name, but int was given"),
        ({"action_noise": 0.1}, "action_noise must be None or an object to be called"),
        ({"buffer_size": 10**14}, "cannot be allocated: reduce buffer_size"),
    ],
)
def test_what_cannot_work_gets_one_sentence_and_is_a_value_error(settings, said):
    with pytest.raises(ValueError, match=said):
        TD3(**{"policy": "MlpPolicy", "env": Scripted()} | SMALL | settings)


def test_vectors_of_gymnasium_are_refused():
    with pytest.raises(ConfigError, match="takes no Gymnasium vector environment"):
        make(gym.vector.SyncVectorEnv([Scripted]))


def test_learning_that_diverges_is_a_value_error_with_a_sentence():
    class Endless(Scripted):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 1e38, *rest

    with pytest.raises(ValueError, match="learning diverged") as caught:
        make(Endless(), learning_starts=10).learn(200)
    assert isinstance(caught.value, UserError)


def test_a_tensorboard_log_is_written(tmp_path):
    pytest.importorskip("tensorboard", reason="an extra")
    model = make(tensorboard_log=tmp_path, learning_starts=5).learn(30, log_interval=1)
    assert list(tmp_path.glob("TD3_1/events.out.tfevents.*"))
    model.save(tmp_path / "model")
    assert TD3.load(tmp_path / "model").tensorboard_log == tmp_path


def test_a_model_that_is_copied_or_saved_while_it_learns_is_whole(tmp_path):
    class Copying(BaseCallback):
        def _on_step(self):
            if self.num_timesteps == 30:
                self.copy = copy.deepcopy(self.model)
                self.model.save(tmp_path / "model")
                self.kept = copied(self.model)
            return True

    copying = Copying()
    make(learning_starts=10).learn(40, copying)
    assert largest_difference(copying.copy.get_parameters(), copying.kept) == 0
    assert largest_difference(TD3.load(tmp_path / "model").get_parameters(), copying.kept) == 0
    theirs = stable_baselines3.TD3.load(tmp_path / "model", env=Scripted())
    assert largest_difference(theirs.get_parameters(), copying.kept) == 0
    theirs.learn(20)


def test_without_a_seed_the_environments_keep_theirs():
    def first(env):
        env.seed(7)
        return env.reset()

    env = vector(1)
    env.seed(7)
    model = TD3("MlpPolicy", env, **SMALL | {"seed": None})
    model.learn(1)
    np.testing.assert_array_equal(model.replay_buffer.observations[0], first(vector(1)))


def test_a_vector_without_terminal_observations_is_accepted():
    class Silent(DummyVecEnv):
        def step_wait(self):
            *rest, infos = super().step_wait()
            for info in infos:
                info.pop("terminal_observation", None)
            return *rest, infos

    assert make(Silent([Scripted]), learning_starts=10).learn(40)._n_updates == 30


@pytest.mark.long
def test_it_learns_pendulum():
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    settings = {"learning_rate": 1e-3, "learning_starts": 1000, "gamma": 0.98, "buffer_size": 20_000}
    model = TD3(
        "MlpPolicy", "Pendulum-v1", action_noise=noise, policy_kwargs={"net_arch": [64, 64]}, seed=0, **settings
    )
    model.learn(10_000)
    mean, _ = evaluate_policy(model, Monitor(gym.make("Pendulum-v1")), n_eval_episodes=20)
    assert mean > -250  # a pendulum that hangs gets -1,200; one that is swung up and held -150


# The same memory


def copied(model):
    return copy.deepcopy(model.get_parameters())


def test_an_update_is_theirs(monkeypatch):
    """Same weights, transitions, batches and noise: after 60 updates all weights and moments agree."""
    theirs = stable_baselines3.TD3("MlpPolicy", vector(1), **SMALL | {"learning_starts": 100}).learn(100)
    ours = make(vector(1)).learn(100)
    ours.set_parameters(theirs.get_parameters())
    ours.replay_buffer = RowReplayBuffer.from_plain(theirs.replay_buffer)
    drawn = np.random.default_rng(0)
    indices, noise = drawn.integers(100, size=(60, 8)), drawn.normal(size=(60, 8, 2)).astype(np.float32)
    monkeypatch.setattr(updates, "make_engine", lambda *given: scripted_engine(*given, indices, noise))
    ours.train(60, batch_size=8)
    batches, noises = iter(indices), iter(noise)
    theirs.replay_buffer.sample = lambda size, env: theirs.replay_buffer._get_samples(next(batches), env)
    monkeypatch.setattr(
        torch.Tensor, "normal_", lambda self, mean, std: self.copy_(torch.from_numpy(next(noises)) * std)
    )
    theirs.train(60, batch_size=8)
    assert ours._n_updates == theirs._n_updates == 60
    assert ours.updates_by == "td3"
    difference = largest_difference(ours.get_parameters(), theirs.get_parameters())
    assert 0 < difference < 2e-6


def scripted_engine(agent, buffer, config, threads, indices, noise):
    class Scripted(Engine):
        def update(self, counts):
            for batch, numbers in zip(indices, noise, strict=True):
                update_once(agent, buffer, Numbers(batch, numbers), config.td3)

    return Scripted(agent, buffer, config.member_seeds, config.td3, "eager", threads=threads)


class Numbers:
    """The random numbers of one update, given."""

    def __init__(self, batch, noise):
        self._batch, self._noise = torch.from_numpy(batch)[None], torch.from_numpy(noise)[None]

    def rows(self, filled, count):
        return self._batch

    def normal(self, count, size):
        return self._noise

    def seek(self, update_number):
        pass


class Seeing(BaseCallback):
    """Compares what callbacks see of the weights with what acts."""

    def _on_step(self):
        model = self.model
        if model.updates_by:
            with torch.no_grad():
                by_module = model.actor(torch.from_numpy(observations()))
            acted = model.policy.unscale_action(by_module.numpy())
            np.testing.assert_allclose(model.predict(observations())[0], acted, rtol=0, atol=1e-5)
            self.seen = [*getattr(self, "seen", []), float(by_module.sum())]
        return True


def test_while_learning_callbacks_see_the_newest_weights_and_afterwards_tensors_are_plain():
    seeing = Seeing()
    model = make("Scripted-v0", learning_starts=10).learn(40, seeing)
    assert len(set(seeing.seen)) > 10
    assert all(weight.is_contiguous() for weight in model.policy.parameters())
    assert model.policy.parameters_to_vector().ndim == 1
    held = model.actor
    before = [weight.detach().clone() for weight in held.parameters()]
    model.learn(40)
    assert held is model.actor
    assert any(not torch.equal(old, new) for old, new in zip(before, held.parameters(), strict=True))


def test_weights_and_moments_that_are_set_are_those_that_learn_on():
    model = make(learning_starts=10).learn(40)
    kept, counts = copied(model), model._n_updates
    model.learn(30)
    model.set_parameters(kept)
    model._n_updates = counts
    assert largest_difference(model.get_parameters(), kept) == 0
    model.train(1, batch_size=8)
    steps = [model.critic.optimizer.state_dict()["state"][index]["step"].item() for index in range(12)]
    assert steps == [counts + 1] * 12
    assert 0 < largest_difference(model.policy.state_dict(), kept["policy"]) < 0.01


def test_pytorchs_own_optimizer_may_take_over_and_give_back():
    model = make(learning_starts=10).learn(40)
    before = model.actor.optimizer.state_dict()["state"][0]["step"].item()
    loss = model.actor(torch.from_numpy(observations())).sum()
    model.actor.optimizer.zero_grad()
    loss.backward()
    model.actor.optimizer.step()
    model.train(2, batch_size=8)
    assert model.actor.optimizer.state_dict()["state"][0]["step"].item() == before + 2
    assert model._shared._agent.tensors()["actor_optimizer.steps"].item() == before + 2


@pytest.mark.parametrize("copying", [copy.deepcopy, lambda model: cloudpickle.loads(cloudpickle.dumps(model))])
def test_a_copy_learns_on_by_itself(copying):
    model = make(learning_starts=10).learn(40)
    kept = copied(model)
    other = copying(model)
    other.learn(20)
    assert other.updates_by == "td3"
    assert largest_difference(model.get_parameters(), kept) == 0
    assert largest_difference(other.get_parameters(), kept) > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", 0.5), ("batch_size", 4), ("policy_delay", 3), ("tau", 0.5), ("target_policy_noise", 0.0)],
)
def test_attributes_that_are_set_later_count(name, value):
    at_once = make(learning_starts=10, **{name: value}).learn(60)
    changed = make(learning_starts=10)
    setattr(changed, name, value)
    changed.learn(60)
    assert largest_difference(changed.policy.state_dict(), at_once.policy.state_dict()) == 0
    changed.learn(20)
    settings = changed._shared._settings
    assert getattr(settings, name) == value


def test_learning_rate_and_train_freq_that_are_set_later_count():
    model = make(learning_starts=10)
    model.learning_rate, model.train_freq = 0.0, (np.int64(5), "step")
    kept = copied(model)["policy"]
    model.learn(60)
    assert model._n_updates == 10
    assert largest_difference(model.policy.state_dict(), kept) == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"policy_kwargs": {"net_arch": [8], "activation_fn": torch.nn.Tanh}}, "other activations than ReLU"),
        ({"policy_kwargs": {"net_arch": []}}, "without hidden layers"),
        ({"policy_kwargs": {"net_arch": [8], "n_critics": 3}}, "n_critics=3"),
        ({"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.RMSprop}}, "optimizer RMSprop"),
        ({"policy_kwargs": {"net_arch": [8], "optimizer_kwargs": {"eps": 1e-5}}}, "optimizer Adam with these"),
        ({"n_steps": 3}, "replay buffer of the class NStepReplayBuffer"),
        ({"env": "normalized"}, "VecNormalize"),
        ({"gamma": 1.01}, "gamma"),
    ],
)
def test_what_the_engine_cannot_serve_is_learned_by_their_update(settings, reason, capsys):
    env = VecNormalize(vector(1)) if settings.pop("env", None) else vector(1)
    model = TD3("MlpPolicy", env, **SMALL | {"learning_starts": 10, "verbose": 1} | settings).learn(40)
    assert model.updates_by.startswith("Stable-Baselines3: ")
    assert reason in model.updates_by
    assert capsys.readouterr().out.count("Updates by Stable-Baselines3: ") == 1
    assert model._n_updates == 30


def test_sgd_learns_on_the_engine():
    model = make(policy_kwargs={"net_arch": [8], "optimizer_class": torch.optim.SGD}, learning_starts=10).learn(40)
    assert model.updates_by == "td3"


def test_our_class_is_theirs_and_overridden_methods_are_called():
    class Own(TD3):
        def __init__(self, *given, **named):
            self.calls = []
            super().__init__(*given, **named)

        def train(self, gradient_steps, batch_size=100):
            self.calls.append("train")
            super().train(gradient_steps, batch_size)

        def _store_transition(self, *given, **named):
            self.calls.append("store")
            super()._store_transition(*given, **named)

    model = Own("MlpPolicy", Scripted(), **SMALL | {"learning_starts": 10}).learn(20)
    assert isinstance(model, BaseAlgorithm)
    assert (model.calls.count("train"), model.calls.count("store")) == (10, 20)
    stream = io.BytesIO()
    model.save(stream)
    assert type(Own.load(io.BytesIO(stream.getvalue()))) is Own


def test_numbers_of_every_kind_are_accepted(tmp_path):
    model = make(
        learning_starts=1e1, batch_size=np.int64(8), learning_rate=np.float32(1e-3), train_freq=np.int64(2),
        tensorboard_log=None, device="cuda" if not torch.cuda.is_available() else "cpu",
    )  # fmt: skip
    model.learn(30)
    model.save(tmp_path / "model")
    loaded = TD3.load(tmp_path / "model", env=vector(3), buffer_size=1)
    assert (loaded.batch_size, loaded.n_envs, loaded.replay_buffer.buffer_size) == (8, 3, 1)


def test_a_pair_from_reset_is_explained():
    env = Scripted()
    with pytest.raises(ValueError, match="tuple"):
        make(env).predict(env.reset())


def test_the_buffer_has_their_methods():
    model = make(vector(2), buffer_size=20, learning_starts=4).learn(16)
    buffer = model.replay_buffer
    assert (buffer.size(), buffer.pos, buffer.full, buffer.buffer_size) == (8, 8, False, 10)
    batch = buffer.sample(6)
    assert batch.observations.shape == batch.next_observations.shape == (6, 3)
    np.testing.assert_array_equal(buffer.rows[:16, -1].reshape(8, 2), (buffer.dones * (1 - buffer.timeouts))[:8])
    np.testing.assert_array_equal(buffer.newest_rows(4), buffer.rows[12:16])
    model.learn(20)
    assert buffer.full
    buffer.reset()
    assert (buffer.size(), buffer.added) == (0, 0)
    model.learn(20)
    assert buffer.size() == 10


@pytest.mark.parametrize("normalized", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_model_exports_like_a_run(tmp_path, normalized):
    pytest.importorskip("onnxruntime", reason="comes with an extra")
    env = vector(1)
    env = VecNormalize(env) if normalized else env
    model = make(env, learning_starts=10).learn(60)
    done = model.export(tmp_path / "export")
    assert set(done.files) == {"actor.onnx", "actor.pt2", *(() if normalized else ("sb3.zip",))}
    assert max(done.files.values()) < 1e-5
    found = {file.name for file in (tmp_path / "export").iterdir()}
    assert found == {"actor.onnx", "actor.pt2", "sb3.zip", "infer.py", "export.json"}
    seen = env.normalize_obs(observations()) if normalized else observations()
    actor = torch.export.load(tmp_path / "export" / "actor.pt2").module()
    with torch.no_grad():
        acted = actor(torch.from_numpy(observations()))
    np.testing.assert_allclose(acted, model.predict(seen)[0], rtol=0, atol=1e-5)


def test_what_cannot_be_exported_is_said(tmp_path):
    model = make(policy_kwargs={"net_arch": [8], "activation_fn": torch.nn.Tanh})
    with pytest.raises(ConfigError, match="export writes actors of MlpPolicy on vectors"):
        model.export(tmp_path / "export")
    with pytest.raises(ConfigError, match="clips at 5: train with clip_obs=10"):
        make(VecNormalize(vector(1), clip_obs=5.0)).export(tmp_path / "export")
    assert not (tmp_path / "export").exists()
