"""Everything that a finished run is, except clocks: two runs that did the same have equal fingerprints."""

import hashlib
from pathlib import Path

from td3.run.checkpoints import Checkpoints

CLOCKS = ("seconds", "saving_seconds", "positions", "config")
"""Facts that tell the time, the length of a file with times in it, or where the run lies."""


def fingerprint(run: Path) -> dict[str, str]:
    checkpoint, refused = Checkpoints(run).newest()
    assert checkpoint is not None
    assert refused == []
    parts = {
        f"tensor {name}": (array.dtype, array.shape, array.tobytes()) for name, array in checkpoint.tensors.items()
    }
    parts |= {f"fact {name}": fact for name, fact in checkpoint.facts.items() if name not in CLOCKS}
    rows, added = hashlib.sha256(), checkpoint.facts["added"]
    oldest = added - checkpoint.facts["config"]["td3"]["buffer_size"]  # a file may begin with rows that are overwritten
    for first, shard in checkpoint.rows():
        for number in range(shard.shape[1]):
            if first + number >= oldest:
                rows.update(f"{first + number}".encode() + shard[:, number].tobytes())
    parts["memory"] = rows.hexdigest()
    for folder in sorted(run.glob("seed_*")):
        for name in (
            "metrics.csv",
            "infos.csv",
            "evaluations.csv",
            "diagnostics.csv",
            "best/agent.safetensors",
            "last/agent.safetensors",
        ):
            parts[f"{folder.name}/{name}"] = (folder / name).read_bytes()
        parts[f"{folder.name}/evaluations.npz"] = (folder / "evaluations.npz").read_bytes()
        episodes = (folder / "monitor.csv").read_text().splitlines()[1:]
        parts[f"{folder.name}/monitor.csv"] = [episode.rpartition(",")[0] for episode in episodes]
    parts["env steps"] = checkpoint.env_steps
    return {name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in parts.items()}
