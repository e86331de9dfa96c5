/* A queue's dedup keys: the same key inside the window, or as long as the message
 * exists, names the message that is already there. Private to the core. */
#ifndef TRIAGE_CORE_DEDUP_H
#define TRIAGE_CORE_DEDUP_H

#include "core/queue.h"

/* `elsewhere`: see queue_put(). */
bool dedup_find(const struct queue *q, const char *key, size_t len,
                const struct dedup_hit *elsewhere, struct instant now, struct dedup_hit *hit);
void dedup_put(struct queue *q, const struct message *m);
/* This key stands for that message, whatever it stood for. */
void dedup_remember(struct queue *q, const char *key, size_t len, const struct dedup_hit *hit);
/* The key of a message that was enqueued elsewhere, unless somebody has it or its time is over. */
void dedup_adopt(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere,
                 struct instant now);
uint32_t dedup_sweep(struct queue *q, uint32_t max, struct instant now);
int64_t dedup_due(const struct queue *q, int64_t wall_ms); /* the earlier of the two */
void dedup_clear(struct queue *q);
void dedup_check(const struct queue *q); /* for queue_check() */

#endif
