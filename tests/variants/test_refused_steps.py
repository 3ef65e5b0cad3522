"""Functions and files that cannot take the place of a step: one sentence, before anything is written."""

import functools
import inspect
import json
import re

import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.replacing import replace_step, replacements_of
from td3.cli import main
from td3.errors import ConfigError, Diverged
from td3.variant_settings import function_names
from td3.variants import RECORD, find_replacements, load_functions, read_record, record_after, record_of
from td3.variants.listing import differences

FIELDS = {**SMALL, "steps": 80, "device": "cpu"}


def trained(tmp_path, steps, **settings):
    return td3.train("Rail-v0", out=tmp_path / "run", replace_steps=steps, **{**FIELDS, **settings})


def refused(tmp_path, steps, said):
    with pytest.raises(ConfigError, match=said):
        trained(tmp_path, steps)
    assert not (tmp_path / "run").exists()


@replace_step(11)
def detached(q_values, target_q):
    return (q_values.detach() - target_q).square().mean(-1).sum(0)


@replace_step(11)
def not_summed(q_values, target_q):
    return (q_values - target_q).square().mean(-1)


@replace_step(11)
def scalar(q_values, target_q):
    return (q_values - target_q).square().mean()


@replace_step(4)
def plain_tuple(buffer, random, batch_size, original):
    return tuple(original(buffer, random, batch_size))


@replace_step(4)
def half(buffer, random, batch_size, original):
    return original(buffer, random, batch_size // 2)


@replace_step(9, state={"s": 10**12})
def huge(reward, terminated, next_q, gamma, original, step_state):
    return original(reward, terminated, next_q, gamma)


@replace_step(9, state={"t": 2})
def undeclared(reward, terminated, next_q, gamma, original, step_state):
    return original(reward + step_state["s"], terminated, next_q, gamma)


@replace_step(8)
def not_a_number(q_values):
    return q_values.amin(0) * float("nan")


@replace_step(9)
def clamped_in_place(reward, terminated, next_q, gamma, original):
    return original(reward.clamp_(-1, 1), terminated, next_q, gamma)


@replace_step(9)
def scaled_batch(reward, terminated, next_q, gamma, original, batch):
    batch.reward.mul_(2)
    return original(reward, terminated, next_q, gamma)


@replace_step(12)
def inconsistent(critics, optimizer, loss, original):
    raise ValueError("no")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (detached, "detached, returned a tensor without a gradient"),
        (not_summed, r"returned \[2, member\], and \[member\] is needed .*: reduce the axis of the two critics"),
        (scalar, r"returned \[\], and \[member\] is needed .*: keep the axis of the seeds"),
        (plain_tuple, "returned tuple, and a Batch is needed"),
        (half, r"a batch whose state is \[member, 4, state\], and \[member, batch, state\] is needed .*batch 8"),
        (huge, r"needs 4000.0 GB for 1 seed.*declare smaller sizes in state"),
        (undeclared, r'has no \'s\'; declare it: @td3.replace_step\(9, state={"t": 2, "s": 1}\)'),
        (not_a_number, "not_a_number, returned no finite number in a trial"),
        (clamped_in_place, r"clamped_in_place, changes reward in place, .*: change a copy, reward\.clone\(\)"),
        (scaled_batch, "scaled_batch, changes reward in place"),
        (inconsistent, r"inconsistent, failed in test_refused_steps.py, line \d+ \(ValueError: no\)"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_before_anything_is_written(tmp_path, function, said):
    refused(tmp_path, [function], said)


def test_a_loss_without_a_gradient_is_no_fault_where_step_12_is_replaced_too(tmp_path):
    @replace_step(12)
    def nothing_(critics, optimizer, loss):
        pass

    trained(tmp_path, [detached, nothing_], engine="eager")


def test_numbers_that_are_not_finite_in_the_trial_are_warned_of(tmp_path):
    @replace_step(9)
    def of_logarithms(reward, terminated, next_q, gamma):
        return reward.log() + gamma * (1 - terminated) * next_q

    with (
        pytest.warns(UserWarning, match="of_logarithms, returned numbers that are not finite"),
        pytest.raises(Diverged),
    ):
        trained(tmp_path, [of_logarithms])


class Loss:
    def __call__(self, q_values, target_q):
        return (q_values - target_q).square().mean(-1).sum(0)


def test_what_is_no_list_and_what_is_no_function_is_refused(tmp_path):
    for given, said in ((not_summed, "not_summed"), ("mine.py:f", "'mine.py:f'")):
        with pytest.raises(ConfigError, match=rf"give replace_steps=\[{said}\]"):
            load_functions(given)
    for one in (replace_step(11)(functools.partial(not_summed)), replace_step(11)(Loss())):
        refused(tmp_path, [one], "replaces step 11 and is no function: write one with def")
    with pytest.raises(ValueError, match=r"detached is decorated with .* without a number"):
        inspect.unwrap(replace_step)(detached)  # past the types that tests check


FILE = """import td3


@td3.replace_step(8)
def mine(q_values):
    return q_values.amin(0)

"""
TRAIN = "td3.train('Rail-v0', steps=80, out='again', replace_steps=[mine])\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (TRAIN, r"mine.py calls td3.train when it is imported .*if __name__"),
        ("td3.resume('run')\n", "calls td3.resume when"),
        ("td3.train_offline('run')\n", "calls td3.train_offline when"),
        ("import sys\nsys.exit(3)\n", r"calls sys.exit\(3\) when it is imported"),
    ],
)
def test_a_file_that_trains_or_ends_the_program_when_it_is_imported_is_refused(tmp_path, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE + more)
    refused(tmp_path, ["mine.py:mine"], said)
    assert {one.name for one in tmp_path.iterdir()} <= {"mine.py", "__pycache__"}


