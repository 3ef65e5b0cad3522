"""The page of a run with replaced steps: the drawing stays, code and numbers are the replacement's."""

from pathlib import Path

import numpy as np
import pytest

import td3
from td3.cli import main
from td3.errors import ConfigError, RunError
from td3_lessons.explain.own_run import record_run
from td3_lessons.explain.page import Source, page

FEW = {"steps": 60, "hidden_sizes": (12, 12), "learning_starts": 30, "batch_size": 16, "eval_every": 0}
SMALL = {**FEW, "buffer_size": 300, "eval_episodes": 1, "device": "cpu"}
HUBER = '''from pathlib import Path

import torch
import td3

Path(__file__).with_name("executed").touch()


@td3.replace_step(11)
def huber_loss(q_values, target_q):
    """Less than <b>squared</b> far from y."""
    error = q_values - target_q  # <i>
    return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean(-1).sum(0)
'''


@pytest.fixture(scope="module")
def no_twin(tmp_path_factory):
    return td3.train("Rail-v0", out=tmp_path_factory.mktemp("runs") / "no_twin", variant=("no-twin",), **SMALL).path


@pytest.fixture(scope="module")
def huber(tmp_path_factory):
    folder = tmp_path_factory.mktemp("huber")
    (folder / "huber.py").write_text(HUBER)
    named = (f"{folder / 'huber.py'}:huber_loss",)
    path = td3.train("Rail-v0", out=folder / "run", replace_steps=named, **SMALL).path
    (folder / "executed").unlink()
    return path


def walked(tab):
    """Every step at three moments, with nothing said on the console and no broken number in the drawing."""
    for number in range(1, 16):
        moments = [f"step={number}&t={t}" for t in (0, 0.5, 1)] + [f"update=odd&step={number}&t=1"]
        strange = tab.evaluate(
            "moments => moments.filter((moment) => [640, 360].some((width) => "
            "/NaN|undefined|Infinity/.test(explain.stage(moment, width).inside)))",
            moments,
        )
        assert strange == []
        tab.show(moments[-1])
        assert tab.said == [], number
        assert tab.page.locator("[data-break], [data-slide], [data-predict]").count() == 0


def test_a_variant_is_shown_with_its_code_and_its_numbers(no_twin, open_tab, tmp_path):
    trace = record_run(no_twin)
    for index in (0, 1):
        assert np.array_equal(trace.arrays[f"next_q.{index}"], trace.arrays[f"target_q_values.{index}"][0])
    assert not trace.facts["live"]
    out = tmp_path / "page.html"
    assert main(["explain", "--run", str(no_twin), "--no-open", "--out", str(out)]) == 0
    tab = open_tab(out)
    walked(tab)
    tab.show("step=8&t=1")
    code = tab.page.locator("#code-8")
    assert "def first_critic" in code.inner_text()
    assert "td3/variants/ablations.py:" in code.inner_text()
    assert "the place of this step" in tab.page.locator("#prose").inner_text()
    rows = tab.page.locator("#values tbody tr").evaluate_all("all => all.map(r => r.innerText.split('\\t'))")
    assert len(rows) == 8
    assert all(row[3] == row[1] for row in rows)
    tab.show("step=9&t=1")
    assert "def bellman_target" in tab.page.locator("#code-9").inner_text()
    assert tab.page.locator("#prose .replaced").count() == 0
    assert [each.get_attribute("data-step") for each in tab.page.locator("nav .replaced").all()] == ["8"]
    tab.context.close()


