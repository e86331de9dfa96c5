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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
