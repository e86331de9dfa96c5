/* The position of a message is the number of messages that are claimed before it: each is asked for
 * its position, then all are claimed one by one. */
#include "conformance/driver.h"

#include <string.h>

#define Q      "position"
#define LEVELS 4
#define EACH   10 /* more of a level than an engine with little memory keeps there */

static struct policy policy;

/* The messages of a level are 700 ms apart, no two of the queue of the same time. */
static void fill(int64_t age_ms)
{
    struct put_item items[EACH * LEVELS] = {0};
    int64_t start_ms = d.rig.now.wall_ms - age_ms;
    for (int i = 0; i < EACH * LEVELS; i++) {
        int rank = i % LEVELS, nth = i / LEVELS;
        struct spec s = {.payload = "x", .rank = rank, .has_ready_at = true};
        s.ready_at_ms = start_ms + (int64_t)nth * 700 + (rank * 3 + nth) % LEVELS * 31;
        items[i].draft = draft_of(Q, s);
    }
    struct engine_op op = {
        .verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = items, .count = EACH * LEVELS}};
    rig_run_one(&d.rig, &op);
    for (int i = 0; i < EACH * LEVELS; i++)
        assert_int_equal(items[i].status, STATUS_OK);
}

static uint64_t position(const struct shown *s, bool *exact)
{
    int rank = levels_rank_of_slot(&queue(Q)->config, s->slot);
    return rig_position(&d.rig, queue(Q), &policy, rank, (struct place){s->ready_ms, s->id.seq},
                        exact);
}

/* An engine that has to leave messages on disk may not know; then it says so, and no more than
 * there are. */
static void compare_all(void)
{
    static struct shown all[SHOWN_MAX];
    static uint64_t said[SHOWN_MAX];
    static bool exact[SHOWN_MAX];
    uint32_t listed = list_all(Q, 100), count = 0, exact_count = 0;
    for (uint32_t i = 0; i < listed; i++) {
        if (d.shown[i].state == MESSAGE_READY)
            all[count++] = d.shown[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        said[i] = position(&all[i], &exact[i]);
        exact_count += exact[i];
        assert_true(said[i] < count);
    }
    assert_true(exact_count == count || d.rig.memory_limit > 0);
    for (uint32_t n = 0; n < count; n++) {
        assert_int_equal(claim_by(Q, &policy, 1), 1);
        uint32_t i = 0;
        while (all[i].id.seq != d.shown[0].id.seq)
            i++;
        assert_true(said[i] == n || !exact[i]);
    }
}

struct ordering {
    enum policy_kind kind;
    int64_t age_ms[LEVELS];
    int64_t max_wait_ms[LEVELS];
};

static void check_order(const struct ordering *o)
{
    static const double weights[LEVELS] = {5, 3, 2, 1};
    struct queue_config c = rig_config(LEVELS);
    c.policy = o->kind;
    for (int rank = 0; rank < LEVELS; rank++) {
        c.levels[rank].weight = weights[rank];
        c.levels[rank].age_ms = o->age_ms[rank];
        c.levels[rank].max_wait_ms = o->max_wait_ms[rank];
    }
    d.checks = false;
    make_queue(Q, &c);
    policy_init(&policy, &queue(Q)->config);
    fill(12000);
    rig_sweep(&d.rig, 1000);
    for (int i = 0; i < 6; i++) /* somewhere in a cycle */
        assert_int_equal(claim_by(Q, &policy, 1), 1);
    compare_all();
}

#define POSITIONS(name, ...)                                                                       \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check_order(&(struct ordering){__VA_ARGS__});                                              \
    }

POSITIONS(strict_positions_are_the_order_of_claims, .kind = POLICY_STRICT)
POSITIONS(weighted_positions_are_the_order_of_claims, .kind = POLICY_WEIGHTED)
POSITIONS(strict_positions_with_aging, .kind = POLICY_STRICT, .age_ms = {0, 4000, 3000, 5000})
POSITIONS(weighted_positions_with_aging, .kind = POLICY_WEIGHTED, .age_ms = {0, 4000, 3000, 5000})
POSITIONS(strict_positions_with_a_promise, .kind = POLICY_STRICT, .max_wait_ms = {0, 0, 9000, 8000})
POSITIONS(weighted_positions_with_a_promise, .kind = POLICY_WEIGHTED,
          .max_wait_ms = {0, 0, 9000, 8000})
POSITIONS(weighted_positions_with_ages_and_promises, .kind = POLICY_WEIGHTED,
          .age_ms = {0, 3000, 2000, 3000}, .max_wait_ms = {13000, 0, 11000, 0})

/* Far back it is an estimate, of no more than there are. */
static void a_position_is_exact_near_the_head_and_bounded_behind(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.policy = POLICY_WEIGHTED;
    c.levels[1].age_ms = 1000;
    d.checks = false;
    make_queue(Q, &c);
    policy_init(&policy, &queue(Q)->config);
    for (int i = 0; i < 4; i++) {
        put_many(Q, POSITION_EXACT / 2, i % 2);
        pass_unswept(1000);
    }
    rig_sweep(&d.rig, 1000);
    bool exact;
    uint64_t ready = view(Q)->ready, first_seq = 0;
    struct place last = {d.rig.now.wall_ms, UINT64_MAX};
    assert_int_equal(ready, 2 * POSITION_EXACT);
    assert_true(rig_position(&d.rig, queue(Q), &policy, 0, last, &exact) <= ready);
    assert_false(exact);
    assert_int_equal(claim_by(Q, &policy, 1), 1); /* it counts as rank 0 and is the oldest there */
    first_seq = d.shown[0].id.seq;
    struct place second = {d.shown[0].ready_ms, first_seq + 1};
    uint64_t ahead = rig_position(&d.rig, queue(Q), &policy, 0, second, &exact);
    assert_true(exact || d.rig.memory_limit > 0);
    assert_true(ahead == 1 || !exact);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strict_positions_are_the_order_of_claims),
        TEST(weighted_positions_are_the_order_of_claims),
        TEST(strict_positions_with_aging),
        TEST(weighted_positions_with_aging),
        TEST(strict_positions_with_a_promise),
        TEST(weighted_positions_with_a_promise),
        TEST(weighted_positions_with_ages_and_promises),
        TEST(a_position_is_exact_near_the_head_and_bounded_behind),
    };
    return driver_main(tests);
}
