"""The thread pool of mujoco_batch.c, with a step that counts in place of MuJoCo's: every environment once, no races."""

import subprocess

import pytest

from td3.backends.compiler import find_compiler
from td3.environments.mujoco_library import SOURCE

PROGRAM = """
#include SOURCE

enum { COUNT = 7, FAILING = 3, FRAMES = 5 };

static Handler get_handler(void) { return NULL; }
static void set_handler(Handler handler) { (void)handler; }
static void count(const void *model, void *data) {
    double *counted = data;
    counted[0] += 1;
    if (model && (long)counted[0] % 97 == 0) on_error("planted");
}

int main(void) {
    static double data[COUNT][3], state[COUNT];
    static float actions[COUNT], observations[COUNT], squares[COUNT];
    static int counters[COUNT][8];
    static long elapsed[COUNT];
    static _Bool truncated[COUNT];
    static char failures[COUNT][MESSAGE];
    void *models[COUNT] = {0}, *simulations[COUNT];
    double *controls[COUNT], expected[COUNT] = {0}, bounds[] = {-1e300, 1e300};
    const double *sources[COUNT];
    const int *warnings[COUNT];
    const long lengths[] = {1, 1};
    for (int i = 0; i < COUNT; i++) {
        simulations[i] = data[i], controls[i] = &data[i][2], sources[i] = data[i], warnings[i] = counters[i];
    }
    models[FAILING] = data;
    struct Batch batch = {count, NULL, get_handler, set_handler, get_handler, set_handler, models, simulations,
                          controls, sources, sources, warnings, lengths, bounds, actions, state, observations,
                          squares, elapsed, truncated, &failures[0][0], 1, 1, 1, 1, 1, FRAMES, 1000000000};
    long failed = 0;
    for (int pools = 0; pools < 3; pools++) {
        struct Pool *pool = create(&batch, 3);
        for (long round = 0; round < 1000; round++) {
            long indices[COUNT], many = 0;
            for (long i = 0; i < COUNT; i++)
                if ((round * 7 + i * 3 + pools) % 4) indices[many++] = i;
            begin(pool, indices, many, round % 5);
            if (round % 100 == 0) nanosleep(&(struct timespec){0, 2 * HELPER_POLLS}, NULL); /* they fall asleep */
            failed += finish(pool);
            for (long k = 0; k < many; k++) {
                long i = indices[k];
                if (i != FAILING && state[i] != (expected[i] += FRAMES)) return 1;
            }
        }
        destroy(pool);
    }
    return failed > 0 && !strcmp(failures[0], "") ? 0 : 2;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_every_environment_is_stepped_once_a_round_and_no_thread_races(tmp_path, sanitizer):
    source, made = tmp_path / "pool.c", tmp_path / "pool"
    source.write_text(PROGRAM)
    flags = ["-O1", "-g", "-std=gnu11", f'-DSOURCE="{SOURCE}"', "-pthread", str(source), "-lm", "-o", str(made)]
    compiled = subprocess.run([*find_compiler(), f"-fsanitize={sanitizer}", *flags], capture_output=True, text=True)
    if compiled.returncode and any(word in compiled.stderr for word in ("sanitize", "cannot find")):
        pytest.skip("this compiler has no such sanitizer")
    assert compiled.returncode == 0, compiled.stderr
    found = subprocess.run([str(made)], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
