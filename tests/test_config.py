import json
import math
import pickle
from pathlib import Path

import pytest

import td3
from td3.callbacks.notes import updates_note, warm_up_note
from td3.config import TrainConfig, preset_config, resolve
from td3.errors import ConfigError
from td3.presets import TUNED
from td3.settings import TD3Config

BAD_TD3 = [
    ("hidden_sizes", ()),
    ("hidden_sizes", (64, 0)),
    ("hidden_sizes", (64, -1)),
    ("hidden_sizes", (64, 1.5)),
    ("hidden_sizes", 64),
    ("hidden_sizes", "64"),
    ("actor_hidden_sizes", ()),
    ("actor_hidden_sizes", 64),
    ("critic_hidden_sizes", (64, 0)),
    ("critic_hidden_sizes", "64"),
    ("activation", "swish"),
    ("activation", None),
    ("learning_rate_schedule", "cosine"),
    ("learning_rate_schedule", 0.5),
    ("actor_learning_rate", 0.0),
    ("actor_learning_rate", -1e-3),
    ("actor_learning_rate", math.nan),
    ("actor_learning_rate", math.inf),
    ("actor_learning_rate", "fast"),
    ("actor_learning_rate", 1e308),
    ("critic_learning_rate", 0.0),
    ("critic_learning_rate", 101.0),
    ("critic_learning_rate", True),
    ("optimizer", "rmsprop"),
    ("batch_size", 0),
    ("batch_size", -5),
    ("batch_size", 2.5),
    ("batch_size", True),
    ("buffer_size", 0),
    ("buffer_size", "many"),
    ("learning_starts", -1),
    ("learning_starts", None),
    ("exploration_noise", -0.1),
    ("exploration_noise", 1.5),
    ("exploration_noise", math.nan),
    ("target_policy_noise", -0.1),
    ("target_policy_noise", math.inf),
    ("target_noise_clip", -0.5),
    ("target_noise_clip", math.nan),
    ("policy_delay", 0),
    ("policy_delay", 1.0),
    ("policy_delay", 1_000_001),
    ("policy_delay", 10**26),
    ("gamma", -0.01),
    ("gamma", 1.01),
    ("gamma", math.nan),
    ("tau", -0.1),
    ("tau", 1.1),
    ("tau", [0.005]),
    ("utd_ratio", 0.0),
    ("utd_ratio", math.inf),
    ("utd_ratio", 1e308),
    ("train_freq", "sometimes"),
    ("timeouts", "ignore"),
    ("initialization", "zeros"),
    ("critic_layer_norm", 1),
    ("n_step", 0),
    ("priority_exponent", 1.5),
    ("image_features", 0),
    ("random_shift", -1),
    ("bc_alpha", -1.0),
    ("hindsight_goals", 0),
]
BAD_TRAIN = [
    ("variant", ("sac",)),
    ("replace_steps", (3,)),
    ("init_from", 3),
    ("dataset", 3),
    ("engine", "fast"),
    ("engine", None),
    ("env", ""),
    ("env", 3),
    ("steps", 0),
    ("steps", -10),
    ("steps", 1e6),
    ("seed", -1),
    ("seed", 0.5),
    ("seeds", 0),
    ("seeds", 10_001),
    ("preset", "fast"),
    ("device", "tpu"),
    ("out", 7),
    ("envs", 0),
    ("pixels", 1),
    ("frames", 0),
    ("frames", 17),
    ("image_size", 15),
    ("action_repeat", 0),
    ("eval_every", -1),
    ("log_every", 0),
    ("eval_episodes", 0),
    ("save_every", -1),
    ("save_every", 0.5),
    ("env_timeout", 0),
    ("workers", "spark"),
    ("ray_address", 6379),
    ("max_staleness", 0),
    ("threads", -1),
    ("precision", "bfloat16"),
    ("buffer_device", "disk"),
    ("env_kwargs", {"render_mode": "human"}),
    ("normalize_observations", "yes"),
    ("td3", None),
]


@pytest.mark.parametrize(("name", "given"), BAD_TD3)
def test_a_bad_number_of_the_algorithm_is_refused_by_name_and_value(name, given):
    with pytest.raises(ConfigError) as caught:
        TD3Config(**{name: given})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} must be ")
    assert sentence.endswith(f"but {given!r} was given.")
    assert "\n" not in sentence


