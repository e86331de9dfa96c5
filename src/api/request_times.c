#include "api/request_times.h"

#include "api/api.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROUTES_MAX           128
#define EXEMPLAR_INTERVAL_US 1000000

struct request_entry {
    struct shared_durations durations;
    uint64_t noted_us[DURATION_BUCKETS];         /* when its exemplar was taken */
    struct exemplar exemplars[DURATION_BUCKETS]; /* under request_times.mutex */
};

struct request_table {
    struct request_times *all;
    struct request_table *next;
    _Atomic(struct request_entry *) entries[ROUTES_MAX][2]; /* owned; NULL: none was served */
};

struct request_times {
    pthread_mutex_t mutex; /* guards the list and the exemplars */
    struct request_table *first;
};

struct request_times *request_times_new(void)
{
    struct request_times *all = mem_zalloc(sizeof(*all));
    pthread_mutex_init(&all->mutex, NULL);
    return all;
}

static void table_free(struct request_table *t)
{
    for (int i = 0; i < ROUTES_MAX; i++) {
        free(atomic_load(&t->entries[i][0]));
        free(atomic_load(&t->entries[i][1]));
    }
    free(t);
}

void request_times_free(struct request_times *all)
{
    if (!all)
        return;
    for (struct request_table *t = all->first, *next; t; t = next) {
        next = t->next;
        table_free(t);
    }
    pthread_mutex_destroy(&all->mutex);
    free(all);
}

struct request_table *request_table_new(struct request_times *all)
{
    struct request_table *t = mem_zalloc(sizeof(*t));
    t->all = all;
    pthread_mutex_lock(&all->mutex);
    t->next = all->first;
    all->first = t;
    pthread_mutex_unlock(&all->mutex);
    return t;
}

static struct request_entry *entry_of(struct request_table *t, size_t route, bool waits)
{
    struct request_entry *e = atomic_load_explicit(&t->entries[route][waits], memory_order_relaxed);
    if (!e) {
        e = mem_zalloc(sizeof(*e));
        atomic_store_explicit(&t->entries[route][waits], e, memory_order_release);
    }
    return e;
}

static void note_exemplar(struct request_table *t, struct exemplar *to, const char *id,
                          uint64_t took_us, uint64_t now_us)
{
    pthread_mutex_lock(&t->all->mutex);
    strncpy(to->id, id, sizeof(to->id) - 1);
    to->took_us = took_us;
    to->at_ms = clock_now().wall_ms;
    to->at_us = now_us;
    pthread_mutex_unlock(&t->all->mutex);
}

void request_table_add(struct request_table *t, size_t route, bool waits, const char *id,
                       uint64_t took_us, uint64_t now_us)
{
    assert(route < ROUTES_MAX);
    struct request_entry *e = entry_of(t, route, waits);
    uint32_t bucket = duration_bucket(&duration_works, took_us);
    uint64_t *noted_us = &e->noted_us[bucket];
    shared_durations_add(&e->durations, &duration_works, took_us);
    if (now_us - *noted_us < EXEMPLAR_INTERVAL_US)
        return;
    *noted_us = now_us;
    note_exemplar(t, &e->exemplars[bucket], id, took_us, now_us);
}

bool request_times_sum(struct request_times *all, size_t route, bool waits, struct durations *sum,
                       struct exemplar exemplars[DURATION_BUCKETS])
{
    bool any = false;
    *sum = (struct durations){0};
    memset(exemplars, 0, DURATION_BUCKETS * sizeof(*exemplars));
    pthread_mutex_lock(&all->mutex);
    for (struct request_table *t = all->first; t; t = t->next) {
        const struct request_entry *e =
            atomic_load_explicit(&t->entries[route][waits], memory_order_acquire);
        if (!e)
            continue;
        any = true;
        shared_durations_sum(&e->durations, sum);
        for (int i = 0; i < DURATION_BUCKETS; i++)
            if (e->exemplars[i].at_us > exemplars[i].at_us)
                exemplars[i] = e->exemplars[i];
    }
    pthread_mutex_unlock(&all->mutex);
    return any;
}
