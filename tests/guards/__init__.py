"""What is true of TD3 as it is written here, and the proof that each truth would catch the fault it is there for."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.guards")
pytest.register_assert_rewrite(f"{__name__}.variants")
pytest.register_assert_rewrite(f"{__name__}.goals_and_data")
