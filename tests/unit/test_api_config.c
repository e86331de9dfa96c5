#include "api/config.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct queue_config config;
static struct problem problem;
static struct config_change change;
static uint32_t stay; /* slots that hold messages */

static void fresh(const char *profile)
{
    assert_true(config_profile(profile, &config));
}

static bool patch(const char *text, bool is_new)
{
    problem = (struct problem){0};
    change = (struct config_change){.is_new = is_new, .stay = stay};
    return config_patch(text, strlen(text), &change, &config, &problem);
}

static void a_patch_changes_what_it_names_and_nothing_else(void **state)
{
    (void)state;
    fresh("levels");
    assert_true(patch("{\"max_attempts\":7,\"retry\":{\"backoff\":\"exponential\","
                      "\"base_seconds\":0.5},\"ttl_seconds\":60,\"max_depth\":10,"
                      "\"dedup\":{\"scope\":\"live\"},\"paused\":true}",
                      true));
    assert_int_equal(config.max_attempts, 7);
    assert_int_equal(config.backoff, BACKOFF_EXPONENTIAL);
    assert_int_equal(config.backoff_base_ms, 500);
    assert_int_equal(config.backoff_max_ms, 300000);
    assert_int_equal(config.ttl_ms, 60000);
    assert_int_equal(config.max_depth, 10);
    assert_int_equal(config.dedup_scope, DEDUP_LIVE);
    assert_true(config.paused);
    assert_true(patch("{\"ttl_seconds\":null,\"max_depth\":null}", false));
    assert_int_equal(config.ttl_ms, 0);
    assert_int_equal(config.max_depth, 0);
    assert_int_equal(config.max_attempts, 7);
    assert_string_equal(config.profile, "levels");
}

static void a_profile_brings_its_defaults_only_to_a_new_queue(void **state)
{
    (void)state;
    fresh("levels");
    assert_true(patch("{\"profile\":\"tiers\"}", true));
    assert_int_equal(config.visibility_ms, 300000);
    assert_int_equal(config.level_count, 5);
    fresh("levels");
    assert_true(patch("{\"profile\":\"tiers\",\"drop_levels\":true}", false));
    assert_int_equal(config.visibility_ms, 30000);
    assert_int_equal(config.level_count, 5);
    assert_string_equal(config.profile, "tiers");
    assert_string_equal(config.levels[config.default_rank].name, "NORMAL");
}

static void levels_make_a_custom_profile(void **state)
{
    (void)state;
    fresh("levels");
    assert_true(patch("{\"levels\":[{\"name\":\"red\",\"weight\":2.5},{\"name\":\"amber\"},"
                      "{\"name\":\"green\",\"number\":4}]}",
                      true));
    assert_string_equal(config.profile, "custom");
    assert_int_equal(config.level_count, 3);
    assert_int_equal(config.default_rank, 1);
    assert_true(config.levels[0].weight == 2.5);
    assert_true(config.levels[1].weight == 1);
    assert_true(config.levels[2].has_number);
    assert_true(patch("{\"levels\":[{\"name\":\"green\"},{\"name\":\"amber\"}],"
                      "\"drop_levels\":true}",
                      false));
    assert_string_equal(config.levels[config.default_rank].name, "amber");
    assert_true(patch("{\"default_priority\":\"green\"}", false));
    assert_int_equal(config.default_rank, 0);
}

static void what_shapes_order_is_set_and_unset(void **state)
{
    (void)state;
    fresh("levels");
    assert_true(patch("{\"policy\":\"weighted\",\"max_in_flight\":7,\"levels\":[{\"name\":\"a\"},"
                      "{\"name\":\"b\",\"age_after_seconds\":1.5,\"max_wait_seconds\":60,"
                      "\"max_in_flight\":3}]}",
                      true));
    assert_int_equal(config.policy, POLICY_WEIGHTED);
    assert_int_equal(config.max_in_flight, 7);
    assert_int_equal(config.levels[0].age_ms, 0);
    assert_int_equal(config.levels[1].age_ms, 1500);
    assert_int_equal(config.levels[1].max_wait_ms, 60000);
    assert_int_equal(config.levels[1].max_in_flight, 3);
    assert_true(patch("{\"policy\":\"strict\",\"max_in_flight\":null,\"levels\":[{\"name\":\"a\"},"
                      "{\"name\":\"b\",\"age_after_seconds\":null,\"max_in_flight\":null}]}",
                      false));
    assert_int_equal(config.policy, POLICY_STRICT);
    assert_int_equal(config.max_in_flight, 0);
    assert_int_equal(config.levels[1].age_ms, 0);
    assert_int_equal(config.levels[1].max_wait_ms, 60000); /* it was not named */
    assert_int_equal(config.levels[1].max_in_flight, 0);
}

