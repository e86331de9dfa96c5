/* A seeded run: one engine, a few queues, and the model of each. Every step makes
 * an op that some producer, consumer or operator might ask for, runs it, and judges
 * the answer by the model. The same seed makes the same run. */
#ifndef TRIAGE_TESTS_SIM_H
#define TRIAGE_TESTS_SIM_H

#include "conformance/rig.h"
#include "sim/model.h"

#define SIM_QUEUES      3
#define SIM_ITEMS       64
#define SIM_SEEN_MAX    512
#define SIM_GROUP_MAX   12
#define SIM_LOG_LINES   20
#define SIM_LOG_LINE    160
#define SIM_PAST        64
#define SIM_PAYLOAD_MAX 2600

struct sim_queue {
    char name[16];
    struct engine_queue *real;
    struct model_queue model;
    struct policy policy;
    bool draining; /* deep runs fill up and drain in turns */
    bool met;      /* the engine has been asked something of it since it was opened */
};

/* A delivery that may be long over. */
struct sim_past {
    struct message_id id;
    uint8_t receipt[RECEIPT_BYTES];
};

struct sim {
    uint64_t seed;
    const char *engine;
    uint64_t steps; /* asked for, to print */
    uint64_t random;
    bool shared;  /* the engine: see sim_group.c */
    bool reopens; /* close and open now and then */
    bool jumps;   /* the wall clock goes back now and then */
    bool waited;  /* time has passed since the last sweep */
    bool heads;   /* the engine knows them */
    struct rig rig;
    int64_t wall_high_ms;
    struct sim_queue queues[SIM_QUEUES];
    uint32_t queue_count;
    uint32_t queue_id_high;
    bool deep;            /* more messages than an engine with little memory keeps there */
    uint32_t items_max;   /* in one op */
    uint32_t live_max;    /* enqueues stop above this many messages in a queue */
    uint32_t payload_max; /* large ones push an engine with little memory to its files */
    uint64_t tag;         /* makes payloads unlike each other */
    struct sim_past past[SIM_PAST];
    uint32_t past_count;

    uint64_t refills; /* reads of a tail, in all runs */
    char log[SIM_LOG_LINES][SIM_LOG_LINE];
    uint64_t log_count;
};

/* A message as the engine showed it. */
struct sim_seen {
    struct message_id id;
    enum message_state state;
    uint8_t slot;
    uint32_t attempts;
    int64_t ready_ms;
    int64_t enqueued_ms;
    uint64_t body_hash;
    bool has_delivery;
    bool claimed; /* just now */
    uint8_t receipt[RECEIPT_BYTES];
    int64_t lease_until_ms;
    char reason[MODEL_REASON];
    bool escalated;
    uint8_t escalated_from;
    int64_t escalated_ms;
    char escalated_why[MODEL_REASON];
};

enum sim_claim_by {
    SIM_BY_PLAN,   /* the plan is made up: is it followed? */
    SIM_BY_POLICY, /* the policy made it, of what it could not know exactly */
    SIM_BY_ORDER,  /* … of what it knew: the model says which messages, one after the other */
};

/* An op with all that it points to. */
struct sim_op {
    struct engine_op op;
    struct sim_queue *q;
    struct put_item put[SIM_ITEMS];
    struct model_draft drafts[SIM_ITEMS];
    struct settle_item settle[SIM_ITEMS];
    struct message_id ids[SIM_ITEMS];
    bool alone; /* nothing else happens between its making and its running */
    struct plan plan;
    struct plan asked;          /* the plan before it ran */
    enum sim_claim_by claim_by; /* how a claim is judged */
    int max_rank;
    uint64_t before_seq; /* of a purge */
    struct escalate_item moves[SIM_ITEMS];
    struct count_item counts[SIM_ITEMS];
    char reason[MODEL_REASON];
    struct sim_seen seen[SIM_SEEN_MAX];
    uint32_t seen_count;
};

void sim_open(struct sim *s, const char *engine, uint64_t seed, uint64_t steps);
void sim_close(struct sim *s);
void sim_step(struct sim *s); /* ends the program with a report when a promise is broken */

/* For the parts of a run. */
uint32_t sim_pick(struct sim *s, uint32_t n); /* 0 … n - 1 */
bool sim_chance(struct sim *s, uint32_t percent);
void sim_note(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_report(const struct sim *s); /* the seed, how to replay it, the last ops */
_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t sim_hash(const void *data, size_t len);

#define sim_check(s, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail((s), "" __VA_ARGS__);                                                         \
    } while (0)

/* Messages: ops that may share a group. `make` chooses the inputs, `judge` moves the model and
 * compares. */
struct sim_verb {
    uint32_t weight;
    void (*make)(struct sim *s, struct sim_op *o);
    void (*judge)(struct sim *s, struct sim_op *o);
};
/* Makes the ops, runs them as one group, and judges them; `only` NULL: any verbs. */
void sim_group(struct sim *s, uint32_t count, const struct sim_verb *only); /* sim_group.c */
struct sim_queue *sim_any_queue(struct sim *s);

extern const struct sim_verb *const sim_verbs[];
extern const uint32_t sim_verb_count;
extern const struct sim_verb sim_claim, sim_move, sim_count; /* sim_claim.c */
extern const struct sim_verb sim_purge; /* runs alone: judged by looking at what is left */

struct message_id sim_any_id(struct sim *s, struct sim_queue *q);
void sim_list_all(struct sim *s, struct sim_queue *q); /* LIST shows everything once */
void sim_position(struct sim *s, struct sim_queue *q); /* of a message that is ready */
void sim_see(struct engine_op *op, const struct engine_queue *q, const struct message *m,
             struct instant now);
void sim_compare(struct sim *s, const struct sim_seen *seen, const struct model_message *m);

#endif
