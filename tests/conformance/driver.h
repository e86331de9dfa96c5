/* The words the conformance suite is written in: put, claim, ack … on one engine,
 * each done when it returns, each checked for what must hold after any op. Queues go by name,
 * so that a restart between two lines changes nothing for the test. */
#ifndef TRIAGE_TESTS_DRIVER_H
#define TRIAGE_TESTS_DRIVER_H

#include "conformance/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SHOWN_MAX 1000

/* A message as the engine showed it. */
struct shown {
    struct message_id id;
    enum message_state state;
    uint8_t slot;
    uint8_t kind;
    uint32_t attempts;
    int64_t ready_ms;
    int64_t enqueued_ms;
    int64_t died_ms;
    int64_t expire_ms; /* INT64_MAX: no time to live */
    int64_t lease_ms;
    int64_t lease_until_ms;
    uint8_t receipt[RECEIPT_BYTES];
    char payload[64]; /* as text, cut */
    char metadata[64];
    char dedup[64];
    char reason[64];
    size_t payload_len;
    bool escalated;
    uint8_t escalated_from; /* slot */
    int64_t escalated_ms;
    char actor[64];
    char why[64];
};

/* What to put; zero is a ready message in the queue's most urgent level without frills. */
struct spec {
    const char *payload;
    const char *metadata;
    const char *dedup;
    int rank;
    int64_t delay_ms;
    bool has_ready_at;
    int64_t ready_at_ms;
    int64_t ttl_ms; /* 0: the queue's own; -1: none */
};

struct driver {
    struct rig rig;
    const char *variant;
    bool restarts_always;          /* after ops that change something */
    uint32_t steps;                /* such ops in this test */
    bool checks;                   /* recount the queue after each op; off for large ones */
    struct shown shown[SHOWN_MAX]; /* by the last op */
    uint32_t shown_count;
};
extern struct driver d;

/* Runs the tests on every engine there is; returns what main returns. */
enum driver_scope { DRIVER_ALL, DRIVER_FILES, DRIVER_STORES /* all but cells */ };
#define driver_main(tests) driver_run((tests), sizeof(tests) / sizeof((tests)[0]), DRIVER_ALL)
#define driver_main_files(tests)                                                                   \
    driver_run((tests), sizeof(tests) / sizeof((tests)[0]), DRIVER_FILES)
#define driver_main_stores(tests)                                                                  \
    driver_run((tests), sizeof(tests) / sizeof((tests)[0]), DRIVER_STORES)
int driver_run(const struct CMUnitTest *tests, size_t count, enum driver_scope scope);

/* Time. Sleeping sweeps; a jump of the wall clock does too. */
void sleep_ms(int64_t ms);
void pass_unswept(int64_t ms);
void jump_wall(int64_t ms);
void restart(void); /* nothing on an engine that does not survive it */

/* Queues. */
void make_queue(const char *name, const struct queue_config *config);
enum status set_queue(const char *name, const struct queue_config *config);
void delete_queue(const char *name);
struct engine_queue *queue(const char *name);
const struct queue_view *view(const char *name);
int slot_of(const char *name, int rank);

/* Messages. */
struct draft draft_of(const char *q, struct spec s);
struct put_item put_spec(const char *q, struct spec s);
struct message_id put(const char *q, const char *payload, int rank);
void import(const char *q, struct import_item *items, uint32_t count); /* each has its answer */
void put_many(const char *q, uint32_t count, int rank);                /* payloads m0, m1 … */
/* Whether the engine goes by the clocks of the test. An engine that several machines share goes by
 * its server's clock alone: a test cannot set that back, or let one clock run without the other. */
bool own_clocks(void);
/* Whether messages that become ready in the same millisecond come in the order of their arrival.
 * Over cells that others share this holds within a partition alone. */
bool one_order(void);

uint32_t claim_plan(const char *q, struct plan *plan, int64_t lease_ms);
struct plan plan_from(const char *q, int rank, uint32_t want); /* one level, no limits */
/* All ranks, the queue's own lease: by a policy that keeps its tokens, or by one with full buckets.
 */
uint32_t claim_by(const char *q, struct policy *policy, uint32_t n);
uint32_t claim(const char *q, uint32_t n);
struct shown claim_one(const char *q); /* fails when there is none */
enum status ack(const char *q, const struct shown *s);
enum status nack(const char *q, const struct shown *s, int64_t delay_ms, const char *reason,
                 enum message_state *state);
enum status release(const char *q, const struct shown *s);
enum status extend(const char *q, const struct shown *s, int64_t lease_ms);
enum status cancel(const char *q, struct message_id id);
struct escalate_item move(const char *q, struct message_id id, int rank, const char *actor,
                          const char *why); /* either may be NULL */
uint32_t move_many(const char *q, const struct message_id *ids, uint32_t count, int rank);
/* Messages that leave, shown in d.shown, and messages that have left. Without items: those that are
 * leaving, up to `limit`. */
enum status leave_items(const char *q, struct leave_item *items, uint32_t count, uint64_t epoch);
uint32_t leaving(const char *q, uint32_t limit);
void left_items(const char *q, struct leave_item *items, uint32_t count);
struct count_item count_before(const char *q, int rank, int64_t ready_ms, uint64_t seq);
const struct shown *get(const char *q, struct message_id id);     /* NULL when not found */
enum message_state state_of(const char *q, struct message_id id); /* NEW when not found */
uint32_t purge(const char *q, uint32_t max, uint64_t before_seq); /* in asks of `max` at most */
uint32_t dead_list(const char *q, uint64_t after_seq, uint32_t limit);
uint32_t dead_bulk(const char *q, enum engine_verb verb, const struct message_id *ids,
                   uint32_t id_count, uint32_t max, int slot);
uint32_t list_all(const char *q, uint32_t page); /* all of it, in d.shown; each once */
/* The same, of a set of states. What is shown of others is left out. */
uint32_t list_states(const char *q, uint32_t states, bool bare, uint32_t page);

/* The id is one of this queue's messages. A queue over several cells has a number in each. */
void assert_id_of(const char *q, struct message_id id);

/* Claims by a plan, or everything by the policy, and compares the payloads, joined by blanks. */
void assert_claims(const char *q, struct plan *p, const char *payloads);
void assert_claims_by(const char *q, struct policy *policy, uint32_t n, const char *payloads);
void assert_drains_as(const char *q, const char *payloads);

#endif
