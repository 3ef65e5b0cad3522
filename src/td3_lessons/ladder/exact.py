"""The exact answer on Rail: optimal Q, V and policy by dynamic programming on a grid.

    V(s) = max_a Q(s, a),    Q(s, a) = r(s, a) + gamma * (1 - terminated) * V(s')

V is kept at the nodes of a grid over (position, velocity) and read between them by bilinear interpolation; rewards and
moves are those of the environment itself. Nodes and forces are the only approximation, and it is measured: by a finer
grid, and by playing the policy, which can earn no more than the true optimum. At the starts of episodes both are within
0.02, where values go from -20 to 0 (tests/lessons/ladder/test_exact.py).
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3.environments.rail import END, move

Array = NDArray[Any]

GAMMA = 0.99
NODES = 161
"""Nodes of the grid along position and along velocity."""
FORCES = 41
"""Forces among which the best is sought, evenly over [-1, 1]."""


class Exact(NamedTuple):
    """The optimum, as functions of any states `[..., 2]` and forces `[...]`."""

    nodes: Array
    forces: Array
    gamma: float

    def v(self, states: Array) -> Array:
        """The optimal value of each state."""
        return self._best(states)[0]

    def q(self, states: Array, forces: Array) -> Array:
        """The optimal value of each state when this force comes first."""
        reward, position, velocity, left = move(states[..., 0], states[..., 1], forces)
        return np.asarray(reward + self.gamma * ~left * interpolate(self.nodes, position, velocity))

    def policy(self, states: Array) -> Array:
        """The best force `[..., 1]` in each state."""
        return self._best(states)[1]

    def _best(self, states: Array) -> tuple[Array, Array]:
        q_values = self.q(np.asarray(states, np.float64)[..., None, :], self.forces)
        return q_values.max(-1), self.forces[q_values.argmax(-1)][..., None]


@cache
def solve(nodes: int = NODES, forces: int = FORCES, gamma: float = GAMMA) -> Exact:
    """The optimum, to 1e-9 of what the grid can say: policy iteration with many cheap sweeps between improvements."""
    ends = np.linspace(-END, END, nodes)
    choices = np.linspace(-1, 1, forces)
    position, velocity, force = np.meshgrid(ends, ends, choices, indexing="ij")
    reward, next_position, next_velocity, left = move(position, velocity, force)
    corners, weights = _corners(next_position, next_velocity, nodes)
    weights = gamma * weights * ~left
    value = np.zeros(nodes * nodes)
    while True:
        q_values = reward + sum(w * value[c] for c, w in zip(corners, weights, strict=True))
        best = q_values.argmax(-1)[..., None]
        improved = np.take_along_axis(q_values, best, -1).ravel()
        if np.abs(improved - value).max() < 1e-9 * (1 - gamma):
            return Exact(improved.reshape(nodes, nodes), choices, gamma)
        chosen = np.take_along_axis(reward, best, -1).ravel()
        links = [np.take_along_axis(c, best, -1).ravel() for c in corners]
        shares = [np.take_along_axis(w, best, -1).ravel() for w in weights]
        value = improved
        for _ in range(200):
            value = chosen + sum(w * value[c] for c, w in zip(links, shares, strict=True))


def interpolate(nodes: Array, position: Any, velocity: Any) -> Array:
    """The value between the nodes of a square grid over position and velocity."""
    corners, weights = _corners(position, velocity, len(nodes))
    return np.asarray((weights * nodes.ravel()[corners]).sum(0))


def _corners(position: Any, velocity: Any, nodes: int) -> tuple[Array, Array]:
    """The four nodes around each point, as numbers in the flattened grid, and their weights, `[4, ...]` each."""
    across, along = ((np.asarray(part) + END) / (2 * END) * (nodes - 1) for part in (position, velocity))
    row, column = (np.clip(part.astype(np.int64), 0, nodes - 2) for part in (across, along))
    down, right = across - row, along - column
    first = row * nodes + column
    corners = np.stack((first, first + 1, first + nodes, first + nodes + 1))
    weights = np.stack(((1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right))
    return corners, weights
