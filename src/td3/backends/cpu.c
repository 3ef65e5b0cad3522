// What PyTorch would do in several passes over memory as one pass each, for the CPU; GPUs have triton_kernels.py.
//
// Compiled for the machine at hand when it is first needed (cpu.py). Every sum runs in an order that depends neither on
// the number of threads nor on the width of the machine's vectors, so neither changes a single bit.

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A tile of `HIGH` rows and two vectors' width of the result is summed up in registers: as large as they allow.
#if defined(__AVX512F__)
enum { LANES = 16, HIGH = 8 };
#elif defined(__AVX__)
enum { LANES = 8, HIGH = 6 };
#else
enum { LANES = 4, HIGH = 6 };
#endif
enum { WIDE = 2 * LANES, DOT_LANES = 16, MOST_THREADS = 64 };
enum { NEAR = 8192 }; // floats that stay in the nearest cache

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float DotVector __attribute__((vector_size(4 * DOT_LANES), aligned(4)));
#define INLINE static inline __attribute__((always_inline))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#if defined(__FMA__) || defined(__aarch64__) // rounded once, wherever the compiler might choose either
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// ---- Threads --------------------------------------------------------------------------------------------------------
//
// A piece of work is cut into units. Each thread has a share of them to begin with (the same one every time, so that what
// it needs is still near) and then helps the others: a thread that is not running, because another process has its core,
// delays the others only by the unit it is at.

typedef void Unit(const void *work, long unit);

static struct Pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_mutex_t in_use;
    _Atomic(Unit *) function;
    _Atomic(const void *) work;
    atomic_long end[MOST_THREADS];
    struct { _Alignas(64) atomic_ullong place; } next[MOST_THREADS]; // number of the job << 32 | next unit of that share
    _Alignas(64) atomic_uint job;
    _Alignas(64) atomic_long done;
    _Alignas(64) atomic_int asleep;
    atomic_int sharing;
    int started;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .in_use = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int threads = 1;

INLINE void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Do units of a job until none is left. A claim that succeeds proves that the job is still open, and so what it says is valid.
static void do_units(unsigned job, int self, int sharing) {
    for (int turn = 0; turn < sharing; turn++) {
        int share = (self + turn) % sharing;
        for (;;) {
            unsigned long long place = atomic_load_explicit(&pool.next[share].place, memory_order_acquire);
            if ((unsigned)(place >> 32) != job) return;
            if ((long)(place & 0xffffffff) >= pool.end[share]) break;
            Unit *function = pool.function;
            const void *work = pool.work;
            if (!atomic_compare_exchange_weak(&pool.next[share].place, &place, place + 1)) continue;
            function(work, (long)(place & 0xffffffff));
            atomic_fetch_add_explicit(&pool.done, 1, memory_order_release);
        }
    }
}

static void *worker(void *number) {
    int self = (int)(intptr_t)number;
    unsigned seen = 0;
    for (;;) {
        unsigned job = seen;
        for (int spins = 0; spins < 5000; spins++) { // a tenth of a millisecond or two: the next job is usually near
            job = atomic_load_explicit(&pool.job, memory_order_acquire);
            if (job != seen) break;
            relax();
        }
        if (job == seen) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep, 1);
            while ((job = atomic_load(&pool.job)) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = job;
        int sharing = pool.sharing;
        if (self < sharing) do_units(job, self, sharing);
    }
    return NULL;
}

