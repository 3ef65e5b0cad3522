"""Learning is tested as learning: tasks whose answers are known."""
