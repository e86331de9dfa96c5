/* Runs seeded simulations of an engine against the model and prints TAP. With no arguments: what
 * `make test` wants, sized by how the program was built; with TRIAGE_SOAK what `make soak` does.
 * The database of the postgres engine is named by TRIAGE_TEST_POSTGRES, and emptied for each seed.
 *
 *   test_sim_sim [--engine memory|local|postgres] [--seed FIRST] [--seeds N] [--steps N]
 *
 * A failure prints the broken promise, the last ops and the command that replays it. */
#include "sim/sim.h"

#include "base/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#ifndef SLOW_BUILD
#define SLOW_BUILD 0
#endif

struct run {
    const char *engine;
    uint64_t first_seed;
    uint64_t seeds;
    uint64_t steps; /* of each seed */
};

#define RUNS 3

static struct sim sim;

/* An assertion in the engine ends the run too; the way back to it is the same. */
static void on_abort(int signum)
{
    (void)signum;
    sim_report(&sim);
    signal(SIGABRT, SIG_DFL);
}

static void run_seeds(const struct run *r, int number)
{
    uint64_t started = clock_mono_us();
    sim.refills = 0;
    for (uint64_t i = 0; i < r->seeds; i++) {
        sim_open(&sim, r->engine, r->first_seed + i, r->steps);
        for (uint64_t step = 0; step < r->steps; step++)
            sim_step(&sim);
        sim_close(&sim);
    }
    printf("ok %d - %s keeps every promise for %" PRIu64 " steps over %" PRIu64 " seeds\n", number,
           r->engine, r->steps * r->seeds, r->seeds);
    printf("# seeds %" PRIu64 " to %" PRIu64 ", %.1f s, %" PRIu64 " reads of a tail\n",
           r->first_seed, r->first_seed + r->seeds - 1, (double)(clock_mono_us() - started) / 1e6,
           sim.refills);
    fflush(stdout);
}

static bool needs_database(const struct run *r)
{
    return strcmp(r->engine, "postgres") == 0;
}

/* With the thread sanitizer only what has threads of its own is of interest. */
static bool by_default(const struct run *r)
{
    bool threads = getenv("TRIAGE_TEST_THREADS") != NULL;
    return !threads || strcmp(r->engine, "local") == 0;
}

static void run_all(const struct run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (needs_database(&runs[i]) && !getenv("TRIAGE_TEST_POSTGRES"))
            printf("ok %zu # SKIP postgres: TRIAGE_TEST_POSTGRES names no database\n", i + 1);
        else
            run_seeds(&runs[i], (int)i + 1);
    }
}

static size_t runs_by_default(struct run *runs)
{
    static const struct run short_runs[] = {
        {"memory", 1, SLOW_BUILD ? 300 : 1000, 1000},
        {"local", 1, SLOW_BUILD ? 25 : 80, 1000},
        {"postgres", 1, 10, 250},
    };
    static const struct run long_runs[] = {
        {"memory", 1, 20000, 1000},
        {"local", 1, 2000, 1000},
        {"postgres", 1, 3000, 500},
    };
    size_t count = 0;
    for (size_t i = 0; i < RUNS; i++) {
        const struct run *r = getenv("TRIAGE_SOAK") ? &long_runs[i] : &short_runs[i];
        if (by_default(r))
            runs[count++] = *r;
    }
    return count;
}

/* One engine, as the command line says. */
static void read_run(int argc, char **argv, struct run *r)
{
    *r = (struct run){"memory", 1, 1, 1000};
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--engine") == 0)
            r->engine = argv[i + 1];
        else if (strcmp(argv[i], "--seed") == 0)
            r->first_seed = value;
        else if (strcmp(argv[i], "--seeds") == 0)
            r->seeds = value;
        else if (strcmp(argv[i], "--steps") == 0)
            r->steps = value;
    }
}

int main(int argc, char **argv)
{
    struct run runs[RUNS];
    size_t count = 1;
    if (argc > 1)
        read_run(argc, argv, &runs[0]);
    else
        count = runs_by_default(runs);
    signal(SIGABRT, on_abort);
    printf("1..%zu\n", count);
    run_all(runs, count);
    return 0;
}
