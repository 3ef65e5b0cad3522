"""`from td3.sb3 import TD3` against Stable-Baselines3's own: the same words, the same defaults, the same events."""

import inspect
import io
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from parity.script import copy_weights_
from scripted import HIGH, LOW, Scripted
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import td3.sb3
from td3.backends import cpu
from td3.engine import GraphEngine
from td3.errors import AgentFileError, ConfigError, UserError
from td3.sb3 import TD3, callbacks, environments
from td3.sb3 import model as model_module

SMALL = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 8, "buffer_size": 1000, "device": "cpu", "seed": 0}


def make(env="Scripted-v0", **settings):
    return TD3("MlpPolicy", env, **SMALL | settings)


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
    ours = TD3("MlpPolicy", "Scripted-v0", buffer_size=10, batch_size=10)
    theirs = stable_baselines3.TD3("MlpPolicy", Scripted(), buffer_size=10)
    assert ours._sizes == ((400, 300), (400, 300))
    assert theirs.policy.net_arch == [400, 300]
    assert ours.action_noise is theirs.action_noise is None
    assert ours._settings.optimizer == "adam"


QUICK_START = """
import gymnasium as gym
import numpy as np

from td3.sb3 import TD3
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

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


def test_their_quick_start_runs_without_stable_baselines3(tmp_path):
    program = shortened(QUICK_START).replace("stable_baselines3.common.noise", "td3.sb3")
    blocker = "import sys; sys.modules['stable_baselines3'] = None\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocker + program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rollout/ep_rew_mean" in done.stdout


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
    networks = {"actor": theirs.actor.mu, "actor_target": theirs.actor_target.mu}
    critics = {
        f"{name}_{twin + 1}": critic.q_networks[twin]
        for name, critic in (("critic", theirs.critic), ("critic_target", theirs.critic_target))
        for twin in (0, 1)
    }
    copy_weights_(networks | critics, ours.agent)
    ours.learn(80)
    theirs.learn(80)
    rows = ours.replay_buffer.rows[0, :80].numpy()
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
    actions = model.replay_buffer.rows[0, :40, 3:5].numpy()
    states = model.replay_buffer.rows[0, :40, :3].numpy()
    low, high = np.array(LOW), np.array(HIGH)
    asked = (model.predict(states)[0] - low) / (high - low) * 2 - 1
    different = np.abs(actions - asked).max(1) > 1e-4
    assert different[:15].all()
    assert not different[15:].any()


def test_noise_is_a_share_of_half_the_range_and_stays_inside():
    noise = NormalActionNoise(np.zeros(2), 0.5 * np.ones(2))
    model = make(learning_starts=0, gradient_steps=0, action_noise=noise).learn(200)
    actions, states = (model.replay_buffer.rows[0, :200, columns].numpy() for columns in (slice(3, 5), slice(3)))
    asked = (model.predict(states)[0] - np.array(LOW)) / (np.array(HIGH) - np.array(LOW)) * 2 - 1
    assert np.abs(actions).max() <= 1
    inside = np.abs(actions) < 1
    added = (actions - asked)[inside]
    assert 0.2 < added.std() < 0.6


class Counting:
    """A noise that counts its calls and resets."""

    def __init__(self):
        self.calls, self.resets = 0, 0

    def __call__(self):
        self.calls += 1
        return np.zeros(2)

    def reset(self):
        self.resets += 1


def test_every_environment_has_its_own_noise_that_starts_anew_with_its_episodes():
    noise = Counting()
    model = make(vector(3), action_noise=noise)
    watching = Watching()
    model.learn(60, watching)
    ended = sum(event[2][0] for event in watching.events if isinstance(event, tuple))
    assert (noise.calls, noise.resets) == (20, 1 + ended)


@pytest.mark.parametrize("kind", [OrnsteinUhlenbeckActionNoise, td3.sb3.OrnsteinUhlenbeckActionNoise])
def test_drifting_noise_is_theirs(kind):
    np.random.seed(1)
    noise = kind(np.zeros(2), 0.3 * np.ones(2))
    drawn = np.stack([noise() for _ in range(50)])
    np.random.seed(1)
    theirs = OrnsteinUhlenbeckActionNoise(np.zeros(2), 0.3 * np.ones(2))
    np.testing.assert_allclose(drawn, [theirs() for _ in range(50)], rtol=1e-6)
    noise.reset()
    assert np.abs(noise()).max() < 0.2


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
    assert (model.num_timesteps, model._n_updates, len(model.replay_buffer)) == (50, 40, 50)
    model.learn(15)
    assert (model.num_timesteps, model._n_updates) == (15, 45)


def test_learning_leaves_the_threads_of_others_alone_and_finds_its_own_again(tmp_path, monkeypatch):
    monkeypatch.setattr(model_module, "available_threads", lambda: 2)
    torch.set_num_threads(3)
    cpu.set_threads(4)
    torch.set_num_threads(3)
    try:
        model = make(learning_starts=10).learn(60)
        assert (torch.get_num_threads(), cpu.get_threads()) == (3, 4)
        model.save_replay_buffer(tmp_path / "memory")
        assert (torch.get_num_threads(), cpu.get_threads()) == (3, 4)
        used = []
        tuner, update = model._engine._tuner, model._engine.update
        tuner._try(1)  # it chooses two threads
        cpu.set_threads(1)  # and somebody else has set another number since
        monkeypatch.setattr(model._engine, "update", lambda counts: used.append(cpu.get_threads()) or update(counts))
        model.train(1)
        assert used == [tuner.threads] == [2]
    finally:
        cpu.set_threads(1)
        torch.set_num_threads(1)


def test_a_second_learn_sees_other_episodes():
    model = make(learning_starts=100).learn(20)
    model.learn(20)
    first, second = model.replay_buffer.rows[0, :20], model.replay_buffer.rows[0, 20:40]
    assert not torch.equal(first, second)


def test_a_learning_rate_that_falls_is_followed():
    asked = []

    def falling(remaining):
        asked.append(remaining)
        return 1e-3 * remaining

    model = make(learning_rate=falling, learning_starts=0)
    model.learn(10, log_interval=None)
    np.testing.assert_allclose(asked[1:], [1 - step / 10 for step in range(1, 11)])
    assert model._running_engine().description.startswith("Updates are recorded")
    optimizer = model._running_engine()._members[0]._agent.actor_optimizer
    assert optimizer.learning_rate == pytest.approx(0)
    still = make("Rail-v0", learning_rate=lambda remaining: 1e-12, learning_starts=0)
    before = still.predict(observations()[:, :2])[0].copy()
    np.testing.assert_allclose(still.learn(60).predict(observations()[:, :2])[0], before, atol=1e-6)


def test_a_schedule_that_gives_no_learning_rate_is_refused():
    model = make(learning_rate=lambda left: 1e-3 if left == 1.0 else 1e308, learning_starts=10)
    with pytest.raises(ConfigError, match="learning_rate must give numbers from 0 to 100, but it gave 1e"):
        model.learn(60)


def test_actor_and_critics_may_have_sizes_of_their_own():
    model = make(policy_kwargs={"net_arch": {"pi": [4], "qf": [6, 5]}}).learn(120)
    assert model.agent.actor.network.sizes == (3, 4, 2)
    assert model.agent.critics.network.sizes == (5, 6, 5, 1)
    assert model._n_updates == 20


@pytest.mark.parametrize("envs", [1, 3])
def test_the_engine_of_a_gpu_learns_the_same(monkeypatch, envs):
    def learn():
        model = make(DummyVecEnv([lambda: gym.make("Rail-v0") for _ in range(envs)]), learning_starts=30)
        model.learn(60)
        model.learn(60, reset_num_timesteps=False)
        return model

    plain = learn()
    monkeypatch.setattr(model_module, "make_engine", graphs)  # on a CPU it calls what it would have recorded
    graph = learn()
    assert isinstance(graph._engine, GraphEngine)
    graph._engine.close()  # the last rows are still on their way
    # Numpy acts there and PyTorch here: alike but for rounding.
    torch.testing.assert_close(graph.replay_buffer.rows[0, :120], plain.replay_buffer.rows[0, :120], rtol=0, atol=1e-4)
    assert graph._n_updates == plain._n_updates > 20
    for name in ("actor", "actor_target", "critics", "critics_target"):
        torch.testing.assert_close(graph.agent.tensors()[name], plain.agent.tensors()[name], rtol=0, atol=1e-3)


def graphs(agent, buffer, config, threads):
    return GraphEngine(agent, buffer, config.member_seeds, config.td3, config.envs)


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
        "rl_model_replay_buffer_25_steps.safetensors",
        "rl_model_replay_buffer_50_steps.safetensors",
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


def test_without_stable_baselines3_there_is_a_log_a_bar_and_a_vector(monkeypatch, capsys):
    for module in (environments, callbacks):
        monkeypatch.setattr(module, "has_sb3", lambda: False)
    make(verbose=1, learning_starts=5).learn(40, log_interval=2, progress_bar=True)
    said = capsys.readouterr().out
    assert re.search(r"^rollout/ep_len_mean +\d", said, re.MULTILINE)
    assert "40 of 40 steps" in said
    vec_env = td3.sb3.DummyVecEnv([Scripted, Scripted])
    model = TD3("MlpPolicy", vec_env, **SMALL).learn(40)
    assert isinstance(model.get_env(), td3.sb3.DummyVecEnv)
    assert len(model.replay_buffer) == 40


def test_our_vector_does_what_theirs_does():
    ours, theirs = (kind([SeededAlike, SeededAlike]) for kind in (td3.sb3.DummyVecEnv, DummyVecEnv))
    for vec_env in (ours, theirs):
        vec_env.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    actions = np.array([[0.5, 0.3], [1.5, 0.4]], np.float32)
    for _ in range(12):
        for mine, other in zip(ours.step(actions)[:3], theirs.step(actions)[:3], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
    mine, other = ours.step(actions)[3], theirs.step(actions)[3]
    for key in ("TimeLimit.truncated",):
        assert [info[key] for info in mine] == [info[key] for info in other]


# Files


def test_a_saved_model_comes_back_whole(learned):
    model, path = learned
    loaded = TD3.load(path, device="cpu")
    np.testing.assert_array_equal(loaded.predict(observations())[0], model.predict(observations())[0])
    for name, tensor in model.agent.tensors().items():
        torch.testing.assert_close(loaded.agent.tensors()[name], tensor, rtol=0, atol=0)
    assert (loaded.num_timesteps, loaded._n_updates, loaded._episode_num) == (60, 40, model._episode_num)
    for name in (*arguments(TD3.__init__),):
        if name in vars(model) and name not in ("action_noise", "policy_kwargs", "env"):
            assert getattr(loaded, name) == getattr(model, name), name
    assert loaded.action_noise._sigma.tolist() == [0.1, 0.1]
    assert loaded.observation_space == model.observation_space
    assert loaded.action_space == model.action_space


def test_a_loaded_model_goes_on_learning(learned):
    loaded = TD3.load(learned[1], env=Scripted(), device="cpu", learning_rate=5e-4)
    assert loaded._settings.actor_learning_rate == 5e-4
    loaded.learn(40, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded._n_updates) == (100, 80)


def test_an_argument_that_does_not_exist_is_refused(learned):
    with pytest.raises(ConfigError, match="load takes the constructor's arguments, and 'learning_rat' is none of them"):
        TD3.load(learned[1], learning_rat=1e-3)


def test_there_is_no_pickle_in_the_file(learned):
    with zipfile.ZipFile(learned[1].with_suffix(".zip")) as archive:
        assert sorted(archive.namelist()) == ["model.json", "tensors.safetensors"]


def test_a_model_can_be_written_into_an_open_file(learned):
    buffer = io.BytesIO()
    learned[0].save(buffer)
    np.testing.assert_array_equal(
        TD3.load(io.BytesIO(buffer.getvalue())).predict(observations())[0], learned[0].predict(observations())[0]
    )


def test_what_cannot_be_stored_is_said_when_it_is_loaded(tmp_path):
    make(learning_rate=lambda remaining: 1e-4, action_noise=Counting()).save(tmp_path / "model.zip")
    with pytest.warns(UserWarning, match="learning_rate, action_noise could not be stored with the model"):
        assert TD3.load(tmp_path / "model.zip").learning_rate == 1e-4
    TD3.load(tmp_path / "model.zip", learning_rate=1e-3, action_noise=None)


def test_the_memory_is_saved_and_read(tmp_path):
    model = make(buffer_size=30, learning_starts=100).learn(50)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    other = make(buffer_size=100)
    other.load_replay_buffer(tmp_path / "buffer.pkl")
    oldest_first = model.replay_buffer.rows.roll(-20, 1)
    assert torch.equal(other.replay_buffer.rows[:, :30], oldest_first)
    assert len(other.replay_buffer) == 30
    with pytest.raises(AgentFileError, match="holds transitions of another task"):
        make("Rail-v0").load_replay_buffer(tmp_path / "buffer.pkl")
    with pytest.raises(AgentFileError, match="is not a readable replay buffer"):
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


def test_a_file_that_describes_something_else_is_refused(learned, tmp_path):
    with zipfile.ZipFile(learned[1].with_suffix(".zip")) as archive:
        facts, tensors = (archive.read(name) for name in ("model.json", "tensors.safetensors"))
    for old, new in (
        (b'"pi": [\n      8', b'"pi": [\n      9'),
        (b'"pi": [\n      8', b'"pi": [\n      9999999999999'),  # networks of terabytes
        (b"td3-sb3-model", b"td3-sb3-other"),
        (b"settings", b"nothing"),
    ):
        assert old in facts
        with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
            archive.writestr("model.json", facts.replace(old, new))
            archive.writestr("tensors.safetensors", tensors)
        with pytest.raises(AgentFileError):
            TD3.load(tmp_path / "other.zip")


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_not_a_regular_file_is_refused_without_waiting_for_it(tmp_path, put):
    for name in ("model.zip", "buffer.safetensors"):
        put(tmp_path / name)
    with pytest.raises(AgentFileError, match="is not a regular file"):
        TD3.load(tmp_path / "model.zip")
    with pytest.raises(AgentFileError, match="is not a regular file"):
        make().load_replay_buffer(tmp_path / "buffer")


def test_a_file_of_stable_baselines3_is_refused_and_not_opened(tmp_path):
    stable_baselines3.TD3("MlpPolicy", Scripted(), buffer_size=10).save(tmp_path / "theirs")
    with pytest.raises(AgentFileError, match="by Stable-Baselines3, whose files are pickled"):
        TD3.load(tmp_path / "theirs")
    with pytest.raises(AgentFileError, match="there is no file"):
        TD3.load(tmp_path / "nothing")


# What is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "CnnPolicy"}, "knows the policy 'MlpPolicy' alone"),
        ({"policy": "MultiInputPolicy"}, "knows the policy 'MlpPolicy' alone"),
        ({"policy_kwargs": {"activation_fn": torch.nn.Tanh}}, "has ReLU between its layers and nothing else"),
        ({"policy_kwargs": {"n_critics": 1}}, "TD3 has two critics"),
        ({"policy_kwargs": {"net_arch": []}}, "net_arch must be one or more whole numbers"),
        ({"policy_kwargs": {"net_arch": {"pi": [4]}}}, "has the keys pi and qf"),
        ({"policy_kwargs": {"width": 3}}, "does not know 'width' in policy_kwargs"),
        ({"policy_kwargs": {"optimizer_class": torch.optim.RMSprop}}, "has the optimizers Adam and SGD"),
        ({"policy_kwargs": {"optimizer_kwargs": {"eps": 1e-5}}}, "does not take optimizer_kwargs"),
        ({"replay_buffer_class": dict}, "has a replay buffer of its own"),
        ({"replay_buffer_kwargs": {"handle_timeout_termination": False}}, "right about time-outs"),
        ({"optimize_memory_usage": True}, "does not know optimize_memory_usage"),
        ({"n_steps": 3}, "learns from single steps"),
        ({"buffer_size": 0}, "buffer_size must be a whole number of at least 1, but 0 was given"),
        ({"buffer_size": 4}, r"batch_size \(8\) must not exceed buffer_size"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0 and at most 100"),
        ({"target_policy_noise": -1.0}, "target_policy_noise must be a number of at least 0"),
        ({"target_noise_clip": -1.0}, "target_noise_clip must be a number of at least 0"),
        ({"train_freq": (1, "hour")}, "counted in 'step' or 'episode', but 'hour' was given"),
        ({"train_freq": 0}, "train_freq must be a whole number of at least 1"),
        ({"gradient_steps": -2}, "gradient_steps must be a whole number of at least -1"),
        ({"learning_starts": -1}, "learning_starts must be a whole number of at least 0"),
        ({"env": None}, "env must be an environment or its name"),
        ({"env": "NoSuch-v0"}, "there is no environment"),
        ({"env": "CartPole-v1"}, "has Discrete actions, and TD3 needs continuous ones"),
        ({"env": 3}, "env must be a Gymnasium environment or its name, but int was given"),
    ],
)
def test_what_is_not_supported_gets_one_sentence(settings, said):
    with pytest.raises(UserError, match=said):
        TD3(**{"policy": "MlpPolicy", "env": "Scripted-v0"} | SMALL | settings)


def test_vectors_of_gymnasium_and_normalizing_ones_are_refused():
    with pytest.raises(ConfigError, match="takes no Gymnasium vector environment"):
        make(gym.vector.SyncVectorEnv([Scripted]))
    with pytest.raises(ConfigError, match="does not normalize: take VecNormalize away"):
        make(VecNormalize(vector(1)))


def test_learning_is_refused_in_one_sentence_where_it_cannot_be(learned):
    with pytest.raises(ConfigError, match="there is no environment to learn in"):
        TD3.load(learned[1]).learn(10)
    with pytest.raises(ConfigError, match="needs one environment alone"):
        make(vector(2), train_freq=(1, "episode")).learn(10)
    with pytest.raises(ConfigError, match="action_noise must be None or an object to be called"):
        make(action_noise=0.1).learn(10)
    with pytest.raises(ConfigError, match="callback must be a callback, a function or a list"):
        make().learn(10, callback=3)
    with pytest.raises(ConfigError, match="model was made for"):
        make().set_env("Rail-v0")
    with pytest.raises(ConfigError, match="give another one to the constructor"):
        make().train(1, batch_size=100)


def test_a_memory_that_does_not_fit_is_refused():
    with pytest.raises(
        ConfigError, match=r"for 1 x 1,000,000,000,000 transitions.*lower buffer_size to at most [\d,]+\.$"
    ):
        make(buffer_size=10**12).learn(10)


def test_another_number_of_environments_may_be_set():
    model = make(learning_starts=10).learn(20)
    model.set_env(vector(3))
    model.learn(30, reset_num_timesteps=False)
    assert (model.n_envs, model.num_timesteps, len(model.replay_buffer)) == (3, 50, 50)


def test_a_tensorboard_log_needs_its_packages(monkeypatch):
    monkeypatch.setattr(callbacks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="tensorboard_log needs stable-baselines3 and tensorboard"):
        make(tensorboard_log="logs")


def test_a_tensorboard_log_is_written(tmp_path):
    pytest.importorskip("tensorboard", reason="an extra")
    make(tensorboard_log=str(tmp_path), learning_starts=5).learn(30, log_interval=1)
    assert list(tmp_path.glob("TD3_1/events.out.tfevents.*"))


@pytest.mark.parametrize("name", ["policy", "critic", "get_parameters"])
def test_what_has_no_counterpart_says_what_to_do(learned, name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*model"):
        getattr(learned[0], name)


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