@pytest.mark.parametrize(("name", "given"), BAD_TRAIN)
def test_a_bad_field_of_the_run_is_refused_by_name_and_value(name, given):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**{"env": "Pendulum-v1", name: given})
    assert str(caught.value).startswith(f"{name} must be ")
    assert str(caught.value).endswith(f"but {given!r} was given.")


def test_every_field_has_a_rule():
    ruled = {name for name, _ in BAD_TD3}
    assert ruled == set(TD3Config.__dataclass_fields__)
    assert {name for name, _ in BAD_TRAIN} == set(TrainConfig.__dataclass_fields__)


@pytest.mark.parametrize(("name", "given"), [("gamma", 0.0), ("gamma", 1.0), ("tau", 0.0), ("tau", 1.0)])
def test_the_ends_of_an_interval_are_allowed(name, given):
    assert getattr(TD3Config(**{name: given}), name) == given


def test_a_batch_larger_than_the_memory_is_refused():
    with pytest.raises(ConfigError, match=r"batch_size \(256\) must not exceed buffer_size \(100\)"):
        TD3Config(buffer_size=100)
    assert TD3Config(buffer_size=256).buffer_size == 256


def test_a_list_of_sizes_and_a_text_as_path_are_welcome():
    config = resolve("Pendulum-v1", hidden_sizes=[64, 32], out="runs/here")
    assert config.td3.hidden_sizes == (64, 32)
    assert config.out == Path("runs/here")


def test_the_preset_author_has_the_numbers_of_the_authors_code():
    assert preset_config("author", "Hopper-v5", 1_000_000) == TD3Config(
        hidden_sizes=(256, 256),
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        optimizer="adam",
        batch_size=256,
        buffer_size=1_000_000,
        learning_starts=25_000,
        exploration_noise=0.1,
        target_policy_noise=0.2,
        target_noise_clip=0.5,
        policy_delay=2,
        gamma=0.99,
        tau=0.005,
        utd_ratio=1.0,
        train_freq="step",
    )


@pytest.mark.parametrize(
    ("env", "learning_starts"),
    [
        ("HalfCheetah-v5", 10_000),
        ("Ant-v5", 10_000),
        ("Hopper-v5", 1_000),
        ("Walker2d-v5", 1_000),
        ("Reacher-v5", 1_000),
    ],
)
def test_the_preset_paper_has_more_random_steps_for_long_legs(env, learning_starts):
    assert preset_config("paper", env, 1_000_000).learning_starts == learning_starts


@pytest.mark.parametrize(("steps", "buffer_size"), [(1_000_000, 1_000_000), (50_000, 50_000), (20, 100)])
def test_the_preset_paper_remembers_the_whole_run(steps, buffer_size):
    preset = preset_config("paper", "Hopper-v5", steps)
    assert preset.buffer_size == buffer_size
    assert (preset.hidden_sizes, preset.batch_size, preset.train_freq) == ((400, 300), 100, "episode")
    assert preset.actor_learning_rate == preset.critic_learning_rate == 1e-3


def test_the_preset_course_has_the_numbers_of_the_lesson():
    preset = preset_config("course", "Ant-v5", 1_000_000)
    assert (preset.hidden_sizes, preset.batch_size, preset.train_freq) == ((400, 300), 100, "episode")
    assert (preset.buffer_size, preset.learning_starts) == (20_000, 10_000)


def test_the_preset_bullet_has_the_tuned_numbers():
    preset = preset_config("bullet", "Walker2DBulletEnv-v0", 1_000_000)
    assert (preset.actor_learning_rate, preset.critic_learning_rate) == (7e-4, 7e-4)
    assert (preset.buffer_size, preset.learning_starts, preset.gamma) == (200_000, 10_000, 0.98)
    assert (preset.hidden_sizes, preset.batch_size, preset.train_freq) == ((400, 300), 256, "step")


def test_the_preset_tuned_fits_the_task():
    assert preset_config("tuned", "Pendulum-v1", 250_000) == TD3Config(
        hidden_sizes=(64, 64), batch_size=64, actor_learning_rate=1e-3, critic_learning_rate=1e-3, gamma=0.95
    )
    walker = preset_config("tuned", "Walker2DBulletEnv-v0", 1_000_000)
    assert walker == preset_config("bullet", "Walker2DBulletEnv-v0", 1_000_000)
    assert preset_config("tuned", "", 250_000) == TD3Config()  # the help of td3 train without a task


