"""The CPU's kernels do what the plain operations do, whatever the sizes, the layout and the number of threads."""

import ctypes
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product as combinations
from pathlib import Path

import pytest
import torch

from td3.algorithm.optimizer import Adam, NonFinite
from td3.backends import compiler as c_compiler
from td3.backends import cpu
from td3.backends.cpu_backend import CpuBackend

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")

SIZES = [
    (1, 256, 17, 256),
    (2, 256, 23, 256),
    (2, 256, 256, 256),
    (2, 256, 256, 1),
    (1, 256, 256, 6),
    (2, 256, 1, 256),
    (3, 100, 300, 400),
    *((2, *sizes) for sizes in combinations((1, 7, 17), (1, 5, 16, 33), (1, 2, 3, 9, 16, 31, 32, 33, 70))),
]


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    cpu.set_threads(1)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def laid(stack, rows, columns, transposed, seed):
    return normal(stack, columns, rows, seed=seed).mT if transposed else normal(stack, rows, columns, seed=seed)


def nothing(*shape):
    return torch.full(shape, float("nan"))


@pytest.mark.parametrize("transposed", list(combinations((False, True), repeat=2)))
@pytest.mark.parametrize("extra", ["nothing", "bias and relu", "mask", "sums"])
def test_products_equal_double_precision(transposed, extra):
    for stack, rows, inner, columns in SIZES:
        left, right = laid(stack, rows, inner, transposed[0], 1), laid(stack, inner, columns, transposed[1], 2)
        exact, size = left.double() @ right.double(), left.abs().double() @ right.abs().double()
        out, options = nothing(stack, rows, columns), {}
        if extra == "bias and relu":
            options = {"bias": normal(stack, 2 * columns, seed=3)[:, :columns], "relu": True}
            exact, size = (exact + options["bias"].unsqueeze(1)).relu(), size + options["bias"].abs().unsqueeze(1)
        elif extra == "mask":
            options = {"active": normal(stack, rows, columns, seed=4).relu()}
            exact = exact * (options["active"] > 0)
        elif extra == "sums":
            options = {"column_sums": nothing(stack, columns)}
        assert cpu.product(left, right, out, **options) is out
        assert float(((out - exact).abs() / (size + 1e-30)).max()) < 1e-6 * inner**0.5 + 2e-7, (rows, inner, columns)
        if extra == "sums":
            exact, size = right.double().sum(1), right.abs().double().sum(1)
            assert float(((options["column_sums"] - exact).abs() / size).max()) < 1e-6 * inner**0.5 + 2e-7


def test_the_number_of_threads_changes_nothing():
    for stack, rows, inner, columns in SIZES:
        left, right, bias = normal(stack, rows, inner), normal(stack, inner, columns), normal(stack, columns)
        results = []
        for threads in (1, 2, 3, 8):
            cpu.set_threads(threads)
            assert cpu.get_threads() == threads
            results.append(cpu.product(left, right, nothing(stack, rows, columns), bias=bias))
        assert all(torch.equal(result, results[0]) for result in results)


