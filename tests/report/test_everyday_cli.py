"""The commands as they are typed: words, JSON, exit codes, sentences."""

import json
import re

import pytest
from scripted import SMALL_OPTIONS

from report.made import make_run
from td3.callbacks import Callback
from td3.cli import main


def typed(capsys, *words) -> tuple[int, str, str]:
    code = main([*map(str, words)])
    output, errors = capsys.readouterr()
    return code, output, errors


def test_a_report_is_written_into_the_run_and_said_in_words(capsys, tmp_path):
    folder = make_run(tmp_path / "run", seeds=3)
    code, output, errors = typed(capsys, "report", folder)
    assert (code, errors) == (0, "")
    assert (folder / "report.html").exists()
    assert "Final evaluation, at env step 100,000: mean return 999.7 over 3 seeds (95 % interval " in output
    assert "last tenth of the env steps (2 evaluations): IQM over 3 seeds 974." in output
    assert output.splitlines()[-1] == f"The report is {folder / 'report.html'}"


def test_reports_figures_are_one_object(capsys, tmp_path):
    runs = [make_run(tmp_path / name, seeds=5, final=final) for name, final in (("a", 1_000.0), ("b", 3_000.0))]
    code, output, _ = typed(capsys, "report", *runs, "--json", "--out", tmp_path / "both.html")
    figures = json.loads(output)
    assert code == 0
    assert figures["report"] == str(tmp_path / "both.html")
    assert [run["env"] for run in figures["runs"]] == ["HalfCheetah-v5"] * 2
    assert figures["runs"][0]["iqm"] == pytest.approx(975, abs=2)
    assert figures["runs"][0]["paper"]["highest"] == 9636.95
    assert figures["comparisons"][0]["verdict"] == "better"
    assert figures["runs"][0]["findings"] == []


def test_several_runs_go_to_a_page_where_one_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    code, output, _ = typed(capsys, "report", "a", "b")
    assert (code, output.splitlines()[-1]) == (0, "The report is report.html")
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "needs a run directory"),
        (["report", "nowhere"], "nowhere is not a run"),
        (["report", "RUN", "--out", "x.pdf"], "a report is written as .html"),
        (["report", "RUN", "--margin", "2"], "--margin must be within"),
        (["doctor", "nowhere"], "nowhere is not a run"),
        (["doctor"], "RUN"),
    ],
)
def test_a_mistake_gets_one_sentence_and_exit_code_2(capsys, tmp_path, words, said):
    folder = make_run(tmp_path / "run")
    code, output, errors = typed(capsys, *(str(folder) if word == "RUN" else word for word in words))
    assert (code, output) == (2, "")
    assert errors.startswith("td3: ")
    assert errors.count("\n") == 1
    assert said in errors


def test_the_doctor_finds_nothing_and_exits_with_0(capsys, tmp_path):
    folder = make_run(tmp_path / "run")
    code, output, _ = typed(capsys, "doctor", folder)
    assert code == 0
    assert output == f"{folder}: nothing wrong (22 things looked at, 100,000 env steps).\n"
    young = make_run(tmp_path / "young", evaluations=2, every=1_000, status=None)
    said = (
        "nothing wrong so far; networks are judged from 2,000 updates on, overestimation from 4,000 (22 things looked "
        "at, 1,000 env steps)."
    )
    assert typed(capsys, "doctor", young)[1] == f"{young}: {said}\n"
    code, output, _ = typed(capsys, "doctor", folder, "--json")
    assert (code, json.loads(output)) == (0, {"run": str(folder), "findings": [], "remarks": [], "notes": []})


def test_what_a_plot_shows_is_remarked_on_without_being_called_wrong(capsys, tmp_path):
    # As seen on Pendulum: the critics predict -55 where -85 is observed, and 55 % of the outputs are saturated.
    folder = make_run(tmp_path / "run", q_start=-55.0, return_start=-85.0, reward_scale=7.0, saturation=0.55)
    code, output, _ = typed(capsys, "doctor", folder)
    assert code == 0
    assert "nothing wrong (22 things looked at" in output
    assert "Remark, q_not_converged: Predicted Q and observed return differ by 35 % of the return" in output
    assert "Remark, many_saturated_outputs: 55 % of the actor's outputs are saturated" in output
    assert [remark["name"] for remark in json.loads(typed(capsys, "doctor", folder, "--json")[1])["remarks"]] == [
        "q_not_converged",
        "many_saturated_outputs",
    ]
    typed(capsys, "report", folder)
    assert "differ by 35 % of the return" in (folder / "report.html").read_text()


def test_the_doctor_finds_something_and_exits_with_1(capsys, tmp_path):
    folder = make_run(tmp_path / "run", actor_dead=0.9)
    code, output, _ = typed(capsys, "doctor", folder)
    assert code == 1
    assert output.splitlines()[0].startswith("dead_actor_units: 90 % of the actor's hidden units are dead (limit 80 %)")
    assert output.splitlines()[1].startswith("  Try: Lower --td3.actor-learning-rate")
    code, output, _ = typed(capsys, "doctor", folder, "--json")
    (finding,) = json.loads(output)["findings"]
    assert (code, finding["number"], finding["threshold"], finding["seeds"]) == (1, 0.9, 0.8, [0, 1])


def test_a_film_and_its_gif_from_the_command_line(capsys, tmp_path):
    out = tmp_path / "run"
    train = ["train", "Rail-v0", "--steps", "40", "--seeds", "2", "--eval-every", "20", "--json", *SMALL_OPTIONS]
    assert typed(capsys, *train, "--out", out)[0] == 0
    code, output, errors = typed(capsys, "watch", out, "--max-steps", "4", "--gif", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(output)["video"] == str(out / "video.mp4")
    assert (out / "video.gif").read_bytes()[:3] == b"GIF"
    code, output, _ = typed(capsys, "watch", out, "--max-steps", "4")
    assert re.search(r"4 frames, return \S+ \(best agent of seed \d, env step \d+( \(untrained\))?\)$", output.strip())
    code, output, _ = typed(capsys, "watch", out, "--grid", "--max-steps", "4")
    assert output.startswith(f"{out / 'grid.mp4'}: 4 frames, return ")
    assert typed(capsys, "watch", out, "--grid", "--learning")[0] == 2


def test_tracking_hands_the_project_on(capsys, tmp_path, monkeypatch):
    begun = []

    class Tracker(Callback):
        def __init__(self, project):
            begun.append(project)

        def on_evaluation(self, trainer, evaluation):
            begun.append(evaluation.env_steps)

        def on_training_end(self, trainer):
            begun.append(trainer.status)

    monkeypatch.setattr("td3.callbacks.tracking.WeightsAndBiases", Tracker)
    words = ["train", "--track", "Scripted-v0", "--steps", "30", "--wandb-project", "mine", "--json", *SMALL_OPTIONS]
    assert typed(capsys, *words, "--out", tmp_path / "run")[0] == 0
    assert begun == ["mine", 0, 30, "finished"]


def test_a_hint_stands_on_a_line_of_its_own(capsys, tmp_path):
    words = ["train", "Scripted-v0", "--steps", "30", "--td3.exploration-noise", "0", *SMALL_OPTIONS]
    code, output, _ = typed(capsys, *words, "--out", tmp_path / "run")
    hints = [line for line in output.splitlines() if line.startswith("Hint: ")]
    assert code == 0
    assert hints == [
        "Hint: There is hardly any exploration: exploration_noise is 0 of half the action range (limit 0.02). "
        "Set --td3.exploration-noise to 0.1, the paper's value."
    ]
