/* Messages and their parts as JSON. Any thread: what a claim shows is written on
 * the thread of the shard that owns the queue. */
#ifndef TRIAGE_API_ENCODE_H
#define TRIAGE_API_ENCODE_H

#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"

void encode_time(struct buf *out, int64_t wall_ms);               /* with its quotes */
void encode_seconds(struct buf *out, int64_t ms);                 /* 1.5 */
void encode_rate(struct buf *out, double per_second);             /* with two decimals at most */
void encode_number(struct buf *out, double value);                /* as short as it stays exact */
void encode_priority(struct buf *out, const struct level *level); /* its number, or its name */
void encode_priority_key(struct buf *out,
                         const struct level *level);           /* the same as a JSON string */
void encode_level(struct buf *out, const struct level *level); /* "priority":1,"level":"HIGH" */
void encode_id(struct buf *out, const struct message_id *id);  /* with its quotes */

/* One object each. */
void encode_claimed(struct buf *out, const struct engine_queue *q, const struct message *m,
                    struct instant now, bool name_queue);
enum contents { CONTENTS_NONE, CONTENTS_METADATA, CONTENTS_ALL }; /* all: the payload, too */
void encode_message(struct buf *out, const struct engine_queue *q, const struct message *m,
                    struct instant now, enum contents contents);
void encode_dead(struct buf *out, const struct engine_queue *q, const struct message *m);
void encode_exported(struct buf *out, const struct engine_queue *q,
                     const struct message *m); /* on one line */

/* A message as an enqueue takes it, on one line. Its priority is as it was given. */
void encode_draft(struct buf *out, const struct draft *d);

/* A schedule of a queue with these levels, on one line and without the brace at the end: as a row
 * of the list; the whole; and as a PUT takes it, to set it on another server. */
void encode_schedule_row(struct buf *out, const struct queue_config *config,
                         const struct schedule *s);
void encode_schedule(struct buf *out, const struct queue_config *config, const struct schedule *s);
void encode_schedule_definition(struct buf *out, const struct queue_config *config,
                                const struct schedule *s);

/* No message takes more than this: every byte escaped, and room for the rest. */
#define ENCODED_MESSAGE_MAX                                                                        \
    (6 * (PAYLOAD_MAX + METADATA_MAX + DEDUP_KEY_MAX + 2 * REASON_MAX + ACTOR_MAX +                \
          4 * LEVEL_NAME_MAX) +                                                                    \
     1024)

#endif
