"""Stored curves give the printed figures, and a row can be run again and compared."""

import json
import re
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread
from td3_lab.reproduce import overview
from td3_lab.reproduce.command import against, identical, listing, reproduce, verdict_line
from td3_lab.reproduce.figures import Curve, at_steps, figures, read_curve, read_values, shared
from td3_lab.reproduce.page import blocks, pages, tables, with_blocks
from td3_lab.reproduce.plots import PLOTS
from td3_lab.reproduce.published_seeds import published_seeds, write_published_seeds
from td3_lab.reproduce.rows import BULLET_TASKS, ROWS, TABLES, Row, selected
from td3_lab.reproduce.store import CommitNote, commit_here, differing_settings, store, trained_by

from td3.cli import main
from td3.config import TrainConfig
from td3.errors import ConfigError, RunError
from td3.report.paper import PAPER
from td3.run.directory import Run
from td3.run.lock import locked
from td3.training import train_run

ROOT = Path(__file__).parents[3]
SMALL = {"hidden_sizes": (8, 8), "batch_size": 8, "learning_starts": 20}


def these_rows(monkeypatch, rows):
    """Have tables of these rows alone."""
    for module in ("page", "comparisons"):
        monkeypatch.setattr(f"td3_lab.reproduce.{module}.ROWS", rows)


def test_the_figures_of_a_curve_are_those_worked_out_by_hand():
    steps = np.arange(0, 60_001, 5_000)
    curve = Curve(steps, np.stack([np.arange(13.0), np.arange(13.0) + 2]), {})
    found = figures(curve)
    assert (found.seeds, found.highest, found.highest_std, found.highest_at) == (2, 13.0, 1.0, 60_000)
    assert (found.last, found.iqm, found.area, found.early) == (8.5, 8.5, 7.0, None)
    half = 12.706 * 1.0  # Student's t with one degree of freedom, standard error 1
    assert (found.last_low, found.last_high) == pytest.approx((8.5 - half, 8.5 + half), abs=1e-2)


def test_curves_are_compared_at_env_steps_that_both_have():
    curve = Curve(np.array([0, 10, 20, 30]), np.array([[1.0, 2.0, 3.0, 4.0]]), {})
    assert at_steps(curve, np.array([0, 20, 40])).returns.tolist() == [[1.0, 3.0]]
    near, exact = (Curve(curve.steps, curve.returns * 1e4 + shift, {}, seeds=(0,)) for shift in (0.01, 0))
    assert (identical(near, exact), identical(exact, exact)) == (False, True)


def test_the_papers_seeds_count_by_their_mean_deviation_and_number(monkeypatch, tmp_path):
    these_rows(monkeypatch, (Row("hopper", "table1", "Hopper-v5"),))
    (tmp_path / "hopper").mkdir()
    lines = [f"{seed},{step},3000" for seed in range(10) for step in (0, 1_000_000)]
    (tmp_path / "hopper" / "evaluations.csv").write_text("\n".join(["seed,env_steps,mean_return", *lines]))
    (tmp_path / "hopper" / "run.json").write_text('{"command": "", "hardware": ""}')
    (tmp_path / "published.csv").write_text(
        "source,task,env_steps,measure,seeds,mean,std\npaper,Hopper,1000000,last ten evaluations,10,3304.75,232.23\n"
    )
    # Seeds that are all alike add no variance: what is left is the paper's, 2.262 x 232.23 / sqrt(10).
    expected = "| 3,000 | 3,305 | -305 (-471 to -139) | 330 | worse |"
    assert expected in tables(tmp_path)["paper"]


@pytest.fixture
def others(tmp_path):
    """Ten seeds for each task and source: 0 in the first evaluation, then 100, 101, ... 109.

    The lone seed of each PyBullet task has two episodes an evaluation: returns of 0 and of env steps / 10,000.
    """
    returns = np.where(np.arange(201) == 0, 0.0, 100.0 + np.arange(10)[:, None])
    for task in PAPER:
        for seed, curve in enumerate(returns):
            np.save(tmp_path / f"TD3_{task}-v1_{seed}.npy", curve)
        lines = [",".join(map(str, (5_000 * (k + 1), 0, 0, *returns[:, k]))) for k in range(201)]
        (tmp_path / f"{task}-v3.csv").write_text("\n".join([f"env_step{',' * 12}", *lines]))
    steps = np.arange(10_000, 1_000_001, 10_000)
    episodes = np.stack([0 * steps, steps / 10_000], 1)
    for env in BULLET_TASKS.values():
        np.savez(tmp_path / f"{env}.evaluations.npz", timesteps=steps, results=episodes)
    return tmp_path


