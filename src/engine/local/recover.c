#include "base/mem.h"
#include "engine/local/impl.h"

#include <stdlib.h>
#include <string.h>

/* What is known while reading: queues by number, and per queue the states still to be matched. */
struct recovery {
    struct local **shards;
    uint32_t shard_count;
    struct store *store;
    struct instant now;
    struct record_clock clock;
    struct seqmap queues; /* struct loading by queue number */
    struct buf *error;
};

struct loading {
    struct local_queue *lq;
    struct seqmap states; /* struct message, without a body */
};

typedef bool record_fn(struct recovery *r, const char *key, size_t key_len, const char *value,
                       size_t value_len);

static bool damaged(struct recovery *r, const char *what, const char *key, size_t key_len)
{
    buf_printf(r->error, "the store has a damaged %s record, key ", what);
    for (size_t i = 0; i < key_len; i++)
        buf_printf(r->error, "%02x", (unsigned char)key[i]);
    return false;
}

static struct loading *loading_of(struct recovery *r, const char *key, size_t key_len)
{
    uint32_t id;
    return key_parse_queue(key, key_len, &id) ? seqmap_get(&r->queues, id) : NULL;
}

static void bump_next_queue(struct recovery *r, uint32_t next)
{
    struct local_shared *shared = r->shards[0]->shared;
    if (next > atomic_load(&shared->next_queue_id))
        atomic_store(&shared->next_queue_id, next);
}

static bool load_next_queue(struct recovery *r, const char *key, size_t key_len, const char *value,
                            size_t len)
{
    const unsigned char *v = (const unsigned char *)value;
    uint32_t next =
        len == 4 ? (uint32_t)v[0] << 24 | (uint32_t)v[1] << 16 | (uint32_t)v[2] << 8 | v[3] : 0;
    if (next == 0 || next == UINT32_MAX)
        return damaged(r, "next queue", key, key_len);
    bump_next_queue(r, next);
    return true;
}

static bool load_queue(struct recovery *r, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    char name[QUEUE_NAME_MAX + 1];
    struct queue_config config;
    uint32_t id;
    if (key_len != 5 || !key_parse_queue(key, key_len, &id) || id == 0 || id == UINT32_MAX ||
        !record_get_queue(value, len, name, &config))
        return damaged(r, "queue", key, key_len);
    struct local *l = r->shards[engine_shard_of(name, strlen(name), r->shard_count)];
    if (map_get(&l->r.queues, name, strlen(name)))
        return damaged(r, "second queue", key, key_len);
    struct loading *q = mem_zalloc(sizeof(*q));
    q->lq = local_queue_new(l, name, id, &config);
    seqmap_put(&r->queues, id, q);
    bump_next_queue(r, id + 1);
    return true;
}

/* The place right before. */
static struct place place_before(int64_t ready_ms, uint64_t seq)
{
    if (seq == 0 && ready_ms > INT64_MIN)
        return (struct place){ready_ms - 1, UINT64_MAX};
    return (struct place){ready_ms, seq > 0 ? seq - 1 : 0};
}

static void load_lane(struct queue *q, uint8_t slot, const struct record_lane *in)
{
    q->view->lanes[slot].dead += in->dead;
    q->view->dead += in->dead;
    if (in->cold_ready + in->cold_scheduled == 0)
        return;
    /* When the next one is due the first sweep finds out. */
    const struct tail tail = {
        .ready = in->cold_ready,
        .scheduled = in->cold_scheduled,
        .clock_ms = in->clock_ms,
        .next_ms = in->cold_scheduled > 0 ? in->clock_ms + 1 : INT64_MAX,
        .bound = place_before(in->low_ms, in->low_seq),
    };
    queue_tail_load(q, slot, &tail);
}

/* A level that holds messages does not vanish. */
static bool has_levels(const struct queue_config *config, const struct record_counters *c)
{
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct record_lane *l = &c->lanes[slot];
        if (l->cold_ready + l->cold_scheduled + l->dead > 0 &&
            levels_rank_of_slot(config, slot) < 0)
            return false;
    }
    return true;
}

static bool load_counters(struct recovery *r, const char *key, size_t key_len, const char *value,
                          size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    struct record_counters c;
    if (!q || key_len != 5 || !record_get_counters(value, len, &c) ||
        !has_levels(&q->lq->rq->face.config, &c))
        return damaged(r, "counters", key, key_len);
    struct engine_queue *face = &q->lq->rq->face;
    face->next_seq = c.next_seq;
    face->view.totals = c.totals;
    face->view.bytes += c.cold_bytes;
    q->lq->cold_bytes = c.cold_bytes;
    q->lq->peaks = c.peaks;
    peaks_see(&q->lq->peaks, r->now.wall_ms, c.next_seq);
    q->lq->changed = true; /* the first that is written says what this clock made ready */
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        load_lane(&q->lq->rq->core, slot, &c.lanes[slot]);
    return true;
}

static bool load_place(struct recovery *r, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    struct queue_place *place = q && key_len == 5 ? record_get_place(value, len) : NULL;
    if (!place)
        return damaged(r, "place", key, key_len);
    resident_place(q->lq->rq, place);
    return true;
}

static bool load_share(struct recovery *r, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    struct queue_share *share = q && key_len == 5 ? record_get_share(value, len) : NULL;
    if (!share)
        return damaged(r, "share", key, key_len);
    resident_share(q->lq->rq, share);
    return true;
}

