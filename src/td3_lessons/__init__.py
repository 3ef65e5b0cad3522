"""TD3 explained: the fifteen steps as a page (`td3 explain`), and the way from Q-learning to TD3 (`td3 ladder`)."""
