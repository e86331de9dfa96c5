/* What is done about due times: in time, and when they were missed. */
#include "base/mem.h"
#include "core/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOUR 3600000LL

static struct schedule hourly(enum missed missed)
{
    return (struct schedule){
        .name = "hourly",
        .rule = {.cron = "0 * * * *", .time_zone = "UTC"},
        .missed = (uint8_t)missed,
        .grace_ms = 60000,
        .timing = {.next_ms = 100 * HOUR, .last_ms = 99 * HOUR, .count = 7},
    };
}

static void in_time_each_due_time_is_its_own(void **state)
{
    (void)state;
    for (int missed = 0; missed < MISSED_COUNT; missed++) {
        struct schedule s = hourly((enum missed)missed);
        struct schedule_step step = schedule_decide(&s, NULL, 100 * HOUR + 60000);
        assert_true(step.puts);
        assert_int_equal(step.due_ms, 100 * HOUR);
        assert_int_equal(step.at_ms, 100 * HOUR);
        assert_int_equal(step.next_ms, 101 * HOUR);
        struct schedule_timing after = schedule_after(&s.timing, &step);
        assert_int_equal(after.count, 8);
        assert_int_equal(after.last_ms, 100 * HOUR);
        assert_int_equal(after.next_ms, 101 * HOUR);
    }
}

static void missed_ones_are_skipped(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_SKIP);
    struct schedule_step step = schedule_decide(&s, NULL, 105 * HOUR + 1);
    assert_false(step.puts);
    assert_int_equal(step.next_ms, 106 * HOUR);
    struct schedule_timing after = schedule_after(&s.timing, &step);
    assert_int_equal(after.count, 7);
    assert_int_equal(after.last_ms, 99 * HOUR);
}

static void or_have_one_message_together(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_ONCE);
    static const int64_t nows[] = {100 * HOUR + 60001, 101 * HOUR - 1, 101 * HOUR, 105 * HOUR + 1,
                                   1000 * HOUR - 1};
    for (size_t i = 0; i < sizeof(nows) / sizeof(nows[0]); i++) {
        struct schedule_step step = schedule_decide(&s, NULL, nows[i]);
        assert_true(step.puts);
        assert_int_equal(step.at_ms, nows[i] / HOUR * HOUR);
        assert_int_equal(step.next_ms, (nows[i] / HOUR + 1) * HOUR);
    }
    s.rule = (struct schedule_rule){.time_zone = "UTC", .every_s = 1};
    struct schedule_step step = schedule_decide(&s, NULL, 200 * HOUR + 1234);
    assert_int_equal(step.at_ms, 200 * HOUR + 1000);
    assert_int_equal(step.next_ms, 200 * HOUR + 2000);
}

static void or_one_each_up_to_a_limit(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_ALL);
    s.rule = (struct schedule_rule){.time_zone = "UTC", .every_s = 1};
    int64_t now = s.timing.next_ms + 366LL * 24 * HOUR; /* it slept for a year */
    uint32_t puts = 0, steps = 0;
    int64_t due = s.timing.next_ms;
    for (; s.timing.next_ms <= now; steps++) {
        struct schedule_step step = schedule_decide(&s, NULL, now);
        if (step.puts)
            assert_int_equal(step.at_ms, due + puts++ * 1000LL);
        s.timing = schedule_after(&s.timing, &step);
    }
    assert_int_equal(puts, SCHEDULE_MADE_UP_MAX);
    assert_int_equal(steps, SCHEDULE_MADE_UP_MAX + 1);
    assert_int_equal(s.timing.next_ms, now + 1000);
    /* And the next time it counts anew. */
    assert_int_equal(s.timing.made_up, 0);
    struct schedule_step step = schedule_decide(&s, NULL, s.timing.next_ms);
    assert_true(step.puts);
    assert_int_equal(step.made_up, 0);
}

static void a_due_time_is_never_done_again(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_ALL);
    s.timing.last_ms = 100 * HOUR; /* the clock was set back, and the rule changed */
    struct schedule_step step = schedule_decide(&s, NULL, 100 * HOUR);
    struct schedule_timing after = schedule_after(&s.timing, &step);
    assert_false(step.puts);
    assert_int_equal(after.count, 7);
    assert_int_equal(after.next_ms, 101 * HOUR);
    assert_int_equal(after.last_ms, 100 * HOUR);
}

static void what_it_puts_says_where_it_comes_from(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_ALL);
    struct draft draft;
    char body[] = "hello{\"a\":1}key";
    s.draft = (struct draft){.body = body, .payload_len = 5, .metadata_len = 7, .dedup_len = 3};
    schedule_draft(&s, 0, &draft);
    static const char want[] =
        "hello{\"schedule\":\"hourly\",\"due_at\":\"1970-01-01T00:00:00.000Z\",\"a\":1}key";
    assert_int_equal(draft.payload_len + draft.metadata_len + draft.dedup_len, sizeof(want) - 1);
    assert_memory_equal(draft.body, want, sizeof(want) - 1);
    draft_fini(&draft);
    s.draft.metadata_len = s.draft.dedup_len = 0;
    schedule_draft(&s, 0, &draft);
    assert_non_null(strstr(draft.body, "000Z\"}"));
    draft_fini(&draft);
}

static void what_it_adds_to_the_metadata_always_fits(void **state)
{
    (void)state;
    struct schedule s = hourly(MISSED_ALL);
    struct draft draft;
    memset(s.name, 'n', QUEUE_NAME_MAX);
    s.draft.metadata_len = SCHEDULE_METADATA_MAX;
    s.draft.body = mem_zalloc(SCHEDULE_METADATA_MAX);
    memset(s.draft.body, ' ', SCHEDULE_METADATA_MAX);
    schedule_draft(&s, TIME_MS_MAX, &draft);
    assert_true(draft.metadata_len <= METADATA_MAX);
    draft_fini(&draft);
    draft_fini(&s.draft);
}

static void every_so_many_seconds_counts_from_the_epoch(void **state)
{
    (void)state;
    struct schedule_rule rule = {.time_zone = "UTC", .every_s = 30};
    assert_int_equal(schedule_next(&rule, NULL, 0), 30000);
    assert_int_equal(schedule_next(&rule, NULL, 29999), 30000);
    assert_int_equal(schedule_next(&rule, NULL, 30000), 60000);
    assert_int_equal(schedule_next(&rule, NULL, -1), 0);
    assert_int_equal(schedule_next(&rule, NULL, TIME_MS_MAX - 1), SCHEDULE_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_time_each_due_time_is_its_own),
        cmocka_unit_test(missed_ones_are_skipped),
        cmocka_unit_test(or_have_one_message_together),
        cmocka_unit_test(or_one_each_up_to_a_limit),
        cmocka_unit_test(a_due_time_is_never_done_again),
        cmocka_unit_test(what_it_puts_says_where_it_comes_from),
        cmocka_unit_test(what_it_adds_to_the_metadata_always_fits),
        cmocka_unit_test(every_so_many_seconds_counts_from_the_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
