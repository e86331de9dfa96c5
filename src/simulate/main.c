/* triage-simulate, which is `triage simulate`: what a policy does to a workload, before it meets
 * the real one. Needs no server. */
#include "base/file.h"
#include "base/mem.h"
#include "simulate/fleet_print.h"
#include "simulate/human.h"
#include "simulate/plot.h"
#include "simulate/print.h"
#include "simulate/simulate.h"
#include "term/args.h"
#include "term/cli.h"
#include "term/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Over many cells */

struct cells_options {
    int64_t cells, servers, consumers, seconds_ms, scaling_ms;
    int64_t delay_us, jitter_us, clock_ms, group_us, operation_us;
    struct arg_list fail;
    struct fleet_failure failures[FLEET_FAILURES_MAX];
};

/* CELL@AT+FOR, in seconds. */
static bool parse_failure(const char *text, const struct fleet_terms *t, struct fleet_failure *f)
{
    double at, span;
    int end = 0;
    if (sscanf(text, "%" SCNu32 "@%lf+%lf%n", &f->cell, &at, &span, &end) != 3 || text[end])
        return false;
    f->at_us = (int64_t)(at * 1e6);
    f->for_us = (int64_t)(span * 1e6);
    return f->cell < t->cells && at >= 0 && span > 0 && f->at_us < t->duration_us;
}

struct option_range {
    const char *name;
    int64_t value, min, max;
};

/* NULL, or the option that is out of its range. */
static const struct option_range *out_of_range(const struct option_range *ranges)
{
    while (ranges->name && ranges->value >= ranges->min && ranges->value <= ranges->max)
        ranges++;
    return ranges->name ? ranges : NULL;
}

static bool cells_terms(const struct arg_spec *spec, struct cells_options *o,
                        const struct workload *w, struct fleet_terms *t)
{
    const struct option_range ranges[] = {
        {"cells", o->cells, 1, FLEET_CELLS_MAX},
        {"servers", o->servers, 1, FLEET_SERVERS_MAX},
        {"consumers", o->consumers, 1, WORKLOAD_CONSUMERS_MAX},
        {"for", o->seconds_ms, 10, WORKLOAD_SECONDS_MAX * 1000},
        {"scaling", o->scaling_ms, 0, 60000},
        {"delay-us", o->delay_us, 0, 10000000},
        {"jitter-us", o->jitter_us, 0, 10000000},
        {"clock-ms", o->clock_ms, 0, 60000},
        {"group-us", o->group_us, 0, 10000000},
        {"operation-us", o->operation_us, 0, 10000000},
        {"fail", (int64_t)o->fail.count, 0, FLEET_FAILURES_MAX},
        {0},
    };
    const struct option_range *wrong = out_of_range(ranges);
    if (wrong) {
        args_refuse(spec, "--%s: must be from %" PRId64 " to %" PRId64, wrong->name, wrong->min,
                    wrong->max);
        return false;
    }
    if (w->change_count > 0) {
        args_refuse(spec, "--cells: a workload with changes runs without cells only");
        return false;
    }
    *t = (struct fleet_terms){.workload = w,
                              .depot = {.delay_us = o->delay_us,
                                        .jitter_us = o->jitter_us,
                                        .clock_us = o->clock_ms * 1000,
                                        .group_us = o->group_us,
                                        .operation_us = o->operation_us,
                                        .epoch_ms = FLEET_EPOCH_MS},
                              .cells = (uint32_t)o->cells,
                              .servers = (uint32_t)o->servers,
                              .consumers = (uint32_t)o->consumers,
                              .duration_us = o->seconds_ms * 1000,
                              .seed = w->seed,
                              .failures = o->failures};
    for (; t->failure_count < o->fail.count; t->failure_count++) {
        const char *text = o->fail.items[t->failure_count];
        if (!parse_failure(text, t, &o->failures[t->failure_count])) {
            args_refuse(spec,
                        "--fail %s: takes CELL@AT+FOR, as in 3@2+1.5: cell 3 is away from "
                        "second 2 on, for 1.5 seconds",
                        text);
            return false;
        }
    }
    return true;
}

static uint32_t portion_of(uint32_t all, uint32_t cells, uint32_t of)
{
    uint64_t part = ((uint64_t)all * cells + of - 1) / of;
    return part > 0 ? (uint32_t)part : 1;
}

/* The same on fewer cells, with as many servers and consumers for each cell, at full load. */
static void run_step(const struct fleet_terms *t, uint32_t cells, int64_t for_ms,
                     struct fleet_step *step)
{
    struct fleet_result *result = mem_alloc(sizeof(*result));
    step->terms = *t;
    step->terms.cells = cells;
    step->terms.servers = portion_of(t->servers, cells, t->cells);
    step->terms.consumers = portion_of(t->consumers, cells, t->cells);
    step->terms.duration_us = for_ms * 1000;
    step->terms.full = true;
    step->terms.failure_count = 0;
    fleet_run(&step->terms, result, NULL, NULL);
    step->per_second = result->per_second;
    step->cells_busy = result->cells_busy;
    step->p50_us = (int64_t)hist_quantile(&result->between_us, 0.5);
    step->p99_us = (int64_t)hist_quantile(&result->between_us, 0.99);
    step->longest_us = (int64_t)result->between_us.max;
    free(result);
}

