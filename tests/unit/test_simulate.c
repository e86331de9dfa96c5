#include "simulate/fleet.h"
#include "simulate/ledger.h"
#include "simulate/plot.h"
#include "simulate/simulate.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct workload workload;
static struct simulation seen;

/* The description is written with ' for ", so that it can be read here. */
static char *quoted(const char *fmt, va_list args)
{
    struct buf text = {0};
    buf_vprintf(&text, fmt, args);
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\'')
            text.data[i] = '"';
    }
    return buf_take(&text);
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void run(const char *fmt, ...)
{
    struct problem p;
    va_list args;
    va_start(args, fmt);
    char *text = quoted(fmt, args);
    va_end(args);
    workload_fini(&workload);
    if (!workload_parse(text, strlen(text), &workload, &p))
        fail_msg("%s: %s\n%s", p.field, p.detail, text);
    assert_true(simulate(&workload, &seen, NULL, NULL));
    free(text);
    uint64_t arrived = 0, claimed = 0, gone = 0;
    for (int i = 0; i < seen.level_count; i++) {
        const struct simulation_level *level = &seen.levels[i];
        arrived += level->arrived;
        claimed += level->claimed;
        gone += level->refused + level->waiting + level->claimed;
        assert_true(level->done <= level->claimed);
        assert_int_equal(level->waits.count, level->claimed);
    }
    assert_int_equal(arrived, seen.arrived);
    assert_int_equal(claimed, seen.claimed);
    assert_int_equal(gone + seen.expired, seen.arrived);
    assert_true(seen.busy >= 0 && seen.busy <= 1.0000001);
}

static int teardown(void **state)
{
    (void)state;
    workload_fini(&workload);
    return 0;
}

/* Shares */

static const struct {
    int consumers, claim_max;
} crews[] = {{1, 1}, {50, 1}, {1, 10}, {50, 10}};

static void tiers_divide_exactly_when_all_levels_are_backlogged(void **state)
{
    (void)state;
    static const uint64_t shares[] = {16000, 8000, 4000, 2000, 1000};
    for (size_t i = 0; i < sizeof(crews) / sizeof(crews[0]); i++) {
        run("{'queue': {'profile': 'tiers'}, 'consumers': %d, 'claim_max': %d,"
            " 'duration_seconds': %g, 'arrivals': {"
            "'CRITICAL': {'per_second': 0, 'service_seconds': 0.01},"
            "'HIGH': {'per_second': 0, 'service_seconds': 0.01},"
            "'NORMAL': {'per_second': 0, 'service_seconds': 0.01},"
            "'3': {'per_second': 0, 'service_seconds': 0.01},"
            "'BACKGROUND': {'per_second': 0, 'service_seconds': 0.01}},"
            "'backlog': {'0': 20000, '1': 20000, '2': 20000, '3': 20000, '4': 20000}}",
            crews[i].consumers, crews[i].claim_max, 310.0 / crews[i].consumers);
        for (int rank = 0; rank < 5; rank++)
            assert_int_equal(seen.levels[rank].claimed, shares[rank]);
    }
}

static void an_empty_levels_share_goes_to_the_others_in_proportion(void **state)
{
    (void)state;
    static const uint64_t shares[] = {16000, 0, 4000, 2000, 1000};
    for (size_t i = 0; i < sizeof(crews) / sizeof(crews[0]); i++) {
        run("{'queue': {'profile': 'tiers'}, 'consumers': %d, 'claim_max': %d,"
            " 'duration_seconds': %g, 'arrivals': {"
            "'CRITICAL': {'per_second': 0, 'service_seconds': 0.01},"
            "'NORMAL': {'per_second': 0, 'service_seconds': 0.01},"
            "'LOW': {'per_second': 0, 'service_seconds': 0.01},"
            "'BACKGROUND': {'per_second': 0, 'service_seconds': 0.01}},"
            "'backlog': {'CRITICAL': 20000, 'NORMAL': 20000, 'LOW': 20000, 'BACKGROUND': 20000}}",
            crews[i].consumers, crews[i].claim_max, 230.0 / crews[i].consumers);
        for (int rank = 0; rank < 5; rank++)
            assert_int_equal(seen.levels[rank].claimed, shares[rank]);
    }
}

