"""A function in the place of a step: checked when the run starts, executed by every engine, saved and resumed."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.registry import STEPS
from td3.algorithm.replacing import REPLACEABLE, StepChanges, replace_step, replacements_of
from td3.cli import main
from td3.errors import ConfigError, RunError
from td3.run.checkpoints import Checkpoints
from td3.variants import read_record, used_by

FIELDS = {**SMALL, "steps": 80, "device": "cpu"}


@replace_step(11)
def absolute_error(q_values, target_q):
    return (q_values - target_q).abs().mean(-1).sum(0)


@replace_step(9, state={"largest": 1, "calls": 2})
def remembered(reward, terminated, next_q, gamma, original, step_state):
    """The same target, and a count of calls."""
    step_state["largest"].copy_(torch.maximum(step_state["largest"], reward.abs().amax(-1, keepdim=True)))
    step_state["calls"] += 1
    return original(reward, terminated, next_q, gamma)


@replace_step(11, state={"scale": 1})
def loss_scaled_by_state(q_values, target_q, step_state):
    """The state is saved for the gradient."""
    scale = step_state["scale"]
    for _ in range(20):
        scale.lerp_(target_q.abs().mean(-1, keepdim=True), 0.01)
    return ((q_values - target_q).square() * scale).mean(-1).sum(0)


def tensors_of(run):
    return Checkpoints(run.path).newest()[0].tensors


def require_equal(one, other, names=("agent.",)):
    for name, tensor in tensors_of(one).items():
        if name.startswith(names):
            assert np.array_equal(tensors_of(other)[name], tensor), name


def weights_of(run):
    return {name: t for name, t in tensors_of(run).items() if name.startswith("agent.actor")}


def trained(tmp_path, name, **settings):
    return td3.train("Rail-v0", out=tmp_path / name, **{**FIELDS, **settings})


def test_members_do_not_share_autograds_count_of_changes():
    """In threads one of them would refuse its gradient because the other has changed its own state."""
    changes = StepChanges.create(replacements_of([loss_scaled_by_state]), 2, 10, "cpu", torch.float32)
    (one,), (other,) = (changes.member(index).state.values() for index in range(2))
    weights = torch.ones(1, requires_grad=True)
    one["scale"].fill_(3.0)
    loss = (weights * one["scale"]).sum()
    other["scale"].fill_(5.0)
    loss.backward()
    assert weights.grad == 3.0
    (whole,) = changes.state.values()
    assert whole["scale"].tolist() == [[3.0], [5.0]]


@pytest.mark.parametrize(("seeds", "engine"), [(2, "eager"), (4, "eager"), (4, "recorded")])
def test_state_inside_a_gradient_with_several_seeds_in_threads(tmp_path, seeds, engine):
    fields = {"engine": engine, "replace_steps": [loss_scaled_by_state], "steps": 120}
    together = trained(tmp_path, "together", seeds=seeds, threads=seeds, **fields)
    alone = trained(tmp_path, "alone", seed=seeds - 1, **fields)
    name = "agent.step_11.0.scale"
    assert np.array_equal(tensors_of(together)[name][-1], tensors_of(alone)[name][0])
    assert tensors_of(together)[name].all()


def test_every_step_of_an_update_is_reached_by_its_replacement(tmp_path):
    called = set()

    def wrapper(number):
        names = list(__import__("inspect").signature(STEPS[number].function).parameters)
        source = f"def wrapped({', '.join(names)}, original):\n    called.add({number})\n"
        source += f"    return original({', '.join(names)})\n"
        space = {"called": called}
        exec(source, space)
        return replace_step(number)(space["wrapped"])

    plain = trained(tmp_path, "plain")
    changed = trained(tmp_path, "changed", engine="eager", replace_steps=[wrapper(number) for number in REPLACEABLE])
    assert called == {*REPLACEABLE}
    require_equal(plain, changed)


@pytest.mark.usefixtures("unchecked")
def test_another_loss_trains_another_agent_alike_in_every_engine(tmp_path):
    plain, recorded = trained(tmp_path, "plain"), trained(tmp_path, "recorded", replace_steps=[absolute_error])
    eager = trained(tmp_path, "eager", replace_steps=[absolute_error], engine="eager")
    for name, tensor in weights_of(recorded).items():
        assert (weights_of(eager)[name] == tensor).all(), name
    assert any((weights_of(plain)[name] != tensor).any() for name, tensor in weights_of(recorded).items())


@pytest.mark.usefixtures("unchecked")
def test_state_is_each_seeds_own_saved_and_restored(tmp_path):
    alone = trained(tmp_path, "alone", replace_steps=[remembered], seed=1)
    both = trained(tmp_path, "both", replace_steps=[remembered], seeds=2)
    calls = tensors_of(both)["agent.step_9.0.calls"]
    assert calls.shape == (2, 2)
    assert (calls > 30).all()
    assert tensors_of(both)["agent.step_9.0.largest"][1] == tensors_of(alone)["agent.step_9.0.largest"][0]
    whole = trained(tmp_path, "whole", replace_steps=[remembered], steps=120)
    extended = td3.resume(
        trained(tmp_path, "cut", replace_steps=[remembered]).path, steps=120, replace_steps=[remembered]
    )
    require_equal(whole, extended)


SHARED = {"order": 3, "of_rows": "capacity", "of_blocks": "capacity/32"}


@replace_step(4, state=SHARED)
def sampled(buffer, random, batch_size, original, step_state):
    assert "sum" not in step_state
    step_state["order"][:, 0] += 1
    return original(buffer, random, batch_size)


@replace_step(11, state=SHARED)
def counted(q_values, target_q, original, step_state, settings, batch):
    step_state["order"][:, 1] += step_state["order"][:, 0]
    step_state["order"][:, 2] = settings.gamma
    step_state["of_rows"].scatter_(1, batch.indices, 1.0)
    return original(q_values, target_q)


@replace_step(13, state={"order": 1})
def apart(actor, critics, optimizer, state, original, step_state, batch):
    step_state["order"] += (batch.state == state).all()
    return original(actor, critics, optimizer, state)


def test_functions_share_declared_state_and_may_read_settings_and_batch(tmp_path):
    run = trained(tmp_path, "run", replace_steps=[sampled, counted, apart], seeds=2, gamma=0.75)
    found = tensors_of(run)
    updates = int(found["updates"][0])
    order = [updates, updates * (updates + 1) / 2, 0.75]
    assert found["agent.step_4.0.order"].tolist() == [order, order]
    assert found["agent.step_13.2.order"].tolist() == [[updates // 2]] * 2
    rows = found["agent.step_4.0.of_rows"]
    assert rows.shape == (2, 80)
    assert found["agent.step_4.0.of_blocks"].shape == (2, 3)
    assert ((rows.sum(-1) > 0) & (rows.sum(-1) <= 80)).all()
    assert (rows[0] != rows[1]).any()
    require_equal(trained(tmp_path, "plain", seeds=2, gamma=0.75), run, ("agent.actor", "agent.critics"))


def test_functions_of_one_file_share_state(tmp_path):
    path = tmp_path / "shared.py"
    path.write_text(
        "import td3\n\nSTATE = {'calls': 1}\n\n\n@td3.replace_step(9, state=STATE)\n"
        "def first(reward, terminated, next_q, gamma, original, step_state):\n    step_state['calls'] += 1\n"
        "    return original(reward, terminated, next_q, gamma)\n\n\n@td3.replace_step(8, state=STATE)\n"
        "def second(q_values, original, step_state):\n    step_state['calls'] += 1\n    return original(q_values)\n"
    )
    run = trained(tmp_path, "run", replace_steps=[f"{path}:first", f"{path}:second"])
    found = tensors_of(run)
    assert found["agent.step_9.0.calls"] == 2 * found["updates"]
    assert "agent.step_8.1.calls" not in found


@pytest.mark.parametrize("size", [0, True, "rows", "capacity/0", "capacity/", "capacity/2*0", "capacity/x"])
def test_state_of_no_size_is_refused(tmp_path, size):
    @replace_step(8, state={"mine": size})
    def sized(q_values, original, step_state):
        return original(q_values)

    with pytest.raises(ConfigError, match="sized declares state 'mine' of size"):
        trained(tmp_path, "run", replace_steps=[sized])


def test_step_4_has_no_batch_yet(tmp_path):
    @replace_step(4)
    def early(buffer, random, batch_size, batch):
        return batch

    with pytest.raises(ConfigError, match="step 4 itself samples"):
        trained(tmp_path, "run", replace_steps=[early])


def file_with(tmp_path, factor):
    path = tmp_path / "mine.py"
    path.write_text(
        "import td3\n\n\n@td3.replace_step(9)\ndef short_sighted(reward, terminated, next_q, gamma):\n"
        f"    return reward + {factor} * gamma * (1 - terminated) * next_q\n"
    )
    return f"{path}:short_sighted"


def test_a_run_keeps_the_source_and_a_resume_needs_trust_and_says_when_it_has_changed(tmp_path, capsys):
    words = [
        w
        for k, v in {"hidden-sizes": "8 8", "batch-size": "8", "learning-starts": "20"}.items()
        for w in (f"--td3.{k}", *v.split())
    ]
    name, out = file_with(tmp_path, 0.5), tmp_path / "run"
    options = ["--steps", "80", "--eval-episodes", "1", "--out", str(out), "--device", "cpu"]
    assert main(["train", "Rail-v0", *words, *options, "--replace-steps", name]) == 0
    assert "0.5 * gamma" in json.loads((out / "steps.json").read_text())["replaced"][0]["source"]
    capsys.readouterr()
    assert main(["steps", str(out)]) == 0
    assert "+    return reward + 0.5 * gamma" in capsys.readouterr().out
    with pytest.raises(RunError, match="if you trust it"):
        td3.resume(out, steps=90)
    file_with(tmp_path, 0.6)
    assert main(["resume", str(out), "--steps", "90", "--trust"]) == 0
    assert "step 9 (short_sighted) has changed since the run began" in capsys.readouterr().out
    assert main(["steps", str(out)]) == 0
    text = capsys.readouterr().out
    assert (
        text.index("+    return reward + 0.5")
        < text.index("from env step 80 on")
        < text.index("+    return reward + 0.6")
    )


@pytest.mark.parametrize(
    ("arguments", "number", "said"),
    [
        ("q, y", 11, r"step 11 is critic_loss\(q_values, target_q\), and mine\(q, y\) was given for it"),
        ("q_values, target_q", 2, "the steps of an update are 4 to 15"),
        ("q_values, target_q", 99, "the steps of an update are 4 to 15"),
    ],
)
def test_a_function_that_does_not_fit_is_refused_before_the_run(tmp_path, arguments, number, said):
    space = {}
    exec(f"def mine({arguments}):\n    return 0\n", space)
    with pytest.raises(ConfigError, match=said):
        trained(tmp_path, "run", replace_steps=[replace_step(number)(space["mine"])])
    assert not (tmp_path / "run").exists()


def test_one_that_fails_or_returns_another_shape_is_named(tmp_path):
    @replace_step(11)
    def broken(q_values, target_q):
        raise RuntimeError("no")

    @replace_step(11)
    def summed(q_values, target_q):
        return (q_values - target_q).square().mean()

    for function, said in (
        (broken, "step 11, replaced by broken, failed"),
        (summed, "step 11, replaced by summed, returned"),
    ):
        with pytest.raises(ConfigError, match=said):
            trained(tmp_path, function.__name__, replace_steps=[function])


def test_a_step_that_fails_within_another_is_named_once(tmp_path):
    @replace_step(8)
    def broken(q_values):
        raise RuntimeError("no")

    @replace_step(8)
    def wrapping(q_values, original):
        return original(q_values)

    with pytest.raises(ConfigError, match="step 8, replaced by broken, failed") as refusal:
        trained(tmp_path, "run", replace_steps=[broken, wrapping])
    assert "wrapping" not in str(refusal.value)


def test_two_for_one_step_must_wrap(tmp_path):
    @replace_step(11)
    def halved(q_values, target_q, original):
        return 0.5 * original(q_values, target_q)

    with pytest.raises(ConfigError, match="step 11 is replaced twice, by halved and absolute_error"):
        trained(tmp_path, "no", replace_steps=[halved, absolute_error])
    trained(tmp_path, "yes", replace_steps=[absolute_error, halved])
    with pytest.raises(ConfigError, match="replaces no step"):
        trained(tmp_path, "unmarked", replace_steps=[print])


@pytest.mark.parametrize("name", ["missing.py:f", "nothing", "no_such_name"])
def test_a_file_that_cannot_be_used_is_refused(tmp_path, name):
    if name == "no_such_name":
        name = file_with(tmp_path, 1).replace("short_sighted", "other")
    with pytest.raises(ConfigError, match=r"write path/to/file.py:NAME|has no function"):
        trained(tmp_path, "run", replace_steps=[name])


def test_variants_change_settings_and_steps(tmp_path):
    ddpg = trained(tmp_path, "ddpg", variant="ddpg")
    assert (ddpg.config.td3.policy_delay, ddpg.config.td3.target_policy_noise) == (1, 0.0)
    parts = trained(tmp_path, "parts", variant=("no-delay", "no-smoothing", "no-twin"))
    require_equal(ddpg, parts)
    assert trained(tmp_path, "own", variant="no-delay", policy_delay=3).config.td3.policy_delay == 3
    with pytest.raises(ConfigError, match="variant"):
        trained(tmp_path, "no", variant="sac")


def test_the_steps_are_listed(capsys):
    assert main(["steps"]) == 0
    text = capsys.readouterr().out
    assert "min_q(q_values)" in text
    assert "no-twin" in text
    assert main(["steps", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 15
    assert main(["steps", "what"]) == 2


@replace_step(13)
def with_its_gradient_(actor, critics, optimizer, state):
    loss = -critics.first_frozen(state, actor(state)).mean(-1)
    optimizer.step_(torch.autograd.grad(loss.sum(), actor.parameters, retain_graph=True)[0])
    return loss


def test_an_actor_loss_may_keep_its_gradient(tmp_path):
    attached, plain = trained(tmp_path, "attached", replace_steps=[with_its_gradient_]), trained(tmp_path, "plain")
    require_equal(attached, plain)
    assert '"recorded updates' in (attached.path / "status.json").read_text()


def test_steps_that_are_replaced_later_are_recorded_from_there_on(tmp_path):
    run = trained(tmp_path, "run")
    with pytest.warns(UserWarning, match="steps are replaced from here on: the run continues, but not as it would"):
        run = td3.resume(run.path, steps=120, replace_steps=[absolute_error])
    assert run.config.replace_steps == (f"{__file__}:absolute_error",)
    (recorded,) = read_record(run.path)
    assert (recorded["function"], recorded["from_env_step"]) == ("absolute_error", 80)


def test_a_step_given_by_its_file_at_a_resume_is_found_at_the_next_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "mine.py:absolute"
    (tmp_path / "mine.py").write_text(
        "import td3\n\n\n@td3.replace_step(11)\ndef absolute(q_values, target_q):\n"
        "    return (q_values - target_q).abs().mean(-1).sum(0)\n"
    )
    run = trained(tmp_path, "run", replace_steps=[name])
    assert run.config.replace_steps == (f"{tmp_path}/{name}",)
    assert td3.resume(run.path, steps=100, replace_steps=[name]).config.replace_steps == (f"{tmp_path}/{name}",)
    monkeypatch.chdir("/")
    td3.resume(run.path, steps=120, trust=True)


@replace_step(9, state={"largest": 2, "calls": 2})
def remembers_more(reward, terminated, next_q, gamma, original, step_state):
    return original(reward, terminated, next_q, gamma)


def test_a_resume_with_other_state_is_refused_and_changes_nothing(tmp_path):
    run = trained(tmp_path, "run", replace_steps=[remembered])
    before = {path.name: path.read_bytes() for path in run.path.glob("*.json")}
    with pytest.raises(RunError, match=r"state largest of replaced step 9 .* give the function as it was"):
        td3.resume(run.path, steps=120, replace_steps=[remembers_more])
    assert {path.name: path.read_bytes() for path in run.path.glob("*.json")} == before


def test_changed_variables_of_every_kind_change_the_record():
    kinds = (
        *((torch.ones(1), torch.zeros(1)), (np.float32(1), np.float32(2)), (frozenset("a"), frozenset("b"))),
        *((SimpleNamespace(x=1), SimpleNamespace(x=2)), ([*range(500), 1], [*range(500), 2])),
        *((np.zeros(5000), np.eye(1, 5000, 2500)[0]), ({"a", "b", "c"}, {"a", "b"})),
    )

    def using(value):
        def loss(q_values, target_q):
            return value

        return loss

    for one, other in kinds:
        assert used_by(using(one)) != used_by(using(other)), one
        assert used_by(using(one)) == used_by(using(copy.deepcopy(one))), one
        assert len(used_by(using(one))) < 1100
