"""How often a run is evaluated and logged where its settings leave that open: by its length, in round numbers."""

EVALUATIONS = 20
"""Evaluations of a run at least, besides the one before training; rounding makes up to 30 of them."""
LEAST_EVAL_INTERVAL = 50
"""Env steps between evaluations at least: a run of a few hundred is a trial."""
LOG_ROWS = 1_000
"""Rows of metrics.csv of a run at most."""
LEAST_LOG_INTERVAL = 1_000
"""Env steps between rows of metrics.csv at least."""
LOG_ROUNDS = 10
"""Rounds of many environments between rows at least, as long as a hundredth of the run has so many."""
ROUND_NUMBERS = (100, 150, 200, 250, 300, 400, 500, 600, 800, 1_000)
"""Leading digits of a round number, in hundredths."""


def default_eval_every(steps: int) -> int:
    """Env steps between evaluations: the largest round number that gives 20 evaluations, and so at most 30."""
    return round_number(max(LEAST_EVAL_INTERVAL, steps // EVALUATIONS), up=False)


def default_log_every(steps: int, envs: int) -> int:
    """Env steps between rows of metrics.csv: a round number that gives at most 1,000 rows."""
    rounds = min(LOG_ROUNDS * envs, steps // 100)
    return round_number(max(LEAST_LOG_INTERVAL, -(-steps // LOG_ROWS), rounds), up=True)


def round_number(least: int, up: bool) -> int:
    """The nearest round number from `least` on, or, not `up`, from it downwards."""
    power = int(10 ** (len(str(least)) - 1))
    found = [power * digits // 100 for digits in ROUND_NUMBERS if power * digits % 100 == 0]
    return min(number for number in found if number >= least) if up else max(n for n in found if n <= least)
