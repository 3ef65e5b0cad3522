"""Which updates of the recorded run the page shows, chosen by rule: those in which a reader can see the lesson.

Adam's momentum and the other rows of a batch pull as well, so in a single update a row may move away from its Bellman
target, or an action against its gradient. That is true and teaches nothing at first sight. A pair of updates is shown
only if the loss of both critics falls and the mean of Q1 rises, and from its batches only rows that approach y (both
critics) and whose action, when the actor moves, follows its gradient.
"""

from collections.abc import Callable, Sequence
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
    rise: float = 0.0
    """By how much the actor's step raised the mean Q1 of the batch; 0 when the actor had to wait."""

    @property
    def loss_falls(self) -> bool:
        """Whether step 12 lowered the loss of both critics on this batch."""
        return bool((self.loss_after < self.loss_before).all())

    @property
    def clear(self) -> Array:
        """Rows that show what the text says."""
        return np.flatnonzero(self.approaches & self.follows)


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
    return Effect(squares[0], squares[1], gain > 0, gain, follows, shift, policy, rise)


def choose_rows(record: dict[str, Array], ends: Array, clear: Array) -> list[int]:
    """Eight rows of the batch, clear ones as far as they go: from the lowest next score to the highest.

    A termination and a time-out are among them, if the batch has clear ones.
    """
    rows = record["rows"].astype(int)
    if len(clear) < SHOWN:
        clear = np.concatenate((clear, np.setdiff1d(np.arange(len(rows)), clear)))[: max(SHOWN, len(clear))]
    dead, late = record["terminated"][clear] == 1, ends[rows[clear]] == 1
    special = [*clear[dead][:1], *clear[late & ~dead][:1]]
    common = [place for place in clear if place not in special and not record["terminated"][place]]
    common = common if len(common) >= SHOWN - len(special) else [place for place in clear if place not in special]
    common.sort(key=lambda place: float(record["next_q"][place]))
    spread = [common[round(part)] for part in np.linspace(0, len(common) - 1, SHOWN - len(special))]
    return [int(place) for place in (*spread[:2], *special, *spread[2:])]


def default_row(shown: list[int], made: Effect, low: float, high: float) -> int:
    """Which of the shown rows the page opens with: inside the range, and both of its movements can be seen best."""
    half, middle = (high - low) / 2, (high + low) / 2
    free = [j for j, place in enumerate(shown) if abs(made.policy[place] - middle) <= INSIDE * half]
    return max(free or range(len(shown)), key=lambda j: clarity(shown[j], made, high - low))


def clarity(place: int, made: Effect, span: float) -> float:
    """From 0 to 2: how well the action's movement and the Q-values' approach to y can be seen in one row."""
    return min(1.0, float(abs(made.shift[place])) / (0.005 * span)) + min(1.0, float(made.gain[place]) / 0.03)


def pair_quality(effects: tuple[Effect, Effect]) -> float:
    """How well two consecutive updates teach; below zero if they break a rule."""
    if not all(made.loss_falls and len(made.clear) >= SHOWN for made in effects) or effects[1].rise <= 0:
        return -1.0
    return float(min(made.approaches.mean() for made in effects) + effects[1].follows.mean())


def opens_page(record: dict[str, Array], made: Effect, ends: Array, low: float, high: float) -> bool:
    """Whether the page can open with this update, in which the actor moves.

    Among its shown rows are a termination and a time-out, now the one and now the other target critic is lower, and
    one row's action moves visibly inside the range.
    """
    if len(made.clear) < SHOWN:
        return False
    shown = choose_rows(record, ends, made.clear)
    dead, late = record["terminated"][shown] == 1, ends[record["rows"].astype(int)[shown]] == 1
    lower = record["target_q_values"][0][shown] < record["target_q_values"][1][shown]
    place = shown[default_row(shown, made, low, high)]
    inside = abs(made.policy[place] - (high + low) / 2) <= INSIDE * (high - low) / 2
    visible = abs(made.shift[place]) >= VISIBLE * (high - low)
    return bool(inside and visible and dead.sum() == 1 and (late & ~dead).any() and 0 < lower.sum() < SHOWN)


class Chooser:
    """Sees the updates of a run one after the other and keeps the best pair of each window.

    `improves(state, action, shift)` says whether the chosen row's movement also raises its exact Q-value.
    """

    def __init__(
        self,
        windows: Sequence[tuple[int, int]],
        opening: tuple[int, int],
        sizes: dict[str, list[int]],
        improves: Callable[[Array, float, float], bool] = lambda state, action, shift: True,
    ) -> None:
        self.windows, self.opening, self.sizes, self.improves = windows, opening, sizes, improves
        self.best: dict[tuple[int, int], tuple[float, dict[int, dict[str, Array]]]] = {}
        self._before: tuple[int, dict[str, Array], Effect] | None = None

    def add(self, number: int, record: dict[str, Array], ends: Array) -> None:
        """Take the next update of the run; `ends` says which stored rows ended at the time limit."""
        made = effect(record, [-1.0], [1.0], self.sizes)
        if number % 2 == 0 and self._before is not None and self._before[0] == number - 1:
            first = number - 1
            quality = pair_quality((self._before[2], made))
            for window in self.windows:
                if not window[0] <= first <= window[1] or quality < 0:
                    continue
                if window == self.opening:
                    if not opens_page(record, made, ends, -1.0, 1.0):
                        continue
                    quality += self._opening_quality(record, made, ends)
                if quality > self.best.get(window, (-1.0, {}))[0]:
                    self.best[window] = quality, {first: self._before[1], number: record}
        self._before = number, record, made

    def _opening_quality(self, record: dict[str, Array], made: Effect, ends: Array) -> float:
        shown = choose_rows(record, ends, made.clear)
        place = shown[default_row(shown, made, -1.0, 1.0)]
        improves = self.improves(record["state"][place], float(made.policy[place]), float(made.shift[place]))
        return clarity(place, made, 2.0) + improves

    def chosen(self) -> dict[int, dict[str, Array]]:
        """The records of the chosen updates, by their numbers."""
        return {number: record for _, pair in self.best.values() for number, record in sorted(pair.items())}
