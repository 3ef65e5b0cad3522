"""The runs behind the lesson: TD3 on Rail with ten seeds; of one of them, chosen updates in full.

    python -m td3_lessons.explain.export --record

makes it again and stores it as `data/rail.npz`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from td3.algorithm.agent import Agent
from td3.algorithm.networks import StackedMLP
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.environments import InProcessVectorEnv, make_environment
from td3.environments.rail import END
from td3.policy import Array
from td3.resources import one_thread
from td3.settings import TD3Config
from td3_lessons.explain.moments import Chooser, Effect, default_row, effect
from td3_lessons.explain.record import Recorder, flat, new_learner, train_on
from td3_lessons.explain.trace import GRID, Trace, assembled, facts_of, lesson_trace
from td3_lessons.ladder.climb import STATES, optimum
from td3_lessons.ladder.exact import solve

RAIL = "Rail-v0"
SEEDS = range(10)
"""What the page says of all updates is said of these seeds."""
SEED = 3
"""The one whose updates are shown."""
STEPS = 8_000
SETTINGS = TD3Config(
    hidden_sizes=(16, 16),
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    batch_size=64,
    buffer_size=STEPS,
    learning_starts=1_000,
    exploration_noise=0.3,
)
WINDOWS = ((1, 1), (31, 199), (201, 399), (401, 2999), (3001, 4499), (4501, 5999), (6001, 6999))
"""From each of these ranges of updates one pair is shown: an odd one, in which the actor waits, and the next."""
OPENING = WINDOWS[2]
"""The page opens with the pair of this window."""
PUZZLE = WINDOWS[3]
"""The pair of this window is the one in which the fewest rows approach y: an exercise asks why."""
GROUP = 250
"""Updates that the census takes together."""
LAG = 2_000
"""So many first updates are followed weight by weight, for the drawing of Polyak averaging in time."""
FILMED = 200
"""Updates that the film shows."""


def rail() -> InProcessVectorEnv:
    """The lesson's environment; its rewards have no noise."""
    return InProcessVectorEnv([make_environment(RAIL)])


class Census:
    """What every update of every seed did to its batch, in groups of `GROUP`: not only the shown ones."""

    def __init__(self) -> None:
        self.seeds: list[list[tuple[float, float, float]]] = []

    def add(self, made: Effect) -> None:
        """One update."""
        row = made.loss_rows.max() / max(made.loss_rows.sum(), 1e-12)
        self.seeds[-1].append((float(made.approaches.mean()), float(made.loss_falls), float(row)))

    def arrays(self) -> dict[str, Array]:
        """Means `[seeds, groups]`: rows that approach y, updates in which both losses fall, the largest row's share."""
        grouped = np.array(self.seeds).reshape(len(self.seeds), -1, GROUP, 3).mean(2)
        return {f"census.{name}": grouped[..., n] for n, name in enumerate(("approach", "falls", "largest"))}


def record_rail(steps: int = STEPS) -> Trace:
    """Train TD3 on Rail with every seed, and record the updates of one seed that show the lesson."""
    with one_thread():
        census = Census()
        trace = [_td3(seed, steps, census) for seed in SEEDS][SEEDS.index(SEED)]
        shared = census.arrays() | {"truth": solve().nodes, "starts": STATES[:64]}
        trace.arrays.update({name: value.astype(np.float32) for name, value in shared.items()})
        return trace


def _td3(seed: int, steps: int, census: Census) -> Trace:
    environments = rail()
    agent, buffer = new_learner(SETTINGS, seed, environments, STEPS)
    facts = facts_of(RAIL, seed, SETTINGS, agent, ["position", "velocity"], ["force"], [-END] * 2, [END] * 2)
    chooser, recorder = Chooser(WINDOWS, OPENING, PUZZLE, facts["sizes"]), Recorder()
    ends, history = np.zeros(steps, bool), [_networks(agent)]
    census.seeds.append([])

    def around(number: int, one: Callable[[], Any]) -> None:
        with recorder.looking() as calls:
            one()
        census.add(chooser.add(number, flat(calls), ends))
        if number <= LAG:
            history.append(_networks(agent))

    train_on(agent, buffer, environments, SETTINGS, seed, steps, around=around, timed_out=ends)
    kept = chooser.chosen()
    if seed != SEED:
        return Trace({}, facts)
    arrays: dict[str, Array] = {"memory": buffer.rows[0].numpy()[:steps].copy(), "timed_out": ends.astype(np.float32)}
    facts["filled"] = [SETTINGS.learning_starts + number - 1 for number in sorted(kept)]
    start, puzzle = (_even(kept, window) for window in (OPENING, PUZZLE))
    facts |= {"optimum": round(optimum(), 3), "truth": True, "start": start, "puzzle": puzzle - 1}
    facts["seeds"] = len(SEEDS)
    trace = assembled(arrays, facts, kept, ends)
    shown = facts["shown"][facts["updates"].index(start)]
    facts["row"] = default_row(shown, effect(kept[start], facts["low"], facts["high"], facts["sizes"]), -1.0, 1.0)
    row = {name: kept[start][name][shown[facts["row"]]] for name in ("reward", "next_state")}
    trace.arrays.update(_lag(history, row, facts, agent) | _film(history, kept[start], facts, agent))
    return trace


def _even(kept: dict[int, Any], window: tuple[int, int]) -> int:
    return next(number for number in sorted(kept) if window[0] < number <= window[1] + 1 and number % 2 == 0)


