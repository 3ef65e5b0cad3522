"""The model card: README.md in the layout of the Hugging Face hub, with results that its leaderboards read."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from td3.run.agent_file import SavedAgent
from td3.run.directory import Run


def model_card(run: Run, agent: SavedAgent, seed: int, which: str, folder: Path) -> str:
    """The text of README.md for the files in an export's folder."""
    env, metric = run.config.env, _reward(run, agent, seed)
    parts = [_front_matter(env, metric), f"# TD3 on {_plain(env)}", _results(run, agent, seed, which)]
    if (folder / "replay.mp4").exists():
        parts.append("The trained agent: [replay.mp4](replay.mp4).")
    parts += [_loading(agent, env, folder), _env_arguments(run, agent)]
    return "\n\n".join(parts) + "\n"


def observation_type(agent: SavedAgent) -> str:
    """Numpy's name of what the written files read: pictures come as bytes."""
    return "float32" if agent.policy.encoder is None else "uint8"


def _plain(text: str, quoted: bool = False) -> str:
    """A name from an untrusted file, without characters that mean something in Markdown."""
    kept = re.sub(r"[^\w./:+() -]", "?", text)
    return json.dumps(kept) if quoted else kept


def _reward(run: Run, agent: SavedAgent, seed: int) -> str | None:
    returns = _returns_at(run, seed, agent.facts.get("env_steps"))
    return None if returns is None else f"{returns.mean():.2f} +/- {returns.std():.2f}"


def _returns_at(run: Run, seed: int, env_steps: Any) -> Any:
    """The evaluation of exactly this agent; an interrupted run's last agent may have none."""
    steps, returns = run.evaluations(seed)
    at = np.flatnonzero(steps == env_steps)
    return returns[at[-1]] if len(at) else None


def _front_matter(env: str, metric: str | None) -> str:
    name = json.dumps(env)  # JSON's quotes are YAML's too
    lines = [
        "---",
        "library_name: td3",
        "pipeline_tag: reinforcement-learning",
        "tags:",
        f"- {name}",
        "- deep-reinforcement-learning",
        "- reinforcement-learning",
        "- TD3",
    ]
    if metric:
        lines += [
            "model-index:",
            "- name: TD3",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "      name: reinforcement-learning",
            "    dataset:",
            f"      name: {name}",
            f"      type: {name}",
            "    metrics:",
            "    - type: mean_reward",
            f"      value: {json.dumps(metric)}",
            "      name: mean_reward",
            "      verified: false",
        ]
    return "\n".join([*lines, "---"])


def _results(run: Run, agent: SavedAgent, seed: int, which: str) -> str:
    env_steps = agent.facts.get("env_steps", 0)
    chosen = "at its best evaluation" if which == "best" else "at the end"
    lines = [f"A TD3 agent, seed {seed}, {chosen}: after {env_steps:,} env steps.", "", "| | return |", "|---|---|"]
    returns = _returns_at(run, seed, env_steps)
    if returns is not None:
        lines.append(
            f"| this agent, {len(returns)} episodes without noise | {returns.mean():,.1f} ± {returns.std():,.1f} |"
        )
    steps, curves = run.learning_curve()
    last = curves[:, -1]
    spread = f" ± {last.std(ddof=1):,.1f}" if len(last) > 1 else ""
    of = f" of {len(run.seeds)}" if run.frozen else ""
    counted = f"{len(last)}{of} seeds" if of or len(last) > 1 else "the run's one seed"
    lines.append(f"| {counted} at the end, {steps[-1]:,} env steps | {last.mean():,.1f}{spread} |")
    lines += ["", "± is one standard deviation, over episodes in the first line and over seeds in the second."]
    if which == "best":
        lines.append(
            "The first is the highest of this seed's evaluations, so it is biased upward by selection; the second was "
            "not selected. `td3 evaluate RUN --which best` plays held-out episodes."
        )
    return "\n".join(lines)


def _loading(agent: SavedAgent, env: str, folder: Path) -> str:
    shape = (1, *agent.policy.observation_shape)
    lines = [
        "## Use it",
        "",
        "```python",
        "import td3",
        "",
        'agent = td3.load(".")  # this folder; executes nothing that is stored in it',
        "action = agent.act(observation)  # one observation or a batch, numpy in, numpy out",
        "```",
        "",
        "Without td3, with onnxruntime and numpy only (the whole program is [infer.py](infer.py)):",
        "",
        "```python",
        "import numpy as np",
        "import onnxruntime",
        "",
        'session = onnxruntime.InferenceSession("actor.onnx")',
        f'(action,) = session.run(None, {{"observation": np.zeros({shape}, np.{observation_type(agent)})}})',
        "```",
        "",
        'With PyTorch only: `torch.export.load("actor.pt2").module()(observations)`.',
    ]
    if (folder / "sb3.zip").exists():
        lines.append('With Stable-Baselines3: `TD3.load("sb3.zip", env=env)`; it predicts and goes on learning.')
    lines.append("")
    images = (
        "" if agent.policy.encoder is None else " (observations as pictures: `make_environment` in config.json's way)"
    )
    lines.append(
        f"Observations and actions are those of `gymnasium.make({_plain(env, quoted=True)})`{images}, in its own "
        "units; the rescaling of actions is inside every file."
    )
    return "\n".join(lines)


def _env_arguments(run: Run, agent: SavedAgent) -> str:
    versions = agent.facts.get("versions", {})
    listed = ", ".join(f"{_plain(name)} {_plain(version)}" for name, version in versions.items())
    settings = run.config.to_json() | {"out": None}
    return "\n".join(
        [
            "## How it was made",
            "",
            f"`td3 train --config config.json` trains it again (preset `{run.config.preset}`, {run.config.seeds} "
            f"{'seed' if run.config.seeds == 1 else 'seeds'}). Versions: {listed}.",
            "",
            "```json",
            json.dumps(settings, indent=2),
            "```",
        ]
    )