def test_seeds_of_others_are_measured_as_ours_are(others):
    write_published_seeds(others, others / "published.csv")
    # From the first evaluation to 200,000: the paper has 40 intervals from env step 0, Tianshou 34 from 25,000 + 5,000.
    for source, intervals in (("paper", 40), ("tianshou", 34)):
        found = published_seeds(others, source, "Hopper", 200_000)
        assert list(found) == ["last ten evaluations", "their IQM", "area"]
        numbers = [(float(theirs.mean()), float(theirs.std(ddof=1))) for theirs in found.values()]
        share = 1 - 0.5 / intervals
        # The IQM keeps 102 to 107; its variance is 42.5 / (6 * 5), the winsorized squares over those kept.
        expected = (104.5, 3.0277), (104.5, (6 * 42.5 / 30) ** 0.5), (104.5 * share, 3.0277 * share)
        assert numbers == [pytest.approx(each, abs=2e-3) for each in expected]
    early = published_seeds(others, "tianshou", "HalfCheetah", 40_000)["evaluation"]
    assert (early.mean(), early.std(ddof=1)) == pytest.approx((104.5, 3.0277), abs=1e-3)
    lone = published_seeds(others, "sb3", "AntBulletEnv", 200_000)
    assert {measure: theirs.tolist() for measure, theirs in lone.items()} == {"last ten evaluations": [15.5 / 2]}
    assert published_seeds(others, "paper", "Hopper", 123) == {}


def test_curves_of_others_that_end_too_early_get_a_sentence(others):
    lone = others / "AntBulletEnv-v0.evaluations.npz"
    np.savez(lone, timesteps=np.array([10_000]), results=np.zeros((1, 2)))
    with pytest.raises(RunError, match="Stable-Baselines3 for AntBulletEnv-v0 have no evaluation at env step 300,000"):
        write_published_seeds(others, others / "published.csv")


def test_missing_seeds_of_others_get_a_sentence(others):
    (others / "AntBulletEnv-v0.evaluations.npz").unlink()
    with pytest.raises(RunError, match=r"does not have one file AntBulletEnv-v0\.evaluations\.npz: copy"):
        write_published_seeds(others, others / "published.csv")
    (others / "Hopper-v3.csv").unlink()
    with pytest.raises(RunError, match=r"does not have one table Hopper-v3\.csv or Hopper-v2\.csv with 10 seeds: copy"):
        write_published_seeds(others, others / "published.csv")
    np.save(others / "TD3_Ant-v1_3.npy", np.zeros(7))
    with pytest.raises(RunError, match=r"10 curves TD3_Ant-v1_SEED\.npy of 201 evaluations: copy"):
        write_published_seeds(others, others / "published.csv")
    assert not (others / "published.csv").exists()


def test_a_row_evaluated_less_often_is_compared_over_the_same_env_steps(monkeypatch, tmp_path):
    rows = [Row("plain", "table1", "Hopper-v5", 40_000), Row("half", "table2", "Hopper-v5", 40_000, variant="no-twin")]
    these_rows(monkeypatch, tuple(rows))
    for name, spacing, seeds in (("plain", 1, 6), ("half", 2, 5)):
        (tmp_path / name).mkdir()
        lines = [f"{seed},{step}000,{step + seed}" for seed in range(seeds) for step in range(0, 41, spacing)]
        (tmp_path / name / "evaluations.csv").write_text("\n".join(["seed,env_steps,mean_return", *lines]))
        (tmp_path / name / "run.json").write_text('{"command": "", "hardware": ""}')
    # The last ten evaluations of the second are at 22, 24 ... 40; the paper's means are 1,837 and 3,305.
    line = tables(tmp_path)["table2"].splitlines()[-1]
    assert line.startswith("| Hopper-v5 |  | 5 of 10 | 40,000 | 33.00 | 33.50 (6) | -0.5 (")
    assert line.endswith("| -1,467 | not significant |")


