"""The page is one file that asks for nothing, is well formed, and says what the run wrote."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from report.made import make_run
from td3.errors import ConfigError, RunError
from td3.report import charts, paper
from td3.report.records import read_run
from td3.report.render import page, write_report
from td3.report.summary import describe_runs, figures, summarize
from td3.report.svg import Chart, Level, Line, bars, short, ticks

VOID = {"meta", "rect", "path", "circle", "br"}


class Wellformed(HTMLParser):
    """Fails on a tag that is not closed where it should be, and keeps text and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(text: str) -> tuple[str, list[str]]:
    parser = Wellformed()
    parser.feed(text)
    assert parser.open == []
    return " ".join(" ".join(parser.text).split()), parser.addresses


def one(tmp_path, name="run", **changes):
    return read_run(make_run(tmp_path / name, **changes))


def test_a_page_of_one_run_has_everything_and_asks_for_nothing(tmp_path):
    text = page([one(tmp_path)])
    words, addresses = read(text)
    for part in (
        *("Learning curves", "Returns at the end", "Critic loss", "Actor loss", "Predicted Q and observed return"),
        *("Actions of the actor", "Where the time went", "Env steps a second", "Configuration and versions"),
        *("IQM over seeds", "the paper\u2019s table: 9,637 ± 859.1", "mujoco 3.4.0", "The doctor finds nothing wrong."),
    ):
        assert part in words, part
    assert addresses == []
    assert not re.search(r"https?://|url\(|@import|<script", text)
    assert "nan" not in re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL)


def test_numbers_on_the_page_are_those_of_the_run(tmp_path):
    records = one(tmp_path, seeds=4)
    found = summarize(records)
    # The curve rises by 50 every 5,000 env steps to 1,000; in the last tenth are 950 and 1,000.
    np.testing.assert_allclose(records.final, [970, 990, 1_010, 1_030], atol=2)
    assert (found.final, found.final_at) == (pytest.approx(1_000, abs=1), 100_000)
    assert found.final_low < 1_000 < found.final_high
    np.testing.assert_allclose(found.last_tenth, [945, 965, 985, 1_005], atol=2)
    assert records.end_steps.tolist() == [95_000, 100_000]
    assert found.iqm == pytest.approx(975, abs=1)
    assert found.low < 975 < found.high
    assert (found.highest, found.highest_at) == (pytest.approx(1_000, abs=1), 100_000)
    assert found.highest_spread == pytest.approx(np.std([-30, -10, 10, 30]), abs=1)  # divided by n
    words, _ = read(page([records]))
    assert "return at the final evaluation, env step 100,000 (mean over 4 seeds)" in words
    assert "IQM over 4 seeds, last tenth of the env steps (2 evaluations)" in words
    assert f"{found.final:,.1f}" in words or f"{found.final:,.0f}" in words
    assert f"{found.iqm:,.1f}" in words


def test_an_ill_run_says_so_on_its_page(tmp_path):
    words, _ = read(page([one(tmp_path, actor_dead=0.9)]))
    assert "90 % of the actor's hidden units are dead" in words


def test_the_paper_is_held_against_its_own_tasks_only():
    assert paper.published("HalfCheetah-v5") == (9636.95, 859.065, 9532.99)
    assert paper.published("InvertedPendulum-v4") is not None
    assert paper.published("Humanoid-v5") is None
    assert paper.published("HalfCheetahBulletEnv-v0") is None
    assert paper.published("Hopper") is None


def test_a_physics_engine_that_is_not_the_papers_is_told_in_words(tmp_path):
    words, _ = read(page([one(tmp_path, mujoco="3.4.0")]))
    assert (
        "The paper used Gym's v1 tasks through mujoco-py, as they were in 2018; this run used HalfCheetah-v5" in words
    )
    assert "mujoco 3.4.0" in words
    assert "mujoco-py" not in read(page([one(tmp_path, "other", env="Pendulum-v1")]))[0]


def test_runs_of_different_engines_get_a_warning(tmp_path):
    runs = [one(tmp_path, name, mujoco=name) for name in ("3.10.0", "3.4.0")]
    said = "different mujoco versions (3.4.0, 3.10.0)"
    assert said in read(page(runs))[0]
    assert said in figures(runs)["warning"]
    assert figures(runs[:1])["warning"] is None


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 1)])
def test_two_seeds_have_no_band(tmp_path, seeds, bands):
    curve = charts.learning_curves([charts.NamedRun(one(tmp_path, "run", seeds=seeds), "run", "red")])
    assert str(curve.small).count('opacity=".22"') == bands


