"""What `td3 ladder` does and says: the list of rungs, one rung with its plot, all of them with their page."""

import math
import sys
from pathlib import Path
from typing import Any

from td3.errors import ConfigError
from td3_lessons.ladder import page, plots
from td3_lessons.ladder.climb import (
    MODULES,
    NUMBERS,
    RAIL,
    Result,
    chance,
    climb,
    diff_to_below,
    lesson,
    make_task,
    optimum,
    run_rung,
    rung_module,
    share,
)
from td3_lessons.ladder.ideas import IDEAS

FOLDER = Path("runs/ladder")


def run(
    rung: str,
    env: str = RAIL,
    seed: int = 0,
    seeds: int = 10,
    steps: int | None = None,
    reward_noise: float = 0.0,
    out: Path | None = None,
    plot: Path | None = None,
) -> tuple[dict[str, Any], str]:
    """List the rungs, climb one, or climb all: the figures, and the same in words."""
    if rung == "list":
        return listed(), listing()
    for name, given, least in (("seed", seed, 0), ("seeds", seeds, 1), ("steps", steps, 1)):
        if given is not None and given < least:
            raise ConfigError(f"must be a whole number of at least {least}, but {given} was given.", name)
    if not (reward_noise >= 0 and math.isfinite(reward_noise)):
        raise ConfigError(f"must be a number of at least 0, but {reward_noise} was given.", "reward_noise")
    if rung == "all":
        if env != RAIL or reward_noise:
            raise ConfigError(
                "`td3 ladder all` compares the rungs on Rail-v0 as it is: leave --env and --reward-noise out."
            )
        figures = climb_all(seed, seeds, steps, out, plot)
        return figures, describe_all(figures)
    if not (rung.isdecimal() and int(rung) in NUMBERS):
        raise ConfigError(f"there is no rung {rung!r}: give 1 to 6, or all; `td3 ladder` lists them.")
    figures = climb_one(int(rung), env, seed, steps, reward_noise, out)
    return figures, describe_one(figures)


def listed() -> dict[str, Any]:
    """Every rung: its title, its idea, its file and how many lines differ from the rung below."""
    return {
        str(number): {
            "title": lesson(number).title,
            "idea": page.sentence(lesson(number).idea),
            "file": str(rung_module(number).__file__),
            "changed_lines": diff_to_below(number).changed if number > 1 else None,
        }
        for number in NUMBERS
    }


def listing() -> str:
    """The same in words."""
    lines = []
    for number, rung in listed().items():
        changed = f" ({rung['changed_lines']} lines changed)" if rung["changed_lines"] else ""
        lines += [f"{number}  {rung['title']}{changed}", f"   {rung['idea']}", f"   {rung['file']}"]
    return "\n".join([*lines, "Run one: td3 ladder 3.  All, with a page of curves and diffs: td3 ladder all"])


def climb_one(
    number: int, env: str, seed: int, steps: int | None, reward_noise: float, out: Path | None
) -> dict[str, Any]:
    """Run one rung, draw it, and give its figures."""
    make_task(number, env, reward_noise).environment.close()
    path = out or FOLDER / f"{MODULES[number - 1]}{'' if env == RAIL else '_' + env.replace('/', '_')}.png"
    plots.require_plots(path, (".png", ".svg"))
    result = run_rung(number, env, seed, steps, reward_noise)
    plots.draw_rung(result, path)
    figures: dict[str, Any] = {
        "rung": number,
        "title": lesson(number).title,
        "env": env,
        "seed": seed,
        "env_steps": result.steps.tolist(),
        "returns": result.returns.tolist(),
        "seconds": round(result.seconds, 1),
        "plot": str(path),
    }
    if env == RAIL:
        figures |= {"optimum": optimum(), "random_forces": chance(), "share_of_optimum": share(result.returns[-1])}
    if result.overestimate is not None and result.self_deception is not None:
        figures |= {
            "value_minus_exact_q": float(result.overestimate[-1]),
            "value_minus_own_return": float(result.self_deception[-1]),
        }
    return figures