def test_an_ablation_differs_from_td3_with_the_papers_sign_or_the_other_or_not_significantly(monkeypatch, tmp_path):
    # The paper's differences on Hopper: -897, -912, -1,467, -2,243.
    ends = {"": 50, "no-delay": 30, "no-smoothing": 70, "no-twin": 49, "ddpg": 20}
    rows = [Row(f"hopper{v}", "table2" if v else "table1", "Hopper-v5", 40_000, variant=v) for v in ends]
    rows.append(Row("again", "table2", "Hopper-v5", 40_000))
    these_rows(monkeypatch, tuple(rows))
    for row, end in zip(rows, [*ends.values(), 20], strict=True):
        (tmp_path / row.name).mkdir()
        seeds = 4 if row.variant == "ddpg" else 6  # too few
        lines = [f"{seed},{step}000,{end + seed}" for seed in range(seeds) for step in range(0, 41, 5)]
        (tmp_path / row.name / "evaluations.csv").write_text("\n".join(["seed,env_steps,mean_return", *lines]))
        (tmp_path / row.name / "run.json").write_text('{"command": "", "hardware": ""}')
    lines = tables(tmp_path)["table2"].splitlines()[2:]
    signs = [line.split("|")[-2].strip() for line in lines]
    assert signs == ["yes", "no", "not significant", "", ""]
    assert "| - |  |" in lines[-1]


def test_every_result_is_on_a_page_and_is_what_the_stored_curves_give():
    found, shown = blocks(ROOT / "results"), Counter()
    for page in pages(ROOT):
        text = page.read_text(encoding="utf-8")
        assert with_blocks(page, found) == text, f"{page.name}: run `make results`"
        if page.name != "README.md":
            shown.update(re.findall(r"<!-- (\w+): begin -->", text))
    assert shown == Counter([*found])


def test_the_readme_and_the_page_of_results_say_the_same_five_lines():
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/results.md"))
    for name, lines in (("summary", 5), ("limits", 1)):
        text = re.search(rf"<!-- {name}: begin -->\n(.*?)\n<!-- {name}", page, re.DOTALL)[1]
        assert text.count("\n") + 1 == lines
        assert text.replace("](", "](docs/") in readme


def test_every_task_of_table_1_that_was_run_is_compared_with_both_others():
    found = tables(ROOT / "results")
    for row in ROWS:
        if row.table == "table1" and not row.env_kwargs and (ROOT / "results" / row.name).is_dir():
            assert found["paper"].count(f"| {row.task} |") == found["tianshou"].count(f"| {row.task} |") == 3


@pytest.mark.parametrize("name", PLOTS)
def test_the_pictures_of_the_page_show_the_stored_curves(name, tmp_path):
    PLOTS[name](ROOT / "results", tmp_path / "plot.png")
    drawn, shown = (imread(path) for path in (tmp_path / "plot.png", ROOT / "docs" / "images" / f"{name}.png"))
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 1e-4  # without the shortest curve it is 3.6e-4
    assert any(f"](images/{name}.png)" in page.read_text() for page in pages(ROOT))


def test_the_plot_of_the_differences_shows_the_stored_curves():
    assert overview.plot(ROOT / "results") == (ROOT / "docs" / "images" / "results.svg").read_text()


def test_every_stored_row_has_the_settings_of_its_command():
    stored = [row for row in ROWS if (ROOT / "results" / row.name).is_dir()]
    assert len(stored) >= 1
    for row in stored:
        folder = ROOT / "results" / row.name
        config = TrainConfig.from_json(json.loads((folder / "config.json").read_text()))
        assert differing_settings(config, row) == [], row.name
        curve = read_curve(folder)
        assert curve is not None
        trained = [seed for part in curve.made.get("parts", [{"seeds": config.member_seeds}]) for seed in part["seeds"]]
        assert {*curve.seeds, *curve.made.get("frozen", ())} == {*trained} <= {*config.member_seeds}
        assert curve.steps[-1] == curve.made.get("env_steps", row.steps)
        assert curve.made["command"] == row.command


def test_names_are_unique_and_a_table_stands_for_its_rows():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.table for row in selected(("table2",))] == ["table2"] * sum(row.table == "table2" for row in ROWS)
    with pytest.raises(ConfigError, match="no table or row 'table9'"):
        selected(("table9",))