static void in_parallel(Unit *function, const void *work, long units, int worthwhile) {
    int sharing = (int)SMALLER((long)threads, units);
    if (sharing < 2 || !worthwhile || pthread_mutex_trylock(&pool.in_use)) {
        for (long unit = 0; unit < units; unit++) function(work, unit);
        return;
    }
    for (; pool.started < sharing - 1; pool.started++) {
        pthread_t thread;
        sigset_t all, before; // signals are for the threads that asked for them
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int failed = pthread_create(&thread, NULL, worker, (void *)(intptr_t)(pool.started + 1));
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (failed) break; // the others do its share
        pthread_detach(thread);
    }
    unsigned job = atomic_load(&pool.job) + 1;
    for (int share = 0; share < MOST_THREADS; share++) // whoever is still looking at the last job finds nothing there
        atomic_store_explicit(&pool.next[share].place, (unsigned long long)job << 32 | 0xffffffff, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    pool.function = function;
    pool.work = work;
    pool.sharing = sharing;
    atomic_store(&pool.done, 0);
    for (int share = 0; share < sharing; share++) {
        pool.end[share] = units * (share + 1) / sharing;
        atomic_store(&pool.next[share].place, (unsigned long long)job << 32 | (unsigned long long)(units * share / sharing));
    }
    atomic_store(&pool.job, job);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    do_units(job, 0, sharing);
    for (int spins = 1; atomic_load_explicit(&pool.done, memory_order_acquire) < units; spins++) {
        relax();
        if (spins % 1000 == 0) sched_yield(); // it may be waiting for this core
    }
    pthread_mutex_unlock(&pool.in_use);
}

// How many threads share the work of the calling thread.
void set_threads(int count) { threads = count < 1 ? 1 : SMALLER(count, MOST_THREADS); }

int get_threads(void) { return threads; }

// In a forked process none of the threads lives on, nor a job that one of them was in: its work lies on a dead stack. New
// workers begin by looking for another job than number 0.
static void begin_anew(void) {
    pool.started = 0;
    atomic_store(&pool.job, 0);
    for (int share = 0; share < MOST_THREADS; share++) {
        atomic_store(&pool.next[share].place, 0);
        atomic_store(&pool.end[share], 0);
    }
    atomic_store(&pool.function, NULL);
    atomic_store(&pool.work, NULL);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.sharing, 0);
    atomic_store(&pool.asleep, 0);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_mutex_init(&pool.in_use, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

__attribute__((constructor)) static void on_load(void) { pthread_atfork(NULL, NULL, begin_anew); }

// ---- Products -------------------------------------------------------------------------------------------------------

// `out = left @ right` for each of a stack, with what a layer needs around it; strides count floats, absent pointers are NULL.
struct Product {
    const float *left, *right, *bias, *active;
    float *out, *sums;
    long stack, rows, columns, inner;
    long left_period, left_stack, left_row, left_inner;
    long right_period, right_stack, right_inner, right_column;
    long out_stack, out_row, out_column;
    long bias_stack, active_stack, active_row, active_column, sums_stack;
    long relu;
    long panels, groups, bands; // how it is cut into units; set by `product`
};

struct Place { // one network's part of it, from some row and column on
    const float *left, *right, *bias, *active;
    float *out, *sums;
};

static struct Place place_of(const struct Product *p, long network) {
    return (struct Place){
        p->left + network % p->left_period * p->left_stack,
        p->right + network % p->right_period * p->right_stack,
        p->bias ? p->bias + network * p->bias_stack : NULL,
        p->active ? p->active + network * p->active_stack : NULL,
        p->out + network * p->out_stack,
        p->sums ? p->sums + network * p->sums_stack : NULL,
    };
}

// One number of the result, when its sum is done. What is not a number stays so.
INLINE float finish(const struct Product *p, const struct Place *at, float sum, long row, long column) {
    if (at->bias) sum += at->bias[column];
    if (p->relu && sum < 0) sum = 0;
    if (at->active && at->active[row * p->active_row + column * p->active_column] <= 0) sum = 0;
    return sum;
}

// A tile of the result: rows of `right` lie `step` floats apart, and either the numbers of a row of `left` lie side by side,
// its rows `far` floats apart, or the other way round.
struct Tile {
    const float *left, *right, *bias, *active;
    float *out;
    long inner, far, step, active_row, out_row, relu;
};

// Sum it up and finish it in registers: `high` rows of `vectors` vectors.
INLINE void sum_tile(const struct Tile *t, const int high, const int vectors, const int rows_are_far) {
    const float *left = t->left, *right = t->right, *row[HIGH];
    const long far = t->far, step = t->step, inner = t->inner;
    Vector sum[HIGH][2];
    for (int r = 0; r < high; r++) {
        row[r] = left + r * far;
        for (int v = 0; v < vectors; v++) sum[r][v] = (Vector){0};
    }
    for (long k = 0; k < inner; k++, right += step, left += far) {
        Vector across[2];
        for (int v = 0; v < vectors; v++) across[v] = *(const Vector *)(right + v * LANES);
        for (int r = 0; r < high; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] += (rows_are_far ? row[r][k] : left[r]) * across[v];
    }
#define EVERY(change)                                                                                                    \
    for (int r = 0; r < high; r++)                                                                                       \
        for (int v = 0; v < vectors; v++) change;
    if (t->bias) EVERY(sum[r][v] += *(const Vector *)(t->bias + v * LANES))
    if (t->relu) EVERY(sum[r][v] = (Vector)((Mask)sum[r][v] & ~(Mask)(sum[r][v] < 0)))
    if (t->active)
        EVERY(sum[r][v] = (Vector)((Mask)sum[r][v] & ~(Mask)(*(const Vector *)(t->active + r * t->active_row + v * LANES) <= 0)))
    EVERY(*(Vector *)(t->out + r * t->out_row + v * LANES) = sum[r][v])
#undef EVERY
}

#define SUM_TILE(high, vectors, rows_are_far)                                                     \
    static void sum_tile_##high##_##vectors##_##rows_are_far(const struct Tile *tile) {           \
        sum_tile(tile, high, vectors, rows_are_far);                                              \
    }
#define SUM_TILES(high) SUM_TILE(high, 1, 0) SUM_TILE(high, 1, 1) SUM_TILE(high, 2, 0) SUM_TILE(high, 2, 1)
#define NAMES(high) {{sum_tile_##high##_1_0, sum_tile_##high##_1_1}, {sum_tile_##high##_2_0, sum_tile_##high##_2_1}},
SUM_TILES(1) SUM_TILES(2) SUM_TILES(3) SUM_TILES(4) SUM_TILES(5) SUM_TILES(6)
#if defined(__AVX512F__)
SUM_TILES(7) SUM_TILES(8)
#endif
static void (*const sum_tiles[HIGH][2][2])(const struct Tile *tile) = {
    NAMES(1) NAMES(2) NAMES(3) NAMES(4) NAMES(5) NAMES(6)
#if defined(__AVX512F__)
    NAMES(7) NAMES(8)
#endif
};

// The tile at a row and a column, from its columns of `right`.
static void make_tile(const struct Product *p, const struct Place *at, long row, long high, long column, long columns,
                      const float *right, long step) {
    int rows_are_far = p->left_inner == 1, vectors = columns > LANES ? 2 : 1;
    struct Tile tile = {.left = at->left + row * p->left_row, .right = right, .inner = p->inner, .step = step};
    tile.far = rows_are_far ? p->left_row : p->left_inner;
    if (columns == vectors * LANES && p->out_column == 1 && (!at->active || p->active_column == 1)) {
        tile.out = at->out + row * p->out_row + column;
        tile.out_row = p->out_row;
        tile.bias = at->bias ? at->bias + column : NULL;
        tile.relu = p->relu;
        tile.active = at->active ? at->active + row * p->active_row + column : NULL;
        tile.active_row = p->active_row;
        for (long r = 0; r < high; r++) // fetch what the sums will meet while they are made
            for (long c = 0; c < columns; c += 16) {
                __builtin_prefetch(tile.out + r * p->out_row + c, 1);
                if (tile.active) __builtin_prefetch(tile.active + r * p->active_row + c);
            }
        sum_tiles[high - 1][vectors - 1][rows_are_far](&tile);
        return;
    }
    _Alignas(64) float sums[HIGH * WIDE]; // an edge, or numbers that do not lie side by side
    tile.out = sums;
    tile.out_row = WIDE;
    sum_tiles[high - 1][vectors - 1][rows_are_far](&tile);
    for (long r = 0; r < high; r++)
        for (long c = 0; c < columns; c++)
            at->out[(row + r) * p->out_row + (column + c) * p->out_column] =
                finish(p, at, sums[r * WIDE + c], row + r, column + c);
}

// Columns of `right` side by side, `wide` to a row, missing ones zero.
static void gather_panel(const struct Product *p, const float *right, long columns, int wide, float *packed) {
    long k = 0;
    if (p->right_column == 1 && columns == wide)
        for (; k < p->inner; k++) {
            for (int c = 0; c < wide; c += 16) __builtin_prefetch(right + (k + 16) * p->right_inner + c);
            memcpy(packed + k * wide, right + k * p->right_inner, 4 * (size_t)wide);
        }
    if (p->right_inner == 1) // a square at a time: reads and writes both stay within a few lines
        for (; k + 16 <= p->inner; k += 16) {
            for (int c = 0; c < columns; c++) {
                __builtin_prefetch(right + c * p->right_column + k + 32);
                for (int d = 0; d < 16; d++) packed[(k + d) * wide + c] = right[c * p->right_column + k + d];
            }
            for (int d = 0; d < 16; d++)
                for (int c = (int)columns; c < wide; c++) packed[(k + d) * wide + c] = 0;
        }
    for (; k < p->inner; k++)
        for (int c = 0; c < wide; c++)
            packed[k * wide + c] = c < columns ? right[k * p->right_inner + c * p->right_column] : 0;
}

static float *scratch(size_t count) {
    static _Thread_local float *memory;
    static _Thread_local size_t size;
    if (count > size) {
        free(memory);
        size = (count + 1023) / 1024 * 1024;
        memory = aligned_alloc(64, 4 * size);
        if (!memory) abort();
    }
    return memory;
}

// The sums of the columns of a panel, row after row.
static void sum_panel(const struct Product *p, const float *right, long step, long columns, float *sums) {
    for (long first = 0; first < columns; first += LANES) {
        Vector sum = {0};
        for (long k = 0; k < p->inner; k++) sum += *(const Vector *)(right + k * step + first);
        for (long c = first; c < SMALLER(columns, first + LANES); c++) sums[c] = sum[c - first];
    }
}

// One or two columns: a dot product for every row, in 16 partial sums on any machine.
static void dots(const struct Product *p, const struct Place *at, long row, long end) {
    long inner = p->inner, whole = inner / DOT_LANES * DOT_LANES;
    float *packed = scratch((size_t)inner);
    for (long c = 0; c < p->columns; c++) {
        for (long k = 0; k < inner; k++) packed[k] = at->right[k * p->right_inner + c * p->right_column];
        for (long r = row; r < end; r++) {
            const float *left = at->left + r * p->left_row;
            DotVector sums = {0};
            for (long k = 0; k < whole; k += DOT_LANES) sums += *(const DotVector *)(left + k) * *(DotVector *)(packed + k);
            for (long k = whole; k < inner; k++) sums[k - whole] = MULTIPLY_ADD(left[k], packed[k], sums[k - whole]);
            for (int half = DOT_LANES / 2; half; half /= 2)
                for (int l = 0; l < half; l++) sums[l] += sums[l + half];
            at->out[r * p->out_row + c * p->out_column] = finish(p, at, sums[0], r, c);
        }
    }
}

static int by_dots(const struct Product *p) { return p->columns <= 2 && p->left_inner == 1 && !p->sums; }

// A unit of work is a band of rows and a group of panels, each of which stays near while all rows pass by it.
static void product_unit(const void *work, long unit) {
    const struct Product *p = work;
    long group = unit % p->groups, band = unit / p->groups % p->bands, network = unit / p->groups / p->bands;
    struct Place at = place_of(p, network);
    long row = p->rows * band / p->bands, end = p->rows * (band + 1) / p->bands;
    long first = p->panels * group / p->groups * WIDE, last = SMALLER(p->panels * (group + 1) / p->groups * WIDE, p->columns);
    if (by_dots(p)) {
        dots(p, &at, row, end);
        return;
    }
    for (long column = first; column < last; column += WIDE) {
        long columns = SMALLER(last - column, (long)WIDE), step = p->right_inner;
        const float *right = at.right + column * p->right_column;
        if (p->right_column != 1 || columns < WIDE || end - row > HIGH) { // else it lies well, and is read only once
            step = columns > LANES ? WIDE : LANES;
            float *packed = scratch((size_t)(p->inner * step));
            gather_panel(p, right, columns, (int)step, packed);
            right = packed;
        }
        if (at.sums && band == 0) sum_panel(p, right, step, columns, at.sums + column);
        for (long r = row; r < end; r += HIGH)
            make_tile(p, &at, r, SMALLER(end - r, (long)HIGH), column, columns, right, step);
    }
}

static void product(struct Product *p) {
    if (p->stack * p->rows * p->columns == 0) return;
    p->panels = (p->columns + WIDE - 1) / WIDE;
    long near = NEAR / ((p->inner + 1) * WIDE);
    p->groups = near < 1 ? p->panels : (p->panels + near - 1) / near;
    long units = p->stack * p->groups;
    long parts = p->left_inner == 1 ? p->stack : units; // rows of one layer are the next one's rows: they stay with their thread
    p->bands = parts >= threads ? 1 : SMALLER((threads + parts - 1) / parts, (p->rows + 2 * HIGH - 1) / (2 * HIGH));
    double work = (double)p->stack * p->rows * p->columns * (p->inner + 4);
    in_parallel(product_unit, p, units * p->bands, work > 3e4);
}

// ---- LayerNorm ------------------------------------------------------------------------------------------------------

// Rows of `units` numbers, one after another: `values` become normalized and cut below zero, or, backwards, the gradient of
// `normalized` becomes that of what was normalized. Sums have 16 partial sums on any machine, as above.
struct Normalize {
    float *values, *normalized, *inverse; // forward, the last two may be missing
    long rows, units;
};

enum { ROWS_AT_ONCE = 16 };

// Sums of x and of x * y over a row.
INLINE void row_sums(const float *x, const float *y, long units, float *sum, float *product) {
    long whole = units / DOT_LANES * DOT_LANES;
    DotVector sums = {0}, products = {0};
    for (long i = 0; i < whole; i += DOT_LANES) {
        DotVector value = *(const DotVector *)(x + i);
        sums += value;
        products += value * *(const DotVector *)(y + i);
    }
    for (long i = whole; i < units; i++) {
        sums[i - whole] += x[i];
        products[i - whole] = MULTIPLY_ADD(x[i], y[i], products[i - whole]);
    }
    for (int half = DOT_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sums[l] += sums[l + half], products[l] += products[l + half];
    *sum = sums[0], *product = products[0];
}

static void normalize_unit(const void *work, long unit) {
    const struct Normalize *n = work;
    long end = SMALLER((unit + 1) * ROWS_AT_ONCE, n->rows);
    for (long row = unit * ROWS_AT_ONCE; row < end; row++) {
        float *values = n->values + row * n->units, *normalized = n->normalized ? n->normalized + row * n->units : NULL;
        float sum, squares, ignored;
        row_sums(values, values, n->units, &sum, &ignored);
        float mean = sum / (float)n->units;
        for (long i = 0; i < n->units; i++) values[i] -= mean; // before the squares: else large means would cancel
        row_sums(values, values, n->units, &ignored, &squares);
        float inverse = 1 / sqrtf(squares / (float)n->units + 1e-5f);
        if (normalized)
            for (long i = 0; i < n->units; i++) normalized[i] = values[i] * inverse;
        if (n->inverse) n->inverse[row] = inverse;
        for (long i = 0; i < n->units; i++) { // what is not a number stays so
            float value = values[i] * inverse;
            values[i] = value < 0 ? 0 : value;
        }
    }
}

static void normalize_backward_unit(const void *work, long unit) {
    const struct Normalize *n = work;
    long end = SMALLER((unit + 1) * ROWS_AT_ONCE, n->rows);
    for (long row = unit * ROWS_AT_ONCE; row < end; row++) {
        float *gradient = n->values + row * n->units, sum, along;
        const float *normalized = n->normalized + row * n->units;
        row_sums(gradient, normalized, n->units, &sum, &along);
        float mean = sum / (float)n->units, share = along / (float)n->units, inverse = n->inverse[row];
        for (long i = 0; i < n->units; i++) gradient[i] = (gradient[i] - mean - normalized[i] * share) * inverse;
    }
}

static void normalize(const struct Normalize *n, Unit *function) {
    in_parallel(function, n, (n->rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, n->rows * n->units > 10000);
}

// ---- Adam -----------------------------------------------------------------------------------------------------------

// One step over `stack` networks of `size` parameters each; the networks of each array lie `*_stack` floats apart.
struct Adam {
    float *parameters, *first, *second, *steps;
    const float *gradient;
    const double *learning_rate; // read anew at every step
    long stack, size, parameters_stack, gradient_stack, first_stack, second_stack, steps_stack;
    long nonfinite; // set by `adam`
};

enum { PIECE = 8192 };

static long pieces_of(long size) { return (size + PIECE - 1) / PIECE; }

static void check_unit(const void *work, long unit) {
    struct Adam *a = (struct Adam *)work;
    long network = unit / pieces_of(a->size), start = unit % pieces_of(a->size) * PIECE;
    const float *gradient = a->gradient + network * a->gradient_stack + start;
    int sound = 1;
    for (long i = 0; i < SMALLER(a->size - start, (long)PIECE); i++) sound &= fabsf(gradient[i]) < 1e18f;
    if (!sound) __atomic_store_n(&a->nonfinite, 1, __ATOMIC_RELAXED);
}

static void adam_unit(const void *work, long unit) {
    const struct Adam *a = work;
    long network = unit / pieces_of(a->size), start = unit % pieces_of(a->size) * PIECE;
    long count = SMALLER(a->size - start, (long)PIECE);
    double step = a->steps[network * a->steps_stack];
    float pace = (float)(*a->learning_rate / (1 - pow(0.9, step))), scale = (float)(1 / sqrt(1 - pow(0.999, step)));
    const float *restrict gradient = a->gradient + network * a->gradient_stack + start;
    float *restrict first = a->first + network * a->first_stack + start;
    float *restrict second = a->second + network * a->second_stack + start;
    float *restrict parameters = a->parameters + network * a->parameters_stack + start;
    for (long i = 0; i < count; i++) {
        float value = gradient[i];
        float mean = MULTIPLY_ADD(value - first[i], 0.1f, first[i]);
        float square = MULTIPLY_ADD(value * value, 0.001f, second[i] * 0.999f);
        first[i] = mean;
        second[i] = square;
        parameters[i] -= pace * mean / MULTIPLY_ADD(sqrtf(square), scale, 1e-8f);
    }
}

// Returns 1, and changes nothing, where a gradient is not a number or its square would not be.
static int adam(struct Adam *a) {
    a->nonfinite = 0;
    in_parallel(check_unit, a, a->stack * pieces_of(a->size), 1);
    if (a->nonfinite) return 1;
    for (long network = 0; network < a->stack; network++) a->steps[network * a->steps_stack] += 1;
    in_parallel(adam_unit, a, a->stack * pieces_of(a->size), 1);
    return 0;
}

// ---- Number by number -----------------------------------------------------------------------------------------------

enum Kind { COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, MINIMUM, CLAMP, LERP, TANH_BACKWARD, ACCUMULATE, ADD_INTEGERS, REMAINDER };

// `out = kind(a, b, c)` over up to three dimensions; strides count numbers, 0 where one number serves a whole side.
struct Map {
    void *out;
    const void *a, *b, *c;
    long kind, sizes[3], out_strides[3], a_strides[3], b_strides[3], c_strides[3];
};

// One row of it. The loop is written out where everything lies side by side, so that the compiler makes vectors of it.
#define EACH(Out, In, expression)                                                                                        \
    {                                                                                                                    \
        Out *out = (Out *)m->out + to;                                                                                   \
        const In *from_a = (const In *)m->a + a, *from_b = (const In *)m->b + b, *from_c = (const In *)m->c + c;         \
        (void)from_b, (void)from_c;                                                                                      \
        for (long i = 0; i < count; i++) {                                                                               \
            In x = from_a[i * step_a], y = m->b ? from_b[i * step_b] : 0, z = m->c ? from_c[i * step_c] : 0;             \
            (void)y, (void)z;                                                                                            \
            out[i * step_out] = expression;                                                                              \
        }                                                                                                                \
        break;                                                                                                           \
    }

INLINE void map_steps(const struct Map *m, long count, long to, long a, long b, long c, const long step_out,
                      const long step_a, const long step_b, const long step_c) {
    switch ((enum Kind)m->kind) {
    case COPY: EACH(float, float, x)
    case ADD: EACH(float, float, x + y)
    case SUBTRACT: EACH(float, float, x - y)
    case MULTIPLY: EACH(float, float, x * y)
    case DIVIDE: EACH(float, float, x / y)
    case MINIMUM: EACH(float, float, x < y || x != x ? x : y)
    case CLAMP: EACH(float, float, y != y || z != z ? NAN : (x < y ? y : x) > z ? z : x < y ? y : x)
    case LERP: EACH(float, float, MULTIPLY_ADD(z, y - x, x))
    case TANH_BACKWARD: EACH(float, float, x * MULTIPLY_ADD(-y, y, 1.0f))
    case ACCUMULATE: EACH(double, float, out[i * step_out] + x)
    case ADD_INTEGERS: EACH(int64_t, int64_t, x + y)
    case REMAINDER: EACH(int64_t, int64_t, y ? x % y + (x % y && (x ^ y) < 0 ? y : 0) : 0)
    }
}

static void map_row(const struct Map *m, long count, long to, long a, long b, long c) {
    long out_step = m->out_strides[2], a_step = m->a_strides[2], b_step = m->b_strides[2], c_step = m->c_strides[2];
    if (out_step == 1 && a_step == 1 && b_step == 1 && c_step == 0)
        map_steps(m, count, to, a, b, c, 1, 1, 1, 0);
    else
        map_steps(m, count, to, a, b, c, out_step, a_step, b_step, c_step);
}

static void map_unit(const void *work, long unit) { // a piece of a single long row
    const struct Map *m = work;
    long start = unit * PIECE, count = SMALLER(m->sizes[2] - start, (long)PIECE);
    map_row(m, count, start * m->out_strides[2], start * m->a_strides[2], start * m->b_strides[2], start * m->c_strides[2]);
}

static void map(const struct Map *m) {
    if (m->sizes[0] * m->sizes[1] == 1) {
        in_parallel(map_unit, m, pieces_of(m->sizes[2]), 1);
        return;
    }
    for (long i = 0; i < m->sizes[0]; i++)
        for (long j = 0; j < m->sizes[1]; j++)
            map_row(m, m->sizes[2], i * m->out_strides[0] + j * m->out_strides[1], i * m->a_strides[0] + j * m->a_strides[1],
                    i * m->b_strides[0] + j * m->b_strides[1], i * m->c_strides[0] + j * m->c_strides[1]);
}

// The sum of each of some rows, whose numbers lie side by side, in PyTorch's order: in four times eight partial sums, which
// are then added one after another. That holds up to 512 numbers; beyond, PyTorch takes more steps.
struct Sum {
    float *out;
    const float *from;
    long rows, inner;
};

static void sum(const struct Sum *s) {
    typedef float Eight __attribute__((vector_size(32), aligned(4)));
    long whole = s->inner / 32 * 32, vectors = s->inner / 8 * 8;
    for (long row = 0; row < s->rows; row++) {
        const float *from = s->from + row * s->inner;
        Eight part[4] = {{0}, {0}, {0}, {0}};
        for (long i = 0; i < whole; i += 32)
            for (int j = 0; j < 4; j++) part[j] += *(const Eight *)(from + i + 8 * j);
        for (long i = whole; i < vectors; i += 8) part[0] += *(const Eight *)(from + i);
        for (int j = 1; j < 4; j++) part[0] += part[j];
        float total = 0;
        for (long i = vectors; i < s->inner; i++) total += from[i];
        for (int lane = 0; lane < 8; lane++) total += part[0][lane];
        s->out[row] = total;
    }
}

// Rows of a table by their numbers.
struct Gather {
    float *out;
    const float *table;
    const int64_t *numbers;
    long count, width, table_row, out_row;
};

static void gather(const struct Gather *g) {
    for (long i = 0; i < g->count; i++) {
        if (i + 8 < g->count) // they lie anywhere: ask for them early
            for (long c = 0; c < g->width; c += 16) __builtin_prefetch(g->table + g->numbers[i + 8] * g->table_row + c);
        memcpy(g->out + i * g->out_row, g->table + g->numbers[i] * g->table_row, 4 * (size_t)g->width);
    }
}

// ---- Programs -------------------------------------------------------------------------------------------------------

struct Instruction {
    enum { PRODUCT, ADAM, MAP, SUM, GATHER, FINITE, NORMALIZE, NORMALIZE_BACKWARD } what;
    void *with; // the struct of that name; for FINITE a number
};

// Do one instruction after another. Returns how many were done: fewer than `count` if one of them refused its numbers.
long play(const struct Instruction *instructions, long count) {
    for (long i = 0; i < count; i++) {
        void *with = instructions[i].with;
        switch (instructions[i].what) {
        case PRODUCT: product(with); break;
        case ADAM: if (adam(with)) return i; break;
        case MAP: map(with); break;
        case SUM: sum(with); break;
        case GATHER: gather(with); break;
        case FINITE: if (!isfinite(*(const float *)with)) return i; break;
        case NORMALIZE: normalize(with, normalize_unit); break;
        case NORMALIZE_BACKWARD: normalize(with, normalize_backward_unit); break;
        }
    }
    return count;
}
