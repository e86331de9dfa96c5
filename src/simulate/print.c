#include "simulate/print.h"

#include "simulate/human.h"
#include "term/member.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Cells of a table */

void print_cell(struct grid *t, const char *fmt, ...)
{
    char text[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    grid_cstr(t, text);
}

void print_count(struct grid *t, uint64_t count)
{
    print_cell(t, "%" PRIu64, count);
}

/* A wait; "-" when there is none. */
void print_ms(struct grid *t, const char *before, bool any, int64_t ms)
{
    char text[HUMAN_DURATION_MAX];
    if (any)
        print_cell(t, "%s%s", before, human_duration(ms, text));
    else
        grid_cstr(t, "-");
}

void print_row(struct grid *t, const char *const *names)
{
    for (; *names; names++)
        grid_cstr(t, *names);
}

/* For people */

void print_levels(const struct simulation *sim)
{
    static const char *const head[] = {"level", "arrived", "done", "waiting", "share", "p50",
                                       "p99",   "longest", "aged", "late",    NULL};
    struct grid t;
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    print_row(&t, head);
    for (int rank = 0; rank < sim->level_count; rank++) {
        const struct simulation_level *level = &sim->levels[rank];
        bool any = level->claimed > 0;
        grid_cstr(&t, level->name);
        print_count(&t, level->arrived);
        print_count(&t, level->done);
        print_count(&t, level->waiting);
        print_cell(&t, "%.1f %%",
                   sim->claimed ? 100.0 * (double)level->claimed / (double)sim->claimed : 0);
        print_ms(&t, "", any, (int64_t)hist_quantile(&level->waits, 0.5));
        print_ms(&t, "", any, (int64_t)hist_quantile(&level->waits, 0.99));
        print_ms(&t, level->longest_waits ? ">" : "", any || level->waiting > 0, level->longest_ms);
        print_count(&t, level->aged);
        print_count(&t, level->late);
    }
    grid_print(&t);
}

static void cell_next(struct grid *t, const struct level_bound *b)
{
    char text[HUMAN_DURATION_MAX];
    if (b->next_claims == BOUND_NONE)
        grid_cstr(t, "no bound");
    else if (b->next_ms == BOUND_NONE)
        print_cell(t, "%" PRId64 " claim%s", b->next_claims, b->next_claims == 1 ? "" : "s");
    else
        print_cell(t, "%" PRId64 " claim%s, %s", b->next_claims, b->next_claims == 1 ? "" : "s",
                   human_duration(b->next_ms, text));
}

static void cell_ages(struct grid *t, const struct queue_config *queue, int rank,
                      const struct level_bound *b)
{
    char text[HUMAN_DURATION_MAX];
    if (b->ages_to == rank)
        grid_cstr(t, "-");
    else
        print_cell(t, "%.40s after %s", queue->levels[b->ages_to].name,
                   human_duration(b->ages_ms, text));
}

static void print_bounds(const struct workload *w, const struct simulation *sim)
{
    static const char *const head[] = {"level",      "quota",      "share",   "next in line within",
                                       "most ahead", "wait below", "ages to", "max wait",
                                       NULL};
    const struct bounds *b = &sim->bounds;
    struct grid t;
    printf("\nWhat the policy promises%s: ", w->change_count ? " after the last change" : "");
    if (b->cycle > 0)
        printf("cycles of %" PRIu64 " claims", b->cycle);
    else
        printf("strict order");
    printf("; at least %.1f claims a second while any may be claimed\n", b->claims_per_second);
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    print_row(&t, head);
    for (int rank = 0; rank < sim->queue.level_count; rank++) {
        const struct level_bound *level = &b->levels[rank];
        int64_t max_wait_ms = sim->queue.levels[rank].max_wait_ms;
        grid_cstr(&t, sim->queue.levels[rank].name);
        if (b->cycle > 0)
            print_count(&t, level->quota);
        else
            grid_cstr(&t, "-");
        if (level->share == BOUND_NONE)
            grid_cstr(&t, "-");
        else
            print_cell(&t, "%.1f %%", 100 * level->share);
        cell_next(&t, level);
        print_count(&t, level->ahead);
        print_ms(&t, "", level->longest_ms != BOUND_NONE, level->longest_ms);
        cell_ages(&t, &sim->queue, rank, level);
        print_ms(&t, "", max_wait_ms > 0, max_wait_ms);
    }
    grid_print(&t);
}

void print_summary(const struct workload *w, const struct simulation *sim)
{
    char text[HUMAN_DURATION_MAX];
    printf("%s simulated with seed %" PRIu64 ": %u consumer%s %.1f %% busy, %" PRIu64
           " messages arrived, %" PRIu64 " done\n\n",
           human_duration(sim->ended_us / 1000, text), w->seed, w->consumers,
           w->consumers == 1 ? "" : "s", 100 * sim->busy, sim->arrived, sim->done);
    print_levels(sim);
    print_bounds(w, sim);
}

/* For programs */

static void put_ms(struct buf *out, const char *name, bool any, int64_t ms)
{
    member_put(out, name);
    if (any)
        buf_printf(out, "%.3f", (double)ms / 1000);
    else
        buf_lit(out, "null");
}

void print_put_count(struct buf *out, const char *name, uint64_t count)
{
    member_put(out, name);
    buf_put_u64(out, count);
}

void print_put_number(struct buf *out, const char *name, double number)
{
    member_put(out, name);
    buf_printf(out, "%.6g", number);
}

static void put_seen(struct buf *out, const struct simulation *sim, int rank)
{
    const struct simulation_level *level = &sim->levels[rank];
    bool any = level->claimed > 0;
    buf_putc(out, '{');
    member_put_text(out, "level", level->name);
    print_put_count(out, "arrived", level->arrived);
    print_put_count(out, "refused", level->refused);
    print_put_count(out, "claimed", level->claimed);
    print_put_count(out, "done", level->done);
    print_put_count(out, "waiting", level->waiting);
    print_put_number(out, "share",
                     sim->claimed ? (double)level->claimed / (double)sim->claimed : 0);
    put_ms(out, "p50_seconds", any, (int64_t)hist_quantile(&level->waits, 0.5));
    put_ms(out, "p99_seconds", any, (int64_t)hist_quantile(&level->waits, 0.99));
    put_ms(out, "longest_seconds", any || level->waiting > 0, level->longest_ms);
    member_put(out, "longest_still_waits");
    buf_puts(out, level->longest_waits ? "true" : "false");
    print_put_count(out, "aged", level->aged);
    print_put_count(out, "late", level->late);
    buf_putc(out, '}');
}

static void put_bound(struct buf *out, const struct simulation *sim, int rank)
{
    const struct level_bound *b = &sim->bounds.levels[rank];
    const struct level *level = &sim->queue.levels[rank];
    buf_putc(out, '{');
    member_put_text(out, "level", level->name);
    print_put_count(out, "quota", b->quota);
    member_put(out, "share");
    if (b->share == BOUND_NONE)
        buf_lit(out, "null");
    else
        buf_printf(out, "%.6g", b->share);
    member_put(out, "next_in_line_claims");
    if (b->next_claims == BOUND_NONE)
        buf_lit(out, "null");
    else
        buf_put_i64(out, b->next_claims);
    put_ms(out, "next_in_line_seconds", b->next_ms != BOUND_NONE, b->next_ms);
    print_put_count(out, "most_ahead", b->ahead);
    put_ms(out, "wait_below_seconds", b->longest_ms != BOUND_NONE, b->longest_ms);
    member_put_text(out, "ages_to", sim->queue.levels[b->ages_to].name);
    put_ms(out, "ages_after_seconds", b->ages_to != rank, b->ages_ms);
    put_ms(out, "max_wait_seconds", level->max_wait_ms > 0, level->max_wait_ms);
    buf_putc(out, '}');
}

typedef void put_level(struct buf *out, const struct simulation *sim, int rank);

static void put_levels(struct buf *out, const char *name, const struct simulation *sim,
                       put_level *put)
{
    member_put(out, name);
    for (int rank = 0; rank < sim->level_count; rank++) {
        buf_putc(out, rank == 0 ? '[' : ',');
        put(out, sim, rank);
    }
    buf_putc(out, ']');
}

void print_json(const struct workload *w, const struct simulation *sim)
{
    struct buf out = {0};
    buf_putc(&out, '{');
    put_ms(&out, "simulated_seconds", true, sim->ended_us / 1000);
    print_put_count(&out, "seed", w->seed);
    print_put_count(&out, "consumers", w->consumers);
    print_put_number(&out, "busy", sim->busy);
    print_put_count(&out, "arrived", sim->arrived);
    print_put_count(&out, "claimed", sim->claimed);
    print_put_count(&out, "done", sim->done);
    print_put_count(&out, "expired", sim->expired);
    put_levels(&out, "levels", sim, put_seen);
    member_put_text(&out, "policy", policy_name(sim->queue.policy));
    print_put_count(&out, "cycle", sim->bounds.cycle);
    print_put_number(&out, "claims_per_second", sim->bounds.claims_per_second);
    put_levels(&out, "bounds", sim, put_bound);
    buf_putc(&out, '}');
    text_document(&out);
    buf_fini(&out);
}

void print_put_levels(struct buf *out, const struct simulation *sim)
{
    put_levels(out, "levels", sim, put_seen);
}
