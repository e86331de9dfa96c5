/* What the tests of policies are written with: one toy queue, made anew for each test. */
#ifndef TRIAGE_TESTS_POLICY_RIG_H
#define TRIAGE_TESTS_POLICY_RIG_H

#include "unit/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

extern struct toy t;

static const enum policy_kind kinds[] = {POLICY_STRICT, POLICY_WEIGHTED};
static const uint32_t batches[] = {1, 2, 3, 7, 10, 31, 64, 100};

int policy_setup(void **state);
int policy_teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, policy_setup, policy_teardown)

/* Makes the toy queue anew, with the levels of this profile. */
void start(const char *profile);
void start_custom(int level_count, enum policy_kind kind);
int lowest(void); /* rank */

void assert_counts(const uint64_t *have, const uint64_t *want); /* by rank */
void assert_ranks(uint32_t want, const char *ranks);            /* of one claim of up to ten */

#endif