def _networks(agent: Agent) -> dict[str, Array]:
    return {
        "actor": agent.actor.parameters.detach()[0].numpy().copy(),
        "actor_target": agent.actor_target.parameters[0].numpy().copy(),
        "critics": agent.critics.parameters.detach()[:, 0].numpy().copy(),
        "critics_target": agent.critics_target.parameters[:, 0].numpy().copy(),
    }


def _read(networks: dict[str, Array], facts: dict[str, Any], agent: Agent, target: bool) -> tuple[Actor, TwinCritics]:
    """The actor and the critics of one moment, online or target."""
    name = "_target" if target else ""
    actor = StackedMLP(facts["sizes"]["actor"], torch.tensor(networks[f"actor{name}"])[None])
    critics = StackedMLP(facts["sizes"]["critic"], torch.tensor(networks[f"critics{name}"])[:, None])
    return Actor(actor, agent.actor.action_range), TwinCritics(critics)


def _bellman(row: dict[str, Array], policy: Actor, judges: TwinCritics) -> float:
    """The Bellman target of one row that did not terminate, without noise."""
    state = torch.tensor(row["next_state"])[None, None]
    return float(row["reward"] + SETTINGS.gamma * judges(state, policy(state)).min())


@torch.no_grad()
def _lag(
    history: list[dict[str, Array]], row: dict[str, Array], facts: dict[str, Any], agent: Agent
) -> dict[str, Array]:
    """One weight of critic 1 and of the actor over the first updates; y of one row from target and online networks."""
    online = np.stack([networks["critics"][0] for networks in history])
    place = int(np.argmax(np.abs(online[-1] - online[0])))
    actor = np.stack([networks["actor"] for networks in history])
    weight = int(np.argmax(np.abs(actor[-1] - actor[0])))
    both = [[_bellman(row, *_read(networks, facts, agent, target)) for networks in history] for target in (True, False)]
    return {
        "lag.online": online[:, place].astype(np.float32),
        "lag.actor": actor[:, weight].astype(np.float32),
        "lag.y": np.array(both[0], np.float32),
        "lag.y_online": np.array(both[1], np.float32),
    }


@torch.no_grad()
def _film(
    history: list[dict[str, Array]], batch: dict[str, Array], facts: dict[str, Any], agent: Agent
) -> dict[str, Array]:
    """For the film, update by update: critic 1 and its target over the actions in one state, the actor's action, y.

    Of the first updates and the rows of one batch, those in which the critic's distance to y shrinks by the largest
    share while the actor's action moves far and rises on critic 1: the page says that they were chosen so.
    """
    usual, best = np.flatnonzero(batch["terminated"] == 0), (0.0, 0, 0)
    states, actions, following = (torch.tensor(batch[name][usual])[None] for name in ("state", "action", "next_state"))
    reward = batch["reward"][usual]

    def at(number: int) -> tuple[Array, torch.Tensor, TwinCritics]:
        (policy, critics), (follower, judges) = (
            _read(history[number], facts, agent, target) for target in (False, True)
        )
        next_q = np.asarray(judges(following, follower(following)).amin(0)[0])
        return np.asarray(critics(states, actions)[0, 0]) - reward - SETTINGS.gamma * next_q, policy(states), critics

    for first in range(FILMED, len(history) - FILMED, FILMED // 4):
        (before, old, _), (after, new, critics) = at(first), at(first + FILMED)
        climbs = (critics(states, new) > critics(states, old))[0, 0].numpy()
        moved = np.minimum(np.abs((new - old)[0, :, 0].numpy()), 0.8)
        scores = np.where(climbs & (np.abs(before) > 0.5), (1 - np.abs(after) / np.abs(before)) + moved, 0.0)
        best = max(best, (float(scores.max()), first, int(usual[scores.argmax()])))
    _, first, place = best
    row = {name: batch[name][place] for name in ("state", "action", "reward", "next_state")}
    forces = torch.linspace(facts["low"][0], facts["high"][0], GRID)[None, :, None]
    state = torch.tensor(row["state"])[None, None]
    frames: dict[str, list[Any]] = {name: [] for name in ("q", "target", "action", "y")}
    for networks in history[first : first + FILMED + 1]:
        (policy, critics), (follower, judges) = (_read(networks, facts, agent, target) for target in (False, True))
        frames["q"].append(critics(state.expand(1, GRID, 2), forces)[0, 0].numpy())
        frames["target"].append(judges(state.expand(1, GRID, 2), forces)[0, 0].numpy())
        frames["action"].append([float(policy(state)), float(follower(state)), float(row["action"][0])])
        frames["y"].append(_bellman(row, follower, judges))
    facts["film"] = first
    return {f"film.{name}": np.array(values, np.float32) for name, values in frames.items()}


def approaching(update: int) -> int:
    """How many rows of a recorded update's batch both critics brought closer to y."""
    trace = lesson_trace()
    index = trace.facts["updates"].index(update)
    record = {name.rpartition(".")[0]: value for name, value in trace.arrays.items() if name.endswith(f".{index}")}
    rows = trace.arrays["memory"][record["rows"].astype(int)]
    record |= {"state": rows[:, :2], "action": rows[:, 2:3], "terminated": rows[:, 6]}
    return int(effect(record, trace.facts["low"], trace.facts["high"], trace.facts["sizes"]).approaches.sum())
