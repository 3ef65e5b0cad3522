"""`td3 bench`: measure speed."""

import json

from td3.bench.options import BENCHMARKS, AnyBench
from td3.cli.options import Commands


def bench_command(options: AnyBench) -> int:
    """Measure and print."""
    from td3.bench import run

    figures, text = run(options)
    print(json.dumps(figures) if options.json else text)
    return 0


COMMANDS: Commands = {f"bench {name}": (kind, bench_command) for name, kind in BENCHMARKS.items()}
