"""Which updates of the recorded run the page shows, and which rows of their batches it draws one by one.

Adam's momentum and the other rows of a batch pull as well, so in a single update a row may move away from its Bellman
target, or an action against its gradient. Updates are chosen by what they did: the loss of both critics falls, the mean
of Q1 rises, many rows approach y; and one update in which few rows do (the page says so, and how the rest of the run
compares: `rail_run.Census`). Rows are chosen by what goes into the update, never by what it did to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from td3.algorithm.networks import StackedMLP
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.policy import Array

SHOWN = 8
"""Rows of a batch that the page draws one by one."""
INSIDE = 0.85
"""The chosen row's action stays within this share of the action range, so that it has room to move on both sides."""
VISIBLE = 0.001
"""The chosen row's action moves at least this far in one update, as a share of the action range."""


@dataclass(frozen=True)
class Effect:
    """What one recorded update did to the rows of its batch."""

    loss_before: Array
    """Mean squared error of each critic before step 12, `[2]`."""
    loss_after: Array
    approaches: Array
    """`[batch]`: both critics' Q-values moved toward y."""
    gain: Array
    """`[batch]`: by how much the critic that gained less came closer to y."""
    follows: Array
    """`[batch]`: the actor's action moved in the direction of dQ1/da; always true when the actor had to wait."""
    shift: Array
    """`[batch]`: how far the action moved, in its first dimension."""
    policy: Array
    """`[batch]`: the actor's action before the update, in its first dimension."""
    loss_rows: Array
    """`[batch]`: each row's squared error of critic 1 before step 12."""
    ended: Array
    """`[batch]`: the row is a termination, whose y lies far below all others on Rail."""
    rise: float = 0.0
    """By how much the actor's step raised the mean Q1 of the batch; 0 when the actor had to wait."""

    @property
    def loss_falls(self) -> bool:
        """Whether step 12 lowered the loss of both critics on this batch."""
        return bool((self.loss_after < self.loss_before).all())


def effect(
    record: dict[str, Array],
    low: list[float],
    high: list[float],
    sizes: dict[str, list[int]],
    activation: str = "relu",
    layer_norm: bool = False,
) -> Effect:
    """The effect of a recorded update on its batch, computed from the networks before and after."""
    state, action = (torch.tensor(record[name])[None] for name in ("state", "action"))
    y, before = record["target_q"], record["q_values"]

    def critics(parameters: Array) -> TwinCritics:
        weights = torch.tensor(parameters)[:, None]
        return TwinCritics(StackedMLP(sizes["critic"], weights, activation, layer_norm=layer_norm))

    learned = critics(record["critics_after"])
    with torch.no_grad():
        after = learned(state, action)[:, 0].numpy()
    gain = (np.abs(before - y) - np.abs(after - y)).min(0)
    follows, shift, policy, rise = np.ones(len(y), bool), np.zeros(len(y)), np.zeros(len(y)), 0.0
    if "actor_after" in record:
        action_range = ActionRange(torch.tensor(low), torch.tensor(high))
        own, moved = (
            Actor(StackedMLP(sizes["actor"], torch.tensor(record[name])[None], activation), action_range)(state)
            for name in ("actor_before", "actor_after")
        )
        asked = own.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(learned(state, asked)[0].sum(), asked)
        step = (moved - own)[0].detach().numpy()
        # Along the gradient as a whole: with several action dimensions not every single one must agree.
        follows = (step * gradient[0].numpy()).sum(-1) > 0
        shift, policy = step[:, 0], own[0, :, 0].detach().numpy()
        with torch.no_grad():
            rise = float((learned(state, moved)[0] - learned(state, own)[0]).mean())
    squares = [np.square(q_values - y).mean(-1) for q_values in (before, after)]
    return Effect(
        squares[0],
        squares[1],
        gain > 0,
        gain,
        follows,
        shift,
        policy,
        np.square(before - y)[0],
        record["terminated"] == 1,
        rise,
    )


def choose_rows(record: dict[str, Array], ends: Array) -> list[int]:
    """Eight rows of the batch, from the lowest next score to the highest; the first termination and time-out with them.

    The third is the termination and the fourth the time-out, where the batch has them.
    """
    rows, terminated = record["rows"].astype(int), record["terminated"] == 1
    special = [*np.flatnonzero(terminated)[:1], *np.flatnonzero((ends[rows] == 1) & ~terminated)[:1]]
    common = [place for place in np.argsort(record["next_q"], kind="stable") if not terminated[place]]
    common = [place for place in common if place not in special] or list(range(len(rows)))
    spread = [common[round(part)] for part in np.linspace(0, len(common) - 1, SHOWN - len(special))]
    return [int(place) for place in (*spread[:2], *special, *spread[2:])]