static void environments_divide_four_three_two_one(void **state)
{
    (void)state;
    run("{'queue': {'profile': 'environments'}, 'consumers': 5, 'duration_seconds': 20, 'arrivals':"
        "{'production': {'per_second': 0, 'service_seconds': 0.01},"
        " 'staging': {'per_second': 0, 'service_seconds': 0.01},"
        " 'qa': {'per_second': 0, 'service_seconds': 0.01},"
        " 'development': {'per_second': 0, 'service_seconds': 0.01}},"
        "'backlog': {'production': 9000, 'staging': 9000, 'qa': 9000, 'development': 9000}}");
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(seen.levels[rank].claimed, 1000 * (4 - rank));
    assert_int_equal(seen.bounds.cycle, 10);
    assert_true(seen.bounds.levels[3].share == 0.1);
}

/* Bounds */

/* Two consumers of one message a second each; twice as much of the top level arrives, all day. */
#define FLOOD                                                                                      \
    "'consumers': 2, 'duration_seconds': 86400, 'arrivals': {"                                     \
    "'CRITICAL': {'per_second': 4, 'service_seconds': 1},"                                         \
    "'BACKGROUND': {'per_second': %g, 'service_seconds': 1}}"
#define FLOOD_RATE 2.0

static void strict_starves_under_a_flood(void **state)
{
    (void)state;
    run("{'queue': {'profile': 'tiers', 'policy': 'strict'}, " FLOOD "}", 0.03);
    const struct simulation_level *background = &seen.levels[4];
    assert_true(background->claimed < 5); /* before the flood has filled the consumers */
    assert_true(background->waiting > 2000);
    assert_true(background->longest_waits);
    assert_true(background->longest_ms > 80000000);
    assert_int_equal(seen.bounds.levels[4].longest_ms, BOUND_NONE);
}

static void weights_bound_the_wait_under_a_flood_for_a_day(void **state)
{
    (void)state;
    run("{'queue': {'profile': 'tiers'}, " FLOOD "}", 0.03);
    const struct simulation_level *background = &seen.levels[4];
    uint64_t before = seen.bounds.levels[4].ahead; /* quota 1 in a cycle of 31 */
    double bound_seconds = (double)(before + 1 + 1) * 31 / FLOOD_RATE;
    assert_true(background->claimed > 2000);
    assert_true(background->waiting <= before + 1);
    assert_true(background->longest_ms > 1000);
    assert_true((double)background->longest_ms / 1000 <= bound_seconds);
    assert_true((double)seen.bounds.levels[4].longest_ms / 1000 <= bound_seconds + 1);
    assert_true(seen.levels[0].waiting > 100000);
}

#define UNEVEN                                                                                     \
    "'levels': [{'name': 'CRITICAL', 'weight': 100}, {'name': 'HIGH', 'weight': 10},"              \
    "{'name': 'BACKGROUND', 'weight': 1%s}]"

static void aging_and_max_wait_shorten_it(void **state)
{
    (void)state;
    run("{'queue': {'policy': 'weighted', " UNEVEN "}, " FLOOD "}", "", 0.05);
    int64_t plain_ms = seen.levels[2].longest_ms;
    assert_true(plain_ms > 10000000); /* more arrives than its share of one in 101 */

    run("{'queue': {'policy': 'weighted', " UNEVEN "}, " FLOOD "}", ", 'age_after_seconds': 60",
        0.05);
    int64_t aged_ms = seen.levels[2].longest_ms;
    uint64_t before = seen.bounds.levels[2].ahead;
    double as_high = 60 + (double)((before + 10) / 10 + 1) * 111 / FLOOD_RATE;
    assert_true(seen.levels[2].aged > 0);
    assert_true(aged_ms < plain_ms / 10);
    assert_true((double)aged_ms / 1000 <= as_high);
    assert_true((double)seen.bounds.levels[2].longest_ms / 1000 <= as_high + 1);
    assert_int_equal(seen.bounds.levels[2].ages_to, 1);
    assert_int_equal(seen.bounds.levels[2].ages_ms, 60000);

    run("{'queue': {'policy': 'weighted', " UNEVEN "}, " FLOOD "}", ", 'max_wait_seconds': 40",
        0.05);
    assert_true(seen.levels[2].longest_ms <= 40000);
    assert_true(seen.levels[2].longest_ms < aged_ms);
    assert_int_equal(seen.levels[2].late, 0);
}

