"""The run directory: layout, atomic files, checkpoints, agent files."""
