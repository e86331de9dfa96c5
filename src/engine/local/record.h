/* What the local engine writes, byte by byte. Everything is big endian, so that
 * keys sort as their numbers do. Every value starts with a format number; decoding
 * checks every length and answers false for anything that it would not have written.
 *
 * keys, two families (`hot` is never read while running, `cold` is):
 *   hot   m queue4 slot1 ready6 seq6    a message that is in memory as well
 *   hot   s queue4 seq6                 state of a touched message
 *   hot   q queue4                      a queue: its name and configuration
 *   hot   c queue4                      its counters and where its tails begin
 *   hot   r queue4 bytes                a schedule, by its name: what it puts, and when next
 *   hot   p queue4                      its place in a larger queue, if it has one
 *   hot   a queue4                      its share of the limits of that
 *   hot   n                             the next queue number
 *   cold  m queue4 slot1 ready6 seq6    a message; this order is the order of a lane
 *   cold  x queue4 expire6 slot1 ready6 seq6   … that has a time to live
 *   cold  u queue4 bytes                a dedup key
 *   cold  d queue4 seq6                 a dead letter, whole
 *   cold  h queue4 seq6                 a done message that is kept, whole
 *   both  l                             the last record of the log that the family has
 * Times are milliseconds plus 2^47, so that those before 1970 sort first. */
#ifndef TRIAGE_ENGINE_LOCAL_RECORD_H
#define TRIAGE_ENGINE_LOCAL_RECORD_H

#include "base/buf.h"
#include "core/queue.h"
#include "core/schedule.h"
#include "engine/engine.h"
#include "engine/local/peak.h"

#include <stdbool.h>
#include <stdint.h>

#define KEY_MAX (1 + 4 + DEDUP_KEY_MAX)

struct key {
    uint16_t len;
    char bytes[KEY_MAX];
};

enum key_tag {
    KEY_MESSAGE = 'm',
    KEY_STATE = 's',
    KEY_QUEUE = 'q',
    KEY_COUNTERS = 'c',
    KEY_SCHEDULE = 'r',
    KEY_PLACE = 'p',
    KEY_SHARE = 'a',
    KEY_NEXT_QUEUE = 'n',
    KEY_EXPIRY = 'x',
    KEY_DEDUP = 'u',
    KEY_DEAD = 'd',
    KEY_HISTORY = 'h',
    KEY_LOG = 'l',
};

void key_message(struct key *k, const struct message_id *id);
void key_expiry(struct key *k, const struct message_id *id, int64_t expire_ms);
void key_seq(struct key *k, enum key_tag tag, uint32_t queue, uint64_t seq);
void key_queue(struct key *k, enum key_tag tag, uint32_t queue); /* also a prefix */
void key_lane(struct key *k, uint32_t queue, uint8_t slot);      /* prefix of a lane's messages */
void key_dedup(struct key *k, uint32_t queue, const char *key, size_t len);
void key_schedule(struct key *k, uint32_t queue, const char *name);
bool key_parse_message(const char *bytes, size_t len, struct message_id *id);
bool key_parse_expiry(const char *bytes, size_t len, struct message_id *id, int64_t *expire_ms);
bool key_parse_queue(const char *bytes, size_t len, uint32_t *queue); /* any key but n */
bool key_parse_seq(const char *bytes, size_t len, uint32_t *queue, uint64_t *seq);

/* A message as it was born. Decoding gives a message with body and time to live, in the state
 * SCHEDULED. */
void record_put_message(struct buf *out, const struct message *m);
struct message *record_get_message(const char *data, size_t len, const struct message_id *id);

/* What has changed in a message since it was born. Decoding gives a message without a body. */
struct record_clock {
    uint64_t boot; /* leases are exact within one boot of the machine */
    int64_t mono_ms;
};
void record_put_state(struct buf *out, const struct message *m, uint64_t boot);
struct message *record_get_state(const char *data, size_t len, uint64_t seq,
                                 struct record_clock now);
void record_apply_state(struct message *m, struct message *state); /* moves it to m, frees state */

/* A whole message, for dead letters and history: its state, then the message. */
void record_put_whole(struct buf *out, const struct message *m, uint64_t boot, int64_t until_ms);
struct message *record_get_whole(const char *data, size_t len, uint64_t seq, int64_t *until_ms);
/* Of a dedup key: until when it counts. Of a whole message: when it died or was done. */
bool record_dedup_until(const char *data, size_t len, int64_t *until_ms);
bool record_whole_died(const char *data, size_t len, int64_t *died_ms);

void record_put_dedup(struct buf *out, const struct dedup_hit *hit);
bool record_get_dedup(const char *data, size_t len, uint32_t queue, struct dedup_hit *hit);

void record_put_queue(struct buf *out, const char *name, const struct queue_config *config);
bool record_get_queue(const char *data, size_t len, char name[QUEUE_NAME_MAX + 1],
                      struct queue_config *config);

void record_put_place(struct buf *out, const struct queue_place *place);
struct queue_place *record_get_place(const char *data, size_t len); /* NULL: it does not decode */
void record_put_share(struct buf *out, const struct queue_share *share);
struct queue_share *record_get_share(const char *data, size_t len); /* NULL, as above */

/* Decoding gives a schedule whose body is the caller's. */
void record_put_schedule(struct buf *out, const struct schedule *s);
bool record_get_schedule(const char *data, size_t len, struct schedule *s);

/* In which family the record of a message is: message.home. */
enum home { HOME_HOT, HOME_COLD };

struct record_lane {
    uint64_t cold_ready;
    uint64_t cold_scheduled;
    uint64_t dead;
    int64_t clock_ms; /* up to which cold messages are counted as ready */
    int64_t low_ms;   /* no cold message stands before this place */
    uint64_t low_seq;
};

struct record_counters {
    uint64_t next_seq;
    uint64_t cold_bytes;
    struct queue_totals totals;
    struct peaks peaks;
    struct record_lane lanes[LEVEL_COUNT_MAX];
};
void record_put_counters(struct buf *out, const struct record_counters *c);
bool record_get_counters(const char *data, size_t len, struct record_counters *c);

#endif
