"""A run in Python and in a notebook: its tables, held-out evaluation, plot, report, video and views."""

import base64
import json
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from scripted import SMALL

import td3
from report.made import make_run
from report.test_groups import jobs, two_tasks
from td3.cli import main
from td3.environments.rail import Rail
from td3.errors import ConfigError, RunError, UserError
from td3.report.comparison import RunComparison

mpl.use("Agg")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return td3.train("Rail-v0", out=tmp_path_factory.mktemp("run") / "run", seeds=2, **{**SMALL, "steps": 40})


def test_train_returns_a_run_that_can_do_all_this(run):
    assert isinstance(run, td3.Run)
    assert isinstance(td3.Run(run.path), td3.Run)


@pytest.mark.parametrize("table", ["metrics", "evaluations", "diagnostics"])
def test_without_pandas_a_table_is_a_dict_of_arrays_with_the_seed(tmp_path, monkeypatch, table):
    monkeypatch.setitem(sys.modules, "pandas", None)
    frame = td3.Run(make_run(tmp_path / "run", seeds=2, seed=3, every=1_000)).frame(table)
    rows = 20 if table == "metrics" else 21
    assert isinstance(frame, dict)
    assert {len(column) for column in frame.values()} == {2 * rows}
    assert [*np.unique(frame["seed"])] == [3, 4]
    assert frame["env_steps"].dtype == np.int64
    assert frame["env_steps"][-1] == 20_000


def test_with_pandas_a_table_is_a_frame(tmp_path, monkeypatch):
    class DataFrame(dict):
        pass

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=DataFrame))
    frame = td3.Run(make_run(tmp_path / "run", seeds=2, every=1_000)).frame("evaluations")
    assert isinstance(frame, DataFrame)
    assert [*frame] == ["seed", "env_steps", "mean_return", "std_return", "mean_length", "success_rate"]
    assert frame["mean_return"][[20, 41]].tolist() == pytest.approx([990, 1_010], abs=3)


def test_a_table_that_there_is_not_is_refused(run):
    with pytest.raises(UserError, match="metrics, evaluations, diagnostics; 'losses' is none"):
        run.frame("losses")