static void what_is_late_is_counted(void **state)
{
    (void)state;
    run("{'queue': {'levels': [{'name': 'a', 'max_wait_seconds': 5}]}, 'consumers': 1,"
        "'duration_seconds': 100, 'arrivals': {'a': {'per_second': 0, 'service_seconds': 1}},"
        "'backlog': {'a': 50}}");
    assert_int_equal(seen.levels[0].claimed, 50);
    assert_int_equal(seen.levels[0].late, 44); /* those that waited 6 to 49 seconds */
}

static uint64_t dice = 1;

static unsigned roll(unsigned n)
{
    dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(dice >> 33) % n;
}

static void put_random_level(struct buf *levels, struct buf *arrivals, int i)
{
    const char *comma = i ? "," : "";
    buf_printf(levels, "%s{'name': 'l%d', 'weight': %u, 'age_after_seconds': ", comma, i,
               1 + roll(12));
    if (roll(2))
        buf_printf(levels, "%u}", 1 + roll(60));
    else
        buf_lit(levels, "null}");
    buf_printf(arrivals, "%s'l%d': {'per_second': %g, 'service_seconds': %g, 'pattern': '%s'}",
               comma, i, (1 + roll(40)) / 10.0, (1 + roll(10)) / 10.0,
               roll(2) ? "poisson" : "steady");
}

/* Overloaded or not, aged or not, batched or not: what the arithmetic says is what happens. */
static void no_wait_exceeds_its_bound(void **state)
{
    (void)state;
    int bounded = 0;
    for (int round = 0; round < 300; round++) {
        struct buf levels = {0}, arrivals = {0};
        int count = 1 + (int)roll(5);
        for (int i = 0; i < count; i++)
            put_random_level(&levels, &arrivals, i);
        run("{'queue': {'policy': '%s', 'levels': [%s]%s}, 'consumers': %u, 'claim_max': %u,"
            "'duration_seconds': 600, 'seed': %d, 'arrivals': {%s}}",
            roll(4) ? "weighted" : "strict", buf_cstr(&levels),
            roll(4) ? "" : ", 'max_in_flight': 3", 1 + roll(6), roll(3) ? 1 : 1 + roll(8), round,
            buf_cstr(&arrivals));
        for (int i = 0; i < count; i++) {
            int64_t bound_ms = seen.bounds.levels[i].longest_ms;
            if (bound_ms != BOUND_NONE && seen.levels[i].longest_ms > bound_ms)
                fail_msg("round %d, level %d: waited %" PRId64 " ms of %" PRId64, round, i,
                         seen.levels[i].longest_ms, bound_ms);
            bounded += bound_ms != BOUND_NONE;
        }
        buf_fini(&levels);
        buf_fini(&arrivals);
    }
    assert_true(bounded > 500);
}

/* The rest of the workload */

static char *drawing(const char *title)
{
    struct buf svg = {0};
    plot_waits(&svg, &workload, &seen, title);
    return buf_take(&svg);
}

