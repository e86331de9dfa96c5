/* A look at all that a data directory holds: whether each record decodes, whether the records fit
 * together, and what messages there are.
 *
 * What has to fit: every record belongs to a queue, and a queue has counters. The state of a
 * message has its message. The index of times to live has the cold messages that have one, but for
 * those that were delivered or moved, where it may lack them. The counters say how many cold
 * messages and dead letters each lane has, and no message is numbered behind them. All that was
 * enqueued is there, or is counted as gone. */
#include "base/map.h"
#include "base/mem.h"
#include "engine/local/local.h"
#include "engine/local/record.h"
#include "engine/local/remains.h"

#include <stdlib.h>
#include <string.h>

/* Things of one kind that are wrong in a queue: how many, and the first of them. */
struct tally {
    uint64_t count, first;
};

struct seen {
    struct engine_queue face;
    bool known, counted; /* its record was read, its counters were */
    bool replaced;       /* a later one has its name: it was deleted before that was made */
    struct record_counters counters;
    struct seqmap states;   /* of messages that did not come yet */
    struct seqmap expiring; /* cold messages with a time to live: what the index has to say */
    uint64_t cold[LEVEL_COUNT_MAX], dead[LEVEL_COUNT_MAX], cold_bytes;
    uint64_t messages; /* dead ones too */
    struct tally stateless, indexless, messageless, misplaced, unnumbered;
};

static char must_be_indexed, may_be_indexed; /* marks in `expiring` */

struct inspector {
    struct remains *remains;
    struct engine_inspection *out;
    struct seqmap queues; /* struct seen, by number */
    struct record_clock clock;
    struct instant now;
    bool hot;       /* the family at hand */
    uint64_t steps; /* since progress was told */
};

static void damage(void *ctx, const char *sentence)
{
    struct inspector *in = ctx;
    in->out->damages++;
    if (in->out->damage)
        in->out->damage(in->out->ctx, sentence);
}

static void tell(struct inspector *in, struct buf *sentence)
{
    damage(in, buf_cstr(sentence));
    buf_fini(sentence);
}

static void bad_record(struct inspector *in, const char *what, const char *key, size_t len)
{
    struct buf line = {0};
    buf_printf(&line, "%s, family %s, key ", what, in->hot ? "hot" : "cold");
    for (size_t i = 0; i < len; i++)
        buf_printf(&line, "%02x", (unsigned char)key[i]);
    tell(in, &line);
}

static void add(struct tally *t, uint64_t seq)
{
    if (t->count++ == 0)
        t->first = seq;
}

/* Queues */

static struct seen *queue_of(struct inspector *in, uint32_t id)
{
    struct seen *q = seqmap_get(&in->queues, id);
    if (q)
        return q;
    q = mem_zalloc(sizeof(*q));
    q->face.id = id;
    seqmap_put(&in->queues, id, q);
    return q;
}