def test_evaluate_plays_the_episodes_of_the_command(run, capsys):
    found = run.evaluate(episodes=3, which="last")
    assert found.returns.shape == found.lengths.shape == (2, 3)
    assert main(["evaluate", str(run.path), "--episodes", "3", "--which", "last", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["returns"]
    assert found.returns.tolist() == [printed["0"], printed["1"]]
    assert run.evaluate(episodes=2, seeds=[1], which="last").returns.tolist() == found.returns[1:, :2].tolist()


def test_evaluate_takes_a_changed_environment(run):
    noisy = run.evaluate(episodes=2, env_kwargs={"reward_noise": 5.0}, which="last")
    assert (noisy.returns != run.evaluate(episodes=2, which="last").returns).all()
    assert (run.evaluate(episodes=2, env=lambda: Rail(reward_noise=5.0), which="last").lengths > 0).all()


def test_a_run_of_a_module_is_evaluated_with_its_class_or_trust(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "task_here.py").write_text("from td3.environments.rail import Rail\n\nclass Task(Rail):\n    pass\n")
    settings = {**SMALL, "steps": 40, "env_kwargs": {"max_episode_steps": 7}}
    run = td3.train("task_here:Task", out=tmp_path / "run", **settings)
    with pytest.raises(RunError, match="trust=True"):
        run.evaluate(episodes=1)
    trusted = run.evaluate(episodes=1, trust=True)
    given = run.evaluate(episodes=1, env=sys.modules["task_here"].Task)
    assert trusted.returns.tolist() == given.returns.tolist()
    assert trusted.lengths.tolist() == [[7]]


def test_plot_draws_a_curve_for_each_group_on_axes_of_each_task(tmp_path):
    alone = td3.Run(make_run(tmp_path / "run", seeds=3, every=1_000)).plot()
    assert len(alone.lines) == len(alone.collections) == 1
    assert (alone.get_title(), alone.get_xlabel()) == ("HalfCheetah-v5", "env steps")
    two_tasks(tmp_path / "tasks", 2)
    axes = td3.compare(base=f"{tmp_path}/tasks/*/a_*", new=f"{tmp_path}/tasks/*/b_*").plot()
    assert [each.get_title() for each in axes] == ["Hopper-v5", "Walker2d-v5"]
    assert [text.get_text() for text in axes[1].get_legend().get_texts()] == ["base", "new"]
    mpl.pyplot.close("all")


def test_without_matplotlib_a_plot_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"plotting needs the extra 'plots': .*pip install 'td3\[plots\]'"):
        run.plot()


def test_report_and_watch_write_their_files_and_a_notebook_shows_the_video(run, tmp_path):
    assert run.report() == run.path / "report.html"
    assert "<!doctype html>" in run.report(tmp_path / "mine.html").read_text()
    video = run.watch(tmp_path / "mine.mp4", max_steps=4)
    assert base64.b64encode(video.path.read_bytes()).decode() in video._repr_html_()


def test_notebooks_show_runs_and_agents(run, tmp_path):
    html = run._repr_html_()
    assert "<svg" in html
    assert "Final evaluation" in html
    agent = run.agent(0, "last")._repr_html_()
    assert "Rail-v0" in agent
    assert " - " in agent
    broken = make_run(tmp_path / "broken", every=1_000)
    (broken / "seed_0" / "metrics.csv").write_text("env_steps,updates\n1,<x>\n")
    assert "row 2, column updates: &#x27;&lt;x&gt;&#x27;" in td3.Run(broken)._repr_html_()


def test_compare_takes_runs_paths_and_patterns_and_scores_are_what_rliable_takes(tmp_path):
    two_tasks(tmp_path)
    scale = {"Hopper-v5": (0.0, 1_000.0), "Walker2d-v5": (0.0, 2_000.0)}
    found = td3.compare(base=f"{tmp_path}/*/a_*", new=f"{tmp_path}/*/b_*", normalize=scale)
    scores = found.scores()
    assert found.tasks == ["Hopper-v5", "Walker2d-v5"]
    assert {name: array.shape for name, array in scores.items()} == {"base": (5, 2), "new": (5, 2)}
    assert scores["new"] == pytest.approx(np.full((5, 2), 0.975), abs=0.005)
    assert found.figures()["tasks"]["groups"][1]["mean"] == pytest.approx(scores["new"].mean())
    assert found.report(tmp_path / "r.html").exists()
    assert found.csv(tmp_path / "r.csv").exists()
    assert found.latex(tmp_path / "r.tex").exists()
    assert "<svg" in found._repr_html_()
    assert "new against base on Hopper-v5: better" in str(found)
    paths = [tmp_path / "Hopper-v5" / f"a_{seed}" for seed in range(3)]
    several = td3.compare([td3.Run(paths[0]), str(paths[1]), paths[2]])
    assert [len(records.seeds) for records in several.runs] == [3]


def test_scores_of_unequal_seeds_and_no_runs_are_refused(tmp_path):
    jobs(tmp_path / "Hopper-v5", "a", 2, env="Hopper-v5")
    jobs(tmp_path / "Ant-v5", "a", 1, env="Ant-v5")
    found = td3.compare(base=f"{tmp_path}/*/a_*")
    assert isinstance(found, RunComparison)
    with pytest.raises(RunError, match=r"different numbers of seeds \(1 on Ant-v5, 2 on Hopper-v5\)"):
        found.scores()
    with pytest.raises(RunError, match=r"td3.compare\(base='jobs/a_\*'"):
        td3.compare()
    with pytest.raises(ConfigError, match="such as Hopper-v5=20,3564"):
        td3.compare(base=f"{tmp_path}/*/a_*", normalize={"Hopper-v5": (1.0, 1.0)})
