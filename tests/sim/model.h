/* What an engine must do, said in the plainest way: arrays, linear scans, no
 * structure that could be wrong in the same way as the real one. Small counts only. */
#ifndef TRIAGE_TESTS_MODEL_H
#define TRIAGE_TESTS_MODEL_H

#include "engine/engine.h"

#define MODEL_LIVE_MAX  4096
#define MODEL_DEDUP_MAX 4096
#define MODEL_REASON    32
#define MODEL_STEP_MS   1000 /* a wall clock that goes back by up to this stands still instead */

struct model_message {
    struct message_id id;
    enum message_state state;
    uint8_t slot;
    int64_t ready_ms;
    int64_t enqueued_ms;
    int64_t expire_ms; /* INT64_MAX: never */
    int64_t ended_ms;  /* DEAD, DONE */
    uint32_t attempts;
    uint64_t body_hash;
    uint32_t bytes; /* payload and metadata */
    int dedup_key;  /* -1: none */
    bool delivered; /* has had a receipt */
    uint8_t receipt[RECEIPT_BYTES];
    int64_t lease_until_ms; /* monotonic */
    char reason[MODEL_REASON];
    bool escalated;
    uint8_t escalated_from; /* slot */
    int64_t escalated_ms;
    char escalated_why[MODEL_REASON];
};

struct model_dedup {
    int key;
    struct message_id id;
    int64_t until_ms; /* window scope */
};

#define MODEL_PAUSES                                                                               \
    PAUSES_MAX /* what was paused more often than this may be remembered roughly                   \
                */

struct model_queue {
    uint32_t id;
    struct queue_config config; /* with the engine's slots */
    const struct instant *now;  /* the simulation's */
    int64_t forgot_ms;          /* up to when done messages were forgotten by a change */
    struct model_message messages[MODEL_LIVE_MAX];
    uint32_t count;
    struct model_dedup dedup[MODEL_DEDUP_MAX];
    uint32_t dedup_count;
    struct queue_totals totals;
    uint64_t next_seq;
    int64_t order_ms; /* the wall clock without its small steps back */
    struct pause pauses[MODEL_PAUSES];
    uint32_t pause_count;
    uint32_t full[LEVEL_COUNT_MAX];                    /* tokens of a full bucket, by rank */
    uint32_t tokens[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX]; /* [least urgent rank taken][rank] */
};

void model_init(struct model_queue *q, const struct engine_queue *real, const struct instant *now);

struct model_message *model_find(struct model_queue *q, const struct message_id *id);

/* A draft as the simulation describes it. */
struct model_draft {
    int rank; /* -1: none such */
    int64_t ready_ms;
    int64_t delay_ms;
    int64_t ttl_ms;
    int dedup_key;
    uint64_t body_hash;
    uint32_t bytes;
};

/* False when a wall clock that went back makes it a matter of timing whether the key is known. */
bool model_dedup_certain(const struct model_queue *q, int key, struct instant now,
                         int64_t wall_high_ms);

enum status model_put(struct model_queue *q, const struct model_draft *d, struct instant now,
                      bool *deduplicated, struct message_id *id);
void model_lease(struct model_queue *q, struct model_message *m, int64_t lease_ms,
                 struct instant now);
struct model_message *model_next_planned(struct model_queue *q, const struct plan *plan,
                                         const struct plan_step *step, struct instant now);
enum status model_move(struct model_queue *q, const struct message_id *id, uint8_t slot,
                       const char *why, struct instant now, bool *changed);
uint64_t model_before(const struct model_queue *q, const struct count_item *place);

/* Order (model_policy.c): the one message a claim of the ranks 0 … max_rank is to get now, taken
 * from the promises of the policies and nothing else; NULL when none may be claimed. */
struct model_message *model_pick(struct model_queue *q, int max_rank, struct instant now);
/* How many such claims come before that message, however many are leased; or `most`. */
uint64_t model_ahead(const struct model_queue *q, const struct message_id *id, struct instant now,
                     uint64_t most);
/* The rank that has its turn among the ranks that have messages; takes its token. -1: none has. */
int model_turn(struct model_queue *q, int max_rank, const void *const there[]);
void model_refill(
    struct model_queue *q); /* every bucket is full, as after a change of the policy */
void model_pause(struct model_queue *q, bool paused, int64_t wall_ms);
int64_t model_waited_ms(const struct model_queue *q, const struct model_message *m,
                        int64_t wall_ms);
int model_counts_as(const struct model_queue *q, const struct model_message *m, int64_t wall_ms);
bool model_has_expired(const struct model_queue *q, struct instant now); /* ready, but past it */

/* OK when the receipt opens the message, which is then in *m. */
enum status model_open(struct model_queue *q, const struct settle_item *item, struct instant now,
                       struct model_message **m);
void model_ack(struct model_queue *q, struct model_message *m, struct instant now);
void model_keep(struct model_queue *q, int64_t history_ms, struct instant now); /* a change of it */
/* Both return the state the message ends in; it may be gone. */
enum message_state model_fail(struct model_queue *q, struct model_message *m, int64_t delay_ms,
                              const char *reason, struct instant now);
enum message_state model_release(struct model_queue *q, struct model_message *m,
                                 struct instant now);
enum status model_cancel(struct model_queue *q, const struct message_id *id);
void model_redrive(struct model_queue *q, struct model_message *m, int slot, struct instant now);
void model_gone(struct model_queue *q, struct model_message *m);
void model_sweep(struct model_queue *q, struct instant now);

/* The next message in that state at or after `seq`, by seq; NULL when there is none. */
struct model_message *model_next(struct model_queue *q, enum message_state state, uint64_t seq);

/* Milliseconds until something is due; INT64_MAX for never. */
int64_t model_due_ms(const struct model_queue *q, struct instant now);

/* Everything a view says, counted anew. */
struct queue_view model_view(const struct model_queue *q);

/* True when enqueued is the sum of where messages are and went. */
bool model_conserves(const struct queue_view *view);

#endif
