"""A learned policy in NumPy, for the host."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIP = 10.0
"""Normalized observations are clipped at this many standard deviations."""


@dataclass
class Policy:
    """A deterministic policy in NumPy: normalization, layers with or without LayerNorm, tanh."""

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    layers: list[tuple[NDArray[np.float32], ...]]
    """Weight and bias of every layer; hidden layers may add LayerNorm's weight and bias."""

    def __call__(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Return the action in [-1, 1]."""
        hidden = np.clip((observation.astype(np.float32) - self.mean) / self.scale, -CLIP, CLIP)
        for index, (weight, bias, *norm) in enumerate(self.layers):
            hidden = weight @ hidden + bias
            if norm:
                hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-5) * norm[0] + norm[1]
            if index < len(self.layers) - 1:
                hidden = np.maximum(hidden, 0)
        return np.asarray(np.tanh(hidden), dtype=np.float32)

    def save(self, path: Path) -> None:
        """Write the policy as an npz file."""
        arrays = {f"{i}_{j}": array for i, layer in enumerate(self.layers) for j, array in enumerate(layer)}
        np.savez(path, mean=self.mean, scale=self.scale, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Read a policy that `save` wrote."""
        with np.load(path) as file:
            names = [name for name in file.files if name not in ("mean", "scale")]
            count = 1 + max(int(name.split("_")[0]) for name in names)
            layers = [
                tuple(file[f"{i}_{j}"] for j in range(sum(name.startswith(f"{i}_") for name in names)))
                for i in range(count)
            ]
            return cls(file["mean"], file["scale"], layers)
