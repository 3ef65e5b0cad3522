"""What the project has measured with five seeds or more, as sentences that are recomputed from the stored data."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from td3.environments.rail import FALL
from td3.statistics import FEWEST_SEEDS, compare, difference_interval, mean_interval
from td3_lessons.explain import toy
from td3_lessons.explain.breaks import RACE_UPDATES, RACES
from td3_lessons.explain.claim import Computed, claim
from td3_lessons.explain.evidence import EVERY_UPDATES, MARGIN, at_the_end, races, rail, stored_bodies, verdict
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.recorded import recorded


@claim(
    "rail.belief",
    "From the starts of Rail the best policy earns {best:.1f}. At the end of training DDPG predicts {ddpg:.1f}, more than is "
    "possible in {above} of 30 seeds; TD3 predicts {td3:.1f}, more than is possible in {td3_above} of 30.",
    30,
)
def _() -> Computed:
    (ddpg, td3), best = (at_the_end(who, "q") for who in ("ddpg", "td3")), rail()["best"]
    above, td3_above = (int((values > best).sum()) for values in (ddpg, td3))
    holds = mean_interval(ddpg - best)[0] > 0 > mean_interval(td3 - best)[1] and difference_interval(ddpg, td3)[0] > 0
    values = {"best": best, "ddpg": ddpg.mean(), "td3": td3.mean(), "above": above, "td3_above": td3_above}
    return bool(holds and above > 2 * td3_above), values


@claim(
    "rail.gap",
    "Nor do 30 seeds show that TD3's predictions are nearer to what its own policy earns: they end {td3:.1f} above it, DDPG's "
    "{ddpg:.1f}, a difference of {apart:.1f} ({low:.1f} to {high:.1f}).",
    30,
)
def _() -> Computed:
    ddpg, td3 = (at_the_end(who, "q") - at_the_end(who, "earned") for who in ("ddpg", "td3"))
    low, high = difference_interval(ddpg, td3)
    return bool(low < 0 < high), {
        "ddpg": ddpg.mean(),
        "td3": td3.mean(),
        "apart": ddpg.mean() - td3.mean(),
        "low": low,
        "high": high,
    }


@claim(
    "rail.impossible",
    "No reward on Rail is above 0, so a Q-value above 0 is impossible; {above} of DDPG's 30 seeds end with such a mean "
    "prediction, and {td3} of TD3's.",
    30,
)
def _() -> Computed:
    above, td3 = (int((at_the_end(who, "q") > 0).sum()) for who in ("ddpg", "td3"))
    rewards = lesson_trace().arrays["memory"][:, 5]
    return bool(rewards.max() <= 0 and above > td3), {"above": above, "td3": td3 or "none"}


@claim(
    "rail.returns",
    "Whether TD3 also earns more on Rail, these 30 seeds cannot decide: {td3:.1f} against DDPG's {ddpg:.1f}, a difference "
    "of {apart:.1f} ({low:.1f} to {high:.1f}).",
    30,
)
def _() -> Computed:
    td3, ddpg = at_the_end("td3", "return"), at_the_end("ddpg", "return")
    made = compare(td3, ddpg, MARGIN * abs(float(ddpg.mean())))
    means = {"td3": td3.mean(), "ddpg": ddpg.mean()}
    return made.verdict == "undecided", means | {"apart": made.difference, "low": made.low, "high": made.high}


@claim(
    "rail.failures", "TD3 fails here too: {failed} of its 30 seeds end below -10, where -4.8 is the best possible.", 30
)
def _() -> Computed:
    failed = int((at_the_end("td3", "return") < -10).sum())
    return failed > 0 and round(lesson_trace().facts["optimum"], 1) == -4.8, {"failed": failed}


@claim(
    "rail.early",
    "After {update} updates TD3's critic 1 predicts {q:.1f} for the starts of episodes, and its policy earns {earned:.1f}; "
    "it predicts too much in {above} of 30 seeds.",
    30,
)
def _() -> Computed:
    q, earned = races()["td3"]["q"][:, 1], races()["td3"]["earned"][:, 1]
    return bool(mean_interval(q - earned)[0] > 0 and (q > earned).sum() > 5), {
        "above": int((q > earned).sum()),
        "update": EVERY_UPDATES,
        "q": q.mean(),
        "earned": earned.mean(),
    }


@claim(
    "census.rows",
    "Of all updates of ten seeds, {falls:.0%} lower the loss of both critics on their own batch, but only {rows:.0%} of "
    "the rows come closer to y by both critics.",
    10,
)
def _() -> Computed:
    rows, falls = (float(lesson_trace().arrays[f"census.{name}"].mean()) for name in ("approach", "falls"))
    return falls > 0.5 > rows, {"rows": rows, "falls": falls}


@claim(
    "census.largest",
    "On average the largest of the 64 squared errors makes {largest:.0%} of critic 1's loss.",
    10,
)
def _() -> Computed:
    arrays = lesson_trace().arrays
    largest = float(arrays["census.largest"].mean())
    return bool(arrays["memory"][:, 5].min() < -FALL), {"largest": largest}


def _body(body: str) -> dict[str, Any]:
    return dict(stored_bodies()[body])


def _believes(body: str) -> Computed:
    mean, low, high = _body(body)["ddpg"]["too_much"]
    apart = _body(body)["difference"]
    less, most, least = apart["difference"]
    values = {"much": mean, "low": low, "high": high, "less": -less, "least": -least, "most": -most, "more": less}
    values |= {"from_": most, "to": least, "td3": -_body(body)["td3"]["too_much"][0]}
    return low > 0 and _body(body)["td3"]["too_much"][2] < 0, values | {"verdict": apart["verdict"]}


LOSES = (
    "On {body} DDPG believes {{much:.0f}} too much ({{low:.0f}} to {{high:.0f}}), TD3 {{td3:.0f}} too little; DDPG earns "
    "{{less:,.0f}} less ({{least:,.0f}} to {{most:,.0f}}; ten seeds each)."
)
for _name, _env in (("hopper", "Hopper-v5"), ("walker", "Walker2d-v5"), ("ant", "Ant-v5")):

    def _worse(env: str = _env) -> Computed:
        holds, values = _believes(env)
        return holds and values["verdict"] == "worse", values

    claim(f"bodies.{_name}", LOSES.format(body=_env), 10)(_worse)


@claim(
    "bodies.cheetah",
    "HalfCheetah-v5 goes the other way: DDPG believes {much:.0f} too much ({low:.0f} to {high:.0f}), and its return, {more:+.0f} "
    "against TD3's, is not shown to be lower ({from_:+,.0f} to {to:+,.0f}; ten seeds each).",
    10,
)
def _() -> Computed:
    holds, values = _believes("HalfCheetah-v5")
    return holds and values["verdict"] == "undecided", values


def _removed(body: str, change: str, wanted: str) -> Computed:
    row = _body(body)["removed"][change]
    difference, low, high = row["difference"]
    values = {"ours": row["ours"], "theirs": row["theirs"], "less": -difference, "least": -high, "most": -low}
    return row["verdict"] == wanted and row["seeds"] >= FEWEST_SEEDS, values | {
        "more": difference,
        "low": low,
        "high": high,
    }


REMOVALS = {
    "bodies.ant.first": (
        "Ant-v5",
        "first",
        "worse",
        "Without the minimum, TD3 earns {ours:,.0f} on Ant-v5 instead of {theirs:,.0f} (ten seeds each).",
    ),
    "bodies.cheetah.first": (
        "HalfCheetah-v5",
        "first",
        "better",
        "On HalfCheetah-v5 the minimum costs: without it the return is {more:,.0f} higher ({low:,.0f} to {high:,.0f}).",
    ),
    "bodies.hopper.nosmooth": (
        "Hopper-v5",
        "nosmooth",
        "worse",
        "Without smoothing, TD3 earns {less:,.0f} less on Hopper-v5 ({least:,.0f} to {most:,.0f}; ten seeds each).",
    ),
    "bodies.ant.nodelay": (
        "Ant-v5",
        "nodelay",
        "worse",
        "Without the delay, TD3 earns {less:,.0f} less on Ant-v5 ({least:,.0f} to {most:,.0f}; ten seeds each).",
    ),
    "bodies.timeout": (
        "Hopper-v5",
        "timeout",
        "worse",
        "Treated as a termination, it costs {less:,.0f} on Hopper-v5 ({least:,.0f} to {most:,.0f}; ten seeds each).",
    ),
}
"""One part removed on one body: the verdict that the sentence needs."""
for _name, (_env, _change, _wanted, _text) in REMOVALS.items():
    claim(_name, _text, 10)(partial(_removed, _env, _change, _wanted))
OPEN = {
    "bodies.nosmooth.undecided": (
        "nosmooth",
        ("Walker2d-v5", "HalfCheetah-v5"),
        "On Walker2d-v5 and HalfCheetah-v5 ten seeds do not decide whether smoothing helps.",
    ),
    "bodies.nodelay.undecided": (
        "nodelay",
        ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5"),
        "On the other three bodies ten seeds do not decide whether the delay helps.",
    ),
}
"""One part removed on several bodies, undecided on each."""


def _undecided(change: str, bodies: Sequence[str]) -> Computed:
    return all(_removed(body, change, "undecided")[0] for body in bodies), {}


for _name, (_change, _bodies, _text) in OPEN.items():
    claim(_name, _text, 10)(partial(_undecided, _change, _bodies))


@claim(
    "toy.once",
    "The actor's pick is really worth 0; critic 1 alone believes {one:+.2f} of it, the minimum of two {two:+.2f}, of ten "
    "{ten:+.2f} (means of 300 draws).",
    toy.DRAWS,
)
def _() -> Computed:
    one, two, ten = toy.errors()[[0, 1, 9]]
    return bool(one > 1 and abs(two) < 0.2 * one and ten < -1), {"one": one, "two": two, "ten": ten}


@claim(
    "toy.loop",
    "After ten rounds, in which each y starts from the belief before, one critic believes {one:+.1f}, the minimum of two "
    "{two:+.1f}, of ten {ten:+.1f}.",
    toy.DRAWS,
)
def _() -> Computed:
    one, two, ten = toy.believed()[[0, 1, 9]]
    return bool(one > 5 and abs(two) < 0.2 * one and ten < -5), {"one": one, "two": two, "ten": ten}


@claim(
    "toy.count", "Two critics come closest to 0 of all counts from one to ten, and lie below it: biased low.", toy.DRAWS
)
def _() -> Computed:
    return bool(np.abs(toy.errors()).argmin() == 1 and toy.errors()[1] < 0), {}


def _ladder_mean(run: str, what: str) -> str:
    values = np.array(recorded()[run][what])
    low, high = mean_interval(values)
    return f"{values.mean():.2f} ({low:.2f} to {high:.2f})"


@claim(
    "ladder.returns",
    "What the ladder does not show is that TD3 earns more: on a problem this small the returns of DDPG, {ddpg}, and TD3, "
    "{td3}, cannot be told apart with ten seeds.",
    10,
)
def _() -> Computed:
    ddpg, td3 = (np.array(recorded()[f"rung_{n}"]["return"]) for n in (5, 6))
    low, high = difference_interval(td3, ddpg)
    return bool(low < 0 < high), {"ddpg": _ladder_mean("rung_5", "return"), "td3": _ladder_mean("rung_6", "return")}


@claim(
    "ladder.belief",
    "Without noise in the reward, DDPG predicts {ddpg} more than its policy earns; for TD3 the number is {td3}, an interval "
    "around 0 (ten seeds each).",
    10,
)
def _() -> Computed:
    ddpg, td3 = (np.array(recorded()[f"rung_{n}"]["self_deception"]) for n in (5, 6))
    holds = mean_interval(ddpg)[0] > 0 and mean_interval(td3)[0] < 0 < mean_interval(td3)[1]
    return bool(holds), {
        "ddpg": _ladder_mean("rung_5", "self_deception"),
        "td3": _ladder_mean("rung_6", "self_deception"),
    }


@claim(
    "ladder.noisy",
    "With noise in the reward DDPG predicts {ddpg} more than its policy earns; for TD3, {td3}, ten seeds do not decide.",
    10,
)
def _() -> Computed:
    ddpg, td3 = (np.array(recorded()[f"rung_{n}_noisy"]["self_deception"]) for n in (5, 6))
    holds = mean_interval(ddpg)[0] > 0 and mean_interval(td3)[0] < 0 < mean_interval(td3)[1]
    return bool(holds), {
        "ddpg": _ladder_mean("rung_5_noisy", "self_deception"),
        "td3": _ladder_mean("rung_6_noisy", "self_deception"),
    }


@claim(
    "ladder.luck",
    "Rung 3 depends on luck: its ten seeds end between {low:.1f} and {high:.1f}, those of rung 4, with a critic, between "
    "{critic_low:.1f} and {critic_high:.1f}.",
    10,
)
def _() -> Computed:
    plain, critic = (np.array(recorded()[f"rung_{number}"]["return"]) for number in (3, 4))
    ends = {"low": plain.min(), "high": plain.max(), "critic_low": critic.min(), "critic_high": critic.max()}
    return bool(np.ptp(plain) > 2 * np.ptp(critic)), ends


@claim(
    "ladder.best",
    "Against Q* DDPG predicts too much by {ddpg}; TD3 is {td3} away, to the other side.",
    10,
)
def _() -> Computed:
    ddpg, td3 = (np.array(recorded()[f"rung_{n}"]["overestimate"]) for n in (5, 6))
    holds = mean_interval(ddpg)[0] > 0 > mean_interval(td3)[1]
    return bool(holds), {"ddpg": _ladder_mean("rung_5", "overestimate"), "td3": _ladder_mean("rung_6", "overestimate")}


@claim(
    "ladder.ideas",
    "Of the three changes, twin critics alone bring predictions down to {twin}; with delay alone they stay at {delay}, with "
    "smoothing alone at {smoothing}.",
    10,
)
def _() -> Computed:
    ends = {name: np.array(recorded()[name]["self_deception"]) for name in ("twin", "delay", "smoothing")}
    ddpg = np.array(recorded()["rung_5"]["self_deception"])
    holds = bool(difference_interval(ends["twin"], ddpg)[1] < 0)
    holds = holds and all(mean_interval(ends[name])[0] > 0 for name in ("delay", "smoothing"))
    return bool(holds), {name: _ladder_mean(name, "self_deception") for name in ends}


@claim(
    "race.count",
    "Every change is trained with {seeds} seeds for {updates:,} updates, with the settings of the whole page.",
    10,
)
def _() -> Computed:
    shapes = {run["return"].shape for run in races().values()}
    (seeds, moments), *others = shapes
    return not others and moments == RACE_UPDATES // EVERY_UPDATES + 1, {"seeds": seeds, "updates": RACE_UPDATES}


SAID = {
    "better": "“{label}” raises the return",
    "worse": "“{label}” lowers the return",
    "equivalent": "“{label}” makes no difference to the return",
    "undecided": "30 seeds do not decide what “{label}” does to the return",
}
"""What a verdict says of a change."""


def _raced(name: str) -> Computed:
    made, ends = verdict(name), [at_the_end(each, "return").mean() for each in (name, "td3")]
    values = {"said": SAID[made.verdict].format(label=RACES[name].label), "ours": ends[0], "theirs": ends[1]}
    return min(made.seeds) >= FEWEST_SEEDS, values | {"apart": made.difference, "low": made.low, "high": made.high}


RACED = "On Rail, {said}: {ours:.1f} instead of {theirs:.1f}, a difference of {apart:+.1f} ({low:+.1f} to {high:+.1f})."
for _name in RACES:
    claim(f"race.{_name}", RACED, 30)(partial(_raced, _name))


@claim(
    "race.verdicts",
    "Of {all} changes, 30 seeds show {worse} to lower the return on Rail and {better} to raise it; of the others they do "
    "not decide.",
    10,
)
def _() -> Computed:
    made = [verdict(name).verdict for name in RACES]
    counts = {kind: made.count(kind) or "none" for kind in ("worse", "better")}
    return made.count("equivalent") == 0, {"all": len(made), **counts}
