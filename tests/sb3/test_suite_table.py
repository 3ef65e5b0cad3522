"""The stored outcomes of Stable-Baselines3's own tests (`make test-sb3`), and what docs/sb3.md says of them."""

import json

from sb3.suite import run

TABLE = json.loads(run.TABLE.read_text())
EXPECTED = json.loads(run.EXPECTED.read_text())


def test_the_page_has_the_stored_table():
    page = run.PAGE.read_text()
    assert run.with_summary(page, run.summary(TABLE, EXPECTED)) == page
    assert "pass with ours" in page


def test_nearly_all_tests_that_pass_with_theirs_pass_with_ours():
    passing = [name for name, outcome in TABLE[run.THEIRS].items() if outcome == "passed"]
    failing = {name for name in passing if TABLE[run.OURS].get(name) != "passed"}
    assert failing == set(EXPECTED)
    assert all(len(reason) > 40 for reason in EXPECTED.values())
    assert len(passing) - len(failing) >= 58


def test_a_failure_that_is_not_expected_is_reported(monkeypatch, tmp_path, capsys):
    name = next(name for name, outcome in TABLE[run.OURS].items() if outcome == "passed")
    found = TABLE[run.OURS] | {name: "failed"}
    for file in ("TABLE", "PAGE"):
        (tmp_path / file).write_text(getattr(run, file).read_text())
        monkeypatch.setattr(run, file, tmp_path / file)
    monkeypatch.setattr(run, "outcomes_of", lambda implementation, arguments: (found, TABLE["updates_by"]))
    assert run.main([]) == 1
    assert f"fails, and is not expected to: {name}" in capsys.readouterr().out
    assert "not explained" in (tmp_path / "PAGE").read_text()
