"""The words: short, complete, and each question leads to a moment that exists."""

import re
from urllib.parse import parse_qs

import pytest

from td3.algorithm.registry import STEPS
from td3_lessons.explain.breaks import RACES
from td3_lessons.explain.lessons import AUTHORS_CODE, CREDITS, FILM, LESSONS, PAPER, QUESTIONS, mathml, words


@pytest.mark.parametrize("number", sorted(STEPS))
def test_a_step_says_what_why_without_and_misreading_in_at_most_120_words(number):
    parts = [*words(number), LESSONS[number].misreading]
    assert all(len(part.split()) >= 2 for part in parts)
    assert sum(len(part.split()) for part in parts) <= 120


@pytest.mark.parametrize("number", sorted(STEPS))
def test_every_step_can_be_poked_and_broken(number):
    assert LESSONS[number].pokes
    assert LESSONS[number].breaks


def test_every_question_leads_to_a_moment_of_the_page():
    assert len(QUESTIONS) >= 16
    known = {name for lesson in LESSONS.values() for name, _ in lesson.breaks}
    for question in QUESTIONS:
        moment = parse_qs(question.moment, strict_parsing=True)
        assert moment.get("update", ["odd"]) == ["odd"], "the page opens at the right update by itself"
        assert 1 <= int(moment["step"][0]) <= 15
        assert set(moment.get("break", [])) <= known
        assert set(moment.get("race", [])) <= set(RACES)
        assert question.question.endswith("?")


@pytest.mark.parametrize(
    "asked",
    ["two critics, and not of ten", "loss minus Q", "unclipped target noise", "every second update", "lag of a target"],
)
def test_what_a_new_reader_asks_is_answered(asked):
    assert any(asked in question.question for question in QUESTIONS)


def test_the_film_goes_from_the_loss_to_the_targets_in_half_a_minute():
    assert [shot.step for shot in FILM] == sorted(shot.step for shot in FILM[:5]) + [shot.step for shot in FILM[5:]]
    assert {shot.step for shot in FILM} == {11, 12, 13, 14, 15}
    assert 22 <= sum(shot.seconds for shot in FILM) <= 36
    assert all(0 <= shot.start <= shot.end <= 1 for shot in FILM)


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
