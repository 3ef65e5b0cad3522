"""Runs read back: seeds that are frozen are named and not counted, and runs shown together keep their own times."""

import json

import numpy as np
import pytest

from report.made import make_run
from td3.cli import main
from td3.errors import RunError
from td3.report.doctor import examine_run
from td3.report.records import combine, read_run
from td3.report.render import page
from td3.report.summary import describe_runs, figures
from td3.run.directory import Run
from td3.sweep import SweepRun, _gather, _outcome

REASON = "the loss of its critics was NaN"


def freeze(folder, *seeds, at=40_000):
    """As a run that froze these seeds: nothing of them is written any more."""
    status = json.loads((folder / "status.json").read_text())
    status["frozen"] = {str(seed): {"env_steps": at, "reason": REASON} for seed in seeds}
    (folder / "status.json").write_text(json.dumps(status))
    for seed in seeds:
        own = folder / f"seed_{seed}"
        with np.load(own / "evaluations.npz") as found:
            kept = {name: array[found["timesteps"] <= at] for name, array in found.items()}
        np.savez(own / "evaluations.npz", **kept)
        for name in ("metrics.csv", "diagnostics.csv"):
            header, *rows = (own / name).read_text().splitlines(keepends=True)
            (own / name).write_text("".join([header, *(row for row in rows if int(row.partition(",")[0]) <= at)]))
    return folder


def test_a_frozen_seed_is_named_and_not_counted(tmp_path):
    records = read_run(freeze(make_run(tmp_path / "run", seeds=3), 1))
    assert [seed.seed for seed in records.whole_seeds] == [0, 2]
    steps, returns = records.curves
    assert (len(steps), steps[-1], returns.shape) == (21, 100_000, (2, 21))
    assert records.notes == [f"Seed 1 has been frozen since env step 40,000 and is not counted: {REASON}."]
    found = figures([records])
    assert found["runs"][0]["frozen"] == {"1": {"env_steps": 40_000, "reason": REASON}}
    assert [*found["runs"][0]["final"]] == ["0", "2"]
    assert any("Seed 1 has been frozen since env step 40,000" in line for line in describe_runs(found))
    text = page([records])
    assert f"Seed 1 has been frozen since env step 40,000 and is not counted: {REASON}." in text
    assert "seed 1 (frozen at 40,000)" in text
    assert "stroke-dasharray" in text


def test_means_over_seeds_go_on_after_one_is_frozen(tmp_path):
    whole, frozen = (
        page([read_run(folder)])
        for folder in (make_run(tmp_path / "whole", seeds=3), freeze(make_run(tmp_path / "frozen", seeds=3), 0))
    )
    # The mean of the remaining seeds is drawn to the end of the run, not to where the frozen one ended.
    for text in (whole, frozen):
        section = text[text.index("<h3>Critic loss") :].partition("</figure>")[0]
        assert "L386.0 " in section[section.index('stroke-width="2"') - 2_000 :]


def test_frozen_seeds_are_left_out_of_verdicts(tmp_path):
    reference = read_run(make_run(tmp_path / "reference", seeds=6, spread=5.0))
    good = make_run(tmp_path / "good", seeds=6, spread=5.0, final=2_000.0)
    (pair,) = figures([reference, read_run(freeze(good, 5))])["comparisons"]
    assert (pair["verdict"], pair["seeds"]) == ("better", (5, 6))
    (pair,) = figures([reference, read_run(freeze(good, 4, 5))])["comparisons"]
    assert pair["verdict"] == "too_few_seeds"
    assert "4 and 6 seeds are too few for a verdict" in pair["said"]


def test_a_run_whose_seeds_are_all_frozen_has_no_verdict(tmp_path):
    reference = read_run(make_run(tmp_path / "reference", seeds=5))
    frozen = read_run(freeze(make_run(tmp_path / "frozen", seeds=5), *range(5)))
    assert frozen.notes[-1].startswith("Every seed is frozen")
    runs = [reference, frozen]
    (pair,) = figures(runs)["comparisons"]
    assert pair["said"] == f"not compared: every seed of {frozen.path} is frozen."
    assert "Every seed is frozen" in page(runs)
    assert "Every seed is frozen" in page([frozen])


def test_seeds_of_different_lengths_are_never_averaged_in_silence(tmp_path):
    folder = make_run(tmp_path / "run", seeds=3)
    own = folder / "seed_2" / "evaluations.npz"
    with np.load(own) as found:
        kept = {name: np.delete(array, [3, 20], 0) for name, array in found.items()}
    np.savez(own, **kept)
    records = read_run(folder)
    steps, returns = records.curves
    assert steps.tolist() == [step for step in range(0, 95_001, 5_000) if step != 15_000]
    assert returns.shape == (3, 19)
    np.testing.assert_array_equal(returns[0], np.delete(records.seeds[0].curve, [3, 20]))
    assert records.notes == [
        "The seeds' evaluations end at different env steps (95,000, 100,000): figures over seeds use those that all "
        "have, up to 95,000."
    ]


def test_a_frozen_seed_is_a_finding_of_the_doctor(tmp_path):
    finding, *_ = examine_run(read_run(freeze(make_run(tmp_path / "run", seeds=3), 1)))
    assert (finding.name, finding.seeds) == ("frozen_seed", [1])


def members(tmp_path, count, **changes):
    folders = [make_run(tmp_path / f"seed_{n}", seeds=1, seed=n, **changes) for n in range(count)]
    return [read_run(folder) for folder in folders]


