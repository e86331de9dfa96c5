#include "core/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct queue_config profile(const char *name)
{
    struct queue_config c;
    memset(&c, 0xAA, sizeof(c)); /* a profile fills all of it */
    assert_true(config_profile(name, &c));
    return c;
}

static struct queue_config custom(int count, ...)
{
    struct queue_config c = profile("timeline");
    va_list args;
    va_start(args, count);
    c.level_count = (uint8_t)count;
    for (int i = 0; i < count; i++) {
        c.levels[i] = (struct level){.weight = 1};
        snprintf(c.levels[i].name, sizeof(c.levels[i].name), "%s", va_arg(args, const char *));
    }
    va_end(args);
    return c;
}

static void profiles_are_as_documented(void **state)
{
    (void)state;
    struct queue_config c = profile("levels");
    assert_int_equal(c.level_count, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(c.levels[i].number, 9 - i);
        assert_true(c.levels[i].has_number);
        assert_true(c.levels[i].weight == 10 - i);
    }
    assert_int_equal(c.levels[c.default_rank].number, 5);
    assert_int_equal(c.visibility_ms, 30000);

    c = profile("tiers");
    assert_int_equal(c.level_count, 5);
    assert_string_equal(c.levels[0].name, "CRITICAL");
    assert_int_equal(c.levels[0].number, 0);
    assert_string_equal(c.levels[c.default_rank].name, "NORMAL");
    assert_true(c.levels[4].weight == 0.5);
    assert_int_equal(c.visibility_ms, 300000);

    c = profile("environments");
    assert_int_equal(c.level_count, 4);
    assert_string_equal(c.levels[0].name, "production");
    assert_string_equal(c.levels[3].name, "development");

    c = profile("timeline");
    assert_int_equal(c.level_count, 1);
}

static void profiles_start_with_the_defaults_of_the_api(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *const *name = config_profile_names(); *name; name++, count++) {
        struct queue_config c = profile(*name);
        assert_string_equal(c.profile, *name);
        assert_int_equal(c.max_attempts, 5);
        assert_int_equal(c.backoff, BACKOFF_EXPONENTIAL);
        assert_int_equal(c.backoff_base_ms, 1000);
        assert_int_equal(c.backoff_max_ms, 300000);
        assert_true(c.backoff_jitter == 0.1);
        assert_int_equal(c.ttl_ms, 0);
        assert_int_equal(c.expired, EXPIRED_DROP);
        assert_int_equal(c.dedup_window_ms, 300000);
        assert_int_equal(c.dedup_scope, DEDUP_WINDOW);
        assert_int_equal(c.max_depth, 0);
        assert_int_equal(c.max_bytes, 0);
        assert_int_equal(c.history_ms, 0);
        assert_false(c.paused);
        assert_string_equal(c.alert_webhook, "");
        assert_true(c.default_rank < c.level_count);
    }
    assert_int_equal(count, 4);
    struct queue_config c;
    assert_false(config_profile("none", &c));
    assert_false(config_profile("", &c));
}

static int resolve_number(const struct queue_config *c, int64_t number)
{
    return levels_resolve(c, &(struct priority_ref){.kind = PRIORITY_NUMBER, .number = number});
}

static int resolve_name(const struct queue_config *c, const char *name)
{
    struct priority_ref p = {.kind = PRIORITY_NAME};
    snprintf(p.name, sizeof(p.name), "%s", name);
    return levels_resolve(c, &p);
}

static void priorities_resolve_in_the_queues_own_convention(void **state)
{
    (void)state;
    struct queue_config c = profile("levels");
    assert_int_equal(resolve_number(&c, 9), 0);
    assert_int_equal(resolve_number(&c, 0), 9);
    assert_int_equal(resolve_number(&c, 10), -1);
    assert_int_equal(resolve_number(&c, -1), -1);
    assert_int_equal(resolve_name(&c, "9"), 0);
    assert_int_equal(levels_resolve(&c, &(struct priority_ref){.kind = PRIORITY_DEFAULT}), 4);
    c = profile("tiers");
    assert_int_equal(resolve_number(&c, 0), 0);
    assert_int_equal(resolve_name(&c, "LOW"), 3);
    assert_int_equal(resolve_name(&c, "low"), -1);
    assert_int_equal(resolve_name(&c, ""), -1);
    c = profile("environments");
    assert_int_equal(resolve_name(&c, "qa"), 2);
    assert_int_equal(resolve_number(&c, 0), -1); /* levels without numbers */
}

static void slots_are_distinct(const struct queue_config *c)
{
    bool seen[LEVEL_COUNT_MAX] = {false};
    for (int i = 0; i < c->level_count; i++) {
        assert_true(c->levels[i].slot < LEVEL_COUNT_MAX);
        assert_false(seen[c->levels[i].slot]);
        seen[c->levels[i].slot] = true;
        assert_int_equal(levels_rank_of_slot(c, c->levels[i].slot), i);
    }
}

