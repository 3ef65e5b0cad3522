import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from td3_lab.bench import EnvsBench, learners, loop, run, scaling
from td3_lab.bench.options import LoopBench

from td3.cli import main

SMALL = ["--threads", "1", "--seconds", "0.2", "--json"]
TINY = ["--width", "16", "--batch-size", "8"]


def figures_of(capsys, *words: str) -> dict:
    """What a command prints as JSON."""
    assert main(words) == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    return json.loads(output)


def refused(capsys, *words: str) -> str:
    """The one sentence that a command is refused with."""
    assert main(words) == 2
    output, sentence = capsys.readouterr()
    assert output == ""
    assert sentence.startswith("td3: ")
    assert sentence.count("\n") == 1
    return sentence[5:-1]


@pytest.fixture
def without(monkeypatch):
    """Pretend that packages are not installed."""

    def forget(*packages: str) -> None:
        known = learners.installed
        monkeypatch.setattr(learners, "installed", lambda package: package not in packages and known(package))

    return forget


def test_updates_beside_the_author_and_stable_baselines3(capsys, small, checkout):
    figures = figures_of(capsys, "bench", "update", "--author", str(checkout), "--batch-size", "8", *SMALL)
    assert figures["threads"] == 1
    assert figures["rounds"] >= 1
    for name in ("updates_per_s", "ceiling_updates_per_s", "share_of_ceiling", "ratio_to_author", "ratio_to_sb3"):
        assert figures[name] > 0
    spread = figures["ratio_to_sb3_spread"]
    assert spread["low"] <= spread["median"] <= spread["high"]
    assert figures["machine"]["torch"]


def test_baselines_that_did_not_run_are_not_mentioned(capsys, small, without):
    without("stable_baselines3")
    figures = figures_of(capsys, "bench", "update", *TINY, *SMALL)
    assert not [name for name in figures if "author" in name or "sb3" in name]


def test_the_faster_number_of_threads_leads(capsys, small, without, monkeypatch):
    without("stable_baselines3")
    monkeypatch.setattr("td3_lab.bench.machine.available_threads", lambda: 2)
    figures = figures_of(capsys, "bench", "update", *TINY, "--seconds", "0.2", "--json")
    assert [row["threads"] for row in figures["by_threads"]] == [1, 2]
    best = max(figures["by_threads"], key=lambda row: row["updates_per_s"])
    assert {name: figures[name] for name in best} == best


def test_updates_of_several_members_are_added_up(capsys, small, without):
    without("stable_baselines3")
    figures = figures_of(capsys, "bench", "update", "--members", "3", *TINY, *SMALL)
    assert figures["members"] == 3
    assert figures["mflop_per_update"] < 1


STEP = """
import td3


@td3.replace_step(11)
def absolute(q_values, target_q):
    return (q_values - target_q).abs().mean(-1).sum(0)


@td3.replace_step(11)
def broken(q_values, target_q):
    return q_values.no_such_thing()
"""


def test_changed_updates_beside_unchanged_ones(capsys, small, without, tmp_path):
    without("stable_baselines3")
    (tmp_path / "mine.py").write_text(STEP)
    step = ["--replace-steps", f"{tmp_path / 'mine.py'}:absolute"]
    for members, changed in (("1", [*step, "--variant", "layer-norm,n-step"]), ("2", ["--variant", "prioritized"])):
        figures = figures_of(capsys, "bench", "update", "--members", members, *changed, *TINY, *SMALL)
        for ratio in (figures["ratio_of_changed"], figures["ratio_of_changed_by_cpu_time"]):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert main(["bench", "update", *step, *TINY, *SMALL[:-1]]) == 0
    assert "changed / unchanged | " in capsys.readouterr().out


def test_changes_that_cannot_be_measured_are_refused(capsys, small, without, tmp_path):
    without("stable_baselines3")
    (tmp_path / "mine.py").write_text(STEP)
    broken = ["--replace-steps", f"{tmp_path / 'mine.py'}:broken"]
    for words, said in ((["--variant", "sac"], "variant must be names among"), (broken, "step 11, replaced by broken")):
        assert main(["bench", "update", *words, *TINY, *SMALL]) == 2
        assert said in capsys.readouterr().err


def test_updates_in_words(capsys, small):
    assert main(["bench", "update", *TINY, *SMALL[:-1]]) == 0
    output, errors = capsys.readouterr()
    assert " updates/s with 1 thread (recorded updates, batch 8, width 16, seeds 1, " in output
    assert "| threads |" in output
    assert "ratio to Stable-Baselines3" in output
    assert errors == "Measuring td3, matrix products, Stable-Baselines3 side by side for 0.2 s.\n"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_on_a_gpu_updates_are_graphs_still_when_they_were_compared_with_eager_ones(capsys, precision):
    words = ["--device", "cuda", "--members", "2", "--seconds", "2", "--precision", precision, "--json"]
    assert figures_of(capsys, "bench", "update", *words)["engine"] == "CUDA graphs"