static void the_same_seed_gives_the_same_picture(void **state)
{
    (void)state;
    char *pictures[3];
    static const int seeds[] = {7, 7, 8};
    for (int i = 0; i < 3; i++) {
        run("{'queue': {'profile': 'tiers'}, 'consumers': 2, 'duration_seconds': 1000, 'seed': %d,"
            "'arrivals': {'HIGH': {'per_second': 10, 'service_seconds': 0.1},"
            "'LOW': {'per_second': 9, 'service_seconds': 0.1}}}",
            seeds[i]);
        pictures[i] = drawing("a < b & c");
    }
    assert_string_equal(pictures[0], pictures[1]);
    assert_string_not_equal(pictures[0], pictures[2]);
    assert_non_null(strstr(pictures[0], "<title>a &lt; b &amp; c</title>"));
    for (int i = 0; i < 3; i++)
        free(pictures[i]);
}

static void steady_arrivals_and_bursts_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *bursts;
        uint64_t arrived;
    } cases[] = {
        {"", 1000},
        {", 'bursts': {'every_seconds': 50, 'length_seconds': 10, 'factor': 3}", 1400},
        {", 'bursts': {'every_seconds': 25, 'length_seconds': 5, 'factor': 0}", 800},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run("{'consumers': 1, 'duration_seconds': 100, 'arrivals': {'5': {'per_second': 10,"
            "'service_seconds': 0.01, 'pattern': 'steady'%s}}}",
            cases[i].bursts);
        /* The last one comes as time is up, and may be a microsecond too late. */
        assert_in_range(seen.arrived, cases[i].arrived - 1, cases[i].arrived);
    }
}

static void poisson_arrivals_have_their_rate(void **state)
{
    (void)state;
    run("{'consumers': 1, 'duration_seconds': 10000, 'arrivals': {'5': {'per_second': 10,"
        "'service_seconds': 0.01, 'bursts': {'every_seconds': 10, 'length_seconds': 5, 'factor': "
        "2}}}}");
    assert_in_range(seen.arrived, 148000, 152000); /* five standard deviations */
    assert_true(seen.busy > 0.14 && seen.busy < 0.16);
}

static void a_change_takes_effect_from_its_time_on(void **state)
{
    (void)state;
    run("{'queue': {'profile': 'tiers', 'policy': 'strict'}, 'consumers': 1,"
        "'duration_seconds': 200, 'arrivals': {"
        "'CRITICAL': {'per_second': 2, 'service_seconds': 1, 'pattern': 'steady'},"
        "'BACKGROUND': {'per_second': 0, 'service_seconds': 1}}, 'backlog': {'BACKGROUND': 50},"
        "'changes': [{'at_seconds': 100.5, 'queue': {'policy': 'weighted'}},"
        "{'at_seconds': 190.5, 'queue': {'paused': true}}]}");
    assert_int_equal(seen.levels[4].claimed, 1 + 5); /* one at the start, then one in 17 */
    assert_int_equal(seen.claimed, 191);
    assert_int_equal(seen.queue.policy, POLICY_WEIGHTED);
    assert_true(seen.queue.paused);
}

static void limits_shape_the_order(void **state)
{
    (void)state;
    run("{'queue': {'levels': [{'name': 'top', 'max_in_flight': 1}, {'name': 'low'}]},"
        "'consumers': 4, 'duration_seconds': 100, 'arrivals': {"
        "'top': {'per_second': 0, 'service_seconds': 1},"
        "'low': {'per_second': 0, 'service_seconds': 1}}, 'backlog': {'top': 900, 'low': 900}}");
    assert_int_equal(seen.levels[0].claimed, 100);
    assert_int_equal(seen.levels[1].claimed, 300);
    assert_int_equal(seen.bounds.levels[0].longest_ms, BOUND_NONE);

    run("{'queue': {'max_in_flight': 2}, 'consumers': 4, 'duration_seconds': 100, 'arrivals': {"
        "'9': {'per_second': 0, 'service_seconds': 1}}, 'backlog': {'9': 900}}");
    assert_int_equal(seen.claimed, 200);
    assert_true(seen.busy == 0.5);
}