static int run_cells(const char *path, const char *plot, const struct fleet_terms *t,
                     int64_t scaling_ms, const struct cli *cli)
{
    struct fleet_result *result = mem_alloc(sizeof(*result));
    struct fleet_report report = {.terms = t, .result = result};
    struct progress progress;
    progress_init(&progress, true, t->duration_us);
    progress.hide_bytes = true;
    fleet_run(t, result, show_progress, &progress);
    progress_wipe(&progress);
    for (uint32_t cells = 1; scaling_ms > 0; cells = 2 * cells < t->cells ? 2 * cells : t->cells) {
        run_step(t, cells, scaling_ms, &report.steps[report.step_count++]);
        if (cells == t->cells)
            break;
    }
    report.rebuild_us = fleet_rebuild_us(t);
    if (cli->json)
        fleet_print_json(&report);
    else
        fleet_print(&report);
    struct workload drawn = *t->workload;
    drawn.consumers = t->consumers;
    drawn.duration_us = t->duration_us;
    bool ok = !plot || write_plot(plot, path, &drawn, &result->sim);
    free(result);
    return ok ? CLI_DONE : CLI_REFUSED;
}

/* The command */

static const char about[] =
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
    "With --cells the queue is spread over so many stores that several servers share: the\n"
    "engine `cells` with stores, network and clocks that are invented. It prints how well the\n"
    "order was kept between cells, what a failed cell did, and how throughput grows.\n\n"
    "docs/policies.md explains the result, docs/scaling.md that of --cells.";

static const char examples[] =
    "  triage simulate payments.json\n"
    "  triage simulate payments.json --seed 7 --plot payments.svg\n"
    "  triage simulate payments.json --json | jq '.levels[] | {level, longest_seconds}'\n"
    "  triage simulate payments.json --cells 8 --servers 2 --for 10s\n"
    "  triage simulate payments.json --cells 8 --fail 3@2+1.5 --delay-us 500 --clock-ms 20\n"
    "  triage simulate many.json --cells 64 --servers 2 --consumers 640 --for 2s\n";

static int run_with(const struct arg_spec *spec, const char *path, const char *plot,
                    struct cells_options *o, const struct workload *w, const struct cli *cli)
{
    struct fleet_terms terms;
    if (o->cells == ARG_UNSET)
        return run(path, plot, w, cli);
    o->consumers = o->consumers == ARG_UNSET ? w->consumers : o->consumers;
    o->seconds_ms = o->seconds_ms == ARG_UNSET ? w->duration_us / 1000 : o->seconds_ms;
    if (!cells_terms(spec, o, w, &terms))
        return CLI_USAGE;
    return run_cells(path, plot, &terms, o->scaling_ms, cli);
}

static int simulate_command(int argc, char **argv, const struct cli *cli)
{
    int64_t seed = ARG_UNSET;
    const char *plot = NULL;
    struct cells_options o = {.cells = ARG_UNSET,
                              .servers = 2,
                              .consumers = ARG_UNSET,
                              .seconds_ms = ARG_UNSET,
                              .scaling_ms = 200,
                              .delay_us = 250,
                              .jitter_us = 100,
                              .group_us = 200,
                              .operation_us = 20};
    const struct arg_option options[] = {
        {"seed", 0, ARG_INT, &seed, "N", "another run of chance; else the file's seed, else 1"},
        {"plot", 0, ARG_TEXT, &plot, "FILE.svg", "draw the waits over time, by level"},
        {"cells", 0, ARG_INT, &o.cells, "N", "over so many cells, up to 1024"},
        {"servers", 0, ARG_INT, &o.servers, "N", "that share them; else 2"},
        {"consumers", 0, ARG_INT, &o.consumers, "N", "in place of the file's"},
        {"for", 0, ARG_DURATION, &o.seconds_ms, "TIME", "in place of the file's duration"},
        {"delay-us", 0, ARG_INT, &o.delay_us, "N", "of the network, one way; else 250"},
        {"jitter-us", 0, ARG_INT, &o.jitter_us, "N", "up to so much more, by chance; else 100"},
        {"clock-ms", 0, ARG_INT, &o.clock_ms, "N", "cells' clocks are wrong by up to so much"},
        {"group-us", 0, ARG_INT, &o.group_us, "N", "a cell's time for a group; else 200"},
        {"operation-us", 0, ARG_INT, &o.operation_us, "N", "and for each operation; else 20"},
        {"fail", 0, ARG_LIST, &o.fail, "CELL@AT+FOR", "silent from then on for so many seconds"},
        {"scaling", 0, ARG_DURATION, &o.scaling_ms, "TIME",
         "of each run with 1, 2, 4 … cells at full load; else 200ms, 0 for none"},
        {0},
    };
    const struct arg_spec spec = {"simulate FILE.json [--seed N] [--plot FILE.svg] [--cells N …]",
                                  about,
                                  examples,
                                  options,
                                  1,
                                  1};
    struct operands ops;
    struct workload w;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO && seed != ARG_UNSET && seed < 0)
        status = args_refuse(&spec, "--seed: it is not negative");
    if (status == ARGS_GO && !read_workload(ops.items[0], &w))
        status = CLI_USAGE;
    if (status == ARGS_GO) {
        if (seed != ARG_UNSET)
            w.seed = (uint64_t)seed;
        status = run_with(&spec, ops.items[0], plot, &o, &w, cli);
        workload_fini(&w);
    }
    free(o.fail.items);
    return status;
}

int main(int argc, char **argv)
{
    return cli_main(argc, argv, simulate_command);
}