def test_several_runs_are_compared_with_the_first_of_their_task(tmp_path):
    runs = [
        one(tmp_path, "base", seeds=6, spread=5.0),
        one(tmp_path, "same", seeds=6, spread=5.0, final=1_010.0),
        one(tmp_path, "good", seeds=6, spread=5.0, final=2_000.0),
        one(tmp_path, "else", seeds=6, env="Hopper-v5"),
    ]
    found = figures(runs)
    assert [(c["run"].rpartition("/")[2], c["verdict"]) for c in found["comparisons"]] == [
        ("same", "equivalent"),
        ("good", "better"),
        ("good", "better"),  # than same
    ]
    assert found["comparisons"][1]["probability"] == 1
    assert found["comparisons"][0]["margin"] == pytest.approx(97.5, abs=0.5)
    words, _ = read(page(runs))
    assert "better than the reference" in words
    assert "Learning curves: Hopper-v5" in words
    assert any(
        ": equivalent; mean return differs by" in line and "2 shared evaluations, env steps 95,000 to 100,000" in line
        for line in describe_runs(found)
    )


def evaluated(folder, curve):
    """The same run, whose seeds were evaluated at these env steps with these mean returns, a little apart."""
    steps, means = np.array(list(curve)), np.array(list(curve.values()), float)
    for number, own in enumerate(sorted(folder.glob("seed_*"))):
        returns = (means + number)[:, None]
        np.savez(own / "evaluations.npz", timesteps=steps, results=returns, ep_lengths=np.full_like(returns, 9))
    return read_run(folder)


def test_runs_evaluated_at_different_env_steps_are_compared_at_shared_ones(tmp_path):
    # With evaluations every 5,000 and every 1,000 env steps, the last ten of both are means over different moments.
    sparse = {0: -1_200, 5_000: -1_200, 8_000: -392}
    dense = {step: -1_500 + step * 0.158 for step in range(0, 8_000, 1_000)} | {8_000: -234}
    made = [make_run(tmp_path / name, seeds=5, env="Pendulum-v1") for name in ("dense", "sparse")]
    runs = [evaluated(folder, curve) for folder, curve in zip(made, (dense, sparse), strict=True)]
    found = figures(runs)
    assert [run["final_mean"] for run in found["runs"]] == [-232, -390]
    (pair,) = found["comparisons"]
    assert pair["at"] == [8_000]
    assert pair["difference"] == pytest.approx(-158)
    assert pair["verdict"] == "worse"
    assert "worse than the reference; mean return differs by -158.0" in pair["said"]


def test_the_shorter_run_sets_the_end_of_a_comparison(tmp_path):
    short = evaluated(make_run(tmp_path / "short", seeds=5), {0: 0, 1_000: 10, 2_000: 20})
    longer = evaluated(make_run(tmp_path / "longer", seeds=5), {0: 0, 1_000: 10, 2_000: 21, 3_000: 900})
    (pair,) = figures([short, longer])["comparisons"]
    assert (pair["at"], pair["difference"]) == ([2_000], 1)
    assert f"{longer.path} continues to 3,000." in pair["said"]


def test_runs_without_a_shared_env_step_are_not_compared(tmp_path):
    runs = [
        evaluated(make_run(tmp_path / name, seeds=5), {0: 0, steps: 10}) for name, steps in (("a", 1_000), ("b", 999))
    ]
    (pair,) = figures(runs)["comparisons"]
    assert "verdict" not in pair
    assert pair["said"] == "not compared: they have no evaluation at the same env step after training began."
    assert "not compared: they have no evaluation" in read(page(runs))[0]


@pytest.mark.parametrize(("seeds", "said"), [(1, "1 seed is too few"), (3, "3 seeds are too few"), (4, "4 seeds are")])
def test_few_seeds_get_numbers_and_no_verdict(tmp_path, seeds, said):
    runs = [one(tmp_path, "a", seeds=seeds), one(tmp_path, "b", seeds=seeds, final=9_000.0)]
    (pair,) = figures(runs)["comparisons"]
    assert pair["verdict"] == "too_few_seeds"
    assert pair["said"].startswith("mean return differs by +7,8")
    assert said in pair["said"]
    words, _ = read(page(runs))
    assert said in words
    assert "better than the reference" not in words


def test_a_single_seed_has_no_interval(tmp_path):
    (run,) = figures([one(tmp_path, seeds=1)])["runs"]
    assert run["final_interval"] is None
    assert run["iqm_interval"] is None
    assert "nan" not in read(page([one(tmp_path, "other", seeds=1)]))[0]


def test_runs_of_one_name_are_told_apart_by_their_folder(tmp_path):
    words, _ = read(page([one(tmp_path, "a/run"), one(tmp_path, "b/run")]))
    assert "a/run" in words
    assert "b/run" in words


def test_names_are_escaped(tmp_path):
    text = page([one(tmp_path, "<b>&", seeds=1), one(tmp_path, "two", seeds=1)])
    assert "&lt;b&gt;&amp;" in text
    read(text)


