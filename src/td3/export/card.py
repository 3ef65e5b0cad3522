"""The model card: README.md in the layout of the Hugging Face hub, with results that its leaderboards read."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from td3.run.agent_file import SavedAgent
from td3.run.directory import Run


def model_card(run: Run, agent: SavedAgent, seed: int, which: str, folder: Path) -> str:
    """The text of README.md for the files in an export's folder."""
    returns = _returns_at(run, seed, agent.facts.get("env_steps"))
    template = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True).from_string(
        files("td3.export").joinpath("card.md").read_text(encoding="utf-8")
    )
    return template.render(
        card_data=_front_matter(_metadata(run.config.env, returns)),
        env=_plain(run.config.env),
        quoted_env=json.dumps(_plain(run.config.env)),
        seed=seed,
        chosen="at its best evaluation" if which == "best" else "at the end of training",
        best=which == "best",
        env_steps=f"{agent.facts.get('env_steps', 0):,}",
        own=None if returns is None else {"episodes": len(returns), **_mean_and_std(returns, 0)},
        all=_all_seeds(run),
        video=(folder / "replay.mp4").exists(),
        sb3=(folder / "sb3.zip").exists(),
        shape=(1, *agent.policy.observation_shape),
        type=observation_type(agent),
        pixels=agent.policy.encoder is not None,
        preset=run.config.preset,
        seeds="1 seed" if run.config.seeds == 1 else f"{run.config.seeds} seeds",
        versions=", ".join(f"{_plain(name)} {_plain(v)}" for name, v in agent.facts.get("versions", {}).items()),
        settings=json.dumps(run.config.to_json() | {"out": None}, indent=2),
    )


def observation_type(agent: SavedAgent) -> str:
    """Numpy's name of the observations' type: images are bytes."""
    return "float32" if agent.policy.encoder is None else "uint8"


def _metadata(env: str, returns: Any) -> dict[str, Any]:
    """What the hub reads; an agent that was not evaluated has no result."""
    name = " ".join(_plain(env).split())
    metadata: dict[str, Any] = {
        "library_name": "td3",
        "pipeline_tag": "reinforcement-learning",
        "tags": [name, "deep-reinforcement-learning", "reinforcement-learning", "TD3"],
    }
    if returns is not None:
        metric = {"type": "mean_reward", "name": "mean_reward", "verified": False}
        metric["value"] = f"{returns.mean():.2f} +/- {returns.std():.2f}"
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"name": name, "type": name}, "metrics": [metric]}
        metadata["model-index"] = [{"name": "TD3", "results": [result]}]
    return metadata


def _front_matter(metadata: dict[str, Any]) -> str:
    """The metadata as `ModelCardData` checks and writes it; without the extra `hub`, as JSON, which is YAML too."""
    try:
        from huggingface_hub import ModelCardData
    except ImportError:
        return json.dumps(metadata, indent=2)
    return str(ModelCardData(**metadata))


def _plain(text: str) -> str:
    """A name from an untrusted file, without characters that mean something in Markdown."""
    return re.sub(r"[^\w./:+() -]", "?", text)


def _returns_at(run: Run, seed: int, env_steps: Any) -> Any:
    """The evaluation of exactly this agent; an interrupted run's last agent may have none."""
    steps, returns = run.evaluations(seed)
    at = np.flatnonzero(steps == env_steps)
    return returns[at[-1]] if len(at) else None


def _all_seeds(run: Run) -> dict[str, str]:
    """The run's result over its active seeds."""
    steps, curves = run.learning_curve()
    last = curves[:, -1]
    of = f" of {len(run.seeds)}" if run.frozen else ""
    counted = f"{len(last)}{of} seeds" if of or len(last) > 1 else "the run's one seed"
    numbers = _mean_and_std(last, 1) if len(last) > 1 else {"mean": f"{last.mean():,.1f}", "std": ""}
    return {"seeds": counted, "env_steps": f"{steps[-1]:,}", **numbers}


def _mean_and_std(values: Any, ddof: int) -> dict[str, str]:
    return {"mean": f"{values.mean():,.1f}", "std": f"{values.std(ddof=ddof):,.1f}"}