def describe_one(figures: dict[str, Any]) -> str:
    """The figures of one rung in words."""
    lines = [
        f"Rung {figures['rung']}, {figures['title']}, on {figures['env']}: {figures['env_steps'][-1]:,} env steps "
        f"in {figures['seconds']:.0f} s, seed {figures['seed']}.",
        f"Return before: {figures['returns'][0]:.2f}",
        f"Return after:  {figures['returns'][-1]:.2f}",
    ]
    if "optimum" in figures:
        lines.append(
            f"Optimum:       {figures['optimum']:.2f} (random forces {figures['random_forces']:.2f}; "
            f"{100 * figures['share_of_optimum']:.1f} % of the way)"
        )
    if "value_minus_exact_q" in figures:
        lines.append(f"It predicts {figures['value_minus_own_return']:+.2f} more than its policy earns (one seed).")
    return "\n".join([*lines, f"The plot is {figures['plot']}"])


def climb_all(seed: int, seeds: int, steps: int | None, out: Path | None, plot: Path | None) -> dict[str, Any]:
    """Run all six with several seeds, write the page, and give its figures; how far it is goes to stderr."""
    path = out or FOLDER / "ladder.html"
    plots.require_plots(path, (".html",))
    if plot is not None:
        plots.require_plots(plot, (".png", ".svg"))
    jobs = page.jobs(seed, seeds, steps) + page.idea_jobs(seed, seeds, steps)
    done: list[Result] = []

    def tell(result: Result) -> None:
        done.append(result)
        noise = f", reward noise {result.reward_noise:g}" if result.reward_noise else ""
        title = IDEAS[result.idea].title if result.idea else plots.short_title(result.number)
        name = f"rung {result.number} {title}, seed {result.seed}{noise}"
        end = f"return {result.returns[-1]:.2f} in {result.seconds:.0f} s"
        print(f"{len(done)}/{len(jobs)}  {name}: {end}", file=sys.stderr, flush=True)

    results = climb(jobs, said=tell)
    words = [f"td3 ladder all --seeds {seeds}", *([f"--seed {seed}"] if seed else [])]
    page.write_page(results, path, " ".join([*words, *([f"--steps {steps}"] if steps else [])]))
    if plot is not None:
        plots.draw_ladder(results, plot)
    return {"page": str(path), **page.figures(results)}


def describe_all(figures: dict[str, Any]) -> str:
    """The figures of the page in words."""
    lines = [f"Optimum {figures['optimum']:.2f}, random forces {figures['random_forces']:.2f}, discounted return:"]
    for number, rung in figures["rungs"].items():
        lines.append(
            f"  rung {number} {plots.short_title(int(number)):<21} {as_text(rung['return'])}, "
            f"{100 * rung['share_of_optimum']['mean']:.1f} % of the way"
        )
    lines.append("Predicted minus earned at the end:")
    for name, row in figures["overestimation"].items():
        bias = row["self_deception"]
        noise = name.removeprefix("reward_noise_")
        lines.append(f"  reward noise {noise}: DDPG {as_text(bias['DDPG'], '+')}, TD3 {as_text(bias['TD3'], '+')}")
    lines.append("One idea at a time, predicted minus earned at the end:")
    for name, row in figures["ideas"].items():
        lines.append(f"  {IDEAS[name].title}: {as_text(row['self_deception'], '+')}, return {as_text(row['return'])}")
    return "\n".join([*lines, f"The page is {figures['page']}"])


def as_text(row: dict[str, Any], sign: str = "") -> str:
    """Mean and 95 % interval; of one seed the number alone."""
    if row["low"] is None:
        return f"{row['mean']:{sign}.2f} (one seed, no interval)"
    return f"{row['mean']:{sign}.2f} (95 % interval {row['low']:{sign}.2f} to {row['high']:{sign}.2f})"