def test_a_script_that_trains_under_main_is_imported_for_its_step(tmp_path):
    (tmp_path / "mine.py").write_text(FILE + f"if __name__ == '__main__':\n    {TRAIN}")
    assert load_functions([f"{tmp_path / 'mine.py'}:mine"])[0].__name__ == "mine"


def test_a_run_is_resumed_from_another_folder_and_its_file_imports_its_neighbors(tmp_path, monkeypatch):
    (tmp_path / "beside_mine.py").write_text("HALF = 0.5\n")
    (tmp_path / "mine.py").write_text(FILE.replace("import td3\n", "import td3\nfrom beside_mine import HALF\n", 1))
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path, ["mine.py:mine"])
    assert json.loads((run.path / "config.json").read_text())["replace_steps"] == [f"{tmp_path / 'mine.py'}:mine"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert td3.resume(run.path, steps=90, trust=True).config.steps == 90
    with pytest.raises(ConfigError, match=rf"mine.py does not exist \(in {tmp_path / 'elsewhere'}\)"):
        trained(tmp_path, ["mine.py:mine"])


def test_the_first_lines_of_a_run_name_functions_in_the_place_of_steps(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(FILE)
    options = "--steps 60 --td3.learning-starts 20 --td3.batch-size 8 --eval-episodes 1 --device cpu --seed 3"
    named = ["--replace-steps", f"{tmp_path / 'mine.py'}:mine", "--variant", "no-delay, n-step,n-step"]
    assert main(["train", "Rail-v0", *options.split(), *named, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "variant no-delay, n-step, on" in said
    assert "Step 8 is mine (mine.py)." in said
    assert "Step 4" not in said
    with pytest.raises(ConfigError, match=r"but 'nstep' was given: did you mean n-step\?"):
        trained(tmp_path, [], variant="nstep")


def test_constants_and_functions_that_a_step_uses_are_recorded_and_compared(tmp_path):
    file = """import td3
SCALE, BINS = {scale}, [1, 2]
unused = {unused}


def half(x):
    return {half} * x


@td3.replace_step(8)
def mine(q_values):
    return BINS[0] * sum(SCALE * half(one) for one in [q_values.amin(0)])
"""

    def record(scale=1.0, unused=0, half=0.5):
        (tmp_path / "mine.py").write_text(file.format(scale=scale, unused=unused, half=half))
        return record_of(find_replacements((), [f"{tmp_path / 'mine.py'}:mine"]))[0]

    first = record()
    assert first["uses"] == "BINS = [1, 2]\n\nSCALE = 1.0\n\ndef half(x):\n    return 0.5 * x\n"
    assert record(unused=1)["sha256"] == first["sha256"]
    assert len({record(scale=20.0)["sha256"], record(half=2)["sha256"], first["sha256"]}) == 3
    assert "+SCALE = 1.0" in differences([first])

    def enclosed(scale):
        @td3.replace_step(8)
        def mine(q_values):
            return scale * q_values.amin(0)

        return record_of(replacements_of([mine]))[0]

    assert enclosed(1.0)["source"] == enclosed(2.0)["source"]
    assert enclosed(1.0)["sha256"] != enclosed(2.0)["sha256"]


def test_a_run_keeps_every_source_that_it_was_trained_with_and_from_which_env_step(tmp_path):
    def resumed(env_step, factor):
        (tmp_path / "mine.py").write_text(FILE.replace("q_values.amin(0)", f"{factor} * q_values.amin(0)"))
        record, said = record_after(tmp_path, find_replacements((), [f"{tmp_path / 'mine.py'}:mine"]), env_step)
        (tmp_path / RECORD).write_text(json.dumps({"replaced": record}))
        return [(one["from_env_step"], re.findall(r"(\d) \*", one["source"])) for one in record], said

    assert resumed(0, 1) == ([(0, ["1"])], [])
    assert resumed(80, 1) == ([(0, ["1"])], [])
    record, said = resumed(80, 2)
    assert record == [(0, ["1"]), (80, ["2"])]
    assert said[0].startswith("step 8 (mine) has changed since the run began")
    assert resumed(90, 2) == (record, [])
    record, said = resumed(100, 3)
    assert record == [(0, ["1"]), (80, ["2"]), (100, ["3"])]
    assert said[0].startswith("step 8 (mine) has changed since env step 80")
    text = differences(read_record(tmp_path))
    assert text.index("+    return 2") < text.index("mine, from env step 100 on") < text.index("+    return 3")
    # From an older checkpoint: what was trained after it is lost.
    assert resumed(80, 1) == ([(0, ["1"])], [])


def test_a_replaced_step_that_did_not_change_is_shown_once():
    def entry(number, sha256, env_step):
        name = {"number": number, "step": "a_step", "function": f"version_{sha256}", "from_env_step": env_step}
        return {**name, "source": f"{sha256}\n", "uses": "", "sha256": sha256}

    record = [
        entry(*one) for one in [(8, "a", 0), (11, "x", 0), (8, "b", 90), (11, "x", 90), (8, "a", 95), (11, "x", 95)]
    ]
    shown = re.findall(r"^\+\+\+ (.*)$", differences(record), re.MULTILINE)
    assert shown == ["version_a", "version_x", "version_b, from env step 90 on", "version_a, from env step 95 on"]


@replace_step(4)
def tournament(buffer, random, batch_size):
    """Of two rows the newer one."""
    return buffer.gather(torch.maximum(*(random.rows(buffer.filled, batch_size) for _ in range(2))))


@replace_step(6)
def mean_of_two(next_action, random, noise, noise_clip, action_range, original):
    one, other = (original(next_action, random, noise, noise_clip, action_range) for _ in range(2))
    return (one + other) / 2


@replace_step(13)
def smooth_(actor, critics, optimizer, state, batch):
    action, following = actor(state), actor(batch.next_state)
    loss = (action - following).square().sum(-1).mean(-1) - critics.first_frozen(state, action).mean(-1)
    optimizer.step_(torch.autograd.grad(loss.sum(), actor.parameters)[0])
    return loss.detach()


@replace_step(9, state={"n": 1})
def updates_its_state(reward, terminated, next_q, gamma, original, step_state):
    step_state.update(n=step_state["n"] + 1)
    return original(reward, terminated, next_q, gamma)


@replace_step(11)
def state_without_sizes(q_values, target_q, step_state):
    return (q_values - target_q).square().mean(-1).sum(0)


state_without_sizes.__td3_replacement__ = state_without_sizes.__td3_replacement__._replace(state={"scale"})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (tournament, "call random.rows more than once in an update: call it once, and split the result"),
        (mean_of_two, "call random.normal more than once in an update"),
        (smooth_, r"overwritten, .* a second call of the same network. Call a network once, for all inputs"),
        (updates_its_state, "step_state keeps its tensors: change them in place"),
        (state_without_sizes, r"declares state {'scale'}: give names and sizes, as in state={\"scale\": 1}"),
    ],
)
def test_what_could_not_be_resumed_or_has_no_gradient_is_refused(tmp_path, function, said):
    refused(tmp_path, [function], said)


def test_a_path_may_have_commas_and_its_file_dataclasses(tmp_path):
    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "steps.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport td3\n\n\n"
        "@dataclass\nclass Sizes:\n    half: float = 0.5\n\n\n"
        "@td3.replace_step(11)\ndef loss(q_values, target_q):\n"
        "    return Sizes().half * (q_values - target_q).square().mean(-1).sum(0)\n"
    )
    run = trained(tmp_path, [f"{folder / 'steps.py'}:loss"])
    assert run.config.replace_steps == (f"{folder / 'steps.py'}:loss",)
    assert function_names(f"{folder}/x.py:f,y.py:g") == (f"{folder}/x.py:f", "y.py:g")
    assert td3.resume(run.path, steps=90, trust=True).config.steps == 90


def test_a_file_that_has_moved_can_be_given_from_python(tmp_path):
    with pytest.raises(ConfigError, match=r"gone.py does not exist: .* put it back, or give the functions from Python"):
        load_functions([f"{tmp_path / 'gone.py'}:loss"])
