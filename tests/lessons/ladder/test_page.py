"""The page has what it must, asks nothing of anyone, and says what the figures say."""

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from td3_lessons.ladder import page, plots, report
from td3_lessons.ladder.climb import NUMBERS, RAIL, Result, diff_to_below, lesson, optimum
from td3_lessons.ladder.ideas import IDEAS, PARTS

SEEDS = 10


def made_up(number: int, seed: int, noise: float, idea: str = "") -> Result:
    """A run that was never run: TD3 is 0.5 off the truth, DDPG 3 above it, give or take the seed."""
    steps = np.arange(0, 1001, 200)
    spread = (seed - 4.5) / 10
    bias = {5: 3.0, 6: -0.5}.get(number, 0.0) + spread
    known = number != 3
    return Result(
        number,
        RAIL,
        seed,
        noise,
        1.5,
        steps,
        np.linspace(-50, -6 + spread, len(steps)),
        np.full(len(steps), bias) if known else None,
        np.full(len(steps), bias + 0.25) if known else None,
        np.full((61, 61), -10.0),
        idea,
    )


@pytest.fixture(scope="module")
def results():
    plain = [made_up(number, seed, noise) for number, _, seed, _, noise in page.jobs(0, SEEDS, None)]
    ideas = [made_up(job[0], job[2], 0.0, job[-1]) for job in page.idea_jobs(0, SEEDS, None)]
    return plain + ideas


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "ladder.html"
    page.write_page(results, out, "td3 ladder all --seeds 10")
    return out.read_text(encoding="utf-8")


def plain(written: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", written)).replace("\N{MINUS SIGN}", "-").replace("\N{NO-BREAK SPACE}", " ")


def test_every_rung_has_its_section_with_what_broke_the_idea_the_diff_and_two_drawings(written):
    for number in NUMBERS:
        section = written[written.index(f'<section id="rung-{number}">') :].split("</section>")[0]
        text = plain(section)
        told = lesson(number)
        for part in (told.title, told.broke[1:], told.idea[1:]):
            assert " ".join(part.split()) in text
        for line in told.formulas.splitlines():
            assert re.split(r" {4,}", line)[0] in text
        assert section.count("<svg") == 2
        if number > 1:
            diff = diff_to_below(number)
            assert f"{diff.changed} changed lines (+{diff.added}, -{diff.removed})" in text
            assert all(line in text for line in diff.lines if line[:1] in "+-")


def test_target_networks_and_the_three_ideas_have_sections_with_their_curves(written, results):
    target = written[written.index('<section id="target-networks">') :].split("</section>")[0]
    assert target.count("<svg") == 1
    assert "self.target" in plain(target)
    three = written[written.index('<section id="three-ideas">') :].split("</section>")[0]
    assert three.count("<svg") == 3
    for name in PARTS:
        assert IDEAS[name].title in plain(three)
        row = page.figures(results)["ideas"][name]["self_deception"]
        assert f"{row['mean']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})" in plain(three)
    order = [written.index(f'id="{name}"') for name in ("rung-2", "target-networks", "rung-3", "rung-6", "three-ideas")]
    assert order == sorted(order)


def test_why_double_dqn_does_not_suffice_is_on_the_page(written):
    section = plain(written[written.index('<section id="rung-6">') :].split("</section>")[0])
    assert "Why Double DQN does not suffice" in section


def test_returns_are_not_cut_off_at_the_bottom_of_a_chart(results):
    _, (axes,) = plots.figure(400, 300)
    plots.with_style(plots.draw_curves, axes, [[result] for result in results[:2]])
    low, high = axes.get_ylim()
    assert low < min(result.returns.min() for result in results[:2])
    assert high > optimum(), "no return is cut off at the top"


def test_one_seed_has_no_interval():
    alone = page.summary([-8.35])
    assert alone == {"mean": -8.35, "low": None, "high": None}
    assert "one seed, no interval" in page.with_interval(alone)
    assert report.as_text(alone) == "-8.35 (one seed, no interval)"


def test_cells_that_no_seed_has_learned_are_hatched_and_not_painted_as_the_best():
    learned = made_up(1, 0, 0.0)
    learned.values[:30] = np.nan
    drawing, pair = plots.figure(400, 200, 2)
    plots.draw_values(drawing, pair, [learned])
    image = pair[0].images[0].get_array()
    assert image.mask[:30].all()
    assert not image.mask[30:].any()
    assert pair[0].patch.get_hatch()


def test_the_overestimation_is_there_with_its_intervals(written, results):
    section = plain(written[written.index('<section id="overestimation">') :])
    for noise in ("0", "1"):
        for row in page.figures(results)["overestimation"][f"reward_noise_{noise}"].values():
            for name in ("DDPG", "TD3", "difference"):
                assert f"{row[name]['mean']:+.2f} ({row[name]['low']:+.2f} to {row[name]['high']:+.2f})" in section
    assert f"mean over {SEEDS} seeds" in section


def test_the_figures_are_means_over_seeds(results):
    figures = page.figures(results)
    assert figures["seeds"] == list(range(SEEDS))
    bias = figures["overestimation"]["reward_noise_1"]["overestimate"]
    assert bias["DDPG"]["mean"] == pytest.approx(3.0)
    assert bias["TD3"]["mean"] == pytest.approx(-0.5)
    assert bias["difference"] == pytest.approx({"mean": 3.5, "low": 3.5, "high": 3.5})
    assert bias["difference_of_sizes"]["mean"] == pytest.approx(2.5, abs=0.1)
    own = figures["overestimation"]["reward_noise_1"]["self_deception"]
    assert own["DDPG"]["mean"] == pytest.approx(3.25)
    assert figures["rungs"]["2"]["return"]["mean"] == pytest.approx(-6.0)
    assert figures["rungs"]["1"]["changed_lines"] is None
    assert figures["rungs"]["4"]["changed_lines"] == diff_to_below(4).changed


class Requests(HTMLParser):
    """Collects whatever a browser would fetch, and how tags nest."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self):
        super().__init__()
        self.fetched, self.open, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "data", "srcset", "action") and not value.startswith(
                ("#", "data:")
            ):
                self.fetched.append((tag, value))
            if name == "id":
                self.ids.append(value)
        if tag in ("script", "link", "iframe", "object", "embed", "base"):
            self.fetched.append((tag, ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_nothing_is_requested_and_the_tags_nest(written):
    parser = Requests()
    parser.feed(written)
    assert parser.fetched == []
    assert parser.open == []
    assert not re.search(r"url\(\s*['\"]?(?!#|['\"]?#)", written)
    assert "@import" not in written
    assert len(written) < 2_000_000


def test_it_reads_in_light_and_dark_and_on_a_telephone(written):
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in written
    assert "prefers-color-scheme: dark" in written
    assert "currentColor" in written
    assert plots.INK not in written
    assert plots.FAINT not in written
    assert written.count('role="img" aria-label="') == written.count("<svg")


def test_it_says_how_it_was_made(written):
    assert "<code>td3 ladder all --seeds 10</code>" in written
    assert "PyTorch" in written


def test_the_same_results_make_the_same_page(written, results, tmp_path):
    page.write_page(results, tmp_path / "again.html", "td3 ladder all --seeds 10")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == written


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_pictures_are_written(results, tmp_path, ending):
    plots.draw_ladder(results, tmp_path / f"ladder{ending}")
    plots.draw_rung(results[0], tmp_path / f"rung{ending}")
    begin = b"\x89PNG" if ending == ".png" else b"<?xml"
    assert all((tmp_path / f"{name}{ending}").read_bytes().startswith(begin) for name in ("ladder", "rung"))
