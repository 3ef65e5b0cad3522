import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from scripted import HIGH, LOW

import td3
from td3 import export
from td3.cli import main
from td3.errors import ConfigError, MissingExtra, RunError
from td3.export import exported_actor, folder, hub, sb3_zip

FILES = {
    *("actor.onnx", "actor.pt2", "agent.json", "agent.safetensors", "config.json", "export.json"),
    *("infer.py", "README.md", "sb3.zip"),
}


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The best seed's best agent, exported with everything; not to be written to."""
    return export.export_run(trained, tmp_path_factory.mktemp("export") / "agent", sb3=True)


@pytest.fixture
def agent(trained):
    return trained.agent()


@pytest.fixture
def observations(agent):
    return folder.random_observations(agent)


@pytest.fixture
def copied(trained, tmp_path):
    return td3.Run(shutil.copytree(trained.path, tmp_path / "run"))


@pytest.fixture
def no_writing(monkeypatch):
    """Skip the exporters, which take seconds, where a test looks at something else."""
    for name in ("write_onnx", "write_pt2"):
        monkeypatch.setattr(folder, name, lambda actor, example, path: path.write_bytes(b""))
    for name in ("actions_by_onnx", "actions_by_pt2"):
        monkeypatch.setattr(
            folder,
            name,
            lambda path, observations: exported_actor.ExportedActor(policy[-1])(torch.tensor(observations)).numpy(),
        )
    policy = []
    made = folder.ExportedActor
    monkeypatch.setattr(folder, "ExportedActor", lambda given: policy.append(given) or made(given))


def test_an_export_is_a_folder_of_files_that_answer_as_the_agent_does(exported):
    assert {path.name for path in exported.path.iterdir()} == FILES
    assert set(exported.files) == {"actor.onnx", "actor.pt2", "sb3.zip"}
    assert all(difference < 2e-6 for difference in exported.files.values())


def test_the_differences_are_stored(exported):
    facts = json.loads((exported.path / "export.json").read_bytes())
    assert facts["difference"] == exported.files
    assert facts["checked_on"] == "1000 random observations"
    assert facts["input"] == {"name": "observation", "shape": ["batch", 3], "type": "float32"}
    assert (facts["action_low"], facts["action_high"]) == (list(LOW), list(HIGH))


def test_a_thousand_observations_of_many_sizes_are_checked(observations):
    assert observations.shape == (1000, 3)
    assert observations.dtype == np.float32
    sizes = np.abs(observations).max(1)
    assert sizes.min() < 0.2
    assert sizes.max() > 10


@pytest.mark.parametrize("batch", [1, 7])
def test_actions_come_in_the_units_of_the_environment(exported, agent, observations, batch):
    for answer in (exported_actor.actions_by_onnx, exported_actor.actions_by_pt2):
        name = "actor.onnx" if answer is exported_actor.actions_by_onnx else "actor.pt2"
        actions = answer(exported.path / name, observations[:batch])
        assert actions.shape == (batch, 2)
        np.testing.assert_allclose(actions, agent.act(observations[:batch]), atol=1e-5)


def test_actions_never_leave_the_range(agent):
    far = torch.full((4, 3), 1e6) * torch.tensor([[1.0], [-1.0], [100.0], [-100.0]])
    actions = exported_actor.ExportedActor(agent.policy)(far).numpy()
    assert np.all(actions >= np.float32(LOW))
    assert np.all(actions <= np.float32(HIGH))


def test_the_place_of_a_normalizer_is_inside(agent, observations):
    actor = exported_actor.ExportedActor(agent.policy)
    actor.observation_mean.fill_(2.0)
    actor.observation_scale.fill_(0.5)
    np.testing.assert_allclose(
        actor(torch.from_numpy(observations)).numpy(), agent.act((observations - 2.0) * 0.5), atol=1e-5
    )


