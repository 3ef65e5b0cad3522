"""The words: short, complete, and each question leads to a moment that exists."""

import re
from urllib.parse import parse_qs

import pytest

from td3.algorithm.registry import STEPS
from td3_lessons.explain.breaks import RACES
from td3_lessons.explain.claims import told
from td3_lessons.explain.lessons import AUTHORS_CODE, CREDITS, FILM, LESSONS, PAPER, mathml, words
from td3_lessons.explain.story import QUESTIONS


@pytest.mark.parametrize("number", sorted(STEPS))
def test_a_step_says_what_why_without_and_misreading_in_at_most_120_words(number):
    parts = [*words(number), told(LESSONS[number].misreading)]
    assert all(len(part.split()) >= 2 for part in parts)
    assert sum(len(part.split()) for part in parts) <= 120


@pytest.mark.parametrize("number", sorted(STEPS))
def test_every_step_can_be_poked_and_broken(number):
    assert LESSONS[number].pokes
    assert LESSONS[number].breaks


def test_every_question_leads_to_a_moment_of_the_page():
    assert len(QUESTIONS) >= 16
    known = {name for lesson in LESSONS.values() for name, *_ in lesson.breaks}
    for question in QUESTIONS:
        moment = parse_qs(question.moment, strict_parsing=True)
        assert moment.get("update", ["odd"])[0] in ("odd", "puzzle"), "the page opens at the right update by itself"
        assert 0 <= int(moment["step"][0]) <= 15
        assert set(moment.get("break", [])) <= known
        assert set(moment.get("race", [])) <= set(RACES)
        assert question.question.endswith("?")


ASKED = (
    *("two critics, and not of ten", "Which critic does the actor", "unclipped target noise", "how TD3 explores"),
    *("time limit", "every second update", "shape has every tensor", "lag of a target", "loss minus Q"),
    *("one row of the buffer", "Where does overestimation come from", "deadly triad", "off-policy", "landscape"),
    *("best possible Q", "rows move away from y", "minimum unbiased", "one y and one", "fell off the rail"),
    "run of my own",
)


@pytest.mark.parametrize("asked", ASKED)
def test_each_of_the_twenty_questions_of_a_new_reader_is_answered(asked):
    assert len(ASKED) == 20
    answers = [told(question.answer) for question in QUESTIONS if asked in question.question]
    assert answers
    assert all(len(answer.split()) >= 9 for answer in answers)


def test_the_film_is_one_shot_of_twelve_seconds_with_captions_of_few_words():
    assert sum(shot.seconds for shot in FILM) == 12
    assert all(len(shot.caption.split()) <= 7 for shot in FILM)
    assert [shot.start for shot in FILM] == [0.0, *(shot.end for shot in FILM[:-1])]
    assert FILM[-1].start == FILM[-1].end == 1, "a pause in which the parts are named"


def test_the_division_into_fifteen_steps_is_credited():
    assert "Deep Reinforcement Learning 2.0" in CREDITS
    assert "Fujimoto" in CREDITS
    assert "arxiv.org/abs/1802.09477" in PAPER
    assert "github.com/sfujim/TD3" in AUTHORS_CODE


@pytest.mark.parametrize("number", sorted(STEPS))
def test_formulas_are_well_formed_mathml(number):
    from xml.etree import ElementTree

    made = mathml(LESSONS[number].formula)
    text = "".join(ElementTree.fromstring(f"<div>{made}</div>").itertext())
    wanted = re.sub(r"[\s;|']", "", LESSONS[number].formula).replace("²", "2")
    assert re.sub(r"[\s\N{PRIME}]", "", text) == wanted
