"""`td3 explain`, from the lesson and from a reader's own run."""

import json

import pytest

import td3
from td3.cli import main
from td3_lessons.explain.own_run import record_run

FEW = {"learning_starts": 30, "batch_size": 16, "eval_every": 40, "eval_episodes": 1}


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """Rail with networks that the page can compute by itself."""
    out = tmp_path_factory.mktemp("runs") / "small"
    return td3.train("Rail-v0", steps=60, out=out, hidden_sizes=(12, 12), buffer_size=300, **FEW)


@pytest.fixture(scope="module")
def large_run(tmp_path_factory):
    """Many state and action dimensions, networks too large for the page, the actor at every third update."""
    out = tmp_path_factory.mktemp("runs") / "large"
    return td3.train("HalfCheetah-v5", steps=60, out=out, hidden_sizes=(64, 48), policy_delay=3, **FEW)


def test_the_lesson_is_written_as_one_file(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("DISPLAY", ":7")
    out = tmp_path / "new" / "page.html"
    assert main(["explain", "--out", str(out), "--at", "step=9&row=2"]) == 0
    assert opened == [out.as_uri() + "#step=9&row=2"]
    assert str(out) in capsys.readouterr().out
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_no_open_opens_nothing_and_json_says_where_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail("opened"))
    monkeypatch.setenv("DISPLAY", ":7")
    assert main(["explain", "--out", str(tmp_path / "page.html"), "--no-open", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(tmp_path / "page.html"), "opened": False}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "page.pdf"], "written as .html"),
        (["--run", "nowhere"], "nowhere is not a run"),
        (["--seed", "3"], "give --run as well"),
        (["--out", "/proc/page/x.html"], "cannot be written"),
    ],
)
def test_a_mistake_gets_one_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "--no-open", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_without_its_networks_is_refused_in_a_sentence(small_run, tmp_path, capsys):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(small_run.path, copy)
    for file in copy.rglob("agent.safetensors"):
        file.write_bytes(b"not tensors")
    assert main(["explain", "--no-open", "--out", str(tmp_path / "p.html"), "--run", str(copy)]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("which", ["small_run", pytest.param("large_run", marks=pytest.mark.long)])
def test_a_readers_own_run_becomes_a_page_that_works(which, request, open_tab, tmp_path):
    run = request.getfixturevalue(which)
    out = tmp_path / "own.html"
    assert main(["explain", "--no-open", "--out", str(out), "--run", str(run.path)]) == 0
    assert out.stat().st_size < 2_500_000
    tab = open_tab(out)
    text = tab.page.locator("header").inner_text()
    assert run.config.env in text
    facts = tab.evaluate("() => explain.facts")
    assert facts["live"] == (which == "small_run")
    last = facts["updates"][-1]
    assert last % run.config.td3.policy_delay == 0
    for number in range(1, 16):
        tab.show(f"step={number}&t=1")
        moments = [f"update={update}&step={number}&t={t}" for update in facts["updates"] for t in (0, 0.5, 1)]
        breaks = tab.page.locator("[data-break]").evaluate_all("all => all.map(button => button.dataset.break)")
        moments += [f"step={number}&t=1&break={name}" for name in breaks]
        strange = tab.evaluate(
            """moments => moments.filter((moment) => [640, 360].some((width) =>
                /NaN|undefined|Infinity/.test(explain.stage(moment, width).inside)))""",
            moments,
        )
        assert strange == []
        tab.show(moments[-1])
        assert tab.said == [], number
    tab.show("film=0.9")
    assert tab.page.locator("#caption").inner_text()
    assert tab.said == []
    tab.show(f"update={last}&step=13&t=1")
    assert "Not in this update" not in tab.image()
    tab.context.close()


def test_the_networks_of_the_run_are_the_ones_on_the_page(small_run):
    from safetensors.numpy import load_file

    trace = record_run(small_run.path)
    saved = load_file(small_run.folder(0) / "last" / "agent.safetensors")
    first = trace.arrays["critics_before.0"][1, : 3 * 12].reshape(3, 12)
    assert (first == saved["critic_2.0.weight"].T).all()
    assert (trace.arrays["actor_target_before.0"][: 2 * 12].reshape(2, 12) == saved["actor_target.0.weight"].T).all()


def test_the_same_run_gives_the_same_page(small_run):
    first, second = record_run(small_run.path), record_run(small_run.path)
    assert first.payload() == second.payload()


def test_states_and_actions_have_the_environments_own_names(small_run, large_run):
    small, large = record_run(small_run.path).facts, record_run(large_run.path).facts
    assert (small["state_names"], small["action_names"]) == (["position", "velocity"], ["force"])
    assert large["action_names"] == ["bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"]
    assert large["state_names"][:2] == ["rootz position", "rooty position"]
    assert large["state_names"][8] == "rootx velocity"
    assert len(large["state_names"]) == 17


@pytest.mark.parametrize("which", ["small_run", pytest.param("large_run", marks=pytest.mark.long)])
def test_the_shown_transitions_come_with_frames_before_and_after(which, request, open_tab, tmp_path):
    run = request.getfixturevalue(which)
    facts = record_run(run.path).facts
    assert set(facts["frames"]) == {"height", "0", "1"}
    for index in ("0", "1"):
        assert len(facts["frames"][index]) == 8
        for frame in facts["frames"][index]:
            assert frame["before"].startswith("data:image/jpeg;base64,")
            assert frame["before"] != frame["after"]
    assert main(["explain", "--no-open", "--out", str(tmp_path / "own.html"), "--run", str(run.path)]) == 0
    tab = open_tab(tmp_path / "own.html")
    tab.show("step=7&t=1")
    assert tab.page.locator("#drawing image").count() == 2
    assert [url for url in tab.asked if not url.startswith(("data:", "file:"))] == []
    tab.context.close()


def test_an_environment_without_names_or_renderer_still_gets_a_page():
    from td3_lessons.explain.own_run import names_of, rendered

    class Bare:
        unwrapped = object()

    assert names_of(Bare(), "Nameless-v0", 2, 1) == (["state 1", "state 2"], ["action 1"])
    assert rendered({"env": "Nowhere-v0"}, [], [], []) == {}
