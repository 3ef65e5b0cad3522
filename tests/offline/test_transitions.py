"""Columns of recorded transitions become rows of the replay buffer, or one sentence."""

import numpy as np
import pytest

from td3.environments import TaskSpaces
from td3.offline.transitions import DatasetError, rows_of_arrays, rows_of_run

SPACES = TaskSpaces(2, (-1.0,), (3.0,), (2,), (1,))
COUNT = 6


def columns(**others):
    """Observations (0, 0), (1, 10), ...; time-out after the third, termination after the fifth."""
    states = np.stack([np.arange(COUNT), 10 * np.arange(COUNT)], axis=1).astype(np.float64)
    found = {
        "observations": states,
        "actions": np.linspace(-1, 3, COUNT)[:, None],
        "rewards": 100.0 + np.arange(COUNT),
        "next_observations": states + 0.5,
        "terminals": np.array([0, 0, 0, 0, 1, 0], bool),
        "timeouts": np.array([0, 0, 1, 0, 0, 0], bool),
    }
    return {name: array for name, array in {**found, **others}.items() if array is not None}


def test_every_column_has_its_place_in_a_row():
    rows = rows_of_arrays(columns(), SPACES, "data.npz")
    assert rows.dtype == np.float32
    assert rows.shape == (COUNT, 7)
    assert rows[4].tolist() == pytest.approx([4, 40, 2.2, 4.5, 40.5, 104, 1])
    assert rows[:, -1].tolist() == [0, 0, 0, 0, 1, 0]  # a time-out is no termination


@pytest.mark.parametrize("changed", [{"terminations": "terminals", "truncations": "timeouts"}])
def test_gymnasiums_names_are_accepted(changed):
    given = columns()
    renamed = given | {new: given[old] for new, old in changed.items()}
    for old in changed.values():
        del renamed[old]
    assert (rows_of_arrays(renamed, SPACES, "x") == rows_of_arrays(given, SPACES, "x")).all()


def test_without_next_observations_each_is_followed_by_the_next_of_its_episode():
    rows = rows_of_arrays(columns(next_observations=None), SPACES, "data.npz")
    # Row 2 was cut by a time-out and row 5 is the last: what followed them is unknown.
    assert rows[:, 0].tolist() == [0, 1, 3, 4]
    assert rows[:, 3].tolist() == [1, 2, 4, 4]  # after the termination nothing follows: its own state stands there
    assert rows[:, -1].tolist() == [0, 0, 0, 1]


def test_a_last_row_that_terminates_is_kept():
    rows = rows_of_arrays(columns(next_observations=None, terminals=np.arange(COUNT) == 5), SPACES, "x")
    assert rows[:, 0].tolist() == [0, 1, 3, 4, 5]


def test_images_and_columns_of_one_are_flattened():
    given = columns(rewards=columns()["rewards"][:, None], observations=columns()["observations"].reshape(COUNT, 1, 2))
    assert (rows_of_arrays(given, SPACES, "x") == rows_of_arrays(columns(), SPACES, "x")).all()


def with_value(name, value):
    array = columns()[name].astype(np.float64)
    array.flat[3] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"observations": None}, "has no observations: it needs observations, actions, rewards, terminals"),
        ({"terminals": None}, "has no terminals or terminations"),
        ({"next_observations": None, "timeouts": None}, "neither next_observations nor timeouts"),
        ({"rewards": np.zeros(5)}, r"observations of shape \(6, 2\) beside 5 rewards"),
        ({"rewards": np.zeros(())}, "beside 0 rewards"),
        ({name: np.zeros((0, 1)) for name in columns()}, "has no transitions: give a dataset that has some"),
        ({"observations": np.zeros((6, 3))}, r"observations of shape \(6, 3\), and the environment has 2 numbers"),
        ({"actions": np.zeros((6, 2))}, r"actions of shape \(6, 2\), and the environment has 1 number there"),
        ({"rewards": np.array(["a"] * 6)}, "rewards of type <U1"),
        (with_value("observations", np.nan), "NaN or infinity in 1 of 6 transitions"),
        (with_value("rewards", 1e300), "numbers that are too large for float32 in 1 of 6 transitions"),
        (with_value("terminals", 0.5), "terminals other than 0 and 1"),
        (with_value("actions", 3.5), "actions from -1 to 3.5, and the environment allows -1 to 3"),
        ({"next_observations": None, "timeouts": np.ones(6, bool), "terminals": np.zeros(6)}, "it is empty"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(changed, said):
    with pytest.raises(DatasetError, match=said) as refused:
        rows_of_arrays(columns(**changed), SPACES, "data.npz")
    assert "\n" not in str(refused.value)


def test_an_action_that_rounding_moved_over_the_edge_is_clipped():
    rows = rows_of_arrays(columns(**with_value("actions", 3.0001)), SPACES, "x")
    assert rows[:, 2].max() == 3


def test_rows_of_a_run_stay_as_they_are_or_are_refused():
    rows = rows_of_arrays(columns(), SPACES, "x")
    assert (rows_of_run(rows.copy(), SPACES, "run") == rows).all()
    with pytest.raises(DatasetError, match="transitions of 7 numbers, and the environment's have 9"):
        rows_of_run(rows, TaskSpaces(3, (-1.0,), (3.0,), (3,), (1,)), "run")
