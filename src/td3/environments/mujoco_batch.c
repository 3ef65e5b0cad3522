/* Step many MuJoCo simulations in one call, on a few threads, without Python.

   Nothing of MuJoCo is compiled in: Python passes the addresses of `mj_step` and of the numbers to read and write
   (mujoco_batch.py), so that one library serves every version of the engine. */

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define MESSAGE 200
#define MICROSECOND 1000L

/* How long a helper waits for the next round in a tight loop, and then by polling with short sleeps, before it sleeps
   until it is woken: waking it costs the caller a system call. The caller itself waits for the helpers' last steps. */
#define HELPER_SPINS (20 * MICROSECOND)
#define HELPER_POLLS (2000 * MICROSECOND)
#define SHORTEST_SLEEP (10 * MICROSECOND)
#define LONGEST_SLEEP (200 * MICROSECOND)
#define CALLER_SPINS (200 * MICROSECOND)

typedef void (*Physics)(const void *model, void *data);
typedef void (*Handler)(const char *text);

/* Arrays of every environment, `[environment][...]`. */
struct Batch {
    Physics step, after;        /* mj_step, and what follows its last call (may be NULL) */
    Handler (*get_error)(void); /* MuJoCo's handlers of this thread */
    void (*set_error)(Handler);
    Handler (*get_warning)(void);
    void (*set_warning)(Handler);
    void **models, **simulations; /* mjModel, mjData */
    double **controls;            /* where the action goes */
    const double **state_arrays;  /* [part] what is copied to `state` after the step */
    const double **observed;      /* [part] what is copied to `observations` after the step */
    const int **warnings;         /* the first of four counters, each followed by another number (mjWarningStat) */
    const long *lengths;          /* of every part of the state, and then of every part of the observation */
    const double *bounds;         /* of every part of the observation: lowest and highest number */
    const float *actions;
    double *state;
    float *observations;
    float *squared_actions; /* the sum of the action's squares */
    long *elapsed;          /* env steps since the reset */
    _Bool *truncated;
    char *failures; /* [MESSAGE] why a step failed; empty where it did not */
    long state_parts, state_size, observation_parts, observation_size, action_size, frame_skip, limit;
};

/* A thread that helps. */
struct Helper {
    struct Pool *pool;
    long number;
    pthread_t thread;
    pthread_cond_t wake;
    int asleep;
};

/* Threads that step one batch. In every round they and the caller take environments until none is left. */
struct Pool {
    const struct Batch *batch;
    const long *indices;
    _Atomic uint64_t tickets; /* upper half: the number of the round; lower half: environments still to be taken */
    _Atomic long unfinished;
    _Atomic int failed, closing;
    _Atomic long active; /* how many of the helpers take part */
    long helpers;
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct Helper helper[];
};

static _Thread_local jmp_buf escape;
static _Thread_local char *failure;

static void on_error(const char *text) {
    snprintf(failure, MESSAGE, "%s", text);
    longjmp(escape, 1); /* MuJoCo expects its handler not to return */
}

static void on_warning(const char *text) { (void)text; /* they are counted in mjData */ }

/* Copy the state of one environment as it is now. */
void read_state(const struct Batch *batch, long environment) {
    const double **state_arrays = batch->state_arrays + environment * batch->state_parts;
    double *to = batch->state + environment * batch->state_size;
    for (long part = 0; part < batch->state_parts; to += batch->lengths[part++])
        memcpy(to, state_arrays[part], sizeof(double) * (size_t)batch->lengths[part]);
}

static void write_observation(const struct Batch *batch, long environment) {
    const double **observed = batch->observed + environment * batch->observation_parts;
    const long *lengths = batch->lengths + batch->state_parts;
    float *to = batch->observations + environment * batch->observation_size;
    for (long part = 0; part < batch->observation_parts; to += lengths[part++]) {
        double low = batch->bounds[2 * part], high = batch->bounds[2 * part + 1];
        for (long i = 0; i < lengths[part]; i++) {
            double number = observed[part][i];
            to[i] = (float)(number < low ? low : number > high ? high : number);
        }
    }
}

/* The sum of squares, added up in the order in which NumPy adds (from eight numbers on, every eighth to the same). */
float square_sum(const float *action, long size) {
    float sums[8] = {0}, sum = 0;
    long i = 0;
    if (size >= 8) {
        for (; i + 8 <= size; i += 8)
            for (long j = 0; j < 8; j++) sums[j] += action[i + j] * action[i + j];
        sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; i < size; i++) sum += action[i] * action[i];
    return sum;
}

/* One env step; says whether it failed. */
static int step_one(const struct Batch *batch, long environment) {
    const void *model = batch->models[environment];
    void *simulation = batch->simulations[environment];
    const float *action = batch->actions + environment * batch->action_size;
    const int *warnings = batch->warnings[environment];
    failure = batch->failures + environment * MESSAGE;
    failure[0] = 0;
    if (setjmp(escape)) return 1;
    for (long i = 0; i < batch->action_size; i++) batch->controls[environment][i] = action[i];
    for (long frame = 0; frame < batch->frame_skip; frame++) batch->step(model, simulation);
    if (batch->after) batch->after(model, simulation);
    read_state(batch, environment);
    write_observation(batch, environment);
    batch->squared_actions[environment] = square_sum(action, batch->action_size);
    batch->truncated[environment] = ++batch->elapsed[environment] >= batch->limit;
    for (int kind = 0; kind < 4; kind++)
        if (warnings[2 * kind]) strcpy(failure, "unstable");
    return failure[0] != 0;
}

