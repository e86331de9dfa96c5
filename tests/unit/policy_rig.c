#include "unit/policy_rig.h"

struct toy t;

int policy_setup(void **state)
{
    (void)state;
    toy_init(&t, "levels");
    return 0;
}

int policy_teardown(void **state)
{
    (void)state;
    toy_fini(&t);
    return 0;
}

void start(const char *profile)
{
    toy_fini(&t);
    toy_init(&t, profile);
}

void start_custom(int level_count, enum policy_kind kind)
{
    toy_fini(&t);
    toy_custom(&t, level_count);
    t.config.policy = kind;
    toy_configured(&t);
}

int lowest(void)
{
    return t.config.level_count - 1;
}

void assert_counts(const uint64_t *have, const uint64_t *want)
{
    for (int rank = 0; rank < t.config.level_count; rank++)
        assert_int_equal(have[rank], want[rank]);
}

void assert_ranks(uint32_t want, const char *ranks)
{
    struct toy_message out[10];
    char have[11] = "";
    uint32_t n = toy_claim(&t, lowest(), want, out);
    for (uint32_t i = 0; i < n; i++)
        have[i] = (char)('0' + out[i].rank);
    assert_string_equal(have, ranks);
}
