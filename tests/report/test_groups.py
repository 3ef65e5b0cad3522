"""Runs compared as people have them: a job for each seed, several settings, several tasks, logs of other libraries."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from report.made import make_run
from td3.cli import main
from td3.errors import ConfigError, RunError
from td3.report.across_tasks import across_tasks, normalized, read_scales, scores_by_task
from td3.report.differences import differences
from td3.report.groups import read_groups
from td3.report.render import page
from td3.report.summary import comparisons, figures
from td3.report.tables import as_csv, as_latex
from td3.statistics import over_tasks


def jobs(folder: Path, name: str, count: int = 5, spread: float = 20.0, **settings) -> list[Path]:
    """A run of one seed each, as an array of jobs leaves them, whose returns differ by the spread."""
    final = settings.pop("final", 1_000.0)
    settings.setdefault("every", 1_000)
    return [
        make_run(folder / f"{name}_{seed}", seeds=1, seed=seed, final=final + spread * seed, **settings)
        for seed in range(count)
    ]


def titles(runs) -> list[tuple[str, list[int]]]:
    return [(records.title, [seed.seed for seed in records.seeds]) for records in runs]


def test_named_patterns_are_groups_of_seeds_with_a_verdict(tmp_path, capsys, monkeypatch):
    jobs(tmp_path / "jobs", "a", 11)
    jobs(tmp_path / "jobs", "b", 5, final=2_000.0, gamma=0.98)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "base=jobs/a_*", "new=jobs/b_*"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("What differs:\n  td3.gamma: base 0.99, new 0.98\nbase: HalfCheetah-v5")
    assert "new against base: better than the reference" in printed
    assert titles(read_groups(["base=jobs/a_*"])) == [("base", list(range(11)))]  # a_2 before a_10
    html = (tmp_path / "report.html").read_text()
    assert html.index("What differs") < html.index("Learning curves")


def test_runs_without_a_name_are_one_group_where_only_the_seed_differs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs(tmp_path / "jobs", "a")
    jobs(tmp_path / "jobs", "b", tau=0.01)
    words = [f"jobs/{name}_{seed}" for seed in range(5) for name in "ab"]
    assert titles(read_groups(words)) == [("jobs/a_*", [0, 1, 2, 3, 4]), ("jobs/b_*", [0, 1, 2, 3, 4])]
    assert main(["report", *words, "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (pair["seeds"], pair["verdict"]) == ([5, 5], "equivalent")


def test_the_same_seed_again_is_another_run_and_never_a_second_sample(tmp_path):
    first, second = make_run(tmp_path / "old", seeds=2), make_run(tmp_path / "new", seeds=2)
    assert len(read_groups([str(first), str(second)])) == 2
    with pytest.raises(ConfigError, match=r"both has seed 0 of HalfCheetah-v5 twice, in .*new and in .*old"):
        read_groups([f"both={tmp_path}/*"])


def test_runs_with_other_code_of_a_step_are_not_one_group(tmp_path):
    paths = jobs(tmp_path, "a", 2, replace_steps=("own.py:step",))
    for path, source in zip(paths, ("return 1", "return 2"), strict=True):
        (path / "steps.json").write_text(json.dumps({"11": {"source": source}}))
    runs = read_groups([*map(str, paths)])
    assert len(runs) == 2
    assert [row["setting"] for row in differences(runs)] == ["source of replaced steps"]


def test_latest_is_not_another_run_beside_its_target(tmp_path):
    folder = make_run(tmp_path / "2026-01-01", seeds=2)
    (tmp_path / "latest").symlink_to("2026-01-01")
    assert [run.path for run in read_groups([f"{tmp_path}/*"])] == [folder]
    assert len(read_groups([str(tmp_path / "latest"), str(folder)])) == 1
    with pytest.raises(ConfigError, match="is in both a and b: give a run to one group"):
        read_groups([f"a={folder}", f"b={tmp_path}/latest"])


def test_a_path_with_an_equals_sign_is_a_path(tmp_path, monkeypatch):
    make_run(tmp_path / "tau=0.01" / "seed_0", seeds=1)
    monkeypatch.chdir(tmp_path)
    for word in ("tau=0.01/seed_0", "tau=0.01/*", "./tau=0.01/*"):
        assert [run.label for run in read_groups([word])] == [""]
    assert [run.label for run in read_groups(["mine=tau=0.01/*"])] == ["mine"]


@pytest.mark.parametrize(
    ("word", "message"),
    [("none_*", "matches nothing: give a pattern"), ("*.log", "matches 1 files or folders, none of them a run")],
)
def test_a_pattern_without_runs_is_refused(tmp_path, monkeypatch, word, message):
    (tmp_path / "job.log").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=message):
        read_groups([f"base={word}"])


def test_fewer_than_five_jobs_get_no_verdict(tmp_path):
    jobs(tmp_path, "a", 4), jobs(tmp_path, "b", 5, final=5_000.0)
    (pair,) = comparisons(read_groups([f"base={tmp_path}/a_*", f"new={tmp_path}/b_*"]), 0.1)
    assert pair.result.verdict == "too_few_seeds"
    assert np.isnan(pair.p_value)


def test_a_named_group_of_different_settings_says_so(tmp_path):
    make_run(tmp_path / "a_0", seeds=1, seed=0)
    make_run(tmp_path / "a_1", seeds=1, seed=1, tau=0.01)
    runs = read_groups([f"base={tmp_path}/a_*"])
    assert differences(runs) == [{"setting": "td3.tau", "values": {"base": "0.005 or 0.01"}}]


def test_with_three_groups_a_weak_difference_is_not_called_one(tmp_path):
    spreads = {"a": 1_000.0, "b": 1_049.0, "c": 1_002.0}
    for name, final in spreads.items():
        jobs(tmp_path, name, final=final)
    two = comparisons(read_groups([f"{name}={tmp_path}/{name}_*" for name in "ab"]), 0.01)
    three = comparisons(read_groups([f"{name}={tmp_path}/{name}_*" for name in "abc"]), 0.01)
    assert [pair.result.verdict for pair in two] == ["better"]
    assert two[0].p_value == pytest.approx(0.04, abs=0.01)
    assert [(pair.run.title, pair.reference.title) for pair in three] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert [pair.result.verdict for pair in three] == ["undecided"] * 3
    assert three[0].p_value == pytest.approx(3 * two[0].p_value)
    runs = read_groups([f"{name}={tmp_path}/{name}_*" for name in "abc"])
    assert "p (Holm)" in page(runs)
    assert "after Holm's correction for 3 pairs" in figures(runs)["comparisons"][0]["said"]


TASKS = {"Hopper-v5": (0.0, 1_000.0), "Walker2d-v5": (0.0, 2_000.0)}


def two_tasks(folder: Path, count: int = 5):
    for task, (_, high) in TASKS.items():
        jobs(folder / task, "a", count, env=task, final=0.5 * high, spread=0.0)
        jobs(folder / task, "b", count, env=task, final=high, spread=0.0)
    return read_groups([f"base={folder}/*/a_*", f"new={folder}/*/b_*"])


def test_several_tasks_are_aggregated_by_stated_scores(tmp_path, capsys, monkeypatch):
    runs = two_tasks(tmp_path)
    found = across_tasks(runs, TASKS)
    base, new = found["groups"]
    for label in ("mean", "median", "iqm"):
        # The last tenth has the evaluations at 95 % and 100 % of a straight line.
        assert base[label] == pytest.approx(0.4875, abs=0.003)
        assert new[label] == pytest.approx(0.975, abs=0.003)
    assert [(p["run"], p["reference"], p["probability"]) for p in found["improvements"]] == [("new", "base", 1.0)]
    assert found["notes"] == []
    monkeypatch.chdir(tmp_path)
    words = ["base=*/a_*", "new=*/b_*", "--normalize", "Hopper-v5=0,1000", "Walker2d-v5=0,2000"]
    assert main(["report", *words, "--csv", "c.csv", "--latex", "t.tex"]) == 0
    printed = capsys.readouterr().out
    assert "new against base on Walker2d-v5: better than the reference" in printed
    assert "base: normalized IQM 0.48" in printed
    assert "new against base: probability of improvement 1.00" in printed
    html = (tmp_path / "report.html").read_text()
    assert "Over all tasks" in html
    assert all(f"{name}, {task}" in html for name in ("base", "new") for task in TASKS)
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert [(r["task"], r["run"], r["reference"], r["verdict"]) for r in rows if r["verdict"]] == [
        ("Hopper-v5", "new", "base", "better"),
        ("Walker2d-v5", "new", "base", "better"),
    ]
    assert float(rows[1]["mean"]) == pytest.approx(975, abs=2)
    assert [r["run"] for r in rows if r["task"] == "all, normalized"] == ["base", "new"]
    tex = (tmp_path / "t.tex").read_text()
    assert r" & base & new \\" in tex
    assert r"Hopper-v5 & $48" in tex
    assert r"\mathbf{1{,}9" in tex
    assert "IQM (normalized) & $0.4" in tex


def test_without_stated_scores_only_the_probability_is_shown_with_the_line_to_type(tmp_path):
    found = across_tasks(two_tasks(tmp_path, 2))
    assert found["normalized"] is None
    assert [*found["groups"][0]] == ["run", "seeds"]
    few, line = found["notes"]
    assert "fewer than 5 seeds" in few
    assert line.endswith("--normalize Hopper-v5=LOW,HIGH Walker2d-v5=LOW,HIGH")


def test_scores_that_are_missing_or_no_scores_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no scores for Walker2d-v5: add .* Walker2d-v5=LOW,HIGH"):
        normalized(scores_by_task(two_tasks(tmp_path, 1))["base"], {"Hopper-v5": (0.0, 1.0)})
    for word in ("Hopper-v5", "Hopper-v5=1", "Hopper-v5=1,1", "=0,1", "Hopper-v5=0,nan"):
        with pytest.raises(ConfigError, match="such as Hopper-v5=20,3564"):
            read_scales([word])


def test_a_task_that_a_group_has_not_is_left_out_and_named(tmp_path):
    two_tasks(tmp_path, 1)
    make_run(tmp_path / "Ant-v5" / "a_0", seeds=1, env="Ant-v5")
    found = across_tasks(read_groups([f"base={tmp_path}/*/a_*", f"new={tmp_path}/*/b_*"]))
    assert (found["tasks"], found["left_out"]) == (["Hopper-v5", "Walker2d-v5"], ["Ant-v5"])
    assert "not every group has results on them: Ant-v5" in found["notes"][0]


def test_bold_cells_of_latex_need_seeds_and_names_are_escaped(tmp_path):
    jobs(tmp_path, "a", 2)
    tex = as_latex(read_groups([f"my_base={tmp_path}/a_*"]), 0.1, None)
    assert r"my\_base" in tex
    assert "mathbf" not in tex
    assert as_csv(read_groups([str(tmp_path / "a_0")]), 0.1, None).splitlines()[1].count(",,") > 3


def test_intervals_over_tasks_resample_the_seeds_of_each_task():
    from td3.statistics import improvement_over_tasks, iqm_of_tasks, mean_of_tasks, median_of_tasks

    tasks = [np.full(5, 1.0), np.full(5, 2.0), np.full(5, 9.0)]
    assert over_tasks(mean_of_tasks, tasks) == (4.0, 4.0, 4.0)
    assert over_tasks(median_of_tasks, tasks) == (2.0, 2.0, 2.0)
    assert over_tasks(iqm_of_tasks, tasks)[0] == pytest.approx((2 * 1 + 5 * 2 + 2 * 9) / 9)
    assert over_tasks(improvement_over_tasks, tasks, [np.full(5, 1.0), np.full(5, 3.0), np.full(5, 1.0)])[0] == 0.5
    random = np.random.default_rng(0)
    mean, low, high = over_tasks(mean_of_tasks, [random.normal(size=100) for _ in range(4)])
    assert low < mean < high
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.15)