static void on_queue(struct inspector *in, const char *key, size_t key_len, const char *value,
                     size_t len)
{
    uint32_t id;
    char name[QUEUE_NAME_MAX + 1];
    struct queue_config config;
    if (!key_parse_queue(key, key_len, &id) || !record_get_queue(value, len, name, &config)) {
        bad_record(in, "the record of a queue does not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id);
    memcpy(q->face.name, name, sizeof(name));
    q->face.config = config;
    q->known = true;
}

static void on_counters(struct inspector *in, const char *key, size_t key_len, const char *value,
                        size_t len)
{
    uint32_t id;
    struct record_counters counters;
    if (!key_parse_queue(key, key_len, &id) || !record_get_counters(value, len, &counters)) {
        bad_record(in, "the counters of a queue do not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id);
    q->counters = counters;
    q->counted = true;
}

static void on_state(struct inspector *in, const char *key, size_t key_len, const char *value,
                     size_t len)
{
    uint32_t id;
    uint64_t seq;
    struct message *m = NULL;
    if (key_parse_seq(key, key_len, &id, &seq))
        m = record_get_state(value, len, seq, in->clock);
    if (!m)
        bad_record(in, "the state of a message does not decode", key, key_len);
    else
        seqmap_put(&queue_of(in, id)->states, seq, m);
}

/* Messages */

static void show(struct inspector *in, struct seen *q, const struct message *m)
{
    if (q->replaced)
        return;
    q->messages++;
    in->out->messages++;
    if (in->out->message)
        in->out->message(in->out->ctx, &q->face, m);
}

static void note_cold(struct seen *q, const struct message *m)
{
    uint64_t seq = message_seq(m);
    if (!m->touched) {
        q->cold[m->slot]++;
        q->cold_bytes += message_bytes(m);
    }
    if (m->expiry && !seqmap_get(&q->expiring, seq))
        seqmap_put(&q->expiring, seq, m->touched ? &may_be_indexed : &must_be_indexed);
}

static void on_message(struct inspector *in, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    struct message_id id;
    struct message *m = NULL;
    if (key_parse_message(key, key_len, &id))
        m = record_get_message(value, len, &id);
    if (!m) {
        bad_record(in, "a message does not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id.queue);
    struct message *state = seqmap_remove(&q->states, id.seq);
    m->state = m->ready_ms <= in->now.wall_ms ? MESSAGE_READY : MESSAGE_SCHEDULED;
    if (state && (state->home == HOME_COLD) == in->hot)
        add(&q->misplaced, id.seq);
    if (state)
        record_apply_state(m, state);
    if (!in->hot)
        note_cold(q, m);
    if (q->counted && id.seq >= q->counters.next_seq)
        add(&q->unnumbered, id.seq);
    show(in, q, m);
    message_free(m);
}

static struct message *read_whole(const char *key, size_t key_len, const char *value, size_t len,
                                  uint32_t *queue, enum message_state state)
{
    uint64_t seq;
    int64_t until_ms;
    struct message *m = NULL;
    if (key_parse_seq(key, key_len, queue, &seq))
        m = record_get_whole(value, len, seq, &until_ms);
    if (!m || m->state == state)
        return m;
    message_free(m);
    return NULL;
}

static void on_dead(struct inspector *in, const char *key, size_t key_len, const char *value,
                    size_t len)
{
    uint32_t id;
    struct message *m = read_whole(key, key_len, value, len, &id, MESSAGE_DEAD);
    if (!m) {
        bad_record(in, "a dead letter does not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id);
    q->dead[m->slot]++;
    show(in, q, m);
    message_free(m);
}

static void on_history(struct inspector *in, const char *key, size_t key_len, const char *value,
                       size_t len)
{
    uint32_t id;
    struct message *m = read_whole(key, key_len, value, len, &id, MESSAGE_DONE);
    if (m)
        message_free(m);
    else
        bad_record(in, "a finished message does not decode", key, key_len);
}

static void on_dedup(struct inspector *in, const char *key, size_t key_len, const char *value,
                     size_t len)
{
    uint32_t id;
    struct dedup_hit hit;
    if (!key_parse_queue(key, key_len, &id) || !record_get_dedup(value, len, id, &hit))
        bad_record(in, "a dedup key does not decode", key, key_len);
}

static void on_expiry(struct inspector *in, const char *key, size_t key_len, const char *value,
                      size_t len)
{
    struct message_id id;
    int64_t expire_ms;
    (void)value;
    if (!key_parse_expiry(key, key_len, &id, &expire_ms) || len != 0) {
        bad_record(in, "an entry of the index of times to live does not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id.queue);
    if (!seqmap_remove(&q->expiring, id.seq))
        add(&q->messageless, id.seq);
}

static void on_schedule(struct inspector *in, const char *key, size_t key_len, const char *value,
                        size_t len)
{
    uint32_t id;
    struct schedule s;
    if (!key_parse_queue(key, key_len, &id) || !record_get_schedule(value, len, &s)) {
        bad_record(in, "a schedule does not decode", key, key_len);
        return;
    }
    struct seen *q = queue_of(in, id);
    in->out->schedules++;
    if (in->out->schedule && !q->replaced)
        in->out->schedule(in->out->ctx, &q->face, &s);
    schedule_fini(&s);
}

/* What is salvaged is imported somewhere else, so nobody is shown the place. */
static void on_place(struct inspector *in, const char *key, size_t key_len, const char *value,
                     size_t len)
{
    uint32_t id;
    struct queue_place *place = record_get_place(value, len);
    if (!place || key_len != 5 || !key_parse_queue(key, key_len, &id))
        bad_record(in, "the place of a queue does not decode", key, key_len);
    else
        queue_of(in, id);
    free(place);
}

/* As for the place. */
static void on_share(struct inspector *in, const char *key, size_t key_len, const char *value,
                     size_t len)
{
    uint32_t id;
    struct queue_share *share = record_get_share(value, len);
    if (!share || key_len != 5 || !key_parse_queue(key, key_len, &id))
        bad_record(in, "the share of a queue does not decode", key, key_len);
    else
        queue_of(in, id);
    free(share);
}

static void on_number(struct inspector *in, const char *key, size_t key_len, const char *value,
                      size_t len)
{
    (void)value;
    if (key_len != 1 || len != (key[0] == KEY_LOG ? 8 : 4))
        bad_record(in, "a number does not decode", key, key_len);
}

/* Each family twice at most, since the queues and states stand behind the messages. */
static const struct {
    char tag;
    bool hot;
    int turn;
    void (*look)(struct inspector *in, const char *key, size_t key_len, const char *value,
                 size_t len);
} kinds[] = {
    {KEY_QUEUE, true, 0, on_queue},      {KEY_COUNTERS, true, 0, on_counters},
    {KEY_STATE, true, 0, on_state},      {KEY_NEXT_QUEUE, true, 0, on_number},
    {KEY_LOG, true, 0, on_number},       {KEY_MESSAGE, true, 1, on_message},
    {KEY_PLACE, true, 0, on_place},      {KEY_SCHEDULE, true, 1, on_schedule},
    {KEY_DEAD, false, 2, on_dead},       {KEY_MESSAGE, false, 2, on_message},
    {KEY_HISTORY, false, 2, on_history}, {KEY_DEDUP, false, 2, on_dedup},
    {KEY_EXPIRY, false, 2, on_expiry},   {KEY_LOG, false, 2, on_number},
    {KEY_SHARE, true, 0, on_share},
};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

struct turn {
    struct inspector *in;
    int number;
};

static void on_record(void *ctx, const char *key, size_t key_len, const char *value, size_t len)
{
    const struct turn *turn = ctx;
    struct inspector *in = turn->in;
    size_t i = 0;
    if (in->out->progress && ++in->steps % 1024 == 0) {
        uint64_t bytes, total;
        remains_progress(in->remains, &bytes, &total);
        in->out->progress(in->out->ctx, bytes, total);
    }
    while (i < KIND_COUNT && (key_len == 0 || kinds[i].tag != key[0] || kinds[i].hot != in->hot))
        i++;
    if (i == KIND_COUNT)
        bad_record(in, "a key is of no kind that there is", key, key_len);
    else if (kinds[i].turn == turn->number)
        kinds[i].look(in, key, key_len, value, len);
}

/* Whether it fits together */

static void tell_tally(struct inspector *in, const struct seen *q, const struct tally *t,
                       const char *what)
{
    struct buf line = {0};
    if (t->count == 0)
        return;
    buf_printf(&line, "queue %s (number %lu): %llu %s; the first is message %llu",
               q->known ? q->face.name : "?", (unsigned long)q->face.id,
               (unsigned long long)t->count, what, (unsigned long long)t->first);
    tell(in, &line);
}

static void tell_count(struct inspector *in, const struct seen *q, const char *what, int slot,
                       uint64_t found, uint64_t counted)
{
    struct buf line = {0};
    if (found == counted)
        return;
    buf_printf(&line, "queue %s (number %lu): %llu %s", q->known ? q->face.name : "?",
               (unsigned long)q->face.id, (unsigned long long)found, what);
    if (slot >= 0)
        buf_printf(&line, " in lane %d", slot);
    buf_printf(&line, ", and its counters say %llu", (unsigned long long)counted);
    tell(in, &line);
}

static void tell_left(struct seqmap *map, const void *mark, struct tally *t)
{
    uint64_t seq = 0;
    for (void *value; (value = seqmap_next(map, seq, &seq)); seq++) {
        if (!mark || value == mark)
            add(t, seq);
    }
}

static void look_at_queue(struct inspector *in, struct seen *q)
{
    struct buf line = {0};
    if (q->replaced) {
        buf_printf(&line, "queue %s (number %lu) was deleted, and has records", q->face.name,
                   (unsigned long)q->face.id);
        tell(in, &line);
        return;
    }
    tell_left(&q->states, NULL, &q->stateless);
    tell_left(&q->expiring, &must_be_indexed, &q->indexless);
    in->out->unreadable += q->counted ? 0 : q->stateless.count;
    if (!q->known || !q->counted) {
        buf_printf(&line, "queue %s (number %lu) has records, and %s is missing",
                   q->known ? q->face.name : "?", (unsigned long)q->face.id,
                   q->known ? "the one with its counters" : "the one with its name");
        tell(in, &line);
    }
    tell_tally(in, q, &q->stateless, "states without their message");
    tell_tally(in, q, &q->misplaced, "messages that are not where their state says");
    tell_tally(in, q, &q->unnumbered, "messages behind the last number that was given");
    tell_tally(in, q, &q->messageless, "entries in the index of times to live without a message");
    tell_tally(in, q, &q->indexless, "messages that the index of times to live lacks");
    for (int slot = 0; q->counted && slot < LEVEL_COUNT_MAX; slot++) {
        const struct record_lane *l = &q->counters.lanes[slot];
        tell_count(in, q, "messages on disk alone", slot, q->cold[slot],
                   l->cold_ready + l->cold_scheduled);
        tell_count(in, q, "dead letters", slot, q->dead[slot], l->dead);
    }
    if (!q->counted)
        return;
    tell_count(in, q, "bytes on disk alone", -1, q->cold_bytes, q->counters.cold_bytes);
    const struct queue_totals *t = &q->counters.totals;
    uint64_t expected = t->enqueued - t->acked - t->expired - t->cancelled;
    tell_count(in, q, "messages", -1, q->messages, expected);
    in->out->unreadable += expected > q->messages ? expected - q->messages : 0;
}

/* Of a name that several have, the last is the queue: the others come from where a deletion was
 * damaged. */
static void find_replaced(struct inspector *in)
{
    struct map names = {0};
    uint64_t id = 0;
    for (struct seen *q; (q = seqmap_next(&in->queues, id, &id)); id++) {
        size_t len = strlen(q->face.name);
        struct seen *earlier = q->known ? map_remove(&names, q->face.name, len) : NULL;
        if (earlier)
            earlier->replaced = true;
        if (q->known)
            map_put(&names, q->face.name, len, q);
    }
    map_fini(&names);
}

static void show_queues(struct inspector *in)
{
    uint64_t id = 0;
    find_replaced(in);
    for (struct seen *q; (q = seqmap_next(&in->queues, id, &id)); id++) {
        if (!q->known || q->replaced)
            continue;
        in->out->queues++;
        if (in->out->queue)
            in->out->queue(in->out->ctx, &q->face);
    }
}

static void finish(struct inspector *in)
{
    uint64_t id = 0;
    for (struct seen *q; (q = seqmap_next(&in->queues, id, &id)); id++) {
        look_at_queue(in, q);
        uint64_t seq = 0;
        for (struct message *m; (m = seqmap_next(&q->states, seq, &seq)); seq++)
            message_free(m);
        seqmap_fini(&q->states);
        seqmap_fini(&q->expiring);
        free(q);
    }
    seqmap_fini(&in->queues);
}

enum status local_inspect(const char *path, struct engine_inspection *out, struct buf *error)
{
    struct inspector in = {.out = out, .now = clock_now()};
    enum status status = remains_open(path, damage, &in, &in.remains, error);
    if (status)
        return status;
    for (int number = 0; number < 3; number++) {
        struct turn turn = {&in, number};
        in.hot = number < 2;
        remains_each(in.remains, in.hot ? STORE_HOT : STORE_COLD, on_record, &turn);
        if (number == 0)
            show_queues(&in);
    }
    remains_close(in.remains);
    finish(&in);
    return STATUS_OK;
}
