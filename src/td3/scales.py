"""Scales of observations and rewards beyond which TD3 learns badly: `td3 check` and the doctor use the same."""

LARGE_OBSERVATION = 1_000.0
"""Root mean square of the largest dimension."""
SMALL_SPREAD = 0.01
"""Standard deviation of the most variable dimension."""
LARGE_REWARD, SMALL_REWARD = 100.0, 0.001
"""Root mean square."""