static void one_level_is_changed_by_its_name(void **state)
{
    (void)state;
    fresh("tiers");
    assert_true(patch("{\"levels\":{\"CRITICAL\":{\"weight\":16},\"LOW\":{\"number\":null}},"
                      "\"max_attempts\":7}",
                      false));
    assert_true(config.levels[0].weight == 16);
    assert_int_equal(config.levels[0].number, 0);
    assert_false(config.levels[3].has_number);
    assert_int_equal(config.levels[3].age_ms, 1800000);
    assert_int_equal(config.level_count, 5);
    assert_int_equal(config.max_attempts, 7);
    assert_string_equal(config.levels[config.default_rank].name, "NORMAL");
    assert_string_equal(config.profile, "custom");
    assert_true(patch("{\"levels\":{}}", false));
}

static void a_level_of_a_list_keeps_what_it_does_not_name(void **state)
{
    (void)state;
    fresh("tiers");
    assert_true(patch("{\"levels\":[{\"name\":\"LOW\"},{\"name\":\"CRITICAL\",\"weight\":3},"
                      "{\"name\":\"HIGH\"},{\"name\":\"NORMAL\"},{\"name\":\"BACKGROUND\"},"
                      "{\"name\":\"fresh\"}]}",
                      false));
    assert_int_equal(config.levels[0].age_ms, 1800000);
    assert_int_equal(config.levels[0].number, 3);
    assert_true(config.levels[1].weight == 3);
    assert_true(config.levels[4].weight == 0.5);
    assert_true(config.levels[5].weight == 1);
    assert_false(config.levels[5].has_number);
    fresh("levels"); /* of a new queue nothing is kept: there was nothing */
    assert_true(patch("{\"levels\":[{\"name\":\"9\"}]}", true));
    assert_false(config.levels[0].has_number);
    assert_true(config.levels[0].weight == 1);
    fresh("levels"); /* but of a profile that is named */
    assert_true(patch("{\"profile\":\"tiers\",\"levels\":[{\"name\":\"HIGH\"}]}", true));
    assert_true(config.levels[0].weight == 4);
}

static void levels_that_nobody_names_are_not_dropped_unasked(void **state)
{
    static const char *const shorter[] = {
        "{\"levels\":[{\"name\":\"CRITICAL\"},{\"name\":\"HIGH\"}]}",
        "{\"levels\":[{\"name\":\"CRITICAL\"},{\"name\":\"HIGH\"}],\"drop_levels\":false}",
        "{\"profile\":\"environments\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(shorter) / sizeof(shorter[0]); i++) {
        fresh("tiers");
        assert_false(patch(shorter[i], false));
        assert_int_equal(problem.status, STATUS_LEVELS_DROPPED);
        assert_string_equal(problem.field, "/levels");
        assert_non_null(strstr(problem.detail, "NORMAL, LOW, BACKGROUND"));
        assert_non_null(strstr(problem.detail, "drop_levels"));
        assert_int_equal(config.level_count, 5);
    }
    assert_true(patch(
        "{\"levels\":[{\"name\":\"CRITICAL\"},{\"name\":\"HIGH\"}],\"drop_levels\":true}", false));
    assert_int_equal(config.level_count, 2);
}

/* Slots 4 and 9 of `levels` are those of "5" and "0". */
static void levels_that_hold_messages_stay_behind_the_others(void **state)
{
    (void)state;
    fresh("levels");
    stay = 1U << 4 | 1U << 9;
    assert_true(patch("{\"profile\":\"tiers\",\"drop_levels\":\"empty\"}", false));
    stay = 0;
    assert_true(change.keeps_used);
    assert_int_equal(config.level_count, 7);
    assert_string_equal(config.profile, "custom");
    assert_string_equal(config.levels[config.default_rank].name, "NORMAL");
    assert_int_equal(config.levels[0].number, 0); /* 0 means CRITICAL from now on … */
    assert_string_equal(config.levels[5].name, "5");
    assert_int_equal(config.levels[5].number, 5);
    assert_string_equal(config.levels[6].name, "0-old"); /* … and this one alone is called so */
    assert_false(config.levels[6].has_number);
    assert_int_equal(config.levels[6].heir_of, 10);
    assert_true(config.levels[6].weight == 0.5);
    assert_true(patch("{\"profile\":\"tiers\",\"drop_levels\":\"empty\"}", false));
    assert_int_equal(config.level_count, 5);
    assert_string_equal(config.profile, "tiers");
}

