#include "engine/local/record.h"
#include "base/mem.h"
#include "engine/local/field.h"

/* Messages */

static_assert(PAYLOAD_MAX <= UINT32_MAX, "its length has four bytes");
static_assert(METADATA_MAX <= UINT16_MAX, "its length has two bytes");
static_assert(DEDUP_KEY_MAX <= UINT16_MAX, "its length has two bytes");
static_assert(REASON_MAX <= UINT16_MAX, "its length has two bytes");
static_assert(ACTOR_MAX <= UINT16_MAX, "its length has two bytes");
static_assert(LEVEL_COUNT_MAX <= UINT8_MAX, "a slot has one byte");

/* What get_shape() refuses, nobody may write: the message would be lost with the next start. */
static void put_shape(struct buf *out, const struct message *m)
{
    assert(m->kind <= PAYLOAD_BYTES);
    assert(m->payload_len <= PAYLOAD_MAX);
    assert(m->metadata_len <= METADATA_MAX);
    assert(m->dedup_len <= DEDUP_KEY_MAX);
    put_be(out, m->kind, 1);
    put_be(out, (uint64_t)m->enqueued_ms, 8);
    put_be(out, m->expiry ? (uint64_t)m->expiry->node.key : 0, 8);
    put_be(out, m->payload_len, 4);
    put_be(out, m->metadata_len, 2);
    put_be(out, m->dedup_len, 2);
}

static bool time_in_range(int64_t ms)
{
    return ms >= -TIME_MS_MAX - 1 && ms <= TIME_MS_MAX;
}

static void get_shape(struct decoder *r, struct message *m)
{
    m->kind = (uint8_t)get_be(r, 1);
    m->enqueued_ms = (int64_t)get_be(r, 8);
    int64_t expire_ms = (int64_t)get_be(r, 8);
    m->payload_len = (uint32_t)get_be(r, 4);
    m->metadata_len = (uint16_t)get_be(r, 2);
    m->dedup_len = (uint16_t)get_be(r, 2);
    if (m->kind > PAYLOAD_BYTES || m->payload_len > PAYLOAD_MAX || m->metadata_len > METADATA_MAX ||
        m->dedup_len > DEDUP_KEY_MAX || !time_in_range(m->enqueued_ms) || !time_in_range(expire_ms))
        r->ok = false;
    if (r->ok && expire_ms != 0)
        message_set_expiry(m, expire_ms);
}

static void get_body(struct decoder *r, struct message *m)
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
    struct decoder r = decoder_of(data, len);
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

static struct escalation *get_escalation(struct decoder *r)
{
    if (r->format < 2 || !get_bool(r))
        return NULL;
    int64_t at_ms = (int64_t)get_be(r, 8);
    uint8_t from_slot = (uint8_t)get_be(r, 1);
    uint16_t actor_len = (uint16_t)get_be(r, 2), reason_len = (uint16_t)get_be(r, 2);
    size_t len = (size_t)actor_len + reason_len;
    bool fits = actor_len <= ACTOR_MAX && reason_len <= REASON_MAX && from_slot < LEVEL_COUNT_MAX &&
                time_in_range(at_ms);
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
    assert(m->slot < LEVEL_COUNT_MAX);
    assert(m->born_slot < LEVEL_COUNT_MAX);
    assert(d->lease_ms >= LEAVING_MS_MIN);
    assert(d->reason_len <= REASON_MAX);
    put_be(out, m->state, 1);
    put_be(out, m->slot, 1);
    put_be(out, m->born_slot, 1);
    put_be(out, m->home == HOME_COLD, 1);
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

static void get_state(struct decoder *r, struct message *m, const struct record_clock *now)
{
    struct delivery *d = message_delivery(m);
    m->state = (uint8_t)get_be(r, 1);
    m->slot = (uint8_t)get_be(r, 1);
    m->born_slot = (uint8_t)get_be(r, 1);
    m->home = get_bool(r) ? HOME_COLD : HOME_HOT;
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
    if (d->lease_ms < LEAVING_MS_MIN || d->lease_ms > LEASE_SECONDS_MAX * 1000LL)
        r->ok = false;
    /* After another boot the old deadline means nothing: the lease starts again. Late, never early.
     * The lease of a message that is leaving has no deadline. */
    if (d->lease_ms < 0)
        d->lease_until_ms = LEAVING_UNTIL_MS;
    else if (now && r->ok && (boot != now->boot || d->lease_until_ms > now->mono_ms + d->lease_ms))
        d->lease_until_ms = now->mono_ms + d->lease_ms;
    size_t len = get_be(r, 2);
    const char *reason = len <= REASON_MAX ? get_bytes(r, len) : NULL;
    if (!reason || m->slot >= LEVEL_COUNT_MAX || m->born_slot >= LEVEL_COUNT_MAX ||
        !time_in_range(m->ready_ms) || !time_in_range(m->born_ms) || !time_in_range(d->died_ms)) {
        r->ok = false;
        return;
    }
    message_set_reason(m, reason, (uint32_t)len);
    d->escalation = get_escalation(r);
    m->touched = true;
    get_shape(r, m);
}

void record_put_state(struct buf *out, const struct message *m, uint64_t boot)
{
    assert(message_pending(m) || m->state == MESSAGE_LEASED); /* others are records of their own */
    put_be(out, FORMAT, 1);
    put_state(out, m, boot);
}

struct message *record_get_state(const char *data, size_t len, uint64_t seq,
                                 struct record_clock now)
{
    struct decoder r = decoder_of(data, len);
    struct message *m = message_new(seq);
    get_format(&r);
    get_state(&r, m, &now);
    bool lives = message_pending(m) || m->state == MESSAGE_LEASED;
    if (!at_end(&r) || !lives) {
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
    struct decoder r = decoder_of(data, len);
    struct message *m = message_new(seq);
    get_format(&r);
    *until_ms = (int64_t)get_be(&r, 8);
    get_state(&r, m, NULL);
    get_body(&r, m);
    bool ended = m->state == MESSAGE_DEAD || m->state == MESSAGE_DONE;
    if (!at_end(&r) || !ended) {
        message_free(m);
        return NULL;
    }
    return m;
}

bool record_whole_died(const char *data, size_t len, int64_t *died_ms)
{
    const size_t before = 8 + 4 + 2 + 8 + 8 + RECEIPT_BYTES + 8 + 8 + 8; /* until, state … lease */
    struct decoder r = decoder_of(data, len);
    bool known = get_format(&r);
    get_bytes(&r, before);
    *died_ms = (int64_t)get_be(&r, 8);
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

bool record_dedup_until(const char *data, size_t len, int64_t *until_ms)
{
    struct decoder r = decoder_of(data, len);
    bool known = get_format(&r);
    *until_ms = (int64_t)get_be(&r, 8);
    return known && r.ok;
}

bool record_get_dedup(const char *data, size_t len, uint32_t queue, struct dedup_hit *hit)
{
    struct decoder r = decoder_of(data, len);
    bool known = get_format(&r);
    hit->until_ms = (int64_t)get_be(&r, 8);
    hit->enqueued_ms = (int64_t)get_be(&r, 8);
    hit->id.queue = queue;
    get_place(&r, &hit->id);
    return known && at_end(&r) && hit->id.slot < LEVEL_COUNT_MAX;
}
