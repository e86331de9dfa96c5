#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Of the paper (15 bytes) and of its reference implementation: bytes 0, 1, 2 … for key and data. */
static void siphash_is_the_one_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t tag;
    } known[] = {
        {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {7, 0xab0200f58b01d137},
        {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}, {63, 0x958a324ceb064572},
    };
    uint8_t bytes[64];
    for (uint8_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(siphash(bytes, bytes, known[i].len), known[i].tag);
}

/* As Python hashes bytes(range(len)) with PYTHONHASHSEED=0: a key of zeros. */
static void siphash_map_is_siphash_1_3(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t hash;
    } known[] = {
        {1, 0x68a914128e01e473},  {7, 0x2f098ab0c751325a},  {8, 0xead411e67ebe2eea},
        {15, 0xf30eb725bb91c9ea}, {63, 0x385d3e39e5f37359},
    };
    const uint8_t key[SIPHASH_KEY_BYTES] = {0};
    uint8_t bytes[64];
    for (uint8_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(siphash_map(key, bytes, known[i].len), known[i].hash);
}

static void siphash_depends_on_every_bit_of_the_key(void **state)
{
    (void)state;
    uint8_t key[SIPHASH_KEY_BYTES] = {0};
    uint64_t before = siphash(key, "x", 1);
    for (size_t bit = 0; bit < 8 * sizeof(key); bit++) {
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(siphash(key, "x", 1), before);
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_is_the_one_of_the_paper),
        cmocka_unit_test(siphash_map_is_siphash_1_3),
        cmocka_unit_test(siphash_depends_on_every_bit_of_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
