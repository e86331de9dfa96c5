#include "engine/local/terms.h"

void terms_init(struct terms *t)
{
    *t = (struct terms){0};
    pthread_mutex_init(&t->mutex, NULL);
}

void terms_fini(struct terms *t)
{
    seqmap_fini(&t->history);
    pthread_mutex_destroy(&t->mutex);
}

void terms_set(struct terms *t, uint32_t queue, int64_t history_ms)
{
    pthread_mutex_lock(&t->mutex);
    seqmap_remove(&t->history, queue);
    seqmap_put(&t->history, queue, (void *)(intptr_t)(history_ms + 1));
    pthread_mutex_unlock(&t->mutex);
}

void terms_drop(struct terms *t, uint32_t queue)
{
    pthread_mutex_lock(&t->mutex);
    seqmap_remove(&t->history, queue);
    pthread_mutex_unlock(&t->mutex);
}

bool terms_get(struct terms *t, uint32_t queue, int64_t *history_ms)
{
    pthread_mutex_lock(&t->mutex);
    intptr_t known = (intptr_t)seqmap_get(&t->history, queue);
    pthread_mutex_unlock(&t->mutex);
    *history_ms = known - 1;
    return known > 0;
}