def test_the_width_of_the_machines_vectors_changes_nothing(tmp_path):
    program = (
        "import sys, torch; from td3.backends import cpu; cpu.FLAGS = (*cpu.FLAGS, *sys.argv[2:]);"
        "draw = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(0));"
        "sizes = [(2, 40, 23, 70), (1, 33, 256, 6), (2, 40, 100, 1), (2, 23, 64, 40)];"
        "made = [cpu.product(draw(s, r, i), draw(s, i, c), torch.empty(s, r, c)) for s, r, i, c in sizes];"
        "adam = [draw(2, 1000), draw(2, 1000) * 3, draw(2, 1000), draw(2, 1000).square(), torch.ones(2)];"
        "cpu.adam_(*adam, torch.tensor(1e-3, dtype=torch.float64), None); torch.save(made + adam, sys.argv[1])"
    )
    flags = [[], ["-mno-avx512f", "-O2"]] if "avx512f" in c_compiler.processor() else [[], ["-O1"]]
    found = []
    for number, more in enumerate(flags):
        file = tmp_path / f"{number}.pt"
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)} if more else None  # the usual one is there
        subprocess.run([sys.executable, "-c", program, str(file), *more], check=True, env=environment)
        found.append(torch.load(file))
    assert len(list((tmp_path / "td3").glob("*.so"))) == 1
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_twins_read_the_same_batch_and_gradients_may_be_one_number():
    left, right = normal(3, 40, 20), normal(6, 20, 30, seed=1)
    out = cpu.product(left, right, nothing(6, 40, 30))
    torch.testing.assert_close(out, left.repeat(2, 1, 1) @ right, rtol=1e-4, atol=1e-5)
    everywhere = torch.tensor(0.5).expand(2, 8, 3)
    weight = normal(2, 3, 5)
    torch.testing.assert_close(
        cpu.product(everywhere, weight, nothing(2, 8, 5)), everywhere.contiguous() @ weight, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(
        cpu.product(weight.mT, everywhere.mT, nothing(2, 5, 8)), weight.mT @ everywhere.mT, rtol=1e-5, atol=1e-6
    )


def test_nothing_times_something_is_nothing():
    for stack, rows, inner, columns in ((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0), (2, 3, 0, 5)):
        left, right = normal(stack, rows, inner), normal(stack, inner, columns)
        out = cpu.product(left, right, torch.ones(stack, rows, columns))
        assert torch.equal(out, torch.zeros(stack, rows, columns))


def test_what_is_not_a_number_stays_so():
    left, right = normal(1, 9, 40), normal(1, 40, 40)
    left[0, 4, 7] = float("nan")
    out = cpu.product(left, right, nothing(1, 9, 40), bias=normal(1, 40), relu=True)
    assert out[0, 4].isnan().all()
    assert not out[0, :4].isnan().any()
    assert cpu.product(left, right, nothing(1, 9, 40), active=torch.ones(1, 9, 40))[0, 4].isnan().all()


def test_autograd_sees_what_was_written():
    out = torch.zeros(1, 2, 3)
    before = out._version
    cpu.product(normal(1, 2, 4), normal(1, 4, 3), out)
    assert out._version > before


def test_several_threads_may_ask_at_once():
    left, right = normal(2, 128, 200), normal(2, 200, 130, seed=1)
    expected = cpu.product(left, right, nothing(2, 128, 130))

    def often(_):
        cpu.set_threads(2)
        return all(torch.equal(cpu.product(left, right, nothing(2, 128, 130)), expected) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(often, range(4)))


def output_of(name, tmp_path):
    """What a C program that includes cpu.c prints."""
    source, made = Path(__file__).with_name(name), tmp_path / "program"
    flags = ["-O2", "-march=native", f'-DNATIVE="{cpu.SOURCE}"', "-pthread", str(source), "-lm", "-o", str(made)]
    subprocess.run([*c_compiler.find_compiler(), *flags], check=True)
    return subprocess.run([made], capture_output=True, text=True, check=True).stdout


def test_every_unit_of_a_job_is_done_once(tmp_path):
    assert output_of("cpu_stress.c", tmp_path) == "0 wrong\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_job_does_nothing_of_that_job(tmp_path):
    assert output_of("cpu_fork.c", tmp_path) == "0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    cpu.set_threads(2)
    left, right = normal(2, 128, 200), normal(2, 200, 130, seed=1)
    expected = cpu.product(left, right, nothing(2, 128, 130))
    child = os.fork()
    if child == 0:
        again = [cpu.product(left, right, nothing(2, 128, 130)) for _ in range(20)]
        os._exit(0 if all(torch.equal(one, expected) for one in again) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_adam_equals_pytorchs(threads):
    cpu.set_threads(threads)
    parameters = normal(2, 3, 9_000)
    plain = parameters.double().clone().requires_grad_()
    theirs, ours = torch.optim.Adam([plain], 3e-4), Adam(parameters[:, 1:2], 3e-4, CpuBackend())
    others = parameters[:, ::2].clone()
    for number in range(60):
        gradient = normal(2, 3, 9_000, seed=number) * 10 ** (number % 5 - 3)
        plain.grad = gradient.double()
        theirs.step()
        ours.step_(gradient[:, 1:2])
    torch.testing.assert_close(parameters[:, 1:2].double(), plain.detach()[:, 1:2], rtol=1e-5, atol=1e-6)
    assert torch.equal(parameters[:, ::2], others)
    assert ours.state()["steps"].tolist() == [[60.0], [60.0]]


def test_adam_follows_a_gradient_however_it_lies():
    gradient = normal(2, 20)
    dense, apart, everywhere = (normal(2, 10, seed=1) for _ in range(3))
    Adam(dense, 1e-3, CpuBackend()).step_(gradient[:, ::2].contiguous())
    Adam(apart, 1e-3, CpuBackend()).step_(gradient[:, ::2])
    assert torch.equal(apart, dense)
    Adam(everywhere, 1e-3, CpuBackend()).step_(torch.tensor(0.5).expand(2, 10))
    torch.testing.assert_close(everywhere, normal(2, 10, seed=1) - 1e-3, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -1e30])
def test_adam_refuses_what_it_cannot_square_and_changes_nothing(broken):
    parameters, gradient = normal(2, 1, 9_000), normal(2, 1, 9_000, seed=1)
    adam = Adam(parameters, 1e-3, CpuBackend())
    adam.step_(gradient)
    before = [tensor.clone() for tensor in (parameters, *adam.state().values())]
    gradient[1, 0, -1] = broken
    with pytest.raises(NonFinite, match="a gradient is too large or not a number"):
        adam.step_(gradient)
    assert all(map(torch.equal, before, (parameters, *adam.state().values())))


FRESH_PROCESSES = """
import json, os, sys
from td3.backends import cpu
cpu.FLAGS = ("-O0",)  # not optimized, the library is made twenty times as fast
for line in sys.stdin:
    statement, environment = json.loads(line)
    if os.fork() == 0:
        os.environ.update(environment)
        exec(statement)
        sys.exit()
    print(f"\\nexit code {os.waitstatus_to_exitcode(os.wait()[1])}", flush=True)
"""


@pytest.fixture(scope="module")
def answer_of():
    """What a process prints that has loaded no library yet; they are forks of one that has imported PyTorch."""
    if not hasattr(os, "fork"):
        pytest.skip("the system has no fork")
    command = [sys.executable, "-c", FRESH_PROCESSES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:

        def ask(statement, **environment):
            process.stdin.write(f"{json.dumps([statement, environment])}\n")
            lines = []
            while not lines or not lines[-1].startswith("exit code "):
                lines.append(process.stdout.readline())
                assert lines[-1], "the process has ended"
            assert lines.pop() == "exit code 0\n"
            return "".join(lines).strip()

        yield ask
        process.stdin.close()


def test_why_there_are_none_is_said(tmp_path, answer_of):
    ask = "print(cpu.why_not())"
    assert answer_of(ask, TD3_KERNELS="torch") == "TD3_KERNELS=torch is set"
    assert answer_of(ask, PATH=str(tmp_path)).startswith("there is no C compiler (install gcc or clang")
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "no such flag" >&2; exit 1; }\n')
    broken.chmod(0o755)
    found = answer_of(ask, CC=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert found == "the C compiler could not make them: no such flag"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || exit 1\n')
    assert answer_of(ask, CC=str(broken), XDG_CACHE_HOME=str(tmp_path)).endswith("returned non-zero exit status 1.")
    assert answer_of(ask, CC='cc "-O2').endswith("No closing quotation")


def test_a_compiler_that_makes_something_else_is_found_out(tmp_path, answer_of):
    source = tmp_path / "other.c"
    source.write_text(
        "void set_threads(int c) {} int get_threads(void) { return 1; } long play(void *p, long n) { return n; }"
    )
    found = answer_of(f"import pathlib; cpu.SOURCE = pathlib.Path({str(source)!r}); print(cpu.why_not())")
    assert found.endswith("made of them does not multiply")


@pytest.fixture
def compiler(tmp_path):
    """One that notes what it is asked to make."""
    command = tmp_path / "compiler"
    command.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\nfor made; do :; done\necho "$made" | tee -a "$0.log" > "$made"\n'
    )
    command.chmod(0o755)
    return [str(command)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(cpu, "_opened", opened)
    return tmp_path / "cache" / "td3"


def opened(path):
    """Any library stands for the made-up one; its path is noted."""
    library = ctypes.CDLL(None)
    library.path = path
    return library


def times_compiled(compiler):
    return len(Path(f"{compiler[0]}.log").read_text().splitlines())


def test_they_are_compiled_once_for_each_processor(cache, monkeypatch, compiler):
    first = cpu._compiled(compiler).path
    assert first.parent == cache
    assert cpu._compiled(compiler).path == first
    monkeypatch.setattr(c_compiler, "processor", lambda: "another")
    assert cpu._compiled(compiler).path != first
    assert times_compiled(compiler) == 2
    assert sorted(file.suffix for file in cache.iterdir()) == [".sha256", ".sha256", ".so", ".so"]


def test_a_umask_that_lets_a_group_write_is_no_reason_to_compile_again(cache, compiler):
    before = os.umask(0o002)
    try:
        cpu._compiled(compiler)
        cpu._compiled(compiler)
    finally:
        os.umask(before)
    assert times_compiled(compiler) == 1


@pytest.mark.parametrize("damage", [b"", b"half of it"])
def test_a_damaged_file_is_made_again(cache, compiler, damage):
    made = cpu._compiled(compiler).path
    whole = made.read_bytes()
    made.write_bytes(damage)
    assert cpu._compiled(compiler).path == made
    assert times_compiled(compiler) == 2
    assert len(made.read_bytes()) == len(whole)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe no text", "link", "folder"])
def test_a_damaged_checksum_makes_it_again(cache, compiler, tmp_path, damage):
    made = cpu._compiled(compiler).path
    checksum = made.with_name(f"{made.name}.sha256")
    if damage == "link":
        checksum.rename(tmp_path / "elsewhere")
        checksum.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        checksum.unlink()
        checksum.mkdir()
    else:
        checksum.write_bytes(damage)
    again = cpu._compiled(compiler).path
    assert times_compiled(compiler) >= 2
    assert again.with_name(f"{again.name}.sha256").is_file()
    assert again.parent == cache or damage == "folder"  # which cannot be replaced by a file


@pytest.mark.parametrize("whose", ["a link", "another user's", "others may write"])
def test_a_library_in_the_cache_that_is_not_our_own_file_is_made_again(cache, compiler, tmp_path, monkeypatch, whose):
    made = cpu._compiled(compiler).path
    if whose == "a link":
        made.rename(tmp_path / "elsewhere.so")
        made.symlink_to(tmp_path / "elsewhere.so")
    elif whose == "others may write":
        made.chmod(0o666)
    else:
        real = Path.lstat

        def owned_by_another(path):
            found = real(path)
            foreign = path == made and times_compiled(compiler) == 1
            return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if foreign else found

        monkeypatch.setattr(Path, "lstat", owned_by_another)
    assert cpu._compiled(compiler).path == made
    assert times_compiled(compiler) == 2
    assert not made.is_symlink()


def test_a_library_without_our_functions_is_made_again_and_then_said(tmp_path, answer_of):
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;")
    change = f"import pathlib; real, cpu.SOURCE = cpu.SOURCE, pathlib.Path({str(empty)!r})"
    found = answer_of(f"{change}; print(cpu.why_not())", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert found.startswith("the C compiler could not make them: ")
    assert "has no function play" in found
    # One that is whole by its checksum lies where ours would: it is compiled anew.
    plant = (
        "import hashlib, pathlib, subprocess; cc = cpu.find_compiler(); so = next(pathlib.Path(cache).glob('*.so'));"
        "subprocess.run([*cc, '-shared', '-fPIC', source, '-o', str(so)], check=True);"
        "so.with_name(so.name + '.sha256').write_text(hashlib.sha256(so.read_bytes()).hexdigest())"
    )
    folder = tmp_path / "second"
    given = f"cache, source = {str(folder / 'td3')!r}, {str(empty)!r}"
    assert answer_of("print(cpu.why_not())", XDG_CACHE_HOME=str(folder)) == "None"
    answer_of(f"{given}; {plant}", XDG_CACHE_HOME=str(folder), TD3_KERNELS="torch")
    assert answer_of("print(cpu.why_not())", XDG_CACHE_HOME=str(folder)) == "None"


HINDRANCES = ["a file in the way", "others may write", "a link", "no home", "not to be opened"]


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_where_the_cache_cannot_be_used_the_temporary_folder_is(tmp_path, cache, monkeypatch, compiler, hindrance):
    if hindrance == "a file in the way":
        cache.parent.write_text("")
    elif hindrance == "others may write":
        cache.mkdir(parents=True)
        cache.chmod(0o777)
    elif hindrance == "a link":
        cache.parent.mkdir()
        (tmp_path / "elsewhere").mkdir()
        cache.symlink_to(tmp_path / "elsewhere")
    elif hindrance == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", raising(RuntimeError("no home")))
    else:
        monkeypatch.setattr(cpu, "_opened", lambda path: opened(path) if cache not in path.parents else refuse())
    assert cpu._compiled(compiler).path.parent.parent == tmp_path / "temporary"


def test_without_any_place_there_are_none(cache, tmp_path, compiler):
    cache.parent.write_text("")
    (tmp_path / "temporary").rmdir()
    (tmp_path / "temporary").write_text("")
    with pytest.raises(OSError):
        cpu._compiled(compiler)


def raising(error):
    def function(*_):
        raise error

    return function


def refuse():
    raise OSError("failed to map segment")