def test_the_loop_is_measured_with_evaluations_too(capsys, small):
    words = ["bench", "loop", "Pendulum-v1", "--eval-every", "50", *SMALL]
    figures = figures_of(capsys, *words)
    assert (figures["eval_every"], figures["mean_steps_per_s"] > 0) == (50, True)
    assert main(words[:-1]) == 0
    assert capsys.readouterr().out.startswith("With an evaluation every 50 env steps, on average ")
    assert "--eval-every must be a whole number of at least 0" in refused(capsys, *words[:3], "--eval-every", "-1")


def test_the_loop_tells_its_parts_apart(capsys, small):
    figures = figures_of(capsys, "bench", "loop", "Pendulum-v1", *SMALL)
    assert figures["steps_per_s"] > 0
    assert set(figures["shares"]) == {"act", "env", "store", "update", "other"}
    assert all(share > 0 for share in figures["shares"].values())
    assert 0 < figures["share_around_updates"] < 1  # the sum itself is tested by hand below


def test_the_loop_in_words(capsys, small):
    assert main(["bench", "loop", "--env", "Pendulum-v1", *SMALL[:-1]]) == 0
    output = capsys.readouterr().out
    assert " env steps/s on Pendulum-v1" in output
    assert "actions, environments and storing together" in output


def test_a_stopwatch_by_hand(small):
    """Two rounds a window: 1/8 s act, 2/8 s environments, 4/8 s update, 1/8 s nobody's."""
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    watch = loop.Stopwatch(members=3, seconds=4.0, clock=lambda: now[0])
    act, env, update = (watch.timed(part, wait) for part in ("act", "env", "update"))

    stopped: list[str] = []

    def train() -> None:
        for env_steps in range(learners.WARM_UP_STEPS, 1_000):
            act(0.0625)
            env(0.125)
            update(0.25)
            wait(0.0625)
            watch.on_env_step(SimpleNamespace(env_steps=env_steps, stop=stopped.append))
            if stopped:
                return

    train()
    assert stopped == ["the time to measure is over"]
    assert len(watch.windows) == 4
    shares = {"act": 0.125, "env": 0.25, "store": 0.0, "update": 0.5, "other": 0.125}
    expected = {**shares, "around": 0.375, "steps_per_s": 6.0}
    assert watch.windows[0] == pytest.approx(expected)


def test_env_steps_beside_stable_baselines3_and_the_author(capsys, small, without, checkout):
    without("sbx")
    figures = figures_of(
        capsys, "bench", "peers", "Pendulum-v1", "--author", str(checkout), "--batch-size", "8", *SMALL
    )
    assert set(figures["steps_per_s"]) == {"td3", "sb3"}
    assert figures["author_updates_per_s"] > 0
    assert figures["ratio_to_sb3"] > 0
    assert figures["threads"] == {"td3": 1, "sb3": 1, "author": 1}
    assert figures["machine"]["stable-baselines3"]


@pytest.mark.long
def test_env_steps_beside_sbx(capsys, small):
    pytest.importorskip("jax", reason="comes with the extra bench")
    words = ["bench", "peers", "Pendulum-v1", *TINY, "--threads", "1", "--seconds", "2"]
    assert main(words) == 0
    assert "| sbx (JAX)" in capsys.readouterr().out


@pytest.fixture
def few_points(monkeypatch):
    points = {"batch": (4, 8), "width": (4, 8), "seeds": (1, 2), "buffer": (300, 600), "envs": (1, 2)}
    monkeypatch.setattr(scaling, "POINTS", points)