/* Take environments of this round until none is left. A thread that comes late finds another round, or nothing. */
static void work(struct Pool *pool, uint64_t round) {
    uint64_t ticket = atomic_load(&pool->tickets);
    while (ticket >> 32 == round && (ticket & UINT32_MAX)) {
        if (!atomic_compare_exchange_weak(&pool->tickets, &ticket, ticket - 1)) continue;
        if (step_one(pool->batch, pool->indices[(ticket & UINT32_MAX) - 1])) atomic_store(&pool->failed, 1);
        if (atomic_fetch_sub(&pool->unfinished, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
        ticket = atomic_load(&pool->tickets);
    }
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void pause_briefly(void) {
    for (int i = 0; i < 32; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

/* Whether a helper has something to do that it has not seen. */
static int called(const struct Helper *self, uint64_t seen) {
    struct Pool *pool = self->pool;
    if (atomic_load(&pool->closing)) return 1;
    return self->number < atomic_load(&pool->active) && atomic_load(&pool->tickets) >> 32 != seen;
}

static void wait_for_call(struct Helper *self, uint64_t seen) {
    struct Pool *pool = self->pool;
    long start = now(), waited = 0;
    while (waited < HELPER_POLLS && self->number < atomic_load(&pool->active)) {
        if (called(self, seen)) return;
        if (waited < HELPER_SPINS) {
            pause_briefly();
        } else { /* a tenth of the time that it has waited already */
            long sleep = waited / 10 < SHORTEST_SLEEP ? SHORTEST_SLEEP : waited / 10;
            nanosleep(&(struct timespec){0, sleep < LONGEST_SLEEP ? sleep : LONGEST_SLEEP}, NULL);
        }
        waited = now() - start;
    }
    pthread_mutex_lock(&pool->lock);
    self->asleep = 1;
    while (!called(self, seen)) pthread_cond_wait(&self->wake, &pool->lock);
    self->asleep = 0;
    pthread_mutex_unlock(&pool->lock);
}

static void *help(void *argument) {
    struct Helper *self = argument;
    struct Pool *pool = self->pool;
    uint64_t seen = 0;
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, MICROSECOND, 0, 0, 0); /* Linux adds 50 microseconds to every sleep otherwise */
#endif
    pool->batch->set_error(on_error);
    pool->batch->set_warning(on_warning);
    for (;;) {
        wait_for_call(self, seen);
        if (atomic_load(&pool->closing)) return NULL;
        seen = atomic_load(&pool->tickets) >> 32;
        work(pool, seen);
    }
}

static void wake(struct Pool *pool, long helpers) {
    pthread_mutex_lock(&pool->lock);
    for (long i = 0; i < helpers && i < pool->helpers; i++)
        if (pool->helper[i].asleep) pthread_cond_signal(&pool->helper[i].wake);
    pthread_mutex_unlock(&pool->lock);
}

/* A pool of at most so many threads, besides the one that calls `finish`. */
struct Pool *create(const struct Batch *batch, long helpers) {
    struct Pool *pool = calloc(1, sizeof(struct Pool) + sizeof(struct Helper) * (size_t)helpers);
    if (!pool) return NULL;
    pool->batch = batch;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (; pool->helpers < helpers; pool->helpers++) {
        struct Helper *next = &pool->helper[pool->helpers];
        next->pool = pool;
        next->number = pool->helpers;
        pthread_cond_init(&next->wake, NULL);
        if (pthread_create(&next->thread, NULL, help, next)) break; /* fewer will do */
    }
    return pool;
}

void destroy(struct Pool *pool) {
    atomic_store(&pool->closing, 1);
    wake(pool, pool->helpers);
    for (long i = 0; i < pool->helpers; i++) pthread_join(pool->helper[i].thread, NULL);
    free(pool);
}

/* Have one step done of each of these environments, by so many helpers; `indices` must stay until `finish` returns. */
void begin(struct Pool *pool, const long *indices, long count, long helpers) {
    uint64_t round = (atomic_load(&pool->tickets) >> 32) + 1;
    atomic_store(&pool->active, helpers);
    pool->indices = indices;
    atomic_store(&pool->failed, 0);
    atomic_store(&pool->unfinished, count);
    atomic_store(&pool->tickets, (round & UINT32_MAX) << 32 | (uint64_t)count);
    if (helpers > 0 && count > 1) wake(pool, helpers);
}

/* Help, and return when all of them have done their step: whether any of them failed. */
int finish(struct Pool *pool) {
    const struct Batch *batch = pool->batch;
    Handler error = batch->get_error(), warning = batch->get_warning();
    batch->set_error(on_error);
    batch->set_warning(on_warning);
    work(pool, atomic_load(&pool->tickets) >> 32);
    batch->set_error(error);
    batch->set_warning(warning);
    long until = now() + CALLER_SPINS;
    while (atomic_load(&pool->unfinished) && now() < until) pause_briefly();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->unfinished)) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load(&pool->failed);
}
