/* engine/postgres: how many claims share one call of the database. */
#include "core/urgency.h"
#include "engine/postgres/impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CLAIMS 1100

/* How many claims of `want` messages each go into one call. */
static uint32_t fitting(uint32_t want)
{
    static struct plan plans[CLAIMS];
    static struct engine_op ops[CLAIMS];
    static struct engine_op *in_call[CLAIMS];
    struct pg_call c = {.ops = in_call};
    for (uint32_t i = 0; i < CLAIMS; i++) {
        plans[i] = (struct plan){.want = want, .step_count = 1};
        plans[i].steps[0].max = (uint16_t)want;
        ops[i].claim.plan = &plans[i];
        if (i > 0 && !claims_fit(&c, &plans[i]))
            break;
        c.ops[c.op_count++] = &ops[i];
    }
    return c.op_count;
}

static void answer_of_the_database_stays_within_a_thousand_messages(void **state)
{
    (void)state;
    assert_int_equal(fitting(CLAIM_MAX), 10);
    assert_int_equal(fitting(3), 333);
    assert_int_equal(fitting(1), 1000);
}

/* One that is not to take what came later, for others have queues with something older, and one
 * that may: together one would get too much, or the other nothing. */
static void claims_with_different_ends_do_not_share_a_call(void **state)
{
    (void)state;
    static struct plan plans[3];
    struct queue_config config = {.level_count = 2, .policy = POLICY_STRICT};
    struct policy policy;
    const struct urgency least = {.degree = URGENCY_LEAST, .ready_ms = 1000};
    config.levels[1].slot = 1;
    policy_init(&policy, &config);
    for (int i = 0; i < 3; i++)
        policy_plan(&policy, &config, NULL, 1, 1, 5000, &plans[i]);
    urgency_cut(&plans[1], &config, &least);
    urgency_cut(&plans[2], &config, &least);
    struct engine_op ops[2] = {{.claim.plan = &plans[0]}, {.claim.plan = &plans[1]}};
    struct engine_op *in_call = &ops[0];
    struct pg_call c = {.ops = &in_call, .op_count = 1};
    assert_true(claims_fit(&c, &plans[0]));
    assert_false(claims_fit(&c, &plans[1]));
    in_call = &ops[1];
    assert_false(claims_fit(&c, &plans[0]));
    assert_true(claims_fit(&c, &plans[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_of_the_database_stays_within_a_thousand_messages),
        cmocka_unit_test(claims_with_different_ends_do_not_share_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
