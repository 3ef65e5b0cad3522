"""Stored results: the rows of the tables in docs/results.md, their figures, and how to run them again."""