def test_scaling_is_written_drawn_and_printed(capsys, small, few_points, tmp_path):
    figures = figures_of(capsys, "bench", "scaling", "Pendulum-v1", "--out", str(tmp_path / "new"), *SMALL)
    assert {sweep: [row["value"] for row in rows] for sweep, rows in figures["sweeps"].items()} == {
        sweep: list(values) for sweep, values in scaling.POINTS.items()
    }
    for rows in figures["sweeps"].values():
        assert all(row["ms"] == pytest.approx(1_000 / row["per_s"]) for row in rows)
    assert figures["sweeps"]["buffer"][0]["megabytes"] == pytest.approx(300 * 168 / 1e6)
    assert json.loads((tmp_path / "new" / "scaling.json").read_text()) == figures
    assert "| seeds, one process |" in (tmp_path / "new" / "scaling.md").read_text()
    image = (tmp_path / "new" / "scaling.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) < 150_000


def test_one_sweep_can_be_chosen_and_needs_no_plot(capsys, small, few_points, without):
    without("matplotlib")
    figures = figures_of(capsys, "bench", "scaling", "--sweeps", "width", *SMALL)
    assert list(figures["sweeps"]) == ["width"]


def test_a_plot_without_matplotlib_is_refused(capsys, without, tmp_path):
    without("matplotlib")
    sentence = refused(capsys, "bench", "scaling", "--out", str(tmp_path / "new"))
    assert sentence == "drawing the plot needs the extra 'plots': install it with  pip install 'td3[plots]'"
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_is_refused(capsys):
    sentence = refused(capsys, "bench", "scaling", "--out", "/proc/new")
    assert sentence.startswith("/proc/new cannot be written (")


def test_peers_without_the_extra_are_refused(capsys, without):
    without("stable_baselines3")
    sentence = refused(capsys, "bench", "peers")
    assert (
        sentence == "comparing with other libraries needs the extra 'bench': install it with  pip install 'td3[bench]'"
    )


def test_collecting_in_every_way():
    figures, text = run(EnvsBench("Pendulum-v1", envs=2, step_ms=5, seconds=0.2))
    assert {*figures["env_steps_per_s"]} == {"one environment", "none", "threads", "processes"}
    assert figures["ratio_to_one"]["one environment"]["median"] == 1
    # Neither can be faster than its steps: 5 ms each, one or two at a time.
    assert figures["env_steps_per_s"]["none"]["high"] < 201
    assert figures["env_steps_per_s"]["threads"]["high"] < 401
    assert "`--workers auto` takes: " in text


def test_mujoco_tasks_are_also_collected_in_a_batch(capsys):
    words = ("bench", "envs", "Hopper-v5", "--envs", "2", "--seconds", "0.2")
    figures = figures_of(capsys, *words, "--json")
    assert {*figures["env_steps_per_s"]} == {"one environment", "none", "threads", "processes", "batch"}
    assert figures["chosen"] == "batch"


@pytest.mark.parametrize("bench", ["update", "peers"])
def test_a_checkout_that_is_none_is_refused(capsys, tmp_path, bench):
    assert "there is no directory" in refused(capsys, "bench", bench, "--author", str(tmp_path / "nowhere"))
    assert "is not a checkout" in refused(capsys, "bench", bench, "--author", str(tmp_path))


@pytest.mark.parametrize("bench", ["update", "loop", "peers", "scaling"])
def test_a_device_that_is_not_there_is_refused(capsys, monkeypatch, bench):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "PyTorch finds no GPU here" in refused(capsys, "bench", bench, "--device", "cuda")
    assert "--device must be one of cpu, cuda, but 'tpu' was given" in refused(
        capsys, "bench", bench, "--device", "tpu"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["update", "--width", "0"], "width must be a whole number of at least 1, but 0 was given."),
        (["update", "--seconds", "0"], "seconds must be a positive number, but 0.0 was given."),
        (["update", "--threads", "-1"], "threads must be a whole number from 0 to 10,000, but -1 was given."),
        (["update", "--batch-size", "x"], "--batch-size"),
        (["update", "--author", ".", "--width", "64"], "the author's networks are 256 wide, but width 64 was given"),
        (["update", "--widht", "64"], "`td3 bench update` has no option --widht: did you mean --width?"),
        (["loop", "NoSuch-v0"], "there is no environment 'NoSuch-v0'"),
        (["loop", "--envs", "0"], "envs must be a whole number of at least 1, but 0 was given."),
        (["scaling", "--sweeps", "depth"], "depth"),
        (["speed"], "say update, loop, peers, scaling, envs or collectors"),
        ([], "say update, loop, peers, scaling, envs or collectors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_refused(capsys, words, said):
    assert said in refused(capsys, "bench", *words)


@pytest.mark.parametrize("bench", ["update", "loop", "peers", "scaling", "envs"])
def test_the_help_of_each_benchmark_has_an_example(capsys, bench):
    assert main(["bench", bench, "--help"]) == 0
    assert f"\n  td3 bench {bench}" in capsys.readouterr().out


def test_the_overview_names_the_benchmarks(capsys):
    assert main(["bench", "--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"td3 bench {bench} " in output for bench in ("update", "loop", "peers", "scaling", "envs"))


def test_options_need_no_pytorch():
    code = "import sys, td3.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_defaults_are_half_cheetah():
    assert LoopBench().env == "HalfCheetah-v5"
