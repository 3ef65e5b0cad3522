"""The typed keyword arguments of `td3.train` are the settings of config.py."""

import ast
import inspect
from dataclasses import fields
from itertools import pairwise

import pytest

import td3
from td3.cli.help import field_docs
from td3.config import TrainConfig
from td3.keywords import Settings
from td3.settings import TD3Config
from td3.spellings import SPELLINGS

NAMED_OTHERWISE = {"env", "preset", "td3", "replace_steps"}
"""Arguments of `td3.train` with names of their own, and the settings of TD3, which are given one by one."""
WIDER = {
    "out": "Path | str | None",
    "init_from": "Path | str | None",
    "variant": "str | Sequence[str]",
    "hidden_sizes": "Sequence[int]",
    "actor_hidden_sizes": "Sequence[int] | None",
    "critic_hidden_sizes": "Sequence[int] | None",
}
"""Python accepts more for these than config.py keeps."""


def written(kind: type) -> dict[str, tuple[str, str]]:
    """Type and sentence of every field, as the source has them."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    return {
        node.target.id: (ast.unparse(node.annotation), " ".join(ast.literal_eval(after.value).split()))
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign)
    }


def test_every_setting_has_its_type_and_sentence():
    ours = {**written(TrainConfig), **written(TD3Config)}
    typed = written(Settings)
    assert typed.keys() == (ours.keys() - NAMED_OTHERWISE) | (SPELLINGS.keys() - {"n", "from"})
    for name, (kind, sentence) in ours.items():
        if name not in NAMED_OTHERWISE:
            assert typed[name] == (WIDER.get(name, kind), sentence)
    for name, own in SPELLINGS.items():
        if name in typed:
            assert typed[name] == (typed[own[0]][0], f"As {' and '.join(own)}.")


def test_the_arguments_of_train_are_these():
    assert inspect.signature(td3.train).parameters["settings"].annotation.__args__ == (Settings,)
    assert field_docs(TD3Config).keys() == {f.name for f in fields(TD3Config)}


@pytest.mark.parametrize("names", [{"total_timesteps": 40, "n_envs": 2, "net_arch": [4, 4], "lr": 0.01}])
def test_train_takes_the_names_of_other_libraries(tmp_path, names):
    small = {"learning_starts": 10, "batch_size": 4, "eval_episodes": 1, "device": "cpu", "threads": 1}
    config = td3.train("Rail-v0", out=tmp_path / "run", progress=False, **small, **names).config
    assert (config.steps, config.envs, config.td3.hidden_sizes, config.td3.actor_learning_rate) == (40, 2, (4, 4), 0.01)
