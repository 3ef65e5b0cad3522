"""Every sentence with a number or a comparison is a claim; every claim follows from the recorded data."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from td3.errors import RunError
from td3.statistics import FEWEST_SEEDS
from td3_lessons.explain import breaks, claims_measured, evidence, export, lessons, story, toy
from td3_lessons.explain.claims import CLAIMS, NAMED, told
from td3_lessons.explain.page import read
from td3_lessons.explain.trace import lesson_trace

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"(?<![\w.'])\d[\d,.]*\d|(?<![\w.'])[2-9](?![\w'])")
COMPARED = re.compile(
    r"\b(better|worse|best|worst|mostly|more|less|fewer|higher|(?:smaller|larger|lower) than|closer|closest|nearer|"
    r"farther|faster|slower|twice|usually|often|rarely|exceeds?|hurts?|overestimates?|underestimates?|diverges?|most|"
    r"too (?:much|high|low)|half|percent|wins?|loses?|beats?)\b",
    re.IGNORECASE,
)
NAMES = re.compile(
    r"\b(?:steps?|rungs?|rows?|screens?|critics?|update|seeds?|MSE|lists?) \d+(?:(?:,| to| and|,? or) \d+)*"
    r"|at (?:most|least)|best possible|half(?=[ _]*(?:range|·))|Deep Reinforcement Learning 2\.0|\(B, 1\)|N\(0, 1\)"
    r"|\[2, B\]|\[Fujimoto et al\., 2018\]|https?://\S+|\(2018\)|#\S+|`[^`]*`|\b(?:0|1)\b",
    re.IGNORECASE,
)


def sentences(text):
    return re.split(r"(?<=[.!?])\s+(?=[A-Z“(*{])", " ".join(text.split()))


def unclaimed(text):
    """Sentences with a number or a comparison that no claim carries."""
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text))
    found = []
    for sentence in sentences(plain):
        if sentence.endswith("?"):  # a question claims nothing
            continue
        rest = NAMES.sub("", NAMED.sub("", sentence))
        if NUMBER.search(rest) or COMPARED.search(rest):
            found.append(sentence)
    return found


def texts():
    """Every text of page, docs and notebook that stands beside code and recorded numbers."""
    for number, lesson in lessons.LESSONS.items():
        for part in (lesson.misreading, lesson.drawing, lesson.measured):
            yield f"step {number}", part
    yield from (("acting", part) for part in lessons.ACTING)
    yield from ((each.question, each.answer) for each in story.QUESTIONS)
    yield from (("film", shot.caption) for shot in lessons.FILM)
    yield from ((name, race.expect) for name, race in breaks.RACES.items())
    for screen in story.SCREENS:
        yield screen.title, f"{screen.text} {screen.question}"
        yield screen.title, screen.because
    yield from story.PARTS.items()
    yield from story.EVIDENCE
    yield from story.LADDER.items()
    yield "promise", story.PROMISE
    yield from (("docs", text) for text in (story.INTRODUCTION, story.HOW_TO_READ, story.FILMED, story.IN_README))
    body = re.sub(r"<(script|style|head).*?</\1>", "", read("page.html"), flags=re.DOTALL)
    for paragraph in re.findall(r"<(?:p|li|h2|h3)\b[^>]*>(.*?)</(?:p|li|h2|h3)>", body, re.DOTALL):
        yield "page.html", re.sub(r"%%\w+%%", "", paragraph)
    notebook = (ROOT / "notebooks/td3_in_15_steps.py").read_text(encoding="utf-8")
    for cell in re.findall(r"# %% \[markdown\]\n((?:#.*\n?)+)", notebook):
        yield "notebook", re.sub(r"^# ?", "", re.sub(r"^# #.*\n", "", cell, flags=re.MULTILINE), flags=re.MULTILINE)


ALLOWED = {
    # Of a definition that stands in the same sentence, or of what is on the page itself.
    "each push is one step of 0.1 s": "the time step of the drawing's own cart",
    "Three actions are all worth 0": "an example worked with its three numbers",
    "95 % intervals": "how the bands are drawn",
}


def test_every_sentence_with_a_number_or_a_comparison_is_a_claim():
    found = [(place, sentence) for place, text in texts() for sentence in unclaimed(text)]
    found = [(place, sentence) for place, sentence in found if not any(part in sentence for part in ALLOWED)]
    assert found == []


WITHOUT_DATA = {
    "they never disagree: one critic twice": "of a switch that makes the copy",
    "The cart fell off": "the task's own numbers, which {{task.reward}} checks",
    "Time limit: 100 steps": "the same",
    "A cart on a line from -2 to 2": "the drawing's own range",
    "ten recorded seeds, mean and 95 % interval": "how the drawing is made",
    "What TD3 predicts and what it earns in its first 1,500 updates": "the drawing's own range",
    "For DDPG and TD3: what critic 1 predicts": "how the drawing is made",
    "move 2": "the second of two moves",
}


@pytest.mark.parametrize("file", ["app.js", "draw.js", "map.js", "extras.js", "story.js"])
def test_what_the_script_says_with_a_number_is_computed(file):
    script = re.sub(r"^\s*//.*$", "", read(file), flags=re.MULTILINE)
    said = [text for text in re.findall(r'"([^"\n`]+)"', script) if len(re.findall("[A-Za-z]{2,}", text)) >= 5]
    found = [text for text in said if NUMBER.search(NAMES.sub("", text)) or COMPARED.search(NAMES.sub("", text))]
    found = [text for text in found if not re.search("[<>{}=]|lost", text)]
    assert [text for text in found if not any(part in text for part in WITHOUT_DATA)] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "TD3 is closer to the truth.",
        "Two remove most of the overestimation.",
        "DDPG ends 8.3 above.",
        "This does better here.",
        "The lag is 278 updates.",
    ],
)
def test_a_sentence_without_its_claim_is_found(sentence):
    assert unclaimed(f"Words. {sentence} More words.".replace("More words", "Words")) == [sentence]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_follows_from_the_recorded_data_and_rests_on_at_least_five_seeds(name):
    said = CLAIMS[name].said()
    assert not re.search(r"[{}]|nan|inf\b", said)
    assert CLAIMS[name].seeds is None or CLAIMS[name].seeds >= FEWEST_SEEDS


def test_what_the_texts_claim_exists_and_every_claim_is_made_somewhere():
    named = {name for _, text in texts() for name in NAMED.findall(text)}
    named |= {f"race.{name}" for name in breaks.RACES}  # each under its chart
    assert named == set(CLAIMS)


def test_the_page_carries_the_name_of_every_claim_it_makes(tab):
    marked = tab.page.content()
    for name in re.findall(r'data-claim="([^"]+)"', marked):
        assert name in CLAIMS
    assert tab.page.locator('#opening [data-claim="rail.belief"]').inner_text() == CLAIMS["rail.belief"].said()


def test_a_claim_is_refused_when_the_data_say_otherwise(monkeypatch):
    runs = evidence.races()
    monkeypatch.setattr(evidence, "races", lambda: runs | {"ddpg": runs["td3"]})
    for name in ("rail.belief", "rail.impossible"):
        with pytest.raises(RunError, match="contradict"):
            CLAIMS[name].said()
    same = runs["td3"] | {"return": runs["td3"]["return"] * 0 - 5.0}
    monkeypatch.setattr(evidence, "races", lambda: runs | {"td3": same})
    for name in ("rail.returns", "rail.failures"):
        with pytest.raises(RunError, match="contradict"):
            CLAIMS[name].said()
    trace = lesson_trace()
    other = replace(trace, arrays=trace.arrays | {"census.approach": 1 - trace.arrays["census.approach"]})
    monkeypatch.setattr(claims_measured, "lesson_trace", lambda: other)
    with pytest.raises(RunError, match="contradict"):
        CLAIMS["census.rows"].said()
    monkeypatch.setattr(toy, "errors", lambda: np.linspace(1.4, 0.1, 10))
    for name in ("toy.once", "toy.loop", "toy.count"):
        with pytest.raises(RunError, match="contradict"):
            CLAIMS[name].said()


def test_a_claim_about_a_body_is_refused_when_its_row_says_otherwise(monkeypatch):
    stored = json.loads(json.dumps(evidence.stored_bodies()))
    stored["Hopper-v5"]["difference"]["verdict"] = "undecided"
    stored["HalfCheetah-v5"]["difference"]["verdict"] = "worse"
    stored["Ant-v5"]["removed"]["first"]["verdict"] = "undecided"
    monkeypatch.setattr(claims_measured, "stored_bodies", lambda: stored)
    for name in ("bodies.hopper", "bodies.cheetah", "bodies.ant.first"):
        with pytest.raises(RunError, match="contradict"):
            CLAIMS[name].said()


def test_nothing_is_claimed_from_fewer_than_five_seeds(monkeypatch):
    few = {name: {measure: values[:3] for measure, values in run.items()} for name, run in evidence.races().items()}
    monkeypatch.setattr(evidence, "races", lambda: few)
    for name in breaks.RACES:
        assert evidence.verdict(name).verdict == "too_few_seeds"
        with pytest.raises((RunError, KeyError)):
            CLAIMS[f"race.{name}"].said()
    with pytest.raises(RunError, match="seeds bear out nothing"):
        CLAIMS["rail.belief"]._replace(seeds=3).said()


def test_the_experiment_of_noisy_critics_has_the_same_numbers_in_the_page(tab):
    assert np.allclose(tab.evaluate("() => Array.from(explain.toyErrors())"), toy.errors(), atol=1e-12)


@pytest.mark.parametrize("number", range(len(story.SCREENS)))
def test_the_right_answer_of_a_screen_is_computed(number):
    screen = story.SCREENS[number]
    assert screen.right() in range(3)
    assert told(screen.because)


def test_the_readme_and_the_docs_say_what_the_claims_say():
    text = " ".join((ROOT / "docs/fifteen_steps.md").read_text(encoding="utf-8").split())
    for name in ("census.rows", "bodies.ant.first", "lag.half", "film.chosen", "toy.count"):
        assert CLAIMS[name].said().replace("*", r"\*") in text, name
    assert "{{" not in text
    assert export.readme_block() in (ROOT / "README.md").read_text(encoding="utf-8")