def test_every_row_is_a_valid_configuration():
    for row in ROWS:
        assert row.config().env == row.env


def test_the_listing_names_every_row(tmp_path):
    lines = listing(tmp_path)
    assert sum(line.endswith("not run") for line in lines) == len(ROWS)
    assert all(any(line.startswith(table) for line in lines) for table in TABLES)


@pytest.fixture
def row(monkeypatch):
    made = Row("pendulum", "table1", "Pendulum-v1", 60, 2, settings=SMALL, eval_every=20)
    monkeypatch.setattr("td3_lab.reproduce.rows.ROWS", (made,))
    return made


def trained(config, out):
    return train_run(replace(config, device="cpu", out=out))


def test_a_stored_run_is_reproduced_and_compared(row, tmp_path):
    run = trained(row.config(), tmp_path / "run")
    store(run, row, tmp_path / "results", "two cores")
    (tmp_path / "results" / "pendulum" / "run.json").write_text('{"seconds": 1.2, "hardware": "two cores"}')
    stored = read_curve(tmp_path / "results" / "pendulum")
    assert stored is not None
    assert np.allclose(stored.returns, run.learning_curve()[1], atol=1e-3)
    said = []
    (found,) = reproduce(["pendulum"], tmp_path / "results", tmp_path / "again", {}, None, trained, said.append)
    assert abs(found["difference"]) < 1e-3  # the same seeds on the same machine
    assert found["verdict"] == "too_few_seeds"
    assert said[0] == f"pendulum: {row.command}"
    assert said[1] == "pendulum: the stored run trained for 1 s on two cores"
    assert found["identical"]
    assert said[2] == "pendulum: the same evaluations as in the stored run, seeds 0 to 1"
    line = verdict_line(against(*shared(Curve(*run.learning_curve(), {}), stored)), 2)
    assert line.startswith("no verdict from 2 seeds; last 2 evaluations differ by ")


def test_a_shorter_run_is_compared_as_far_as_it_goes_and_has_a_folder_of_its_own(row, tmp_path):
    store(trained(row.config(), tmp_path / "run"), row, tmp_path / "results", "two cores")
    said, shorter = [], {"seeds": 1, "steps": 40}
    (found,) = reproduce(["pendulum"], tmp_path / "results", tmp_path, shorter, None, trained, said.append)
    run = Run(tmp_path / "pendulum_1_seeds_40_steps")
    assert found["run"] == str(run.path)
    ours, theirs = shared(Curve(*run.learning_curve(), {}), read_curve(tmp_path / "results" / "pendulum"))
    assert (ours.steps.tolist(), theirs.steps.tolist()) == ([0, 20, 40], [0, 20, 40])
    assert np.allclose(ours.returns, theirs.returns[:1], atol=1e-3)
    assert found["identical"]  # one seed of two
    # A tenth of its own env steps would be fewer random ones.
    long = replace(row, settings={}, steps=300_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("td3_lab.reproduce.rows.ROWS", (long,))
        folders = tmp_path / "results", tmp_path
        reproduce(["pendulum"], *folders, {"steps": 30_000}, None, lambda *_: run, said.append)
        with pytest.raises(RunError, match="--steps is 25,000, and the first 25,000 of pendulum are random: give more"):
            reproduce(["pendulum"], *folders, {"steps": 25_000}, None, pytest.fail, said.append)
    command = "pendulum: td3 train Pendulum-v1 --steps 30000 --seeds 2 --eval-every 20 --td3.learning-starts 25000"
    assert said[-3] == command


def test_one_seed_has_no_interval_in_words_or_in_json(row, tmp_path, monkeypatch, capsys):
    store(trained(row.config(), tmp_path / "run"), row, tmp_path / "results", "two cores")
    monkeypatch.setattr("td3_lab.reproduce.command.ROWS", (row,))
    words = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "again"), "--seeds", "1"]
    assert main(["reproduce", "pendulum", *words]) == 0
    output = capsys.readouterr().out
    assert "--seeds 1" in output.splitlines()[0]
    assert "pendulum: the same evaluations as in the stored run, seed 0" in output
    assert "nan" not in output
    assert trained_by(tmp_path / "again" / "pendulum_1_seeds") == [commit_here()]
    assert main(["reproduce", "pendulum", *words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["low"], found["seeds"]) == (None, [1, 1])


def test_an_interrupted_row_says_how_to_continue(row, tmp_path, monkeypatch, capsys):
    def interrupted(config, callbacks):
        raise KeyboardInterrupt

    (tmp_path / "results").mkdir()
    monkeypatch.setattr("td3.training.train_run", interrupted)
    words = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "again")]
    assert main(["reproduce", "pendulum", *words]) == 130
    assert capsys.readouterr().out.endswith("Stopped; the same command continues it.\n")