static bool load_schedule(struct recovery *r, const char *key, size_t key_len, const char *value,
                          size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    struct schedule s;
    if (!q || !record_get_schedule(value, len, &s))
        return damaged(r, "schedule", key, key_len);
    resident_schedule_restore(q->lq->rq, &s);
    return true;
}

static bool load_state(struct recovery *r, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    uint32_t id;
    uint64_t seq;
    struct message *m = NULL;
    if (q && key_parse_seq(key, key_len, &id, &seq))
        m = record_get_state(value, len, seq, r->clock);
    if (!m)
        return damaged(r, "state", key, key_len);
    seqmap_put(&q->states, seq, m);
    return true;
}

/* Whether the queue can have it: its number was given out, to nobody else, and its level is there.
 */
static bool fits(struct loading *q, const struct message *m)
{
    return message_seq(m) < q->lq->rq->face.next_seq &&
           !tail_in_memory(&q->lq->rq->core, message_seq(m)) &&
           levels_rank_of_slot(&q->lq->rq->face.config, m->slot) >= 0;
}

static bool load_message(struct recovery *r, const char *key, size_t key_len, const char *value,
                         size_t len)
{
    struct loading *q = loading_of(r, key, key_len);
    struct message_id id;
    struct message *m = NULL;
    if (q && key_parse_message(key, key_len, &id))
        m = record_get_message(value, len, &id);
    if (!m)
        return damaged(r, "message", key, key_len);
    struct message *state = seqmap_remove(&q->states, id.seq);
    if (state)
        record_apply_state(m, state);
    if (!fits(q, m)) {
        message_free(m);
        return damaged(r, "message or counters", key, key_len);
    }
    if (!m->touched && peaks_passed(&q->lq->peaks, m->ready_ms, id.seq))
        m->state = MESSAGE_READY;
    queue_restore(&q->lq->rq->core, m, r->now.wall_ms);
    return true;
}

static bool load_all(struct recovery *r, enum key_tag tag, record_fn *load)
{
    struct key prefix = {.len = 1, .bytes = {(char)tag}};
    struct store_iter *it = store_iter_open(r->store, STORE_HOT, &prefix, NULL);
    bool ok = true;
    for (; ok && store_iter_valid(it); store_iter_next(it)) {
        size_t key_len, value_len;
        const char *key = store_iter_key(it, &key_len);
        const char *value = store_iter_value(it, &value_len);
        ok = load(r, key, key_len, value, value_len);
    }
    return store_iter_close(it, r->error) && ok;
}

/* States whose message is cold: they stay in memory without a body. */
static bool load_cold_states(struct recovery *r, struct loading *q)
{
    uint64_t seq = 0;
    for (struct message *m; (m = seqmap_next(&q->states, seq, &seq)); seq++) {
        seqmap_remove(&q->states, seq);
        if (m->home != HOME_COLD || !fits(q, m)) {
            message_free(m);
            buf_printf(r->error,
                       "the store has the state of message %llu of queue %s, but not "
                       "the message, or another of its number",
                       (unsigned long long)seq, q->lq->rq->face.name);
            return false;
        }
        queue_restore(&q->lq->rq->core, m, r->now.wall_ms);
    }
    return true;
}

static bool finish_queues(struct recovery *r)
{
    bool ok = true;
    uint64_t id = 0;
    for (struct loading *q; (q = seqmap_next(&r->queues, id, &id)); id++) {
        ok = ok && load_cold_states(r, q);
        walk_expiry_start(q->lq);
        if (ok)
            tail_top_up(q->lq->rq, r->now);
        resident_touch(q->lq->rq);
        uint64_t seq = 0;
        for (struct message *m; (m = seqmap_next(&q->states, seq, &seq)); seq++)
            message_free(m);
        seqmap_fini(&q->states);
        free(q);
    }
    seqmap_fini(&r->queues);
    for (uint32_t i = 0; i < r->shard_count; i++)
        resident_retime(&r->shards[i]->r, NULL, NULL);
    return ok;
}

enum status local_recover(struct local *shards[], uint32_t shard_count, struct instant now,
                          struct buf *error)
{
    struct local_shared *shared = shards[0]->shared;
    struct recovery r = {
        .shards = shards,
        .shard_count = shard_count,
        .store = shared->store,
        .now = now,
        .clock = {shared->boot, now.mono_ms},
        .error = error,
    };
    for (uint32_t i = 0; i < shard_count; i++)
        shards[i]->now = now;
    atomic_init(&shared->next_queue_id, 1);
    bool ok = load_all(&r, KEY_NEXT_QUEUE, load_next_queue) &&
              load_all(&r, KEY_QUEUE, load_queue) && load_all(&r, KEY_COUNTERS, load_counters) &&
              load_all(&r, KEY_PLACE, load_place) && load_all(&r, KEY_SHARE, load_share) &&
              load_all(&r, KEY_SCHEDULE, load_schedule) && load_all(&r, KEY_STATE, load_state) &&
              load_all(&r, KEY_MESSAGE, load_message);
    ok = finish_queues(&r) && ok;
    if (shared->damage[0] != '\0') {
        buf_puts(error, shared->damage);
        ok = false;
    }
    return ok ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE;
}
