/* A message and what it goes through. This is what everything else is about.
 *
 *             delay passes                claim                       ack
 *  SCHEDULED --------------> READY --------------------> LEASED ---------------> DONE
 *                              ^                          |  |
 *                              |  nack, release, or lease |  |  attempts used up
 *                              |  expires, attempts left  |  +----------------> DEAD --+
 *                              +--------------------------+                            |
 *                              ^                         redrive                       |
 *                              +-------------------------------------------------------+
 *
 * EXPIRED: the time to live passes in SCHEDULED or READY (or DEAD, if the queue says so).
 * CANCELLED: cancel or purge in SCHEDULED or READY.
 *
 * Each state is a place: a message stands in exactly one ordered set of its
 * queue, and queue_move() in queue.c is the only function that moves it. */
#ifndef TRIAGE_CORE_MESSAGE_H
#define TRIAGE_CORE_MESSAGE_H

#include "base/limits.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/tag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_state {
    MESSAGE_NEW, /* not in a queue yet */
    MESSAGE_SCHEDULED,
    MESSAGE_READY,
    MESSAGE_LEASED,
    MESSAGE_DEAD,
    MESSAGE_DONE,
    MESSAGE_EXPIRED,
    MESSAGE_CANCELLED,
    MESSAGE_STATE_COUNT
};

const char *message_state_name(enum message_state s); /* "ready" */

/* How the payload came in, and so how it is given back. */
enum payload_kind {
    PAYLOAD_TEXT,  /* a JSON string, kept byte for byte; valid UTF-8 */
    PAYLOAD_JSON,  /* any other JSON value, kept as its text */
    PAYLOAD_BYTES, /* base64 on the wire */
};

/* What names a message for good. The id also tells where the message was born: an engine that
 * orders its store by (queue, slot, ready time, seq) finds the message without an index. */
struct message_id {
    uint32_t queue;   /* the queue's number, never used again after a delete */
    uint8_t slot;     /* the level it was put in */
    int64_t ready_ms; /* when it was first to be ready; |x| <= TIME_MS_MAX */
    uint64_t seq;     /* unique in the queue, in order of arrival; below 2^48 */
};

#define MESSAGE_ID_TEXT (4 + 28) /* "msg_" and 17 bytes in base 32 */
#define RECEIPT_BYTES   16
#define RECEIPT_TEXT    (3 + 26) /* "rh_" and 16 bytes in base 32 */

void message_id_format(const struct message_id *id, char out[MESSAGE_ID_TEXT + 1]);
bool message_id_parse(const char *text, size_t len, struct message_id *id);

void receipt_format(const uint8_t receipt[RECEIPT_BYTES], char out[RECEIPT_TEXT + 1]);
bool receipt_parse(const char *text, size_t len, uint8_t receipt[RECEIPT_BYTES]);

/* A receipt begins with the time of its claim, so that every server can tell how long a lease was
 * held, whoever gave it and however often it was extended. The other 88 bits are random. */
#define RECEIPT_TIME_BYTES 5
void receipt_stamp(uint8_t receipt[RECEIPT_BYTES], int64_t wall_ms);
/* How long ago that was; -1 when it cannot be: the receipt is of a version that had no times, or
 * the clock was set. */
int64_t receipt_held_ms(const uint8_t receipt[RECEIPT_BYTES], int64_t wall_ms);
#define RECEIPT_HELD_MAX_MS (30LL * 86400 * 1000)

/* A priority as a client names it: a number, a name, or nothing for the queue's default. */
struct priority_ref {
    enum { PRIORITY_DEFAULT, PRIORITY_NUMBER, PRIORITY_NAME } kind;
    int64_t number;
    char name[LEVEL_NAME_MAX + 1];
};

/* The last escalation of a message: who gave it another level, when, and why. */
struct escalation {
    int64_t at_ms; /* wall */
    uint8_t from_slot;
    uint16_t actor_len;
    uint16_t reason_len;
    char text[]; /* actor, then reason */
};

/* Present from the first delivery or escalation on. */
struct delivery {
    uint8_t receipt[RECEIPT_BYTES]; /* of the present or last lease */
    int64_t lease_until_ms;         /* monotonic */
    int64_t lease_ms;               /* how long it was granted for; below 0: it is leaving */
    int64_t died_ms;                /* wall clock; DEAD and DONE only */
    uint32_t reason_len;
    char *reason;                  /* owned; why the last attempt failed, or NULL */
    struct escalation *escalation; /* owned, or NULL */
};

struct message;

/* Present when the message has a time to live. */
struct expiry {
    struct message *message;
    struct order_node node; /* key: the wall time at which it expires */
};

