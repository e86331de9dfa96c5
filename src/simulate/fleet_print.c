#include "simulate/fleet_print.h"

#include "simulate/human.h"
#include "simulate/print.h"
#include "term/grid.h"
#include "term/member.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const period_names[FLEET_PERIODS] = {
    [FLEET_BEFORE] = "before", [FLEET_AWAY] = "away", [FLEET_AFTER] = "after"};

static double ms_of(int64_t us)
{
    return (double)us / 1000;
}

static double share_of(uint64_t some, uint64_t all)
{
    return all > 0 ? 100.0 * (double)some / (double)all : 0;
}

/* For people */

static void print_head(const struct fleet_report *r)
{
    const struct fleet_terms *t = r->terms;
    const struct simulation *sim = &r->result->sim;
    char text[HUMAN_DURATION_MAX];
    printf("%u cell%s, %u server%s, %u consumers, %s simulated with seed %" PRIu64 ": %" PRIu64
           " messages arrived, %" PRIu64 " done\n",
           t->cells, t->cells == 1 ? "" : "s", t->servers, t->servers == 1 ? "" : "s", t->consumers,
           human_duration(t->duration_us / 1000, text), t->seed, sim->arrived, sim->done);
    printf("network %.2f to %.2f ms each way, clocks within %.1f ms; a cell takes %" PRId64
           " us for a group and %" PRId64 " us for each operation in it: %.1f %% busy\n\n",
           ms_of(t->depot.delay_us), ms_of(t->depot.delay_us + t->depot.jitter_us),
           ms_of(t->depot.clock_us), t->depot.group_us, t->depot.operation_us,
           100 * r->result->cells_busy);
}

static void print_window(struct grid *t, const char *name, uint64_t passed, const struct hist *h)
{
    grid_cstr(t, name);
    print_cell(t, "%.2f %%", share_of(passed, h->count));
    print_cell(t, "%.2f ms", ms_of((int64_t)hist_quantile(h, 0.5)));
    print_cell(t, "%.2f ms", ms_of((int64_t)hist_quantile(h, 0.99)));
    print_cell(t, "%.2f ms", ms_of((int64_t)h->max));
}

static void print_order(const struct fleet_result *result)
{
    static const char *const head[] = {"order", "passed over", "p50", "p99", "longest", NULL};
    struct grid t;
    printf("\nThe window W: how long a message had surely been ready when another went first\n");
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    print_row(&t, head);
    if (result->sim.queue.policy == POLICY_STRICT) /* else weights say which level goes first */
        print_window(&t, "between levels", result->passed_between, &result->between_us);
    print_window(&t, "within a level", result->passed_within, &result->within_us);
    grid_print(&t);
}

static void print_waits(struct grid *t, const struct hist *h)
{
    bool any = h->count > 0;
    print_ms(t, "", any, (int64_t)hist_quantile(h, 0.5));
    print_ms(t, "", any, (int64_t)hist_quantile(h, 0.99));
    print_ms(t, "", any, (int64_t)h->max);
}

static void print_failures(const struct fleet_report *r)
{
    static const char *const head[] = {"when",        "its own p50", "p99",     "longest",
                                       "others' p50", "p99",         "longest", "no claim for",
                                       "refused",     "retried",     NULL};
    struct grid t;
    char at[HUMAN_DURATION_MAX], span[HUMAN_DURATION_MAX];
    for (uint32_t i = 0; i < r->terms->failure_count; i++) {
        const struct fleet_failure *f = &r->terms->failures[i];
        printf("%sCell %u fails after %s, for %s\n", i == 0 ? "\n" : "", f->cell,
               human_duration(f->at_us / 1000, at), human_duration(f->for_us / 1000, span));
    }
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    print_row(&t, head);
    for (int i = 0; i < FLEET_PERIODS; i++) {
        const struct fleet_period *p = &r->result->periods[i];
        grid_cstr(&t, period_names[i]);
        print_waits(&t, &p->own_ms);
        print_waits(&t, &p->others_ms);
        print_cell(&t, "%.1f ms", ms_of(p->pause_us));
        print_count(&t, p->refused);
        print_count(&t, p->retried);
    }
    grid_print(&t);
}

static void print_scaling(const struct fleet_report *r)
{
    static const char *const head[] = {"cells", "servers", "consumers", "a second", "times",
                                       "busy",  "W p50",   "p99",       "longest",  NULL};
    struct grid t;
    printf("\nFull load, from enqueue to acknowledgement\n");
    grid_init(&t, sizeof(head) / sizeof(head[0]) - 1);
    print_row(&t, head);
    for (uint32_t i = 0; i < r->step_count; i++) {
        const struct fleet_step *s = &r->steps[i];
        print_count(&t, s->terms.cells);
        print_count(&t, s->terms.servers);
        print_count(&t, s->terms.consumers);
        print_cell(&t, "%.0f", s->per_second);
        print_cell(&t, "%.2f", s->per_second / r->steps[0].per_second);
        print_cell(&t, "%.1f %%", 100 * s->cells_busy);
        print_cell(&t, "%.2f ms", ms_of(s->p50_us));
        print_cell(&t, "%.2f ms", ms_of(s->p99_us));
        print_cell(&t, "%.2f ms", ms_of(s->longest_us));
    }
    grid_print(&t);
}