def test_without_a_folder_of_results_nothing_is_listed(tmp_path, capsys):
    assert main(["reproduce", "--results", str(tmp_path / "none")]) == 2
    assert "use `td3 reproduce` in a checkout of td3, or give --results" in capsys.readouterr().err


def test_the_command_line_lists_reruns_and_compares(row, tmp_path, monkeypatch, capsys):
    store(trained(row.config(), tmp_path / "run"), row, tmp_path / "results", "two cores")
    monkeypatch.setattr("td3_lab.reproduce.command.ROWS", (row,))
    folders = ["--results", str(tmp_path / "results")]
    assert main(["reproduce", *folders]) == 0
    assert "pendulum" in capsys.readouterr().out
    for _ in range(2):  # the second time the run is finished, and only compared
        assert main(["reproduce", "pendulum", *folders, "--out", str(tmp_path / "again"), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert (found["row"], found["verdict"]) == ("pendulum", "too_few_seeds")
    assert main(["reproduce", "nothing", *folders]) == 2


def test_an_interrupted_run_is_stored_only_if_that_is_asked_for(row, tmp_path, capsys):
    run = trained(row.config(), tmp_path / "pendulum")
    (run.path / "status.json").write_text('{"status": "interrupted"}')
    with pytest.raises(RunError, match="is not finished: resume it, or store it as far as it is by --interrupted"):
        store(run, row, tmp_path / "results", "two cores")
    for seed in (0, 1):  # the second seed was not evaluated at the end
        table = run.folder(seed) / "evaluations.csv"
        table.write_text("\n".join(table.read_text().splitlines()[: 4 - seed]) + "\n")
    (tmp_path / "results").mkdir()
    words = ["reproduce", "pendulum", "--results", str(tmp_path / "results"), "--out", str(tmp_path), "--interrupted"]
    assert main(words) == 2
    assert "give --store HARDWARE too" in capsys.readouterr().err
    assert main([*words, "--store", "two cores"]) == 0
    stored = read_curve(tmp_path / "results" / "pendulum")
    assert (stored.steps.tolist(), stored.made["env_steps"]) == ([0, 20], 20)
    table = run.folder(1) / "evaluations.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:2]) + "\n")
    with pytest.raises(
        RunError, match=r"has evaluations of these seeds up to env step 40, and .* to 0: resume it first"
    ):
        store(run, row, tmp_path / "results", "two cores", interrupted=True)
    table.write_text(table.read_text().splitlines()[0] + "\n")
    with pytest.raises(RunError, match="has no env step at which all of its seeds were evaluated"):
        store(run, row, tmp_path / "results", "two cores", interrupted=True)


def test_a_run_of_other_settings_is_not_stored(row, tmp_path):
    run = trained(replace(row.config(), eval_every=30), tmp_path / "run")
    with pytest.raises(RunError, match="differs from pendulum in eval_every: `td3 reproduce pendulum` trains it"):
        store(run, row, tmp_path / "results", "two cores")
    run = trained(replace(row.config(), seed=1), tmp_path / "other")
    with pytest.raises(RunError, match="pendulum has seeds 0 to 1, and seeds 1 to 2 cannot be stored among them: give"):
        store(run, row, tmp_path / "results", "two cores")


def test_seeds_that_cannot_be_stored_are_not_trained(row, tmp_path):
    def refuse(*_):
        raise AssertionError("trained")

    (tmp_path / "results").mkdir()
    where = tmp_path / "results", tmp_path / "out"
    with pytest.raises(RunError, match="has seeds 0 to 1, and seeds 1 to 4 cannot be stored among them"):
        reproduce(["pendulum"], *where, {"seeds": 4, "first_seed": 1}, "two cores", refuse, print)
    with pytest.raises(RunError, match="has seeds 0 to 1: give --seeds too, to train 2 and on"):
        reproduce(["pendulum"], *where, {"first_seed": 2}, None, refuse, print)
    store(trained(row.config(), tmp_path / "whole"), row, where[0], "two cores")
    with pytest.raises(RunError, match="holds one run of all seeds: remove the folder"):
        reproduce(["pendulum"], *where, {"first_seed": 1}, "two cores", refuse, print)


def test_a_run_of_other_settings_is_refused_before_it_is_continued(row, tmp_path):
    (tmp_path / "results").mkdir()
    trained(replace(row.config(), eval_every=30), tmp_path / "pendulum")
    with pytest.raises(RunError, match="differs from pendulum in eval_every"):
        reproduce(["pendulum"], tmp_path / "results", tmp_path, {}, "two cores", pytest.fail, print)


def test_seeds_that_are_stored_at_the_same_time_wait_for_each_other(row, tmp_path):
    runs = [trained(replace(row.config(), seed=seed, seeds=1), tmp_path / str(seed)) for seed in (0, 1)]
    store(runs[0], row, tmp_path / "results", "two cores")
    storing = threading.Thread(target=store, args=(runs[1], row, tmp_path / "results", "two cores"))
    with locked(tmp_path / "results", wait=True):
        storing.start()
        storing.join(0.5)
        assert storing.is_alive()
    storing.join()
    assert read_curve(tmp_path / "results" / "pendulum").seeds == (0, 1)


def test_a_lone_seed_that_diverged_is_stored_as_one(row, tmp_path, monkeypatch):
    these_rows(monkeypatch, (row,))
    runs = [trained(replace(row.config(), seed=seed, seeds=1), tmp_path / str(seed)) for seed in (0, 1)]
    facts = {"status": "failed", "frozen": {"1": {"env_steps": 30, "reason": "the loss is not a number"}}}
    (runs[1].path / "status.json").write_text(json.dumps(facts))
    with pytest.raises(RunError, match=r"every seed of .*/1 diverged, and .*/pendulum has no others"):
        store(runs[1], row, tmp_path / "results", "two cores")
    for run in runs:
        store(run, row, tmp_path / "results", "two cores")
    curve = read_curve(tmp_path / "results" / "pendulum")
    assert (curve.seeds, curve.steps[-1], curve.made["frozen"]) == ((0,), 60, [1])
    assert "| Pendulum-v1 | 60 | 1 of 2 (1 diverged) |" in tables(tmp_path / "results")["table1"]


def test_a_run_that_another_command_began_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.setattr("td3_lab.reproduce.store.commit_here", lambda: "abc1234")
    CommitNote().on_training_start(SimpleNamespace(path=tmp_path, resumed=True))
    assert trained_by(tmp_path) == ["unknown", "abc1234"]


def test_a_row_names_the_commits_that_trained_it_not_the_one_that_stored_it(row, tmp_path, monkeypatch):
    def at(commit, hardware=None):
        monkeypatch.setattr("td3_lab.reproduce.store.commit_here", lambda: commit)
        reproduce(["pendulum"], tmp_path / "results", tmp_path / "out", {}, hardware, train, print)

    def train(config, out):
        if (out / "status.json").exists():
            if "interrupted" in (out / "status.json").read_text():
                CommitNote().on_training_start(SimpleNamespace(path=out, resumed=True))
            return Run(out)
        run = train_run(replace(config, device="cpu", out=out), [CommitNote()])
        (out / "status.json").write_text((out / "status.json").read_text().replace("finished", "interrupted"))
        return run

    (tmp_path / "results").mkdir()
    for commit in ("abc1234", "def5678-changed", "def5678-changed"):
        at(commit)
    status = tmp_path / "out" / "pendulum" / "status.json"
    status.write_text(status.read_text().replace("interrupted", "finished"))
    at("fff0000", "two cores")
    assert read_curve(tmp_path / "results" / "pendulum").made["commit"] == "abc1234; def5678-changed"


def test_the_commit_is_that_of_this_checkout_or_none(monkeypatch):
    assert re.fullmatch(r"[0-9a-f]{7,}(-changed)?", commit_here())
    monkeypatch.setenv("PATH", "")
    assert commit_here() == ""


def test_seeds_that_were_trained_apart_are_stored_as_if_trained_together(row, tmp_path, monkeypatch, capsys):
    these_rows(monkeypatch, (row,))
    results, together, out = tmp_path / "results", tmp_path / "together", tmp_path / "out"
    results.mkdir()
    words = ["reproduce", "pendulum", "--results", str(results), "--out", str(out), "--store", "one core"]
    assert main([*words, "--seeds", "1", "--first-seed", "1"]) == 0
    assert "pendulum: td3 train Pendulum-v1 --steps 60 --seed 1 --seeds 1" in capsys.readouterr().out
    (line,) = tables(results)["table1"].splitlines()[2:]
    assert line.startswith("| Pendulum-v1 | 60 | 1 of 2 |")
    assert "nan" not in tables(results)["table1"]  # a lone seed has no interval
    for _ in range(2):  # the second time they replace themselves
        assert main([*words, "--seeds", "1"]) == 0
    assert "pendulum: the same evaluations as in the stored run, seed 0" in capsys.readouterr().out
    store(trained(row.config(), tmp_path / "whole"), row, together, "two cores")
    for name in ("evaluations.csv", "values.csv", "versions.json"):
        assert (results / "pendulum" / name).read_text() == (together / "pendulum" / name).read_text()
    config = json.loads((results / "pendulum" / "config.json").read_text())
    assert (config["seed"], config["seeds"]) == (0, 2)
    made = read_curve(results / "pendulum").made
    assert [part["seeds"] for part in made["parts"]] == [[0], [1]]
    assert made["seconds"] == sum(part["seconds"] for part in made["parts"])
    assert (made["hardware"], made["command"]) == ("one core", row.command)


def test_seeds_are_not_mixed_with_those_of_another_kind_of_run(row, tmp_path):
    results, one = tmp_path / "results", trained(replace(row.config(), seeds=1), tmp_path / "one")
    store(trained(row.config(), tmp_path / "whole"), row, results, "two cores")
    with pytest.raises(RunError, match="holds one run of all seeds: remove the folder"):
        store(one, row, results, "two cores")
    three = replace(row, seeds=3)
    store(Run(tmp_path / "whole"), three, tmp_path / "three", "two cores")
    with pytest.raises(RunError, match="holds a run of some of these seeds and of others"):
        store(one, three, tmp_path / "three", "two cores")
    (tmp_path / "three" / "pendulum" / "versions.json").write_text('{"mujoco": "2.3"}')
    last = trained(replace(row.config(), seed=2, seeds=1), tmp_path / "last")
    with pytest.raises(RunError, match=r"trained with mujoco 2\.3 instead of 3\.4\.0: train these with the same"):
        store(last, three, tmp_path / "three", "two cores")
    assert read_curve(tmp_path / "three" / "pendulum").returns.shape == (2, 4)


def test_a_row_that_was_never_run_is_trained_and_stored(row, tmp_path):
    said, results = [], tmp_path / "results"
    results.mkdir()
    for hardware, ending in ((None, "--store HARDWARE stores it."), ("two cores", "`make results` writes the tables.")):
        reproduce(["pendulum"], results, tmp_path / "again" / str(hardware), {}, hardware, trained, said.append)
        assert said[-1].endswith(ending)
    assert read_curve(results / "pendulum").made["engine"] == "recorded updates on cpu"
    steps, q_values, returns = read_values(results / "pendulum")
    assert len(steps) > 0
    assert q_values.shape == returns.shape == (2, len(steps))
    with pytest.raises(RunError, match="leave out --steps, or --store"):
        reproduce(["pendulum"], results, tmp_path / "third", {"steps": 1}, "two cores", trained, said.append)


def test_an_offline_row_learns_from_a_run_that_is_trained_first(monkeypatch, tmp_path):
    common = {"settings": SMALL, "eval_every": 20}
    data = Row("data", "offline", "Pendulum-v1", 60, 1, baseline="data", **common)
    offline = Row(
        "cloned", "offline", "Pendulum-v1", 40, 2, variant="behavior-cloning", normalized=True, dataset="data"
    )
    offline = replace(offline, baseline="cloned", **common)
    assert offline.command.startswith("td3 offline runs/reproduce/data --steps 40 --seeds 2 --variant behavior-cloning")
    assert replace(offline, variant="").command.split(" --eval")[0].endswith("--seeds 2 --variant")
    for module in ("rows", "page", "command"):
        monkeypatch.setattr(f"td3_lab.reproduce.{module}.ROWS", (data, offline))
    results, out = tmp_path / "results", tmp_path / "out"
    results.mkdir()
    reproduce(["cloned"], results, out, {}, "two cores", trained, print)
    assert (out / "data" / "status.json").exists()
    assert "| Pendulum-v1 |  | 1 | 60 | not run |" in tables(results)["offline"]  # trained, and not stored
    store(Run(out / "data"), data, results, "two cores")
    asked = []

    def refuse(config, _):
        asked.append(config)
        raise StopIteration

    with pytest.raises(StopIteration):
        reproduce(["data"], results, out, {"seeds": 3, "steps": 9}, None, refuse, print)
    assert asked[0].seeds == 1  # with more, it would be another dataset
    assert "not run" not in tables(results)["offline"]


def test_a_frozen_seed_does_not_shorten_the_curve(row, tmp_path, monkeypatch):
    run = trained(row.config(), tmp_path / "run")
    status = json.loads((run.path / "status.json").read_text())
    frozen = {"1": {"env_steps": 20, "reason": "the loss is not a number"}}
    (run.path / "status.json").write_text(json.dumps({**status, "frozen": frozen}))
    these_rows(monkeypatch, (row,))
    store(Run(run.path), row, tmp_path / "results", "two cores")
    assert read_curve(tmp_path / "results" / row.name).returns.shape == (1, 4)
    assert "| Pendulum-v1 | 60 | 1 of 2 (1 diverged) |" in tables(tmp_path / "results")["table1"]


def test_success_rates_are_stored_and_shown(monkeypatch, tmp_path):
    settings = {**SMALL, "buffer_size": 500}
    rows = [
        Row(name, "goals", "RailGoal-v0", 120, 2, settings=settings, variant=variant, eval_every=60, baseline="plain")
        for name, variant in (("plain", ""), ("hindsight", "hindsight"))
    ]
    these_rows(monkeypatch, tuple(rows))
    for row in rows:
        store(trained(row.config(), tmp_path / row.name), row, tmp_path / "results", "two cores")
    curve = read_curve(tmp_path / "results" / "hindsight")
    assert 0 <= curve.success <= 1
    goals = tables(tmp_path / "results")["goals"]
    assert f"| {curve.success:.0%} |" in goals
    assert "| RailGoal-v0 |  | 2 | 120 |" in goals


def test_overestimation_is_the_mean_of_values_less_returns_up_to_the_end_of_the_ablations(monkeypatch, tmp_path):
    these_rows(monkeypatch, (Row("hopper", "table1", "Hopper-v5"),))
    (tmp_path / "hopper").mkdir()
    (tmp_path / "hopper" / "evaluations.csv").write_text("seed,env_steps,mean_return\n0,0,1\n0,5,1\n1,0,1\n1,5,1\n")
    (tmp_path / "hopper" / "run.json").write_text('{"command": "", "hardware": ""}')
    assert "| Hopper-v5 | TD3 | 2 of 10 |  | not recorded |" in tables(tmp_path)["overestimation"]
    (tmp_path / "hopper" / "values.csv").write_text("seed,env_steps,q_value,discounted_return\n0,5000,1,1\n")
    assert "| Hopper-v5 | TD3 | 2 of 10 |  | not recorded |" in tables(tmp_path)["overestimation"]
    late = [f"{seed},{step},1000,0" for seed in (0, 1) for step in (400_000, 495_000, 510_000)]
    lines = [f"{seed},{step},{10 + seed},{8 - seed}" for seed in (0, 1) for step in range(410_000, 500_001, 10_000)]
    (tmp_path / "hopper" / "values.csv").write_text(
        "\n".join(["seed,env_steps,q_value,discounted_return", *lines, *late])
    )
    assert "| 500,000 | 10.50 | 7.50 | +3.0 (-9.7 to +15.7) |" in tables(tmp_path)["overestimation"]


def test_a_folder_without_results_gets_a_sentence(row, tmp_path):
    with pytest.raises(RunError, match="is not a folder: use `td3 reproduce` in a checkout"):
        reproduce(["pendulum"], tmp_path / "none", tmp_path / "again", {}, None, trained, print)