def test_text_from_files_is_escaped_everywhere(tmp_path):
    hostile = "<script>alert('&\"')</script>"
    folder = make_run(tmp_path / "run", env=f"{hostile}-v5", frozen=(1,))
    status = json.loads((folder / "status.json").read_text())
    status["status"] = hostile
    for facts in status["frozen"].values():
        facts["reason"] = hostile
    (folder / "status.json").write_text(json.dumps(status))
    versions = json.loads((folder / "versions.json").read_text())
    (folder / "versions.json").write_text(json.dumps(versions | {hostile: hostile}))
    for runs in ([read_run(folder)], [read_run(folder), one(tmp_path, "other")]):
        text = page(runs)
        assert "<script" not in text
        assert hostile in read(text)[0]


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("gone", ["diagnostics.csv", "metrics.csv"])
def test_what_a_run_did_not_write_is_left_out(tmp_path, seeds, gone):
    folder = make_run(tmp_path / "run", seeds=seeds, evaluations=2, status=None)
    for path in [*folder.glob(f"seed_*/{gone}"), folder / "times.csv"]:
        path.unlink()
    words, _ = read(page([read_run(folder)]))
    assert "running" in words
    assert "Where the time went" not in words


def test_a_run_that_has_only_begun_has_a_page(tmp_path):
    read(page([one(tmp_path, evaluations=1, seeds=1, status=None)]))


def test_the_page_of_a_run_that_trains_renews_itself(tmp_path):
    assert 'http-equiv="refresh"' in page([one(tmp_path, "going", status=None)])
    assert 'http-equiv="refresh"' in page([one(tmp_path, "running", status="running")])
    assert 'http-equiv="refresh"' not in page([one(tmp_path, "over")])


def test_a_row_that_is_being_written_is_not_read(tmp_path):
    folder = make_run(tmp_path / "run")
    path = folder / "seed_0" / "metrics.csv"
    path.write_text(path.read_text() + "100000,5")
    records = read_run(folder)
    assert records.seeds[0].metrics["updates"][-1] == 99_000
    read(page([records]))


def test_a_film_is_inside_the_page(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "video.mp4").write_bytes(b"film")
    _, addresses = read(page([read_run(folder)]))
    assert addresses == ["data:video/mp4;base64,ZmlsbQ=="]


def test_a_film_from_outside_the_run_is_not_put_into_the_page(tmp_path):
    folder = make_run(tmp_path / "run")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "video.mp4").symlink_to(tmp_path / "secret")
    with pytest.raises(RunError, match=r"video\.mp4"):
        read_run(folder)


def test_a_report_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    records = one(tmp_path)
    for _ in range(2):
        write_report([records], tmp_path / "deep" / "report.html")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("out", "margin", "said"), [("x.txt", 0.1, "written as .html"), ("x.html", 0.0, "margin must")]
)
def test_what_cannot_be_is_refused(tmp_path, out, margin, said):
    with pytest.raises(ConfigError, match=said):
        write_report([one(tmp_path)], tmp_path / out, margin)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        write_report([one(tmp_path)], tmp_path / "run" / "config.json" / "report.html")


def test_ticks_are_round_and_within():
    assert ticks(0.0, 10.0) == [0, 2.5, 5, 7.5, 10]
    assert ticks(-1234.0, 1234.0, 3) == [-1000, 0, 1000]
    assert ticks(3.0, 3.0) == [3]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (1.5, "1.5"),
        (-250.0, "\u2212250"),
        (5000.0, "5,000"),
        (25_000.0, "25k"),
        (2e6, "2M"),
        (1e-5, "1e\u22125"),
    ],
)
def test_numbers_on_axes_are_short(value, words):
    assert short(value) == words
    assert short(2_500.0, 10_000.0) == "2.5k"


def test_a_line_is_drawn_where_its_numbers_are():
    x, y = np.array([0.0, 10.0]), np.array([0.0, 100.0])
    text = Chart("c", lines=[Line(x, y, "red", low=y - 1, high=y + 1)], levels=[Level(50.0, "blue", 5.0)]).svg()
    (path,) = re.findall(r'<path class="line" d="(M[^"]+)" style="stroke:red"', text)
    (x0, y0), (x1, y1) = (map(float, point.split()) for point in path[1:].split("L"))
    assert x0 == 56
    assert x1 == 386
    assert y1 < y0


def test_gaps_and_constants_can_be_drawn():
    steps = np.arange(5.0)
    for y in (np.full(5, np.nan), np.zeros(5), np.array([np.nan, 1, np.inf, 2, 3]), np.array([1e-300, 1, 2, 3, 4])):
        for log in (False, True):
            text = Chart("c", lines=[Line(steps, y, "red")], log=log).svg()
            assert "nan" not in text
            assert "inf" not in text


def test_bars_are_shares_of_their_own_sum():
    text = bars([(np.array([1.0, 3.0]), "red"), (np.zeros(0), "blue")], "b", "x", ("low", "high"))
    assert "red" in text
    assert "blue" not in text