static void depth_and_time_to_live_are_kept(void **state)
{
    (void)state;
    run("{'queue': {'max_depth': 20, 'ttl_seconds': 5}, 'consumers': 1, 'duration_seconds': 100,"
        "'arrivals': {'9': {'per_second': 0, 'service_seconds': 1}}, 'backlog': {'9': 30}}");
    assert_int_equal(seen.levels[0].refused, 10);
    assert_true(seen.expired >= 14);
    assert_int_equal(seen.expired + seen.claimed, 20);
}

/* Refusals */

#define ONE "'arrivals': {'5': {'per_second': 1, 'service_seconds': 1}}"

static const struct {
    const char *text, *field, *says;
} nonsense[] = {
    {"{'consumers': 1,", "", "at byte 16"},
    {"[]", "", "object"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'consumer': 2}", "/consumer", "Known here"},
    {"{'duration_seconds': 1, " ONE "}", "/consumers", "missing"},
    {"{'consumers': 1, " ONE "}", "/duration_seconds", "missing"},
    {"{'consumers': 1, 'duration_seconds': 1}", "/arrivals", "missing"},
    {"{'consumers': 0, 'duration_seconds': 1, " ONE "}", "/consumers", "from 1 to"},
    {"{'consumers': 1e9, 'duration_seconds': 1, " ONE "}", "/consumers", "from 1 to"},
    {"{'consumers': 1, 'duration_seconds': -1, " ONE "}", "/duration_seconds", "more than 0"},
    {"{'consumers': 1, 'duration_seconds': 1, 'claim_max': 101, " ONE "}", "/claim_max", "100"},
    {"{'consumers': 1, 'duration_seconds': 1, 'seed': -1, " ONE "}", "/seed", "from 0"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': -1, "
     "'service_seconds': 1}}}",
     "/arrivals/5/per_second", "from 0"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 1, "
     "'service_seconds': 0}}}",
     "/arrivals/5/service_seconds", "more than 0"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 1}}}", "/arrivals/5",
     "needs"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 1, "
     "'service_seconds': 1, 'pattern': 'bursty'}}}",
     "/arrivals/5/pattern", "poisson"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 1, "
     "'service_seconds': 1, 'bursts': {'every_seconds': 5, 'length_seconds': 5, 'factor': 2}}}}",
     "/arrivals/5/bursts", "below"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 1, "
     "'service_seconds': 1, 'bursts': {'every': 5}}}}",
     "/arrivals/5/bursts/every", "Known here"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'URGENT': {}}}", "/arrivals/URGENT",
     "no such level; it has 9, 8"},
    {"{'queue': {'profile': 'tiers'}, 'consumers': 1, 'duration_seconds': 1, 'arrivals': {"
     "'HIGH': {'per_second': 1, 'service_seconds': 1}, '1': {'per_second': 1, 'service_seconds': "
     "1}}}",
     "/arrivals/1", "twice"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': 7}", "/arrivals", "object"},
    {"{'consumers': 1, 'duration_seconds': 9999999, 'arrivals': {'5': {'per_second': 1000, "
     "'service_seconds': 1}}}",
     "/arrivals", "100 million"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'backlog': {'4': 1}}", "/backlog",
     "service_seconds"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'backlog': {'5': -1}}", "/backlog/5",
     "from 0"},
    {"{'consumers': 1, 'duration_seconds': 1, 'arrivals': {'5': {'per_second': 0, "
     "'service_seconds': 1}, '4': {'per_second': 0, 'service_seconds': 1}}, 'backlog': {'5': "
     "4000000, '4': 4000000}}",
     "/backlog", "5 million"},
    {"{'queue': {'policy': 'fair'}, 'consumers': 1, 'duration_seconds': 1, " ONE "}",
     "/queue/policy", "weighted"},
    {"{'queue': {'levels': [{'name': '5', 'weight': 0}]}, 'consumers': 1, 'duration_seconds': 1, "
     "" ONE "}",
     "/queue/levels/0/weight", "from 0.001"},
    {"{'queue': [], 'consumers': 1, 'duration_seconds': 1, " ONE "}", "/queue", "object"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'changes': [{'at_seconds': 1}]}", "/changes",
     "at_seconds and queue"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'changes': [{'at_seconds': 1, 'queue': "
     "{'polcy': 'strict'}}]}",
     "/changes/0/queue/polcy", "Known here"},
    {"{'consumers': 1, 'duration_seconds': 1, " ONE ", 'changes': [{'at_seconds': 1, 'queue': "
     "{'profile': 'tiers'}}]}",
     "/changes/0/queue", "keep the levels"},
    {"{'consumers': 1, 'duration_seconds': 9, " ONE ", 'changes': [{'at_seconds': 2, 'queue': {}}, "
     "{'at_seconds': 1, 'queue': {}}]}",
     "/changes", "order of time"},
};