struct message {
    /* What persists. */
    int64_t born_ms;           /* ready time in the id; never changes */
    int64_t ready_ms;          /* since when, or from when on, it is ready: its place and its age */
    int64_t enqueued_ms;       /* wall */
    struct delivery *delivery; /* owned, or NULL */
    struct expiry *expiry;     /* owned, or NULL */
    char *body; /* payload, metadata, dedup key, one after the other; NULL: not in memory */
    uint32_t payload_len;
    uint16_t metadata_len;
    uint16_t dedup_len;
    uint16_t attempts; /* deliveries so far; at UINT16_MAX it stays */
    uint8_t slot;
    uint8_t born_slot; /* slot in the id */

    /* In memory only. */
    uint8_t state;   /* enum message_state */
    uint8_t kind;    /* enum payload_kind; persists too */
    uint8_t touched; /* not as it was born: it was delivered, escalated, redriven, or imported so */
    uint8_t home;    /* the engine's own, which the core does not look at; 0 at first */

    struct order_node node; /* tie: seq; key: ready_ms, or lease_until_ms while LEASED. Last. */
};

/* A message before it is stored, as a producer hands it in. The draft owns the body until the
 * message is stored: then the message does. */
struct draft {
    char *body; /* payload, metadata, dedup key, one after the other */
    uint32_t payload_len;
    uint16_t metadata_len;
    uint16_t dedup_len;
    uint8_t kind; /* enum payload_kind */
    struct priority_ref priority;
    int64_t ready_ms; /* READY_NOW, or the wall time from which on it is ready */
    int64_t delay_ms; /* added to now when ready_ms is READY_NOW */
    int64_t ttl_ms;   /* TTL_DEFAULT for the queue's own */
    uint64_t seq_min; /* its seq is not below this, so that it is behind what stands elsewhere */
};

#define READY_NOW   INT64_MIN
#define TTL_DEFAULT (-1)

void draft_fini(struct draft *d);

struct message *message_new(uint64_t seq); /* zeroed, with links for its seq */
void message_free(struct message *m);

struct delivery *message_delivery(struct message *m); /* made when missing */
/* Why the last attempt failed, or why the message ended; copied. */
void message_set_reason(struct message *m, const char *reason, uint32_t len);
/* Gives a message that has none a time to live, up to this wall time. */
void message_set_expiry(struct message *m, int64_t expire_ms);
void message_drop_expiry(struct message *m); /* if it has one; in no set any more */

struct message_id message_identity(const struct message *m, uint32_t queue);
size_t message_memory(const struct message *m); /* bytes of memory it takes */

#define MESSAGE_TAG TAG('m', 's', 'g', ' ')
#define EXPIRY_TAG  TAG('e', 'x', 'p', 'i')

/* The message that stands in an ordered set, and the one that expires there. */
static inline struct message *message_of(const struct order_node *n)
{
    tag_check(n->tag, MESSAGE_TAG);
    return container_of(n, struct message, node);
}

static inline struct message *message_of_expiry(const struct order_node *n)
{
    tag_check(n->tag, EXPIRY_TAG);
    return container_of(n, struct expiry, node)->message;
}

static inline uint64_t message_seq(const struct message *m)
{
    return m->node.tie;
}

static inline const char *message_payload(const struct message *m)
{
    return m->body;
}

static inline const char *message_metadata(const struct message *m)
{
    return m->body + m->payload_len;
}

static inline const char *message_dedup_key(const struct message *m)
{
    return m->body + m->payload_len + m->metadata_len;
}

static inline size_t message_body_len(const struct message *m)
{
    return (size_t)m->payload_len + m->metadata_len + m->dedup_len;
}

/* What limits and statistics count: payload and metadata. */
static inline size_t message_bytes(const struct message *m)
{
    return (size_t)m->payload_len + m->metadata_len;
}

/* A message that is leaving for another store is LEASED to nobody until it has arrived there. Its
 * lease has no end, and lease_ms says when it died, if it was a dead letter. */
#define LEAVING_UNTIL_MS TIME_MS_MAX
#define LEAVING_MS_MIN   (-2 * TIME_MS_MAX - 4) /* the smallest lease_ms that there can be */

static inline int64_t leaving_ms(bool dead, int64_t died_ms)
{
    return dead ? LEAVING_MS_MIN + 1 + TIME_MS_MAX + died_ms : -1;
}

static inline bool leaving_died(int64_t lease_ms, int64_t *died_ms) /* true: it was dead */
{
    *died_ms = lease_ms - LEAVING_MS_MIN - 1 - TIME_MS_MAX;
    return lease_ms < -1;
}

static inline bool message_leaves(const struct message *m)
{
    return m->delivery && m->delivery->lease_ms < 0;
}

static inline bool message_pending(const struct message *m)
{
    return m->state == MESSAGE_SCHEDULED || m->state == MESSAGE_READY;
}

#endif