def test_a_task_without_tuned_settings_is_refused_with_those_that_have_them():
    with pytest.raises(
        ConfigError, match=r"^no tuned settings are known for Ant-v5, only for Pendulum-v1, .*td3 tune\.$"
    ):
        resolve("Ant-v5", "tuned")


@pytest.mark.parametrize("env", TUNED)
def test_tuned_settings_are_valid_and_change_something(env):
    assert preset_config("tuned", env, 250_000) != preset_config("author", env, 250_000)


def test_given_fields_go_on_top_of_the_preset():
    config = resolve("Ant-v5", "paper", steps=5_000, seeds=3, batch_size=32)
    assert (config.steps, config.seeds, config.preset) == (5_000, 3, "paper")
    assert (config.td3.batch_size, config.td3.buffer_size, config.td3.learning_starts) == (32, 5_000, 500)


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(
        ConfigError, match="there is no preset 'fast': choose one of author, paper, course, bullet, tuned"
    ):
        resolve("Pendulum-v1", "fast")


def test_an_unknown_field_is_told_the_nearest_name():
    with pytest.raises(ConfigError, match="there is no setting 'batchsize': did you mean 'batch_size'"):
        resolve("Pendulum-v1", batchsize=3)
    with pytest.raises(ConfigError, match="there is no setting 'zzz': the fields are action_repeat, "):
        resolve("Pendulum-v1", zzz=3)


@pytest.mark.parametrize("preset", ["author", "paper"])
@pytest.mark.parametrize("given", [0, -1, 2.5, "many", None])
def test_a_wrong_number_of_steps_is_refused_with_every_preset(preset, given):
    with pytest.raises(ConfigError, match=r"^steps must be a whole number from 1 to 999,999,990,000, but"):
        resolve("Pendulum-v1", preset, steps=given)


@pytest.mark.parametrize("preset", ["author", "paper", "course", "bullet"])
@pytest.mark.parametrize("steps", [1, 9, 10, 1_234, 100_000, 249_999, 250_000, 10**6])
def test_the_warm_up_of_a_preset_is_at_most_a_tenth_of_the_run(preset, steps):
    usual = preset_config(preset, "Ant-v5", 10**9).learning_starts
    assert resolve("Ant-v5", preset, steps=steps).td3.learning_starts == min(usual, steps // 10)
    assert usual == {"author": 25_000}.get(preset, 10_000)


def said_of_warm_up(env_steps: int = 0, **given) -> str:
    config = resolve("Ant-v5", given.pop("preset", "author"), **given)
    return warm_up_note(config, config.td3.learning_starts, env_steps)


def test_the_warm_up_is_named_in_one_sentence():
    assert said_of_warm_up(steps=250_000) == "Warm-up: 25,000 random steps first; nothing is learned until then."
    short = "Warm-up: 1,000 random steps first; nothing is learned until then (10 % of this run; 25,000 by default)."
    assert said_of_warm_up(steps=10_000) == short
    assert "2,000 random steps first; nothing is learned until then." in said_of_warm_up(
        steps=9_000, learning_starts=2_000
    )
    assert said_of_warm_up(steps=10**6, preset="paper") == "Warm-up: 10,000 random steps first."
    assert said_of_warm_up(steps=10_000, learning_starts=0) == ""
    started = "Until env step 1,000 the policy that was loaded acts, and nothing is learned yet."
    assert said_of_warm_up(steps=10_000, init_from="runs/x") == started


def test_a_resumed_run_says_what_is_left_of_its_warm_up():
    left = "Warm-up: random steps until env step 1,000; nothing is learned until then."
    assert said_of_warm_up(steps=10_000, env_steps=600) == left
    assert said_of_warm_up(steps=10_000, env_steps=1_000) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"envs": 1_024}, "1,024 environments: 1,024 updates per round (--td3.utd-ratio 1)."),
        (
            {"envs": 4_096, "utd_ratio": 2 / 4_096},
            "4,096 environments: 2 updates per round (--td3.utd-ratio 0.000488281).",
        ),
        ({"envs": 3, "utd_ratio": 0.1}, "3 environments: 0.3 updates per round (--td3.utd-ratio 0.1)."),
        ({"envs": 1, "utd_ratio": 4}, ""),
        ({"envs": 8, "preset": "paper"}, ""),
    ],
)
def test_the_updates_of_a_round_are_said(given, said):
    assert updates_note(resolve("Ant-v5", **given)) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 1_000, "learning_starts": 1_000}, "the run has 1,000 env steps and the first 1,000 are random"),
        ({"learning_starts": 10**17}, "Lower --td3.learning-starts or raise --steps."),
        ({"steps": 8, "envs": 8}, "8 environments take them all at once"),
        ({"steps": 1_000, "utd_ratio": 1e-9}, "makes 1e-09 updates for each"),
    ],
)
def test_a_run_that_would_never_update_is_refused(given, said):
    config = resolve("Pendulum-v1", **given)
    with pytest.raises(ConfigError, match=r"^no update would happen: .*\.$") as caught:
        config.require_updates()
    assert said in str(caught.value)
    assert config.warnings()[0].startswith("No update will happen: "), "for runs of earlier versions"


