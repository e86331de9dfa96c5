/* triage-simulate, which is `triage simulate`: what a policy does to a workload, before it meets
 * the real one. Needs no server. */
#include "base/file.h"
#include "base/mem.h"
#include "simulate/human.h"
#include "simulate/plot.h"
#include "simulate/simulate.h"
#include "term/args.h"
#include "term/cli.h"
#include "term/grid.h"
#include "term/member.h"
#include "term/progress.h"
#include "term/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cells */

static void cell(struct grid *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void cell(struct grid *t, const char *fmt, ...)
{
    char text[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    grid_cstr(t, text);
}

static void cell_count(struct grid *t, uint64_t count)
{
    cell(t, "%" PRIu64, count);
}

/* A wait; "-" when there is none. */
static void cell_ms(struct grid *t, const char *before, bool any, int64_t ms)
{
    char text[HUMAN_DURATION_MAX];
    if (any)
        cell(t, "%s%s", before, human_duration(ms, text));
    else
        grid_cstr(t, "-");
}

static void cells(struct grid *t, const char *const *names)
{
    for (; *names; names++)
        grid_cstr(t, *names);
}

/* For people */

static void print_seen(const struct simulation *sim)
{
    static const char *const head[] = {"level", "arrived", "done", "waiting", "share", "p50",
                                       "p99",   "longest", "aged", "late",    NULL};
    struct grid t;
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    cells(&t, head);
    for (int rank = 0; rank < sim->level_count; rank++) {
        const struct simulation_level *level = &sim->levels[rank];
        bool any = level->claimed > 0;
        grid_cstr(&t, level->name);
        cell_count(&t, level->arrived);
        cell_count(&t, level->done);
        cell_count(&t, level->waiting);
        cell(&t, "%.1f %%",
             sim->claimed ? 100.0 * (double)level->claimed / (double)sim->claimed : 0);
        cell_ms(&t, "", any, (int64_t)hist_quantile(&level->waits, 0.5));
        cell_ms(&t, "", any, (int64_t)hist_quantile(&level->waits, 0.99));
        cell_ms(&t, level->longest_waits ? ">" : "", any || level->waiting > 0, level->longest_ms);
        cell_count(&t, level->aged);
        cell_count(&t, level->late);
    }
    grid_print(&t);
}

static void cell_next(struct grid *t, const struct level_bound *b)
{
    char text[HUMAN_DURATION_MAX];
    if (b->next_claims == BOUND_NONE)
        grid_cstr(t, "no bound");
    else if (b->next_ms == BOUND_NONE)
        cell(t, "%" PRId64 " claim%s", b->next_claims, b->next_claims == 1 ? "" : "s");
    else
        cell(t, "%" PRId64 " claim%s, %s", b->next_claims, b->next_claims == 1 ? "" : "s",
             human_duration(b->next_ms, text));
}

static void cell_ages(struct grid *t, const struct queue_config *queue, int rank,
                      const struct level_bound *b)
{
    char text[HUMAN_DURATION_MAX];
    if (b->ages_to == rank)
        grid_cstr(t, "-");
    else
        cell(t, "%.40s after %s", queue->levels[b->ages_to].name, human_duration(b->ages_ms, text));
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
    cells(&t, head);
    for (int rank = 0; rank < sim->queue.level_count; rank++) {
        const struct level_bound *level = &b->levels[rank];
        int64_t max_wait_ms = sim->queue.levels[rank].max_wait_ms;
        grid_cstr(&t, sim->queue.levels[rank].name);
        if (b->cycle > 0)
            cell_count(&t, level->quota);
        else
            grid_cstr(&t, "-");
        if (level->share == BOUND_NONE)
            grid_cstr(&t, "-");
        else
            cell(&t, "%.1f %%", 100 * level->share);
        cell_next(&t, level);
        cell_count(&t, level->ahead);
        cell_ms(&t, "", level->longest_ms != BOUND_NONE, level->longest_ms);
        cell_ages(&t, &sim->queue, rank, level);
        cell_ms(&t, "", max_wait_ms > 0, max_wait_ms);
    }
    grid_print(&t);
}

static void print_summary(const struct workload *w, const struct simulation *sim)
{
    char text[HUMAN_DURATION_MAX];
    printf("%s simulated with seed %" PRIu64 ": %u consumer%s %.1f %% busy, %" PRIu64
           " messages arrived, %" PRIu64 " done\n\n",
           human_duration(sim->ended_us / 1000, text), w->seed, w->consumers,
           w->consumers == 1 ? "" : "s", 100 * sim->busy, sim->arrived, sim->done);
    print_seen(sim);
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

static void put_count(struct buf *out, const char *name, uint64_t count)
{
    member_put(out, name);
    buf_put_u64(out, count);
}

static void put_number(struct buf *out, const char *name, double number)
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
    put_count(out, "arrived", level->arrived);
    put_count(out, "refused", level->refused);
    put_count(out, "claimed", level->claimed);
    put_count(out, "done", level->done);
    put_count(out, "waiting", level->waiting);
    put_number(out, "share", sim->claimed ? (double)level->claimed / (double)sim->claimed : 0);
    put_ms(out, "p50_seconds", any, (int64_t)hist_quantile(&level->waits, 0.5));
    put_ms(out, "p99_seconds", any, (int64_t)hist_quantile(&level->waits, 0.99));
    put_ms(out, "longest_seconds", any || level->waiting > 0, level->longest_ms);
    member_put(out, "longest_still_waits");
    buf_puts(out, level->longest_waits ? "true" : "false");
    put_count(out, "aged", level->aged);
    put_count(out, "late", level->late);
    buf_putc(out, '}');
}

static void put_bound(struct buf *out, const struct simulation *sim, int rank)
{
    const struct level_bound *b = &sim->bounds.levels[rank];
    const struct level *level = &sim->queue.levels[rank];
    buf_putc(out, '{');
    member_put_text(out, "level", level->name);
    put_count(out, "quota", b->quota);
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
    put_count(out, "most_ahead", b->ahead);
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

static void print_json(const struct workload *w, const struct simulation *sim)
{
    struct buf out = {0};
    buf_putc(&out, '{');
    put_ms(&out, "simulated_seconds", true, sim->ended_us / 1000);
    put_count(&out, "seed", w->seed);
    put_count(&out, "consumers", w->consumers);
    put_number(&out, "busy", sim->busy);
    put_count(&out, "arrived", sim->arrived);
    put_count(&out, "claimed", sim->claimed);
    put_count(&out, "done", sim->done);
    put_count(&out, "expired", sim->expired);
    put_levels(&out, "levels", sim, put_seen);
    member_put_text(&out, "policy", policy_name(sim->queue.policy));
    put_count(&out, "cycle", sim->bounds.cycle);
    put_number(&out, "claims_per_second", sim->bounds.claims_per_second);
    put_levels(&out, "bounds", sim, put_bound);
    buf_putc(&out, '}');
    text_document(&out);
    buf_fini(&out);
}

/* The command */

static bool read_workload(const char *path, struct workload *w)
{
    struct buf text = {0};
    struct problem p;
    bool from_stdin = strcmp(path, "-") == 0;
    if (!file_read(from_stdin ? NULL : path, &text)) {
        cli_complain("cannot read %s: %s", path, strerror(errno));
        buf_fini(&text);
        return false;
    }
    bool ok = workload_parse(text.data, text.len, w, &p);
    if (!ok && p.status == STATUS_UNKNOWN_FIELD)
        cli_complain("%s: there is no field %s. %s", path, p.field, p.detail);
    else if (!ok)
        cli_complain("%s: %s%s%s", path, p.field, p.field[0] ? ": " : "", p.detail);
    buf_fini(&text);
    return ok;
}

static bool write_plot(const char *path, const char *workload_path, const struct workload *w,
                       const struct simulation *sim)
{
    const char *name =
        strrchr(workload_path, '/') ? strrchr(workload_path, '/') + 1 : workload_path;
    const char *dot = strrchr(name, '.');
    char title[200], span[HUMAN_DURATION_MAX];
    snprintf(title, sizeof(title), "%.*s: %s, %u consumer%s, %s",
             dot ? (int)(dot - name) : (int)strlen(name), name, policy_name(w->queue.policy),
             w->consumers, w->consumers == 1 ? "" : "s",
             human_duration(w->duration_us / 1000, span));
    struct buf svg = {0};
    plot_waits(&svg, w, sim, title);
    FILE *f = fopen(path, "w");
    bool ok = f && fwrite(svg.data, 1, svg.len, f) == svg.len;
    ok = f && fclose(f) == 0 && ok;
    buf_fini(&svg);
    if (!ok)
        cli_complain("cannot write %s: %s", path, strerror(errno));
    return ok;
}

static void show_progress(void *ctx, int64_t at_us, uint64_t arrived)
{
    progress_update(ctx, at_us, (int64_t)arrived);
}

static int run(const char *path, const char *plot, const struct workload *w, const struct cli *cli)
{
    struct simulation *sim = mem_alloc(sizeof(*sim));
    struct progress progress;
    progress_init(&progress, true, w->duration_us);
    progress.hide_bytes = true;
    bool whole = simulate(w, sim, show_progress, &progress);
    progress_wipe(&progress);
    int status = whole ? CLI_DONE : CLI_REFUSED;
    if (cli->json)
        print_json(w, sim);
    else
        print_summary(w, sim);
    if (!whole)
        cli_complain("stopped: more than %d messages wait, so the consumers cannot keep up; "
                     "simulate a shorter time, or give the queue a max_depth",
                     SIMULATION_WAITING_MAX);
    if (plot && !write_plot(plot, path, w, sim))
        status = CLI_REFUSED;
    free(sim);
    return status;
}

static int simulate_command(int argc, char **argv, const struct cli *cli)
{
    int64_t seed = ARG_UNSET;
    const char *plot = NULL;
    const struct arg_option options[] = {
        {"seed", 0, ARG_INT, &seed, "N", "another run of chance; else the file's seed, else 1"},
        {"plot", 0, ARG_TEXT, &plot, "FILE.svg", "draw the waits over time, by level"},
        {0},
    };
    const struct arg_spec spec = {
        "simulate FILE.json [--seed N] [--plot FILE.svg]",
        "Runs the queue and policy that FILE.json describes on invented work and invented time,\n"
        "without a server, and prints for each level how long messages waited and what bounds\n"
        "the policy keeps. The same file and seed give the same result; FILE may be -.\n\n"
        "  {\"queue\": {\"profile\": \"tiers\"},          as in PUT /v1/queues/{queue}\n"
        "   \"consumers\": 8, \"claim_max\": 1,          each takes up to claim_max at a time\n"
        "   \"duration_seconds\": 86400, \"seed\": 1,\n"
        "   \"arrivals\": {                             by name or number of the level\n"
        "     \"CRITICAL\": {\"per_second\": 20, \"service_seconds\": 0.1},\n"
        "     \"LOW\": {\"per_second\": 5, \"service_seconds\": 1, \"pattern\": \"steady\",\n"
        "             \"bursts\": {\"every_seconds\": 3600, \"length_seconds\": 60, \"factor\": "
        "20}}},\n"
        "   \"backlog\": {\"LOW\": 10000},               waiting at the start\n"
        "   \"changes\": [{\"at_seconds\": 3600, \"queue\": {\"policy\": \"strict\"}}]}\n\n"
        "docs/policies.md explains the result.",
        "  triage simulate payments.json\n"
        "  triage simulate payments.json --seed 7 --plot payments.svg\n"
        "  triage simulate payments.json --json | jq '.levels[] | {level, longest_seconds}'\n",
        options,
        1,
        1};
    struct operands ops;
    struct workload w;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (seed != ARG_UNSET && seed < 0)
        return args_refuse(&spec, "--seed: it is not negative");
    if (!read_workload(ops.items[0], &w))
        return CLI_USAGE;
    if (seed != ARG_UNSET)
        w.seed = (uint64_t)seed;
    status = run(ops.items[0], plot, &w, cli);
    workload_fini(&w);
    return status;
}

int main(int argc, char **argv)
{
    return cli_main(argc, argv, simulate_command);
}
