#include "engine/local/record.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* 1: no escalations, aging or in-flight limits. Still read. */
#define FORMAT 2

/* Writing fields */

static void put_be(struct buf *out, uint64_t value, size_t width)
{
    buf_reserve(out, width);
    for (size_t i = width; i-- > 0; value >>= 8)
        out->data[out->len + i] = (char)value;
    out->len += width;
}

static void put_text(struct buf *out, const char *text, size_t len)
{
    put_be(out, len, 2);
    buf_put(out, text, len);
}

static void put_double(struct buf *out, double value)
{
    uint64_t bits;
    static_assert(sizeof(bits) == sizeof(value), "a double is eight bytes");
    memcpy(&bits, &value, sizeof(bits));
    put_be(out, bits, 8);
}

/* Reading fields: a cursor that remembers whether it ever ran over the end. */

struct reader {
    const uint8_t *at, *end;
    bool ok;
    uint8_t format; /* of a value, once get_format() was called */
};

static struct reader reader_of(const char *data, size_t len)
{
    return (struct reader){
        .at = (const uint8_t *)data, .end = (const uint8_t *)data + len, .ok = true};
}

static uint64_t get_be(struct reader *r, size_t width)
{
    if ((size_t)(r->end - r->at) < width) {
        r->ok = false;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | *r->at++;
    return value;
}

static bool get_format(struct reader *r)
{
    r->format = (uint8_t)get_be(r, 1);
    if (r->format < 1 || r->format > FORMAT)
        r->ok = false;
    return r->ok;
}

static const char *get_bytes(struct reader *r, size_t len)
{
    if ((size_t)(r->end - r->at) < len) {
        r->ok = false;
        return NULL;
    }
    const char *bytes = (const char *)r->at;
    r->at += len;
    return bytes;
}

static bool get_bool(struct reader *r)
{
    uint64_t value = get_be(r, 1);
    if (value > 1)
        r->ok = false;
    return value == 1;
}

static void get_text(struct reader *r, char *out, size_t size)
{
    size_t len = get_be(r, 2);
    const char *text = len < size ? get_bytes(r, len) : NULL;
    if (!text || memchr(text, '\0', len)) {
        r->ok = false;
        return;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

static double get_double(struct reader *r)
{
    uint64_t bits = get_be(r, 8);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool at_end(const struct reader *r)
{
    return r->ok && r->at == r->end;
}

/* Keys */

static void key_add(struct key *k, uint64_t value, size_t width)
{
    assert(k->len + width <= KEY_MAX);
    for (size_t i = width; i-- > 0; value >>= 8)
        k->bytes[k->len + i] = (char)value;
    k->len = (uint16_t)(k->len + width);
}

static uint64_t time_bias(int64_t ms)
{
    assert(ms >= -TIME_MS_MAX - 1);
    assert(ms <= TIME_MS_MAX);
    return (uint64_t)(ms + TIME_MS_MAX + 1);
}

static int64_t time_unbias(uint64_t biased)
{
    return (int64_t)biased - TIME_MS_MAX - 1;
}

static void key_place(struct key *k, const struct message_id *id)
{
    key_add(k, id->slot, 1);
    key_add(k, time_bias(id->ready_ms), 6);
    key_add(k, id->seq, 6);
}

void key_queue(struct key *k, enum key_tag tag, uint32_t queue)
{
    k->len = 0;
    key_add(k, tag, 1);
    key_add(k, queue, 4);
}

void key_message(struct key *k, const struct message_id *id)
{
    key_queue(k, KEY_MESSAGE, id->queue);
    key_place(k, id);
}

void key_lane(struct key *k, uint32_t queue, uint8_t slot)
{
    key_queue(k, KEY_MESSAGE, queue);
    key_add(k, slot, 1);
}

void key_expiry(struct key *k, const struct message_id *id, int64_t expire_ms)
{
    key_queue(k, KEY_EXPIRY, id->queue);
    key_add(k, time_bias(expire_ms), 6);
    key_place(k, id);
}

void key_seq(struct key *k, enum key_tag tag, uint32_t queue, uint64_t seq)
{
    key_queue(k, tag, queue);
    key_add(k, seq, 6);
}

void key_dedup(struct key *k, uint32_t queue, const char *key, size_t len)
{
    assert(len <= DEDUP_KEY_MAX);
    key_queue(k, KEY_DEDUP, queue);
    memcpy(k->bytes + k->len, key, len);
    k->len = (uint16_t)(k->len + len);
}

static void get_place(struct reader *r, struct message_id *id)
{
    id->slot = (uint8_t)get_be(r, 1);
    id->ready_ms = time_unbias(get_be(r, 6));
    id->seq = get_be(r, 6);
}

bool key_parse_message(const char *bytes, size_t len, struct message_id *id)
{
    struct reader r = reader_of(bytes, len);
    bool tag = get_be(&r, 1) == KEY_MESSAGE;
    id->queue = (uint32_t)get_be(&r, 4);
    get_place(&r, id);
    return tag && at_end(&r) && id->slot < LEVEL_COUNT_MAX;
}

bool key_parse_expiry(const char *bytes, size_t len, struct message_id *id, int64_t *expire_ms)
{
    struct reader r = reader_of(bytes, len);
    bool tag = get_be(&r, 1) == KEY_EXPIRY;
    id->queue = (uint32_t)get_be(&r, 4);
    *expire_ms = time_unbias(get_be(&r, 6));
    get_place(&r, id);
    return tag && at_end(&r) && id->slot < LEVEL_COUNT_MAX;
}

bool key_parse_queue(const char *bytes, size_t len, uint32_t *queue)
{
    struct reader r = reader_of(bytes, len);
    get_be(&r, 1);
    *queue = (uint32_t)get_be(&r, 4);
    return r.ok;
}

bool key_parse_seq(const char *bytes, size_t len, uint32_t *queue, uint64_t *seq)
{
    struct reader r = reader_of(bytes, len);
    get_be(&r, 1);
    *queue = (uint32_t)get_be(&r, 4);
    *seq = get_be(&r, 6);
    return at_end(&r);
}

/* Messages */

static void put_shape(struct buf *out, const struct message *m)
{
    put_be(out, m->kind, 1);
    put_be(out, (uint64_t)m->enqueued_ms, 8);
    put_be(out, m->expiry ? (uint64_t)m->expiry->node.key : 0, 8);
    put_be(out, m->payload_len, 4);
    put_be(out, m->metadata_len, 2);
    put_be(out, m->dedup_len, 2);
}

static void get_shape(struct reader *r, struct message *m)
{
    m->kind = (uint8_t)get_be(r, 1);
    m->enqueued_ms = (int64_t)get_be(r, 8);
    int64_t expire_ms = (int64_t)get_be(r, 8);
    m->payload_len = (uint32_t)get_be(r, 4);
    m->metadata_len = (uint16_t)get_be(r, 2);
    m->dedup_len = (uint16_t)get_be(r, 2);
    if (m->kind > PAYLOAD_BYTES || m->payload_len > PAYLOAD_MAX || m->metadata_len > METADATA_MAX ||
        m->dedup_len > DEDUP_KEY_MAX)
        r->ok = false;
    if (r->ok && expire_ms != 0)
        message_set_expiry(m, expire_ms);
}

static void get_body(struct reader *r, struct message *m)
{
    size_t len = message_body_len(m);
    const char *bytes = r->ok ? get_bytes(r, len) : NULL;
    if (bytes)
        m->body = mem_dup(bytes, len);
}

void record_put_message(struct buf *out, const struct message *m)
{
    assert(m->body || message_body_len(m) == 0);
    put_be(out, FORMAT, 1);
    put_shape(out, m);
    buf_put(out, m->body, message_body_len(m));
}

struct message *record_get_message(const char *data, size_t len, const struct message_id *id)
{
    struct reader r = reader_of(data, len);
    struct message *m = message_new(id->seq);
    get_format(&r);
    get_shape(&r, m);
    get_body(&r, m);
    if (!at_end(&r)) {
        message_free(m);
        return NULL;
    }
    m->born_ms = m->ready_ms = id->ready_ms;
    m->born_slot = m->slot = id->slot;
    m->state = MESSAGE_SCHEDULED;
    return m;
}

/* State */

static void put_escalation(struct buf *out, const struct escalation *e)
{
    put_be(out, e != NULL, 1);
    if (!e)
        return;
    put_be(out, (uint64_t)e->at_ms, 8);
    put_be(out, e->from_slot, 1);
    put_be(out, e->actor_len, 2);
    put_be(out, e->reason_len, 2);
    buf_put(out, e->text, (size_t)e->actor_len + e->reason_len);
}

static struct escalation *get_escalation(struct reader *r)
{
    if (r->format < 2 || !get_bool(r))
        return NULL;
    int64_t at_ms = (int64_t)get_be(r, 8);
    uint8_t from_slot = (uint8_t)get_be(r, 1);
    uint16_t actor_len = (uint16_t)get_be(r, 2), reason_len = (uint16_t)get_be(r, 2);
    size_t len = (size_t)actor_len + reason_len;
    bool fits = actor_len <= ACTOR_MAX && reason_len <= REASON_MAX && from_slot < LEVEL_COUNT_MAX;
    const char *text = fits ? get_bytes(r, len) : NULL;
    if (!text) {
        r->ok = false;
        return NULL;
    }
    struct escalation *e = mem_alloc(sizeof(*e) + len);
    *e = (struct escalation){at_ms, from_slot, actor_len, reason_len};
    memcpy(e->text, text, len);
    return e;
}

static void put_state(struct buf *out, const struct message *m, uint64_t boot)
{
    static const struct delivery none;
    const struct delivery *d = m->delivery ? m->delivery : &none;
    put_be(out, m->state, 1);
    put_be(out, m->slot, 1);
    put_be(out, m->born_slot, 1);
    put_be(out, m->cold, 1);
    put_be(out, m->attempts, 2);
    put_be(out, (uint64_t)m->ready_ms, 8);
    put_be(out, (uint64_t)m->born_ms, 8);
    buf_put(out, d->receipt, RECEIPT_BYTES);
    put_be(out, boot, 8);
    put_be(out, (uint64_t)d->lease_until_ms, 8);
    put_be(out, (uint64_t)d->lease_ms, 8);
    put_be(out, (uint64_t)d->died_ms, 8);
    put_text(out, d->reason, d->reason_len);
    put_escalation(out, d->escalation);
    put_shape(out, m);
}

static bool time_in_range(int64_t ms)
{
    return ms >= -TIME_MS_MAX - 1 && ms <= TIME_MS_MAX;
}

static void get_state(struct reader *r, struct message *m, const struct record_clock *now)
{
    struct delivery *d = message_delivery(m);
    m->state = (uint8_t)get_be(r, 1);
    m->slot = (uint8_t)get_be(r, 1);
    m->born_slot = (uint8_t)get_be(r, 1);
    m->cold = get_bool(r);
    m->attempts = (uint16_t)get_be(r, 2);
    m->ready_ms = (int64_t)get_be(r, 8);
    m->born_ms = (int64_t)get_be(r, 8);
    const char *receipt = get_bytes(r, RECEIPT_BYTES);
    if (receipt)
        memcpy(d->receipt, receipt, RECEIPT_BYTES);
    uint64_t boot = get_be(r, 8);
    d->lease_until_ms = (int64_t)get_be(r, 8);
    d->lease_ms = (int64_t)get_be(r, 8);
    d->died_ms = (int64_t)get_be(r, 8);
    if (d->lease_ms < 0 || d->lease_ms > LEASE_SECONDS_MAX * 1000LL)
        r->ok = false;
    /* After another boot the old deadline means nothing: the lease starts again. Late, never early.
     */
    if (now && r->ok && (boot != now->boot || d->lease_until_ms > now->mono_ms + d->lease_ms))
        d->lease_until_ms = now->mono_ms + d->lease_ms;
    size_t len = get_be(r, 2);
    const char *reason = len <= REASON_MAX ? get_bytes(r, len) : NULL;
    if (!reason || m->slot >= LEVEL_COUNT_MAX || m->born_slot >= LEVEL_COUNT_MAX ||
        m->state == MESSAGE_NEW || m->state >= MESSAGE_EXPIRED || !time_in_range(m->ready_ms) ||
        !time_in_range(m->born_ms)) {
        r->ok = false;
        return;
    }
    d->reason = len > 0 ? mem_dup(reason, len) : NULL;
    d->reason_len = (uint32_t)len;
    d->escalation = get_escalation(r);
    m->touched = true;
    get_shape(r, m);
}

void record_put_state(struct buf *out, const struct message *m, uint64_t boot)
{
    put_be(out, FORMAT, 1);
    put_state(out, m, boot);
}

struct message *record_get_state(const char *data, size_t len, uint64_t seq,
                                 struct record_clock now)
{
    struct reader r = reader_of(data, len);
    struct message *m = message_new(seq);
    get_format(&r);
    get_state(&r, m, &now);
    if (!at_end(&r)) {
        message_free(m);
        return NULL;
    }
    return m;
}

void record_apply_state(struct message *m, struct message *state)
{
    assert(message_seq(m) == message_seq(state));
    m->state = state->state;
    m->slot = state->slot;
    m->attempts = state->attempts;
    m->ready_ms = state->ready_ms;
    m->touched = true;
    assert(!m->delivery);
    m->delivery = state->delivery;
    state->delivery = NULL;
    message_free(state);
}

/* Whole messages */

void record_put_whole(struct buf *out, const struct message *m, uint64_t boot, int64_t until_ms)
{
    assert(m->body || message_body_len(m) == 0);
    put_be(out, FORMAT, 1);
    put_be(out, (uint64_t)until_ms, 8);
    put_state(out, m, boot);
    buf_put(out, m->body, message_body_len(m));
}

struct message *record_get_whole(const char *data, size_t len, uint64_t seq, int64_t *until_ms)
{
    struct reader r = reader_of(data, len);
    struct message *m = message_new(seq);
    get_format(&r);
    *until_ms = (int64_t)get_be(&r, 8);
    get_state(&r, m, NULL);
    get_body(&r, m);
    if (!at_end(&r)) {
        message_free(m);
        return NULL;
    }
    return m;
}

bool record_whole_until(const char *data, size_t len, int64_t *until_ms)
{
    struct reader r = reader_of(data, len);
    bool known = get_format(&r);
    *until_ms = (int64_t)get_be(&r, 8);
    return known && r.ok;
}

/* Dedup keys */

void record_put_dedup(struct buf *out, const struct dedup_hit *hit)
{
    put_be(out, FORMAT, 1);
    put_be(out, (uint64_t)hit->until_ms, 8);
    put_be(out, (uint64_t)hit->enqueued_ms, 8);
    put_be(out, hit->id.slot, 1);
    put_be(out, time_bias(hit->id.ready_ms), 6);
    put_be(out, hit->id.seq, 6);
}

bool record_get_dedup(const char *data, size_t len, uint32_t queue, struct dedup_hit *hit)
{
    struct reader r = reader_of(data, len);
    bool known = get_format(&r);
    hit->until_ms = (int64_t)get_be(&r, 8);
    hit->enqueued_ms = (int64_t)get_be(&r, 8);
    hit->id.queue = queue;
    get_place(&r, &hit->id);
    return known && at_end(&r) && hit->id.slot < LEVEL_COUNT_MAX;
}

/* Queues */

void record_put_queue(struct buf *out, const char *name, const struct queue_config *c)
{
    put_be(out, FORMAT, 1);
    put_text(out, name, strlen(name));
    put_text(out, c->profile, strlen(c->profile));
    put_be(out, c->level_count, 1);
    put_be(out, c->default_rank, 1);
    for (int i = 0; i < c->level_count; i++) {
        const struct level *l = &c->levels[i];
        put_text(out, l->name, strlen(l->name));
        put_be(out, l->has_number, 1);
        put_be(out, (uint64_t)l->number, 8);
        put_double(out, l->weight);
        put_be(out, l->slot, 1);
        put_be(out, (uint64_t)l->age_ms, 8);
        put_be(out, (uint64_t)l->max_wait_ms, 8);
        put_be(out, l->max_in_flight, 4);
    }
    put_text(out, policy_name(c->policy), strlen(policy_name(c->policy)));
    put_be(out, c->paused, 1);
    put_be(out, (uint64_t)c->visibility_ms, 8);
    put_be(out, c->max_attempts, 4);
    put_be(out, c->backoff, 1);
    put_be(out, (uint64_t)c->backoff_base_ms, 8);
    put_be(out, (uint64_t)c->backoff_max_ms, 8);
    put_double(out, c->backoff_jitter);
    put_be(out, (uint64_t)c->ttl_ms, 8);
    put_be(out, c->expired, 1);
    put_be(out, (uint64_t)c->dedup_window_ms, 8);
    put_be(out, c->dedup_scope, 1);
    put_be(out, c->max_depth, 8);
    put_be(out, c->max_bytes, 8);
    put_be(out, (uint64_t)c->history_ms, 8);
    put_be(out, c->alert_dead_letters, 8);
    put_be(out, (uint64_t)c->alert_oldest_ready_seconds, 8);
    put_text(out, c->alert_webhook, strlen(c->alert_webhook));
    put_be(out, c->max_in_flight, 4);
    put_be(out, c->pause_count, 1);
    for (int i = 0; i < c->pause_count; i++) {
        put_be(out, (uint64_t)c->pauses[i].from_ms, 8);
        put_be(out, (uint64_t)c->pauses[i].until_ms, 8);
    }
}

static void get_levels(struct reader *r, struct queue_config *c)
{
    c->level_count = (uint8_t)get_be(r, 1);
    c->default_rank = (uint8_t)get_be(r, 1);
    if (c->level_count == 0 || c->level_count > LEVEL_COUNT_MAX ||
        c->default_rank >= c->level_count)
        r->ok = false;
    bool taken[LEVEL_COUNT_MAX] = {false};
    for (int i = 0; r->ok && i < c->level_count; i++) {
        struct level *l = &c->levels[i];
        get_text(r, l->name, sizeof(l->name));
        l->has_number = get_bool(r);
        l->number = (int64_t)get_be(r, 8);
        l->weight = get_double(r);
        l->slot = (uint8_t)get_be(r, 1);
        bool weighs = l->weight >= WEIGHT_UNIT / 2 && l->weight <= WEIGHT_MAX; /* and is a number */
        if (!weighs || l->slot >= LEVEL_COUNT_MAX || taken[l->slot]) {
            r->ok = false;
            return;
        }
        taken[l->slot] = true;
        if (r->format < 2)
            continue;
        l->age_ms = (int64_t)get_be(r, 8);
        l->max_wait_ms = (int64_t)get_be(r, 8);
        l->max_in_flight = (uint32_t)get_be(r, 4);
        if (l->age_ms < 0 || l->max_wait_ms < 0)
            r->ok = false;
    }
}

static void get_pauses(struct reader *r, struct queue_config *c)
{
    c->pause_count = (uint8_t)get_be(r, 1);
    if (c->pause_count > PAUSES_MAX) {
        r->ok = false;
        return;
    }
    int64_t after_ms = -TIME_MS_MAX - 1; /* they follow one another */
    for (int i = 0; i < c->pause_count; i++) {
        struct pause *p = &c->pauses[i];
        p->from_ms = (int64_t)get_be(r, 8);
        p->until_ms = (int64_t)get_be(r, 8);
        bool open = p->until_ms == PAUSE_OPEN && i == c->pause_count - 1;
        if (p->from_ms < after_ms || p->from_ms > TIME_MS_MAX || p->until_ms < p->from_ms ||
            (p->until_ms > TIME_MS_MAX && !open))
            r->ok = false;
        after_ms = p->until_ms;
    }
}

bool record_get_queue(const char *data, size_t len, char name[QUEUE_NAME_MAX + 1],
                      struct queue_config *c)
{
    struct reader r = reader_of(data, len);
    *c = (struct queue_config){0};
    if (!get_format(&r))
        return false;
    get_text(&r, name, QUEUE_NAME_MAX + 1);
    get_text(&r, c->profile, sizeof(c->profile));
    get_levels(&r, c);
    if (!r.ok)
        return false;
    char policy[32] = "";
    get_text(&r, policy, sizeof(policy));
    c->paused = get_bool(&r);
    c->visibility_ms = (int64_t)get_be(&r, 8);
    c->max_attempts = (uint32_t)get_be(&r, 4);
    c->backoff = (enum backoff)get_be(&r, 1);
    c->backoff_base_ms = (int64_t)get_be(&r, 8);
    c->backoff_max_ms = (int64_t)get_be(&r, 8);
    c->backoff_jitter = get_double(&r);
    c->ttl_ms = (int64_t)get_be(&r, 8);
    c->expired = (enum expired_fate)get_be(&r, 1);
    c->dedup_window_ms = (int64_t)get_be(&r, 8);
    c->dedup_scope = (enum dedup_scope)get_be(&r, 1);
    c->max_depth = get_be(&r, 8);
    c->max_bytes = get_be(&r, 8);
    c->history_ms = (int64_t)get_be(&r, 8);
    c->alert_dead_letters = get_be(&r, 8);
    c->alert_oldest_ready_seconds = (int64_t)get_be(&r, 8);
    get_text(&r, c->alert_webhook, sizeof(c->alert_webhook));
    if (r.format >= 2) {
        c->max_in_flight = (uint32_t)get_be(&r, 4);
        get_pauses(&r, c);
    }
    return at_end(&r) && name[0] && policy_parse(policy, &c->policy) &&
           c->backoff <= BACKOFF_EXPONENTIAL && c->expired <= EXPIRED_DEAD &&
           c->dedup_scope <= DEDUP_LIVE;
}

/* Counters. Totals are written in the order of struct queue_totals. */

#define TOTAL_COUNT (sizeof(struct queue_totals) / sizeof(uint64_t))

void record_put_counters(struct buf *out, const struct record_counters *c)
{
    uint64_t totals[TOTAL_COUNT];
    memcpy(totals, &c->totals, sizeof(totals));
    put_be(out, FORMAT, 1);
    put_be(out, c->next_seq, 8);
    put_be(out, c->cold_bytes, 8);
    put_be(out, TOTAL_COUNT, 1);
    for (size_t i = 0; i < TOTAL_COUNT; i++)
        put_be(out, totals[i], 8);
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct record_lane *l = &c->lanes[slot];
        if (l->cold_ready + l->cold_scheduled + l->dead == 0)
            continue;
        put_be(out, slot, 1);
        put_be(out, l->cold_ready, 8);
        put_be(out, l->cold_scheduled, 8);
        put_be(out, l->dead, 8);
        put_be(out, (uint64_t)l->clock_ms, 8);
        put_be(out, (uint64_t)l->low_ms, 8);
        put_be(out, l->low_seq, 8);
    }
}

bool record_get_counters(const char *data, size_t len, struct record_counters *c)
{
    struct reader r = reader_of(data, len);
    *c = (struct record_counters){0};
    if (!get_format(&r))
        return false;
    c->next_seq = get_be(&r, 8);
    c->cold_bytes = get_be(&r, 8);
    uint64_t totals[TOTAL_COUNT] = {0};
    uint64_t count = get_be(&r, 1);
    for (uint64_t i = 0; i < count && r.ok; i++) {
        uint64_t value = get_be(&r, 8);
        if (i < TOTAL_COUNT)
            totals[i] = value;
    }
    memcpy(&c->totals, totals, sizeof(totals));
    while (r.ok && r.at < r.end) {
        uint8_t slot = (uint8_t)get_be(&r, 1);
        if (slot >= LEVEL_COUNT_MAX)
            return false;
        struct record_lane *l = &c->lanes[slot];
        l->cold_ready = get_be(&r, 8);
        l->cold_scheduled = get_be(&r, 8);
        l->dead = get_be(&r, 8);
        l->clock_ms = (int64_t)get_be(&r, 8);
        l->low_ms = (int64_t)get_be(&r, 8);
        l->low_seq = get_be(&r, 8);
    }
    return r.ok;
}
