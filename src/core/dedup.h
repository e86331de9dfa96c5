/* A queue's dedup keys: the same key inside the window, or as long as the message
 * exists, names the message that is already there. Private to the core. */
#ifndef TRIAGE_CORE_DEDUP_H
#define TRIAGE_CORE_DEDUP_H

#include "core/queue.h"

/* `elsewhere`: see queue_put(). */
bool dedup_find(const struct queue *q, const char *key, size_t len,
                const struct dedup_hit *elsewhere, struct instant now, struct dedup_hit *hit);
void dedup_put(struct queue *q, const struct message *m);
/* From now on the key stands for this message, whatever it stood for before. */
void dedup_remember(struct queue *q, const char *key, size_t len, const struct dedup_hit *hit);
/* Remembers the key of an imported message, unless another message has the key or the key's time is
 * over. */
void dedup_adopt(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere,
                 struct instant now);
uint32_t dedup_sweep(struct queue *q, uint32_t max, struct instant now);
int64_t dedup_due(const struct queue *q, int64_t wall_ms); /* when the first key ends, or wall_ms
                                                              if that is earlier */
void dedup_clear(struct queue *q);
void dedup_check(const struct queue *q); /* for queue_check() */

#endif
