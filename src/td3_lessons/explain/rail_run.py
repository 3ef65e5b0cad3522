"""The run behind the lesson: TD3 and DDPG trained on Rail, TD3's chosen updates recorded.

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
from td3.engine import live_policy
from td3.environments import InProcessVectorEnv, make_environment
from td3.environments.rail import END
from td3.policy import Array
from td3.resources import one_thread
from td3.settings import TD3Config
from td3_lessons.explain.moments import Chooser, default_row, effect
from td3_lessons.explain.record import Recorder, ddpg_update, flat, new_learner, train_on
from td3_lessons.explain.trace import Trace, assembled, facts_of, q_values
from td3_lessons.ladder.climb import EPISODE, STATES, optimum, play_rail
from td3_lessons.ladder.exact import solve

RAIL = "Rail-v0"
SEED = 3
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
OPENING = WINDOWS[3]
"""The page opens with the pair of this window."""
EVALUATE_EVERY = 250
LAG = 2_000
"""So many first updates are followed weight by weight, for the drawing of Polyak averaging in time."""


def rail() -> InProcessVectorEnv:
    """The lesson's environment; its rewards have no noise."""
    return InProcessVectorEnv([make_environment(RAIL)])


class Curves:
    """Return, predicted Q and exact Q of both learners along training."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {"env_steps": []}

    def add(self, name: str, learner: Agent) -> None:
        """One point of each curve of this learner."""
        policy = live_policy(learner)
        force = policy(STATES.astype(np.float32)[None])[0][:, 0]
        value = q_values(learner.critics, STATES.astype(np.float32), force[:, None].astype(np.float32))[0]
        earned = play_rail(lambda states: policy(states.astype(np.float32)[None])[0][:, 0], STATES, EPISODE)
        for kind, number in (("return", earned), ("q", value), ("exact", solve().q(STATES, force.astype(float)))):
            self.values.setdefault(f"{name}_{kind}", []).append(float(np.mean(number)))


def record_rail(steps: int = STEPS) -> Trace:
    """Train TD3 and DDPG on Rail from the same weights, and record the updates of TD3 that show the lesson."""
    with one_thread():
        return _record_rail(steps)


def _record_rail(steps: int) -> Trace:
    environments, curves = rail(), Curves()
    agent, buffer = new_learner(SETTINGS, SEED, environments, STEPS)
    facts = facts_of(RAIL, SEED, SETTINGS, agent, ["position", "velocity"], ["force"], [-END] * 2, [END] * 2)
    chooser, recorder = Chooser(WINDOWS, OPENING, facts["sizes"], _improves), Recorder()
    ends, history = np.zeros(steps, bool), [_networks(agent)]
    curves.add("td3", agent)
    curves.values["env_steps"].append(SETTINGS.learning_starts)

    def around(number: int, one: Callable[[], Any]) -> None:
        with recorder.looking() as calls:
            one()
        chooser.add(number, flat(calls), ends)
        if number <= LAG:
            history.append(_networks(agent))
        if number % EVALUATE_EVERY == 0:
            curves.add("td3", agent)
            curves.values["env_steps"].append(number + SETTINGS.learning_starts)

    train_on(agent, buffer, environments, SETTINGS, SEED, steps, around=around, timed_out=ends)
    kept = chooser.chosen()
    pairs = sorted(kept)[::2]
    ddpg_nets = _ddpg(pairs, steps, curves)

    arrays: dict[str, Array] = {"memory": buffer.rows[0].numpy()[:steps].copy(), "timed_out": ends.astype(np.float32)}
    for pair, first in enumerate(pairs):
        arrays |= {f"ddpg_actor.{pair}": ddpg_nets[first][0], f"ddpg_critic.{pair}": ddpg_nets[first][1]}
    arrays |= {f"curve.{name}": np.array(values) for name, values in curves.values.items()}
    facts["filled"] = [SETTINGS.learning_starts + number - 1 for number in sorted(kept)]
    start = next(number for number in sorted(kept) if OPENING[0] < number <= OPENING[1] + 1 and number % 2 == 0)
    facts |= {"optimum": round(optimum(), 3), "truth": True, "start": start}
    arrays["truth"] = solve().nodes
    arrays["starts"] = STATES[:64]
    trace = assembled(arrays, facts, kept, ends)
    shown = facts["shown"][facts["updates"].index(start)]
    facts["row"] = default_row(shown, effect(kept[start], facts["low"], facts["high"], facts["sizes"]), -1.0, 1.0)
    row = {name: kept[start][name][shown[facts["row"]]] for name in ("reward", "next_state")}
    trace.arrays.update(_lag(history, row, facts, agent))
    return trace


def _ddpg(pairs: list[int], steps: int, curves: Curves) -> dict[int, tuple[Array, Array]]:
    """DDPG on the same task from the same weights: its networks at the recorded updates."""
    baseline, buffer = new_learner(SETTINGS, SEED, rail(), STEPS)
    kept: dict[int, tuple[Array, Array]] = {}
    curves.add("ddpg", baseline)

    def around(number: int, one: Callable[[], Any]) -> None:
        if number in pairs:
            networks = _networks(baseline)
            kept[number] = networks["actor"], networks["critics"][0]
        one()
        if number % EVALUATE_EVERY == 0:
            curves.add("ddpg", baseline)

    train_on(baseline, buffer, rail(), SETTINGS, SEED, steps, ddpg_update, around)
    return kept


def _improves(state: Array, action: float, shift: float) -> bool:
    """Whether a larger step in this direction raises the exact optimal Q: the critic is right about the direction."""
    states, step = np.asarray(state, float)[None], 0.2 * np.sign(shift)
    here, there = (float(solve().q(states, np.array([a]))[0]) for a in (action, np.clip(action + step, -1, 1)))
    return there > here


def _networks(agent: Agent) -> dict[str, Array]:
    return {
        "actor": agent.actor.parameters.detach()[0].numpy().copy(),
        "actor_target": agent.actor_target.parameters[0].numpy().copy(),
        "critics": agent.critics.parameters.detach()[:, 0].numpy().copy(),
        "critics_target": agent.critics_target.parameters[:, 0].numpy().copy(),
    }


@torch.no_grad()
def _lag(
    history: list[dict[str, Array]], row: dict[str, Array], facts: dict[str, Any], agent: Agent
) -> dict[str, Array]:
    """One weight of critic 1 and its target over the first updates; y of one row, with and without target networks."""
    online = np.stack([networks["critics"][0] for networks in history])
    target = np.stack([networks["critics_target"][0] for networks in history])
    place = int(np.argmax(np.abs(online[-1] - online[0])))
    actor = np.stack([networks["actor"] for networks in history])
    weight = int(np.argmax(np.abs(actor[-1] - actor[0])))
    state = torch.tensor(row["next_state"])[None, None]

    def bellman(networks: dict[str, Array], actor: str, critics: str) -> float:
        policy = Actor(
            StackedMLP(facts["sizes"]["actor"], torch.tensor(networks[actor])[None]), agent.actor.action_range
        )
        judges = TwinCritics(StackedMLP(facts["sizes"]["critic"], torch.tensor(networks[critics])[:, None]))
        return float(row["reward"] + SETTINGS.gamma * judges(state, policy(state)).min())

    return {
        "lag.online": online[:, place].astype(np.float32),
        "lag.target": target[:, place].astype(np.float32),
        "lag.actor": actor[:, weight].astype(np.float32),
        "lag.y": np.array([bellman(n, "actor_target", "critics_target") for n in history], np.float32),
        "lag.y_online": np.array([bellman(n, "actor", "critics") for n in history], np.float32),
    }