static void refuse(const char *text, const char *field, const char *says)
{
    struct problem p;
    struct buf json = {0};
    buf_puts(&json, text);
    for (size_t i = 0; i < json.len; i++)
        json.data[i] = json.data[i] == '\'' ? '"' : json.data[i];
    if (workload_parse(json.data, json.len, &workload, &p))
        fail_msg("taken: %s", text);
    assert_string_equal(p.field, field);
    if (!strstr(p.detail, says))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, p.detail, says);
    buf_fini(&json);
}

static void nonsense_is_refused_by_the_name_of_the_field(void **state)
{
    (void)state;
    workload_fini(&workload);
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
        refuse(nonsense[i].text, nonsense[i].field, nonsense[i].says);
}

/* Cells */

static struct fleet_result cells_seen;

static const struct fleet_terms small_terms = {
    .workload = &workload,
    .depot = {.delay_us = 250,
              .jitter_us = 100,
              .group_us = 100,
              .operation_us = 10,
              .epoch_ms = FLEET_EPOCH_MS},
    .cells = 4,
    .servers = 2,
    .consumers = 40,
    .duration_us = 1000000,
    .seed = 1,
};

static void read_workload(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void read_workload(const char *fmt, ...)
{
    struct problem p;
    va_list args;
    va_start(args, fmt);
    char *text = quoted(fmt, args);
    va_end(args);
    workload_fini(&workload);
    if (!workload_parse(text, strlen(text), &workload, &p))
        fail_msg("%s: %s", p.field, p.detail);
    free(text);
}

static void read_cells_workload(const char *policy, int backlog)
{
    read_workload("{'queue': {'profile': 'tiers', 'policy': '%s'}, 'consumers': 40, "
                  "'duration_seconds': 1, 'arrivals': {"
                  "'CRITICAL': {'per_second': 300, 'service_seconds': 0.01}, "
                  "'LOW': {'per_second': 1500, 'service_seconds': 0.01}}, "
                  "'backlog': {'LOW': %d}}",
                  policy, backlog);
}

static void assert_all_messages_are_somewhere(void)
{
    for (int rank = 0; rank < cells_seen.sim.level_count; rank++) {
        const struct simulation_level *l = &cells_seen.sim.levels[rank];
        uint64_t on_the_way = l->arrived - l->claimed - l->waiting - l->refused;
        assert_true(l->done <= l->claimed);
        assert_true(l->claimed + l->waiting <= l->arrived);
        assert_true(on_the_way < 100); /* enqueues that are not answered */
    }
}

static int happened[64];
static int happened_count;

static void happen(void *ctx)
{
    happened[happened_count++] = *(int *)ctx;
}

static void things_happen_by_time_and_then_in_the_order_of_planning(void **state)
{
    struct agenda a = {0};
    int numbers[64];
    (void)state;
    happened_count = 0;
    for (int i = 0; i < 64; i++) {
        numbers[i] = i;
        agenda_plan(&a, (i * 37) % 8, happen, &numbers[i]);
    }
    while (agenda_step(&a, 6))
        ;
    assert_int_equal(happened_count, 56);
    assert_int_equal(a.now_us, 6);
    assert_true(agenda_step(&a, 7));
    while (agenda_step(&a, 9))
        ;
    assert_int_equal(a.now_us, 9);
    for (int i = 1; i < 64; i++) {
        int before = (happened[i - 1] * 37) % 8, after = (happened[i] * 37) % 8;
        assert_true(before < after || (before == after && happened[i - 1] < happened[i]));
    }
    agenda_fini(&a);
}

/* An urgent message, number 0, is ready at 100. A less urgent one is claimed from `began` to
 * `over`, and number 0 from `last` on. */
static uint64_t window_of(int64_t began, int64_t over, int64_t last)
{
    struct ledger *l = malloc(sizeof(*l));
    ledger_init(l, 2);
    ledger_begin(l, 0, 90);
    ledger_begin(l, 3, 90);
    ledger_ready(l, 0, 0, 100);
    ledger_ready(l, 1, 1, 100);
    ledger_taken(l, 1, 3, began, over);
    ledger_taken(l, 0, 0, last, last + 10);
    ledger_close(l);
    uint64_t window = l->between_us.max;
    assert_int_equal(l->passed_between, window > 0);
    assert_int_equal(l->between_us.count, 2);
    ledger_fini(l);
    free(l);
    return window;
}

static void only_what_was_surely_ready_was_passed_over(void **state)
{
    (void)state;
    assert_int_equal(window_of(150, 160, 170), 50);
    assert_int_equal(window_of(150, 160, 155), 0); /* at the same time */
    assert_int_equal(window_of(95, 120, 170), 0);  /* it began before */
    assert_int_equal(window_of(150, 160, 1000), 50);
}

static void a_message_in_a_cell_that_is_away_is_passed_over_by_nobody(void **state)
{
    struct ledger *l = malloc(sizeof(*l));
    (void)state;
    ledger_init(l, 2);
    for (int i = 0; i < 4; i++) {
        ledger_begin(l, i == 0 ? 0 : 3, 0);
        ledger_ready(l, (uint32_t)i, i > 0, 10);
    }
    ledger_cell(l, 0, false, 20);
    ledger_taken(l, 1, 3, 50, 60);
    ledger_cell(l, 0, true, 100);
    ledger_taken(l, 2, 3, 140, 150);
    ledger_taken(l, 0, 0, 160, 170);
    ledger_close(l); /* number 3 waits on, and was passed over by nothing less urgent */
    assert_int_equal(l->between_us.max, 40);
    assert_int_equal(l->between_us.count, 4);
    assert_int_equal(l->within_us.max, 0);
    ledger_fini(l);
    free(l);
}

static void cells_give_the_same_for_the_same_seed(void **state)
{
    struct fleet_terms terms = small_terms;
    (void)state;
    read_cells_workload("strict", 500);
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_all_messages_are_somewhere();
    assert_true(cells_seen.sim.done > 1500);
    assert_true(cells_seen.looks > 0);
    struct fleet_result *first = malloc(sizeof(*first));
    memcpy(first, &cells_seen, sizeof(*first));
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_memory_equal(&first->sim.levels, &cells_seen.sim.levels, sizeof(first->sim.levels));
    assert_memory_equal(&first->between_us, &cells_seen.between_us, sizeof(first->between_us));
    assert_memory_equal(&first->periods, &cells_seen.periods, sizeof(first->periods));
    assert_int_equal(first->looks, cells_seen.looks);
    terms.seed = 2;
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_int_not_equal(first->sim.arrived, cells_seen.sim.arrived);
    free(first);
}

static void order_is_kept_between_cells_within_a_window(void **state)
{
    struct fleet_terms terms = small_terms;
    (void)state;
    read_cells_workload("strict", 4000);
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_true(cells_seen.between_us.count > 5000);
    /* A claim goes by heads that are known from at most 40 ms ago, else it looks first; and a look
     * takes its time. */
    assert_true(cells_seen.between_us.max < 45000);
    assert_int_equal(hist_quantile(&cells_seen.between_us, 0.5), 0);
    terms.cells = terms.servers = 1; /* one store keeps it exactly */
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_int_equal(cells_seen.passed_between, 0);
    assert_int_equal(cells_seen.passed_within, 0);
}

static void weights_hold_over_cells(void **state)
{
    struct fleet_terms terms = small_terms;
    (void)state;
    read_workload("{'queue': {'profile': 'tiers', 'policy': 'weighted'}, 'consumers': 40, "
                  "'duration_seconds': 1, 'arrivals': {"
                  "'CRITICAL': {'per_second': 0, 'service_seconds': 0.05}, "
                  "'HIGH': {'per_second': 0, 'service_seconds': 0.05}}, "
                  "'backlog': {'CRITICAL': 2000, 'HIGH': 2000}}");
    terms.servers = 1;
    fleet_run(&terms, &cells_seen, NULL, NULL);
    const struct simulation_level *l = cells_seen.sim.levels;
    assert_true(l[1].claimed > 100);
    assert_in_range(l[0].claimed, l[1].claimed * 19 / 10, l[1].claimed * 21 / 10);
}

static void a_cell_that_fails_keeps_its_messages_and_stops_nobody_else(void **state)
{
    static const struct fleet_failure failure = {.cell = 2, .at_us = 300000, .for_us = 2000000};
    struct fleet_terms terms = small_terms;
    (void)state;
    read_cells_workload("strict", 4000);
    terms.duration_us = 4000000;
    terms.failures = &failure;
    terms.failure_count = 1;
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_all_messages_are_somewhere();
    const struct fleet_period *p = cells_seen.periods;
    assert_true(p[FLEET_BEFORE].own_ms.count > 0);
    assert_true(p[FLEET_BEFORE].own_ms.max < 1000);
    assert_true(p[FLEET_AWAY].own_ms.count < 20); /* answers that were on their way */
    assert_true(p[FLEET_AWAY].others_ms.count > 1000);
    assert_true(p[FLEET_AFTER].own_ms.max >= 2000);
    assert_int_equal(p[FLEET_AWAY].refused, 0); /* new messages go elsewhere */
    assert_true(p[FLEET_AWAY].pause_us < 1500000);
}

static void a_thousand_cells_can_be_opened_and_merged(void **state)
{
    struct fleet_terms terms = small_terms;
    (void)state;
    read_cells_workload("strict", 0);
    terms.cells = FLEET_CELLS_MAX;
    terms.servers = 1;
    assert_true(fleet_rebuild_us(&terms) > 0);
    terms.duration_us = 20000;
    terms.full = true;
    fleet_run(&terms, &cells_seen, NULL, NULL);
    assert_all_messages_are_somewhere();
    assert_true(cells_seen.sim.done > 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tiers_divide_exactly_when_all_levels_are_backlogged),
        TEST(an_empty_levels_share_goes_to_the_others_in_proportion),
        TEST(environments_divide_four_three_two_one),
        TEST(strict_starves_under_a_flood),
        TEST(weights_bound_the_wait_under_a_flood_for_a_day),
        TEST(aging_and_max_wait_shorten_it),
        TEST(what_is_late_is_counted),
        TEST(no_wait_exceeds_its_bound),
        TEST(the_same_seed_gives_the_same_picture),
        TEST(steady_arrivals_and_bursts_are_exact),
        TEST(poisson_arrivals_have_their_rate),
        TEST(a_change_takes_effect_from_its_time_on),
        TEST(limits_shape_the_order),
        TEST(depth_and_time_to_live_are_kept),
        TEST(nonsense_is_refused_by_the_name_of_the_field),
        TEST(things_happen_by_time_and_then_in_the_order_of_planning),
        TEST(only_what_was_surely_ready_was_passed_over),
        TEST(a_message_in_a_cell_that_is_away_is_passed_over_by_nobody),
        TEST(cells_give_the_same_for_the_same_seed),
        TEST(order_is_kept_between_cells_within_a_window),
        TEST(weights_hold_over_cells),
        TEST(a_cell_that_fails_keeps_its_messages_and_stops_nobody_else),
        TEST(a_thousand_cells_can_be_opened_and_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
