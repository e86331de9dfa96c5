/* For how long each queue keeps done messages. RocksDB's own threads ask this while they compact: a
 * record says when its message was done, but only the queue's configuration says for how long it is
 * kept. */
#ifndef TRIAGE_ENGINE_LOCAL_TERMS_H
#define TRIAGE_ENGINE_LOCAL_TERMS_H

#include "base/seqmap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct terms {
    pthread_mutex_t mutex; /* guards what follows */
    struct seqmap history; /* by queue: milliseconds plus one, as a pointer */
};

void terms_init(struct terms *t);
void terms_fini(struct terms *t);
void terms_set(struct terms *t, uint32_t queue, int64_t history_ms);
void terms_drop(struct terms *t, uint32_t queue); /* it is deleted */
/* False when the queue is not known, or not yet. */
bool terms_get(struct terms *t, uint32_t queue, int64_t *history_ms);

#endif