def test_the_example_needs_only_onnxruntime_and_numpy(exported, agent, tmp_path):
    for name in ("infer.py", "actor.onnx"):
        shutil.copyfile(exported.path / name, tmp_path / name)
    example = (tmp_path / "infer.py").read_text()
    assert set(re.findall(r"^(?:import|from) (\w+)", example, re.MULTILINE)) == {"pathlib", "numpy", "onnxruntime"}
    assert len([line for line in example.splitlines() if line]) <= 10
    # Any other package is out of reach of the process.
    blocker = "import sys; sys.modules.update({name: None for name in ('torch', 'td3', 'gymnasium', 'onnx')}); "
    program = blocker + f"import runpy; runpy.run_path({str(tmp_path / 'infer.py')!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed = np.array(done.stdout.strip("[]\n").split(), float)
    np.testing.assert_allclose(printed, agent.act(np.zeros(3)), atol=1e-5)


def test_no_file_names_a_folder_of_this_machine(exported):
    here = str(Path(td3.__file__).parents[2]).encode()
    for path in exported.path.iterdir():
        contents = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        assert not any(here in content for content in contents), path.name


def test_our_own_loader_reads_the_folder(exported, agent, observations):
    np.testing.assert_array_equal(td3.load(exported.path).act(observations), agent.act(observations))