void fleet_print(const struct fleet_report *r)
{
    const struct fleet_result *result = r->result;
    print_head(r);
    print_levels(&result->sim);
    print_order(result);
    printf("%.2f looks at heads for each message claimed; %" PRIu64 " leases that nobody waited "
           "for went back\n",
           result->sim.claimed > 0 ? (double)result->looks / (double)result->sim.claimed : 0,
           result->strays);
    if (r->terms->failure_count > 0)
        print_failures(r);
    if (r->step_count > 0)
        print_scaling(r);
    printf("\nA server that knows nothing has the heads of all %u partitions after %.1f ms of "
           "processor time\n",
           r->terms->cells, ms_of(r->rebuild_us));
}

/* For programs */

static void put_us(struct buf *out, const char *name, int64_t us)
{
    member_put(out, name);
    buf_printf(out, "%.6f", (double)us / 1e6);
}

static void put_window(struct buf *out, const char *name, uint64_t passed, const struct hist *h)
{
    member_put(out, name);
    buf_putc(out, '{');
    print_put_count(out, "passed_over", passed);
    print_put_count(out, "of", h->count);
    put_us(out, "p50_seconds", (int64_t)hist_quantile(h, 0.5));
    put_us(out, "p99_seconds", (int64_t)hist_quantile(h, 0.99));
    put_us(out, "longest_seconds", (int64_t)h->max);
    buf_putc(out, '}');
}

static void put_waits(struct buf *out, const char *name, const struct hist *ms)
{
    member_put(out, name);
    buf_putc(out, '{');
    print_put_count(out, "claimed", ms->count);
    put_us(out, "p50_seconds", (int64_t)hist_quantile(ms, 0.5) * 1000);
    put_us(out, "p99_seconds", (int64_t)hist_quantile(ms, 0.99) * 1000);
    put_us(out, "longest_seconds", (int64_t)ms->max * 1000);
    buf_putc(out, '}');
}

static void put_periods(struct buf *out, const struct fleet_result *result)
{
    member_put(out, "periods");
    for (int i = 0; i < FLEET_PERIODS; i++) {
        const struct fleet_period *p = &result->periods[i];
        buf_putc(out, i == 0 ? '[' : ',');
        buf_putc(out, '{');
        member_put_text(out, "period", period_names[i]);
        put_waits(out, "own", &p->own_ms);
        put_waits(out, "others", &p->others_ms);
        put_us(out, "no_claim_for_seconds", p->pause_us);
        print_put_count(out, "refused", p->refused);
        print_put_count(out, "retried", p->retried);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_scaling(struct buf *out, const struct fleet_report *r)
{
    member_put(out, "scaling");
    buf_putc(out, '[');
    for (uint32_t i = 0; i < r->step_count; i++) {
        const struct fleet_step *s = &r->steps[i];
        buf_puts(out, i == 0 ? "{" : ",{");
        print_put_count(out, "cells", s->terms.cells);
        print_put_count(out, "servers", s->terms.servers);
        print_put_count(out, "consumers", s->terms.consumers);
        print_put_number(out, "per_second", s->per_second);
        print_put_number(out, "busy", s->cells_busy);
        put_us(out, "window_p50_seconds", s->p50_us);
        put_us(out, "window_p99_seconds", s->p99_us);
        put_us(out, "window_longest_seconds", s->longest_us);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

void fleet_print_json(const struct fleet_report *r)
{
    const struct fleet_result *result = r->result;
    struct buf out = {0};
    buf_putc(&out, '{');
    put_us(&out, "simulated_seconds", r->terms->duration_us);
    print_put_count(&out, "seed", r->terms->seed);
    print_put_count(&out, "cells", r->terms->cells);
    print_put_count(&out, "servers", r->terms->servers);
    print_put_count(&out, "consumers", r->terms->consumers);
    print_put_count(&out, "arrived", result->sim.arrived);
    print_put_count(&out, "claimed", result->sim.claimed);
    print_put_count(&out, "done", result->sim.done);
    print_put_number(&out, "cells_busy", result->cells_busy);
    print_put_count(&out, "looks", result->looks);
    print_put_count(&out, "strays", result->strays);
    print_put_levels(&out, &result->sim);
    put_window(&out, "between_levels", result->passed_between, &result->between_us);
    put_window(&out, "within_level", result->passed_within, &result->within_us);
    put_periods(&out, result);
    put_scaling(&out, r);
    put_us(&out, "rebuild_processor_seconds", r->rebuild_us);
    buf_putc(&out, '}');
    text_document(&out);
    buf_fini(&out);
}
