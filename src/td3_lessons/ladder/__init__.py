"""The ladder: six algorithms on one small problem, each one idea above the last, measured against the exact answer."""