def test_runs_shown_together_keep_their_own_times(tmp_path):
    alone = members(tmp_path, 4)
    together = combine(tmp_path, alone)
    assert [seed.seed for seed in together.seeds] == [0, 1, 2, 3]
    assert together.config.seeds == 4
    one = alone[0]
    speed = one.trained_steps / sum(one.seconds.values())
    assert together.trained_steps / sum(together.seconds.values()) == pytest.approx(speed)
    assert sum(together.seconds.values()) == pytest.approx(4 * sum(one.seconds.values()))
    text = page([together])
    assert f"<b>{speed:,.0f}</b><span>env steps a second, each run by itself</span>" in text
    assert "of training, 4 runs added up" in text
    assert "Each of 4 runs by itself" in text


@pytest.mark.parametrize(("slow", "found"), [(1.0, []), (10.0, ["slow_updates"])])
def test_the_doctor_is_as_strict_with_runs_shown_together_as_with_each(tmp_path, slow, found):
    # Updates that take as long as the benchmark says, or ten times as long; the limit is six times.
    alone = members(tmp_path, 5, slow=slow)
    assert [finding.name for finding in examine_run(alone[0])] == found
    assert [finding.name for finding in examine_run(combine(tmp_path, alone))] == found


def test_runs_shown_together_say_where_their_versions_differ(tmp_path):
    first = read_run(make_run(tmp_path / "seed_0", seeds=1, mujoco="3.4.0"))
    second = read_run(make_run(tmp_path / "seed_1", seeds=1, seed=1, mujoco="3.10.0"))
    together = combine(tmp_path, [first, second])
    assert together.versions["mujoco"] == "3.4.0 or 3.10.0"
    assert "different mujoco versions (3.4.0, 3.10.0)" in figures([together])["warning"]


def test_the_table_of_a_sweep_counts_the_runs_that_can_be_read(tmp_path):
    runs = []
    for seed in range(3):
        folder = make_run(tmp_path / "Rail-v0" / f"seed_{seed}", seeds=1, seed=seed, env="Rail-v0")
        runs.append(SweepRun("Rail-v0", "", Run(folder).config))
    (tmp_path / "Rail-v0" / "seed_1" / "times.csv").write_text("env_steps,env\n1,x\n")
    outcomes = [_outcome(run, "") for run in runs]
    assert [bool(outcome.reason) for outcome in outcomes] == [False, True, False]
    assert "row 2, column env: 'x' is not a number" in outcomes[1].reason
    (row,) = _gather(outcomes, tmp_path)
    assert (row["seeds"], row["unfinished"]) == (2, 1)
    assert row["iqm"] == pytest.approx(975, abs=2)
    (row,) = _gather(outcomes[:1], tmp_path / "Rail-v0")
    assert (row["seeds"], row["low"], row["high"]) == (1, None, None)
    assert "2 runs added up" in (tmp_path / "report.html").read_text()


def remove_evaluations(folder, *seeds):
    """As a run without an `eval_env`, or one that ended before its first evaluation."""
    for seed in seeds:
        own = folder / f"seed_{seed}"
        (own / "evaluations.npz").unlink()
        (own / "evaluations.csv").write_text("env_steps,mean_return,std_return,mean_length,success_rate\n")


def test_a_sweep_goes_on_after_a_run_without_evaluations(tmp_path):
    runs = []
    for seed in range(2):
        folder = make_run(tmp_path / "Rail-v0" / f"seed_{seed}", seeds=1, seed=seed, env="Rail-v0")
        runs.append(SweepRun("Rail-v0", "", Run(folder).config))
    remove_evaluations(tmp_path / "Rail-v0" / "seed_1", 1)
    assert np.isnan(read_run(tmp_path / "Rail-v0" / "seed_1").last_tenth).tolist() == [True]
    outcomes = [_outcome(run, "") for run in runs]
    assert outcomes[0].reason == ""
    assert np.isnan(outcomes[1].mean_return)
    assert f"{tmp_path / 'Rail-v0' / 'seed_1'} has no evaluations, so it has no result" in outcomes[1].reason
    assert _outcome(runs[1], "its process ended").reason == "its process ended"
    (tmp_path / "Rail-v0" / "seed_1" / "status.json").unlink()
    assert _outcome(runs[1], "")[1:3] == ("not begun", "")  # no result yet
    (row,) = _gather(outcomes, tmp_path)
    assert (row["seeds"], row["unfinished"]) == (1, 1)


def test_a_run_without_evaluations_is_reported_and_examined_by_its_training(tmp_path, capsys):
    folder = make_run(tmp_path / "run", seeds=2, actor_dead=0.9)
    remove_evaluations(folder, 0, 1)
    records = read_run(folder)
    assert [finding.name for finding in examine_run(records)] == ["dead_actor_units"]
    assert main(["report", str(folder)]) == 0
    assert "100,000 env steps, finished. No evaluations." in capsys.readouterr().out
    html = (folder / "report.html").read_text()
    assert "This run evaluated nothing" in html
    assert "Return while training" in html
    assert "Returns at the end" not in html
    assert main(["report", str(folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["runs"]
    assert (row["final"], row["final_mean"], row["iqm"]) == ({}, None, None)
    other = read_run(make_run(tmp_path / "other"))
    assert "no evaluation at the same env step" in figures([records, other])["comparisons"][0]["said"]
    assert "Returns at the end" in page([records, other])
    with pytest.raises(RunError, match=r"has no evaluations: its returns of training are in .*metrics\.csv"):
        Run(folder).learning_curve()


def test_a_command_on_a_run_of_an_object_from_python_says_what_can_be_done(tmp_path, capsys):
    folder = make_run(tmp_path / "run", env="given:SyncVectorEnv")
    assert main(["evaluate", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "no command can make it again" in said
    assert "--trust" not in said