def test_a_step_of_ones_own_is_executed_with_trust_alone(huber, open_tab, tmp_path, capsys):
    out, mark = tmp_path / "page.html", huber.with_name("executed")
    assert main(["explain", "--run", str(huber), "--no-open", "--out", str(out)]) == 2
    assert f"say so with  td3 explain --run {huber} --trust" in capsys.readouterr().err
    assert not mark.exists()
    assert not out.exists()
    assert main(["explain", "--run", str(huber), "--no-open", "--out", str(out), "--trust"]) == 0
    assert mark.exists()
    tab = open_tab(out)
    walked(tab)
    tab.show("step=11&t=1")
    assert "return torch.where" in tab.page.locator("#code-11").inner_text()
    assert "huber.py:9" in tab.page.locator("#code-11").inner_text()
    assert "squared" not in tab.page.locator("#code-11").inner_text()
    assert "Step 11 is huber_loss (huber.py) instead of critic_loss." in tab.page.locator("header").inner_text()
    trace = record_run(huber, trust=True)
    error = trace.arrays["q_values.1"] - trace.arrays["target_q.1"]
    loss = np.where(np.abs(error) < 1, 0.5 * error**2, np.abs(error) - 0.5).mean(-1).sum()
    assert trace.arrays["loss.1"] == pytest.approx(loss, rel=1e-5)
    shown = tab.page.locator("#values .sums div", has_text="loss by huber_loss").locator("b").inner_text()
    assert float(shown) == pytest.approx(loss, abs=1e-4)
    tab.context.close()


def test_a_file_that_has_changed_is_said_and_one_that_fails_gets_a_sentence(huber, tmp_path):
    file = huber.with_name("huber.py")
    assert "which has changed" not in page(record_run(huber, trust=True))
    file.write_text(HUBER.replace("- 0.5)", "- 0.25)"))
    text = page(record_run(huber, trust=True))
    assert "which has changed since the run was trained" in text
    assert "<i>" not in text.partition('id="code-11"')[2].partition("</figure>")[0]
    file.write_text(HUBER.replace("error = q_values", "error = nothing"))
    with pytest.raises(ConfigError, match="step 11, replaced by huber_loss, failed"):
        record_run(huber, trust=True)
    file.unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        record_run(huber, trust=True)
    file.write_text(HUBER)


WRAPPED = """import td3


@td3.replace_step(4)
def halved(buffer, random, batch_size, original):
    batch = original(buffer, random, batch_size)
    return batch._replace(reward=batch.reward / 2)


@td3.replace_step(6)
def quiet(next_action, random, noise, noise_clip, action_range):
    return next_action


@td3.replace_step(14)
def still_(actor_target, actor, tau):
    pass
"""


def test_wrapped_steps_without_noise_without_docstring_and_without_effect_are_shown_as_recorded(tmp_path, open_tab):
    (tmp_path / "mine.py").write_text(WRAPPED)
    named = tuple(f"{tmp_path / 'mine.py'}:{name}" for name in ("halved", "quiet", "still_"))
    path = td3.train("Rail-v0", out=tmp_path / "run", replace_steps=named, **SMALL).path
    trace = record_run(path, trust=True)
    arrays, places = trace.arrays, trace.arrays["rows.1"].astype(int)
    assert (places >= trace.facts["filled"][1]).all(), "the halved rewards are not in the buffer"
    y = arrays["memory"][places, -2] + 0.99 * (1 - arrays["memory"][places, -1]) * arrays["next_q.1"]
    assert np.allclose(arrays["target_q.1"], y, atol=1e-5)
    assert np.array_equal(arrays["smoothed_action.1"], arrays["next_action.1"])
    assert np.array_equal(arrays["actor_target_after.1"], arrays["actor_target_before.1"])
    out = tmp_path / "page.html"
    out.write_text(page(trace), encoding="utf-8")
    tab = open_tab(out)
    walked(tab)
    tab.context.close()


@pytest.mark.parametrize("variant", [("prioritized",), ("prioritized", "n-step")])
def test_state_for_each_row_of_the_replay_buffer_is_shown_too(tmp_path, variant):
    path = td3.train("Rail-v0", out=tmp_path / "run", variant=variant, **SMALL).path
    trace = record_run(path)
    places, filled = trace.arrays["rows.1"].astype(int), trace.facts["filled"][1]
    assert ((places >= filled) if "n-step" in variant else (places < filled)).any()
    assert {*trace.facts["replaced"]} == {"4", "11"}


def test_a_run_of_someone_else_is_data(huber):
    with pytest.raises(RunError, match="read it with  td3 steps "):
        record_run(huber)


def test_a_replacement_without_source_is_shown_as_such():
    source = Source(11, {"source": "# no source; bytecode 00\n", "line": 1, "file": "<string>"})
    assert source.text == "# no source; bytecode 00"
    assert "&lt;string&gt;" not in source.html()
    assert Path(Source(11).file).name == "step_10_to_12_critic_update.py"