static void levels_that_stay_are_no_more_than_there_may_be(void **state)
{
    struct buf text = {0};
    (void)state;
    fresh("levels");
    buf_lit(&text, "{\"drop_levels\":\"empty\",\"levels\":[{\"name\":\"l0\"}");
    for (int i = 1; i < LEVEL_COUNT_MAX; i++)
        buf_printf(&text, ",{\"name\":\"l%d\"}", i);
    buf_lit(&text, "]}");
    stay = 1;
    assert_false(patch(buf_cstr(&text), false));
    assert_int_equal(problem.status, STATUS_LEVEL_IN_USE);
    assert_non_null(strstr(problem.detail, "\"9\""));
    stay = 0;
    assert_true(patch(buf_cstr(&text), false));
    buf_fini(&text);
}

/* What GET shows of one queue can be PUT to another. */
static void a_configuration_can_be_given_to_another_queue(void **state)
{
    struct buf first = {0}, second = {0};
    (void)state;
    fresh("tiers");
    assert_true(patch("{\"levels\":{\"LOW\":{\"weight\":7}},\"ttl_seconds\":5}", false));
    config_put(&first, "one", &config);
    fresh("levels");
    assert_true(patch(buf_cstr(&first), true));
    config_put(&second, "one", &config);
    assert_string_equal(buf_cstr(&first), buf_cstr(&second));
    buf_fini(&first);
    buf_fini(&second);
}

/* What GET shows can be PUT back, and changes nothing. */
static void every_profile_survives_the_way_out_and_back(void **state)
{
    (void)state;
    for (const char *const *name = config_profile_names(); *name; name++) {
        struct buf first = {0}, second = {0};
        fresh(*name);
        config.history_ms = 1500;
        config.alert_dead_letters = 3;
        config_put(&first, "q", &config);
        fresh("levels");
        assert_true(patch(buf_cstr(&first), true));
        assert_string_equal(config.profile, *name);
        config_put(&second, "q", &config);
        assert_string_equal(buf_cstr(&first), buf_cstr(&second));
        buf_fini(&first);
        buf_fini(&second);
    }
}

