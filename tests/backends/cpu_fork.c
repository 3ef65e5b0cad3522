// A process is forked while another thread of it is in a job: the child must not touch that job's units.
#include NATIVE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int begun, released, stale, forked;
static atomic_long done[64];

static void hold(const void *work, long unit) {
    (void)work, (void)unit;
    if (atomic_load(&forked)) {
        atomic_fetch_add(&stale, 1);
        return;
    }
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&released)) usleep(100);
}

static void count(const void *work, long unit) {
    (void)work;
    atomic_fetch_add(&done[unit], 1);
}

static void *in_a_job(void *nothing) {
    set_threads(2);
    in_parallel(hold, NULL, 64, 1);
    return nothing;
}

static int in_child(void) {
    long wrong = 0;
    alarm(60); // a pool that waits for threads of the parent waits for ever
    set_threads(4);
    for (long job = 0; job < 2000; job++) {
        for (int unit = 0; unit < 64; unit++) atomic_store(&done[unit], 0);
        in_parallel(count, NULL, 13, 1);
        for (int unit = 0; unit < 64; unit++) wrong += atomic_load(&done[unit]) != (unit < 13);
    }
    return wrong || atomic_load(&stale);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_a_job, NULL);
    while (atomic_load(&begun) < 2) usleep(100); // both its threads hold a unit, and 62 are open
    pid_t child = fork();
    if (child == 0) {
        atomic_store(&forked, 1);
        _exit(in_child());
    }
    int status;
    waitpid(child, &status, 0);
    atomic_store(&released, 1);
    pthread_join(thread, NULL);
    printf("%d\n", status);
    return 0;
}