def test_a_number_beyond_64_bits_is_refused():
    with pytest.raises(ConfigError, match=r"^learning_starts must be at most 9,223,372,036,854,775,807, but 1000"):
        resolve("Pendulum-v1", learning_starts=10**26)


@pytest.mark.parametrize("given", [{"steps": 1_001, "learning_starts": 1_000}, {"steps": 2}, {"steps": 9, "envs": 8}])
def test_one_update_is_enough(given):
    config = resolve("Pendulum-v1", **given)
    config.require_updates()
    assert config.warnings() == []


def test_updates_at_the_end_of_episodes_happen_in_the_warm_up_too():
    config = resolve("Pendulum-v1", "paper", steps=1_000, learning_starts=5_000)
    config.require_updates()
    assert config.warnings() == []


def test_no_exploration_noise_warns():
    assert "exploration_noise is 0" in resolve("Pendulum-v1", exploration_noise=0.0).warnings()[0]


def test_train_warns_in_python_too(tmp_path):
    few = {"steps": 3, "eval_every": 0, "eval_episodes": 1, "hidden_sizes": (4,), "batch_size": 4}
    with pytest.warns(UserWarning, match="exploration_noise is 0"):
        td3.train("Pendulum-v1", exploration_noise=0.0, out=tmp_path / "run", **few)


@pytest.mark.parametrize("preset", ["author", "paper", "course", "bullet"])
def test_a_configuration_survives_json(preset):
    config = resolve("Ant-v5", preset, steps=2_000, seeds=2, out=Path("somewhere"), hidden_sizes=(3, 4, 5))
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert TrainConfig.from_json(resolve("Ant-v5").to_json()).out is None


def test_the_first_published_run_can_still_be_read():
    published = Path(__file__).parents[1] / "results" / "halfcheetah_v5" / "config.json"
    assert TrainConfig.from_json(json.loads(published.read_text())).buffer_device == "auto"


def damaged(change) -> dict:
    values = json.loads(json.dumps(resolve("Ant-v5").to_json()))
    change(values)
    return values


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.pop("env"), "lacks env"),
        (lambda values: values.pop("td3"), "lacks td3"),
        (lambda values: values.update(extra=1), "unexpected keyword argument 'extra'"),
        (lambda values: values.update(steps="many"), "steps must be"),
        (lambda values: values.update(out=["a"]), "damaged|out must be"),
        (lambda values: values.update(td3=None), "damaged"),
        (lambda values: values.update(td3=[1, 2]), "damaged"),
        (lambda values: values["td3"].update(hidden_sizes=None), "damaged|hidden_sizes must be"),
        (lambda values: values["td3"].update(hidden_sizes="ab"), "hidden_sizes must be"),
        (lambda values: values["td3"].update(tau=float("nan")), "tau must be"),
        (lambda values: values["td3"].update(unheard=1), "unexpected keyword argument 'unheard'"),
    ],
)
def test_a_damaged_configuration_is_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        TrainConfig.from_json(damaged(change))


def test_the_seeds_of_the_members_follow_one_another():
    assert resolve("Ant-v5", seed=5, seeds=3).member_seeds == (5, 6, 7)


def test_an_error_carries_the_name_of_its_field():
    with pytest.raises(ConfigError) as raised:
        resolve("Ant-v5", batch_size=0)
    error = raised.value
    assert (error.field, str(error)) == (
        "batch_size",
        "batch_size must be a whole number of at least 1, but 0 was given.",
    )
    assert error.with_name("n_batch") == "n_batch must be a whole number of at least 1, but 0 was given."
    copied = pickle.loads(pickle.dumps(error))  # a worker's errors travel
    assert (copied.field, str(copied)) == (error.field, str(error))
    assert ConfigError("there is no preset 'x'.").with_name("y") == "there is no preset 'x'."