static void what_is_not_allowed_names_its_field_and_changes_nothing(void **state)
{
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{\"profile\":\"nonsense\"}", "/profile"},
        {"{\"profile\":\"custom\"}", "/profile"},
        {"{\"profile\":5}", "/profile"},
        {"{\"policy\":\"fair\"}", "/policy"},
        {"{\"name\":5}", "/name"},
        {"{\"drop_levels\":\"some\"}", "/drop_levels"},
        {"{\"max_attempts\":0}", "/max_attempts"},
        {"{\"visibility_timeout_seconds\":43201}", "/visibility_timeout_seconds"},
        {"{\"levels\":[]}", "/levels"},
        {"{\"levels\":5}", "/levels"},
        {"{\"levels\":{\"9\":5}}", "/levels/9"},
        {"{\"levels\":{\"9\":{\"weight\":0}}}", "/levels/9/weight"},
        {"{\"levels\":{\"9\":{\"number\":8}}}", "/levels"},
        {"{\"levels\":[{\"name\":\"1\",\"number\":2},{\"name\":\"x\",\"number\":1}]}", "/levels"},
        {"{\"levels\":[{\"name\":\"a\"},{\"name\":\"a\"}]}", "/levels"},
        {"{\"levels\":[{\"name\":\"1\"},{\"name\":\"x\",\"number\":1}]}", "/levels"},
        {"{\"levels\":[{\"name\":\"a\"},{}]}", "/levels/1/name"},
        {"{\"levels\":[{\"name\":\"a\",\"weight\":0}]}", "/levels/0/weight"},
        {"{\"levels\":[{\"name\":\"a\",\"weight\":0.0005}]}", "/levels/0/weight"},
        {"{\"levels\":[{\"name\":\"a\",\"weight\":1.2345}]}", "/levels/0/weight"},
        {"{\"levels\":[{\"name\":\"a\",\"age_after_seconds\":0}]}", "/levels/0/age_after_seconds"},
        {"{\"levels\":[{\"name\":\"a\",\"max_wait_seconds\":-1}]}", "/levels/0/max_wait_seconds"},
        {"{\"levels\":[{\"name\":\"a\",\"max_in_flight\":0}]}", "/levels/0/max_in_flight"},
        {"{\"levels\":[{\"name\":\"a\\n\"}]}", "/levels/0/name"},
        {"{\"levels\":[5]}", "/levels/0"},
        {"{\"retry\":{\"backoff\":\"often\"}}", "/retry/backoff"},
        {"{\"retry\":{\"jitter\":1.5}}", "/retry/jitter"},
        {"{\"retry\":{\"backoff\":\"exponential\",\"base_seconds\":9,\"max_seconds\":1}}",
         "/retry/max_seconds"},
        {"{\"retry\":3}", "/retry"},
        {"{\"ttl_seconds\":0}", "/ttl_seconds"},
        {"{\"expired\":\"burn\"}", "/expired"},
        {"{\"dedup\":{\"scope\":\"ever\"}}", "/dedup/scope"},
        {"{\"max_depth\":0}", "/max_depth"},
        {"{\"max_in_flight\":0}", "/max_in_flight"},
        {"{\"max_in_flight\":1.5}", "/max_in_flight"},
        {"{\"history_seconds\":-1}", "/history_seconds"},
        {"{\"alerts\":{\"webhook\":\"ftp://host/x\"}}", "/alerts/webhook"},
        {"{\"alerts\":{\"webhook\":\"http://host/a b\"}}", "/alerts/webhook"},
        {"{\"alerts\":{\"webhook\":\"http://\"}}", "/alerts/webhook"},
        {"{\"alerts\":{\"webhook\":\"https://\"}}", "/alerts/webhook"},
        {"{\"alerts\":{\"webhook\":\"x\"}}", "/alerts/webhook"},
        {"{\"paused\":1}", "/paused"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fresh("levels");
        struct queue_config before = config;
        assert_false(patch(bad[i].text, true));
        assert_int_equal(problem.status, STATUS_INVALID_FIELD);
        assert_string_equal(problem.field, bad[i].field);
        assert_memory_equal(&before, &config, sizeof(config));
    }
    assert_false(patch("{\"default_priority\":77}", true));
    assert_int_equal(problem.status, STATUS_UNKNOWN_PRIORITY);
    assert_false(patch("{\"levels\":{\"nobody\":{\"weight\":2}}}", false));
    assert_int_equal(problem.status, STATUS_UNKNOWN_PRIORITY);
    assert_string_equal(problem.field, "/levels/nobody");
    assert_non_null(strstr(problem.detail, "It has: 9, 8"));
    assert_false(patch("{\"levels\":{\"9\":{\"name\":\"x\"}}}", false));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
    assert_string_equal(problem.field, "/levels/9/name");
    assert_false(patch("{\"retry\":{\"base\":1}}", true));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
    assert_string_equal(problem.field, "/retry/base");
    assert_false(patch("{\"nope\":1}", true));
    assert_non_null(strstr(problem.detail, ", history_seconds, alerts."));
    assert_false(patch("{\"levels\":[{\"name\":\"a\",\"weight\":0}]}", true));
    assert_string_equal(problem.detail, "weight must be a number from 0.001 to 1000000.");
    assert_false(patch("{\"retry\"", true));
    assert_int_equal(problem.status, STATUS_MALFORMED_JSON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_patch_changes_what_it_names_and_nothing_else),
        cmocka_unit_test(a_profile_brings_its_defaults_only_to_a_new_queue),
        cmocka_unit_test(levels_make_a_custom_profile),
        cmocka_unit_test(what_shapes_order_is_set_and_unset),
        cmocka_unit_test(one_level_is_changed_by_its_name),
        cmocka_unit_test(a_level_of_a_list_keeps_what_it_does_not_name),
        cmocka_unit_test(levels_that_nobody_names_are_not_dropped_unasked),
        cmocka_unit_test(levels_that_hold_messages_stay_behind_the_others),
        cmocka_unit_test(levels_that_stay_are_no_more_than_there_may_be),
        cmocka_unit_test(a_configuration_can_be_given_to_another_queue),
        cmocka_unit_test(every_profile_survives_the_way_out_and_back),
        cmocka_unit_test(what_is_not_allowed_names_its_field_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("api config", tests, NULL, NULL);
}
