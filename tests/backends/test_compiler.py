"""Which library serves a C file."""

import pytest

from td3.backends import compiler

OLD, USUAL, WIDE = "sse2 avx", "sse2 avx avx2 bmi1 bmi2 f16c fma", " ".join(["sse2", *compiler.LEVELS.values()])


@pytest.mark.parametrize(
    ("flags", "there", "chosen"),
    [
        (WIDE, ["v3", "v4"], "v4"),
        (WIDE, ["v3"], "v3"),
        (USUAL, ["v3", "v4"], "v3"),
        (USUAL, ["v4"], None),
        (OLD, ["v3", "v4"], None),
        (WIDE, [], None),
    ],
)
def test_the_widest_library_that_the_processor_knows_is_taken(monkeypatch, tmp_path, flags, there, chosen):
    monkeypatch.setattr(compiler, "processor", lambda: f"x86_64\nflags : {flags}")
    for level in there:
        (tmp_path / f"sums-x86-64-{level}.so").touch()
    found = compiler.ready_made(tmp_path / "sums.c", lambda path: path.name)
    assert found == (chosen and f"sums-x86-64-{chosen}.so")


def test_a_library_that_cannot_be_opened_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "processor", lambda: f"flags : {WIDE}")
    for level in compiler.LEVELS:
        (tmp_path / f"sums-{level}.so").write_bytes(b"made for another system")
    assert compiler.ready_made(tmp_path / "sums.c", lambda path: compiler.open_library(path, ())) is None


def test_a_checkout_has_no_library_beside_its_sources():
    package = compiler.Path(compiler.__file__).parents[1]
    assert not list(package.rglob("*.so"))
