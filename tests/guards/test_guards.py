"""Every guard holds on the code as it is."""

from dataclasses import fields

import pytest

from td3.settings import TD3Config

from . import goals_and_data, variants  # noqa: F401  # enters its guards
from .guards import CHANGED, GUARDS


@pytest.mark.parametrize("name", GUARDS)
def test_it_holds_that(name):
    GUARDS[name]()


def test_every_setting_of_the_algorithm_has_another_value_to_be_tried_with():
    assert set(CHANGED) == {field.name for field in fields(TD3Config)}
