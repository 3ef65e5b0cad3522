"""Stable-Baselines3's own tests of TD3, run against `td3_sb3.TD3`: `make test-sb3`.

Downloads the sources of the installed version, which carry the tests, runs every test that names TD3 with our class in
the place of theirs, and compares with what their own class does (`table.json`, made by `--baseline`). Writes the
outcomes to `table.json` and the summary to docs/sb3.md; ends with 1 if a test fails that is not in
`expected_failures.json`.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TABLE, EXPECTED, PAGE = HERE / "table.json", HERE / "expected_failures.json", ROOT / "docs" / "sb3.md"
BEGIN, END = "<!-- tests: begin -->", "<!-- tests: end -->"
THEIRS, OURS = "stable_baselines3", "td3_sb3"


def sources():
    """The folder of the installed version's sources, downloaded once."""
    name = f"stable_baselines3-{version('stable-baselines3')}"
    folder = ROOT / "build" / "sb3"
    if not (folder / name / "tests").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = f"stable-baselines3=={version('stable-baselines3')}"
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps", wanted]
        subprocess.run([*download, "--dest", folder], check=True)
        with tarfile.open(next(folder.glob("stable_baselines3-*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        (folder / name / "stable_baselines3").rename(folder / name / "unused")  # the installed package is tested
    return folder / name


def outcomes_of(implementation, arguments):
    """How each test that names TD3 ends, and what ran its updates, by its name."""
    folder = sources()
    naming = [path for path in sorted((folder / "tests").glob("test_*.py")) if "TD3" in path.read_text()]
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "outcomes.json"
        environment = os.environ | {
            "SUITE_IMPLEMENTATION": implementation,
            "SUITE_OUTCOMES": str(written),
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        files = [] if any("test_" in given for given in arguments) else naming
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-q", "-rfE", "--tb=short", *files, *arguments]
        subprocess.run(command, cwd=folder, env=environment, check=False)
        return json.loads(written.read_text()).values()


def summary(table, expected):
    """The table of docs/sb3.md."""
    lines = [
        "| their tests | pass with theirs | pass with ours | with updates by the engine alone |",
        "|---|---|---|---|",
    ]
    sums = [0, 0, 0]
    files = {}
    for name, found in table[THEIRS].items():
        if found == "passed":
            files.setdefault(name.partition("::")[0].removeprefix("tests/"), []).append(name)
    for file, names in sorted(files.items()):
        good = [name for name in names if table[OURS].get(name) == "passed"]
        numbers = len(names), len(good), sum(table["updates_by"].get(name) == "td3" for name in good)
        sums = [former + number for former, number in zip(sums, numbers, strict=True)]
        lines.append(f"| `{file}` | {numbers[0]} | {numbers[1]} | {numbers[2]} |")
    lines.append(f"| all | {sums[0]} | **{sums[1]}** | {sums[2]} |")
    failing = [name for names in files.values() for name in names if table[OURS].get(name) != "passed"]
    text = [f"Stable-Baselines3 {table['version']}:", "", *lines]
    if failing:
        text += ["", "Expected to fail:", ""]
        text += [f"- `{name.partition('::')[2]}`: {expected.get(name, 'not explained')}" for name in sorted(failing)]
    return "\n".join(text)


def with_summary(page, text):
    """The page with this table."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)


def main(arguments):
    """Run the tests; returns the exit code."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    expected = json.loads(EXPECTED.read_text())
    implementation = THEIRS if "--baseline" in arguments else OURS
    arguments = [given for given in arguments if given != "--baseline"]
    found, updates_by = outcomes_of(implementation, arguments)
    if arguments:  # a part of them, to look at
        return int("failed" in found.values())
    table = {"version": version("stable-baselines3"), **table, implementation: dict(sorted(found.items()))}
    if implementation == OURS:
        table["updates_by"] = updates_by
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    if implementation == THEIRS:
        return 0
    text = summary(table, expected)
    print(text)
    PAGE.write_text(with_summary(PAGE.read_text(), text))
    failed = {name for name, one in table[THEIRS].items() if one == "passed" and found.get(name) != "passed"}
    for name in sorted(failed - set(expected)):
        print(f"fails, and is not expected to: {name}")
    for name in sorted(set(expected) - failed):
        print(f"passes; take it out of {EXPECTED.name}: {name}")
    return int(failed != set(expected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
