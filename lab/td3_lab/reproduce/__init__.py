"""Stored results: the rows of the tables in docs/results_*.md, their figures, and how to run them again."""
