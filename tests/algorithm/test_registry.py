"""The list of the fifteen steps is whole, in order, and each step explains itself."""

import inspect
from pathlib import Path

import pytest

from td3.algorithm.registry import STEPS, step

TITLES = {
    1: "Make the replay buffer",
    2: "Build the actor and its target",
    3: "Build two critics and their targets",
    4: "Sample a batch of transitions",
    5: "The target actor gives the next action",
    6: "Add clipped noise and clamp to the action range",
    7: "Both target critics evaluate the smoothed action",
    8: "Keep the smaller Q-value",
    9: "Form the Bellman target",
    10: "Both critics evaluate the stored action",
    11: "Measure the loss of both critics",
    12: "Backpropagate and improve both critics",
    13: "Improve the actor, uphill on critic 1",
    14: "Polyak-average the actor target",
    15: "Polyak-average both critic targets",
}


def source_of(number):
    """The file of a step and the line where it begins."""
    function = inspect.unwrap(STEPS[number].function)
    return Path(function.__code__.co_filename), function.__code__.co_firstlineno


def test_there_are_exactly_fifteen_steps_with_these_titles():
    assert {number: found.title for number, found in STEPS.items()} == TITLES


def test_each_step_knows_its_number():
    assert all(found.number == number for number, found in STEPS.items())


def test_the_steps_stand_in_the_files_in_their_order():
    places = [source_of(number) for number in range(1, 16)]
    assert places == sorted(places, key=lambda place: (place[0].name, place[1]))


@pytest.mark.parametrize("number", TITLES)
def test_a_step_stands_in_the_file_that_bears_its_number(number):
    words = source_of(number)[0].stem.split("_")
    first, last = int(words[1]), int(words[3]) if words[2] == "to" else int(words[1])
    assert first <= number <= last


@pytest.mark.parametrize("number", TITLES)
def test_a_step_says_what_why_and_what_happens_without_it(number):
    lines = inspect.getdoc(STEPS[number].function).splitlines()
    assert lines[0].strip()
    assert lines[1] == ""
    beginnings = [line.partition(":")[0] for line in lines[2:] if line.startswith(("What:", "Why:", "If you leave it"))]
    assert beginnings == ["What", "Why", "If you leave it out"]


def test_a_step_function_is_handed_back_unchanged():
    def function():
        return 1

    try:
        assert step(99, "A step too many")(function) is function
        assert STEPS[99].function is function
    finally:
        del STEPS[99]


def test_a_number_cannot_be_given_twice():
    with pytest.raises(ValueError, match="step 9 is already bellman_target"):
        step(9, "Another ninth step")(lambda: None)
    assert STEPS[9].title == TITLES[9]