def default_row(shown: list[int], made: Effect, low: float, high: float) -> int:
    """Which of the shown rows the page opens with: no termination, inside the range, its movements seen best."""
    half, middle = (high - low) / 2, (high + low) / 2
    usual = [j for j, place in enumerate(shown) if not made.ended[place]] or range(len(shown))
    free = [j for j in usual if abs(made.policy[shown[j]] - middle) <= INSIDE * half]
    return max(free or usual, key=lambda j: clarity(shown[j], made, high - low))


def clarity(place: int, made: Effect, span: float) -> float:
    """From 0 to 2: how well the action's movement and the Q-values' approach to y can be seen in one row."""
    return min(1.0, float(abs(made.shift[place])) / (0.005 * span)) + min(1.0, float(made.gain[place]) / 0.03)


def pair_quality(effects: tuple[Effect, Effect]) -> float:
    """How well two consecutive updates teach; below zero if they break a rule."""
    if not all(made.loss_falls for made in effects) or effects[1].rise <= 0:
        return -1.0
    return float(min(made.approaches.mean() for made in effects) + effects[1].follows.mean())


def opens_page(record: dict[str, Array], made: Effect, ends: Array, low: float, high: float) -> bool:
    """Whether the page can open with this update, in which the actor moves.

    Among its drawn rows are a termination and a time-out, now the one and now the other target critic is lower, and
    one row's action moves visibly inside the range.
    """
    shown = choose_rows(record, ends)
    dead, late = record["terminated"][shown] == 1, ends[record["rows"].astype(int)[shown]] == 1
    lower = record["target_q_values"][0][shown] < record["target_q_values"][1][shown]
    place = shown[default_row(shown, made, low, high)]
    inside = abs(made.policy[place] - (high + low) / 2) <= INSIDE * (high - low) / 2
    visible = abs(made.shift[place]) >= VISIBLE * (high - low)
    return bool(inside and visible and dead.sum() == 1 and (late & ~dead).any() and 0 < lower.sum() < SHOWN)


def puzzles(records: tuple[dict[str, Array], dict[str, Array]], effects: tuple[Effect, Effect]) -> float:
    """How well a pair asks why rows move away from y: its first batch has one fall, and few rows approach."""
    falls = (records[0]["terminated"] == 1).sum() == 1 and all(made.loss_falls for made in effects)
    return float(2.0 - effects[0].approaches.mean()) if falls and effects[1].rise > 0 else -1.0


class Chooser:
    """Sees the updates of a run one after the other and keeps the best pair of each window."""

    def __init__(
        self,
        windows: Sequence[tuple[int, int]],
        opening: tuple[int, int],
        puzzle: tuple[int, int],
        sizes: dict[str, list[int]],
    ) -> None:
        self.windows, self.opening, self.puzzle, self.sizes = windows, opening, puzzle, sizes
        self.best: dict[tuple[int, int], tuple[float, dict[int, dict[str, Array]]]] = {}
        self._before: tuple[int, dict[str, Array], Effect] | None = None

    def add(self, number: int, record: dict[str, Array], ends: Array) -> Effect:
        """Take the next update of the run, and give its effect; `ends` says which stored rows were time-outs."""
        made = effect(record, [-1.0], [1.0], self.sizes)
        if number % 2 == 0 and self._before is not None and self._before[0] == number - 1:
            first, records, effects = number - 1, (self._before[1], record), (self._before[2], made)
            for window in self.windows:
                if not window[0] <= first <= window[1]:
                    continue
                quality = puzzles(records, effects) if window == self.puzzle else pair_quality(effects)
                if window == self.opening and quality >= 0:
                    quality = (
                        quality + self._opening(record, made, ends)
                        if opens_page(record, made, ends, -1.0, 1.0)
                        else -1.0
                    )
                if quality > self.best.get(window, (-1.0, {}))[0]:
                    self.best[window] = quality, {first: self._before[1], number: record}
        self._before = number, record, made
        return made

    def _opening(self, record: dict[str, Array], made: Effect, ends: Array) -> float:
        shown = choose_rows(record, ends)
        return clarity(shown[default_row(shown, made, -1.0, 1.0)], made, 2.0)

    def chosen(self) -> dict[int, dict[str, Array]]:
        """The records of the chosen updates, by their numbers."""
        return {number: record for _, pair in self.best.values() for number, record in sorted(pair.items())}