def test_stable_baselines3_has_all_six_networks_and_the_settings(exported, trained, observations):
    from stable_baselines3 import TD3

    model = TD3.load(exported.path / "sb3.zip", device="cpu")
    tensors = load_file(exported.path / "agent.safetensors")
    low, high = np.array(LOW), np.array(HIGH)
    unit = np.random.default_rng(1).uniform(-1, 1, (len(observations), 2))
    true = (low + high) / 2 + unit * (high - low) / 2
    states = torch.from_numpy(observations)
    for theirs, ours in ((model.critic, "critic"), (model.critic_target, "critic_target")):
        q_values = theirs(states, torch.tensor(unit, dtype=torch.float32))
        for twin in (0, 1):
            expected = forward(tensors, f"{ours}_{twin + 1}", np.concatenate([observations, true], 1))
            np.testing.assert_allclose(q_values[twin].detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    expected = forward(tensors, "actor_target", observations)
    np.testing.assert_allclose(model.actor_target(states).detach().numpy(), np.tanh(expected), atol=1e-5)

    settings, facts = trained.config.td3, td3.load(exported.path).facts
    assert model.policy.net_arch == [8, 8]
    assert (model.learning_starts, model.buffer_size, model.batch_size) == (20, 1000, 8)
    assert (model.tau, model.gamma, model.policy_delay) == (settings.tau, settings.gamma, settings.policy_delay)
    assert (model.num_timesteps, model._n_updates) == (facts["env_steps"], facts["updates"])
    assert model.action_noise._sigma.tolist() == [0.1, 0.1]


def forward(tensors, name, inputs):
    hidden, depth = inputs, 0
    while f"{name}.{depth}.weight" in tensors:
        hidden = (np.maximum(hidden, 0) if depth else hidden) @ tensors[f"{name}.{depth}.weight"].T
        hidden = hidden + tensors[f"{name}.{depth}.bias"]
        depth += 1
    return hidden


def test_stable_baselines3_goes_on_learning_from_it(exported):
    import gymnasium as gym
    from stable_baselines3 import TD3

    model = TD3.load(exported.path / "sb3.zip", env=gym.make("Scripted-v0"), learning_starts=0, device="cpu")
    before = model.num_timesteps
    model.learn(30, reset_num_timesteps=False)
    assert model.num_timesteps == before + 30


@pytest.mark.parametrize(
    ("settings", "schedule"),
    [
        ({}, {"train_freq": 1, "gradient_steps": 1}),
        ({"utd_ratio": 4.0}, {"train_freq": 1, "gradient_steps": 4}),
        ({"utd_ratio": 0.25}, {"train_freq": 4, "gradient_steps": 1}),
        ({"train_freq": "episode"}, {"train_freq": (1, "episode"), "gradient_steps": -1}),
    ],
)
def test_the_schedule_of_updates_is_told_in_their_words(settings, schedule):
    assert sb3_zip._schedule(td3.TD3Config(**settings)) == schedule


def test_a_file_that_answers_otherwise_is_refused(trained, tmp_path, no_writing, monkeypatch):
    monkeypatch.setattr(folder, "actions_by_onnx", lambda path, observations: np.zeros((1000, 2)))
    with pytest.raises(RunError, match=r"actor\.onnx differs from the agent by .* it was removed"):
        export.export_run(trained, tmp_path / "out")
    assert not (tmp_path / "out" / "actor.onnx").exists()


def test_a_folder_with_other_files_is_left_alone(trained, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunError, match="holds other files: give another --out"):
        export.export_run(trained, tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_second_export_takes_the_place_of_the_first(copied, no_writing):
    first = export.export_run(copied, seed=0, which="last")
    (first.path / "sb3.zip").write_bytes(b"of the first")
    second = export.export_run(copied, seed=1, which="last")
    assert first.path == second.path == copied.path / "export"
    assert not (second.path / "sb3.zip").exists()
    assert json.loads((second.path / "export.json").read_bytes())["seed"] == 1


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [("onnxruntime", {}, "export"), ("stable_baselines3", {"sb3": True}, "sb3")],
)
def test_a_missing_extra_is_named_before_anything_is_written(trained, tmp_path, monkeypatch, package, options, extra):
    found = exported_actor.importlib.util.find_spec
    monkeypatch.setattr(
        exported_actor.importlib.util, "find_spec", lambda name, *rest: None if name == package else found(name, *rest)
    )
    with pytest.raises(MissingExtra, match=re.escape(f"pip install 'td3[{extra}]'")):
        export.export_run(trained, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_differences(trained, tmp_path, no_writing, capsys):
    assert main(["export", str(trained.path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"actor\.onnx: differs from the agent by \d\.\de-\d\d of half the action range at most\n", said)
    assert main(["export", str(trained.path), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["difference"]) == {"actor.onnx", "actor.pt2"}


def test_the_model_card_is_in_the_layout_of_the_hub(exported, trained):
    card = huggingface_hub.ModelCard.load(exported.path / "README.md")
    (result,) = card.data.eval_results
    assert (result.task_type, result.dataset_type) == ("reinforcement-learning", "Scripted-v0")
    assert (result.metric_type, result.metric_name) == ("mean_reward", "mean_reward")
    steps, returns = trained.evaluations(trained.best_seed())
    at = steps.tolist().index(td3.load(exported.path).facts["env_steps"])
    assert result.metric_value == f"{returns[at].mean():.2f} +/- {returns[at].std():.2f}"
    assert {"reinforcement-learning", "TD3", "Scripted-v0"} <= set(card.data.tags)
    assert card.data.library_name == "td3"
    for told in ("torch 2", "td3.load", "infer.py", "sb3.zip", '"batch_size": 8', "± is one standard deviation"):
        assert told in card.text


def test_the_card_has_the_same_metadata_without_the_hub(copied, no_writing, monkeypatch):
    cards = [huggingface_hub.ModelCard.load(export.export_run(copied).path / "README.md")]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    text = (export.export_run(copied).path / "README.md").read_text()
    monkeypatch.undo()
    cards.append(huggingface_hub.ModelCard(text))
    assert cards[0].data.to_dict() == cards[1].data.to_dict()
    assert cards[0].text == cards[1].text
    assert cards[0].data.eval_results[0].metric_type == "mean_reward"


def test_the_card_shows_the_video_if_there_is_one(copied, no_writing):
    assert "replay.mp4" not in (export.export_run(copied).path / "README.md").read_text()
    (copied.path / "video.mp4").write_bytes(b"film")
    out = export.export_run(copied).path
    assert "[replay.mp4](replay.mp4)" in (out / "README.md").read_text()
    assert (out / "replay.mp4").read_bytes() == b"film"


def test_an_agent_without_an_evaluation_claims_no_result(copied, no_writing):
    facts = copied.folder(0) / "last" / "agent.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"env_steps": 59}))
    card = (export.export_run(copied, seed=0, which="last").path / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert "model-index" not in front
    assert "this agent" not in card


@pytest.mark.parametrize(
    "env",
    [
        "Evil-v0\nraise SystemExit('executed')",
        "Evil-v0\r\nimport os",
        '"""; import os',
        "{env!r}",
        "x`](https://evil.example) <script>alert(1)</script>\n# Results\n",
        "a\u2028b\x85c\x0cd\ud800",
        "---\nlicense: mit\n---",
    ],
    ids=ascii,
)
def test_the_name_of_an_environment_stays_a_name_in_every_generated_file(copied, no_writing, env):
    values = json.loads((copied.path / "config.json").read_text())
    (copied.path / "config.json").write_text(json.dumps({**values, "env": env}))
    facts = copied.folder(0) / "best" / "agent.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"versions": {env: env}}))
    out = export.export_run(td3.Run(copied.path), seed=0).path
    usual = ast.dump(ast.parse(folder.EXAMPLE.format(shape=(1, 3), env="Scripted-v0", kind="float32")))
    assert ast.dump(ast.parse((out / "infer.py").read_bytes())) == usual
    card = (out / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert {*yaml.safe_load(front)} == {"library_name", "pipeline_tag", "tags", "model-index"}
    prose = body.split("```json")[0]
    assert next(line for line in prose.splitlines() if line.startswith("#")).startswith("# TD3 on ")
    assert not any(text in prose for text in ("<script", "](https", "# Results"))
    assert json.loads((out / "config.json").read_text())["env"] == env


class FakeHub:
    """What `HfApi` is asked for; no network."""

    def __init__(self, fails=None):
        self.calls, self.fails = [], fails

    def create_repo(self, repo_id, private, exist_ok):
        self.calls.append(("create", repo_id, private, exist_ok))
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self, repo_id, folder_path, commit_message):
        if self.fails:
            raise self.fails
        self.calls.append(("upload", repo_id, sorted(path.name for path in folder_path.iterdir())))


@pytest.fixture
def fake_hub(monkeypatch):
    fake = FakeHub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: fake)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    return fake


def test_push_uploads_the_export(copied, no_writing, fake_hub, capsys):
    assert main(["export", str(copied.path), "--push", "anna/td3-scripted", "--private"]) == 0
    assert "Uploaded to https://huggingface.co/anna/td3-scripted\n" in capsys.readouterr().out
    assert fake_hub.calls[0] == ("create", "anna/td3-scripted", True, True)
    assert fake_hub.calls[1] == ("upload", "anna/td3-scripted", sorted(FILES - {"sb3.zip"}))


def test_push_without_a_token_says_so_and_does_nothing(copied, fake_hub, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["export", str(copied.path), "--push", "anna/td3"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("td3: nothing was uploaded: there is no Hugging Face token here. Log in with `hf auth")
    assert fake_hub.calls == []
    assert not (copied.path / "export").exists()


def test_private_without_push_is_refused(copied, capsys):
    assert main(["export", str(copied.path), "--private"]) == 2
    assert "--private is of a repository on the hub: add --push OWNER/NAME" in capsys.readouterr().err


def test_push_without_the_hub_names_the_extra(monkeypatch):
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'td3\[hub\]'"):
        export.require_hub("anna/td3")


def test_a_failed_upload_is_one_sentence_and_keeps_the_export(copied, no_writing, fake_hub, capsys):
    fake_hub.fails = OSError("no route to host")
    assert main(["export", str(copied.path), "--push", "anna/td3"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("td3: the upload to anna/td3 failed (no route to host): the export itself is in ")
    assert (copied.path / "export" / "actor.onnx").exists()


@pytest.mark.parametrize("repo_id", ["td3", "a/b/c", "anna/", "https://huggingface.co/anna/td3"])
def test_a_name_that_is_not_owner_and_name_is_refused(repo_id):
    with pytest.raises(ConfigError, match="must be owner/name"):
        export.require_hub(repo_id)
