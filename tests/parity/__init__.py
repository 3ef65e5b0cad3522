"""The same numbers as other implementations, and the same numbers for a seed in any company."""
