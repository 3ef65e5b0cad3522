"""The words: short, complete, and each question leads to a moment that exists."""

import re
from urllib.parse import parse_qs

import pytest

from td3.algorithm.registry import STEPS
from td3.explain.lessons import FILM, LESSONS, QUESTIONS, mathml, words
from td3.explain.trace import PAIRS


@pytest.mark.parametrize("number", sorted(STEPS))
def test_a_step_says_what_why_without_and_misreading_in_at_most_120_words(number):
    parts = [*words(number), LESSONS[number].misreading]
    assert all(len(part.split()) >= 2 for part in parts)
    assert sum(len(part.split()) for part in parts) <= 120


@pytest.mark.parametrize("number", sorted(STEPS))
def test_every_step_can_be_poked_and_broken(number):
    assert LESSONS[number].pokes
    assert LESSONS[number].breaks


def test_there_are_twelve_questions_and_each_leads_to_a_recorded_moment():
    assert len(QUESTIONS) == 12
    recorded = {str(first + offset) for first in PAIRS for offset in (0, 1)}
    known = {name for lesson in LESSONS.values() for name, _ in lesson.breaks}
    for question in QUESTIONS:
        moment = parse_qs(question.moment, strict_parsing=True)
        assert moment["update"][0] in recorded
        assert 1 <= int(moment["step"][0]) <= 15
        assert set(moment.get("break", [])) <= known
        assert question.question.endswith("?")


def test_the_film_goes_from_step_12_to_15_and_lasts_half_a_minute():
    assert {shot.step for shot in FILM} == {12, 13, 14, 15}
    assert 22 <= sum(shot.seconds for shot in FILM) <= 36
    assert all(0 <= shot.start <= shot.end <= 1 for shot in FILM)


@pytest.mark.parametrize("number", sorted(STEPS))
def test_formulas_are_well_formed_mathml(number):
    from xml.etree import ElementTree

    made = mathml(LESSONS[number].formula)
    text = "".join(ElementTree.fromstring(made).itertext())
    wanted = re.sub(r"[\s;']", "", LESSONS[number].formula).replace("²", "2")
    assert text.replace("\N{PRIME}", "") == wanted