static void slots_stay_with_the_names(void **state)
{
    (void)state;
    const char *level_name = NULL;
    bool used[LEVEL_COUNT_MAX] = {false};
    struct queue_config now = custom(3, "a", "b", "c");
    assert_true(levels_adopt_slots(NULL, used, &now, &level_name));
    slots_are_distinct(&now);
    for (int i = 0; i < 3; i++)
        used[now.levels[i].slot] = true;

    struct queue_config next = custom(4, "c", "new", "a", "b");
    assert_true(levels_adopt_slots(&now, used, &next, &level_name));
    slots_are_distinct(&next);
    assert_int_equal(next.levels[0].slot, now.levels[2].slot);
    assert_int_equal(next.levels[2].slot, now.levels[0].slot);
    assert_int_equal(next.levels[3].slot, now.levels[1].slot);
}

static void a_used_level_cannot_vanish(void **state)
{
    (void)state;
    const char *level_name = NULL;
    bool used[LEVEL_COUNT_MAX] = {false};
    struct queue_config now = custom(3, "a", "b", "c");
    assert_true(levels_adopt_slots(NULL, used, &now, &level_name));
    struct queue_config next = custom(2, "a", "c");
    used[now.levels[1].slot] = true;
    assert_false(levels_adopt_slots(&now, used, &next, &level_name));
    assert_string_equal(level_name, "b");
    used[now.levels[1].slot] = false;
    used[now.levels[2].slot] = true;
    assert_true(levels_adopt_slots(&now, used, &next, &level_name));
    assert_int_equal(next.levels[1].slot, now.levels[2].slot);
    assert_int_equal(levels_rank_of_slot(&next, now.levels[1].slot), -1);
}

static void sixteen_levels_can_all_be_replaced(void **state)
{
    (void)state;
    const char *level_name = NULL;
    bool used[LEVEL_COUNT_MAX] = {false};
    struct queue_config now = custom(0), next = custom(0);
    now.level_count = next.level_count = LEVEL_COUNT_MAX;
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        snprintf(now.levels[i].name, sizeof(now.levels[i].name), "old%d", i);
        snprintf(next.levels[i].name, sizeof(next.levels[i].name), "new%d", i);
    }
    snprintf(next.levels[7].name, sizeof(next.levels[7].name), "old3");
    assert_true(levels_adopt_slots(NULL, used, &now, &level_name));
    used[now.levels[3].slot] = true;
    assert_true(levels_adopt_slots(&now, used, &next, &level_name));
    slots_are_distinct(&next);
    assert_int_equal(next.levels[7].slot, now.levels[3].slot);
}

static void backoff_is_none_fixed_or_doubling(void **state)
{
    (void)state;
    struct queue_config c = profile("levels");
    c.backoff = BACKOFF_NONE;
    c.backoff_base_ms = 1000;
    c.backoff_max_ms = 60000;
    c.backoff_jitter = 0;
    assert_int_equal(config_backoff_ms(&c, 3, 0.5), 0);
    c.backoff = BACKOFF_FIXED;
    assert_int_equal(config_backoff_ms(&c, 1, 0.5), 1000);
    assert_int_equal(config_backoff_ms(&c, 60, 0.5), 1000);
    c.backoff = BACKOFF_EXPONENTIAL;
    static const int64_t expected[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(config_backoff_ms(&c, i + 1, 0.5), expected[i]);
    assert_int_equal(config_backoff_ms(&c, UINT32_MAX, 0.5), 60000);
}

static void jitter_stays_within_its_share(void **state)
{
    (void)state;
    struct queue_config c = profile("levels");
    c.backoff = BACKOFF_FIXED;
    c.backoff_base_ms = 1000;
    c.backoff_max_ms = 60000;
    c.backoff_jitter = 0.1;
    for (int i = 0; i < 1000; i++)
        assert_in_range(config_backoff_ms(&c, 1, i / 1000.0), 900, 1100);
    c.backoff_jitter = 1;
    for (int i = 0; i < 1000; i++)
        assert_in_range(config_backoff_ms(&c, 1, i / 1000.0), 0, 2000);
    assert_int_not_equal(config_backoff_ms(&c, 1, 0.1), config_backoff_ms(&c, 1, 0.9));
}

static void policies_have_names(void **state)
{
    (void)state;
    enum policy_kind kind;
    assert_true(policy_parse("strict", &kind));
    assert_int_equal(kind, POLICY_STRICT);
    assert_string_equal(policy_name(POLICY_STRICT), "strict");
    assert_false(policy_parse("stric", &kind));
    assert_false(policy_parse("", &kind));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiles_are_as_documented),
        cmocka_unit_test(profiles_start_with_the_defaults_of_the_api),
        cmocka_unit_test(priorities_resolve_in_the_queues_own_convention),
        cmocka_unit_test(slots_stay_with_the_names),
        cmocka_unit_test(a_used_level_cannot_vanish),
        cmocka_unit_test(sixteen_levels_can_all_be_replaced),
        cmocka_unit_test(backoff_is_none_fixed_or_doubling),
        cmocka_unit_test(jitter_stays_within_its_share),
        cmocka_unit_test(policies_have_names),
    };
    return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
