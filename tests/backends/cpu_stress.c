// Many short jobs for the threads of cpu.c: every unit must be done exactly once, and before its job is over.
#include NATIVE
#include <stdio.h>

static atomic_long done[64];

static void count(const void *work, long unit) {
    (void)work;
    atomic_fetch_add(&done[unit], 1);
}

int main(void) {
    long wrong = 0;
    for (int sharing = 2; sharing < 6; sharing++) {
        set_threads(sharing);
        for (long job = 0; job < 10000; job++) {
            long units = 2 + job % 13;
            for (int unit = 0; unit < 64; unit++) atomic_store(&done[unit], 0);
            in_parallel(count, NULL, units, 1);
            for (int unit = 0; unit < 64; unit++) wrong += atomic_load(&done[unit]) != (unit < units);
        }
    }
    printf("%ld wrong\n", wrong);
    return 0;
}
