#include "base/mem.h"
#include "engine/local/field.h"
#include "engine/local/record.h"

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
    /* These came later: who never changed history_ms, and never moved, does not have them. */
    if (c->history_since_ms > 0 || config_moves(c))
        put_be(out, (uint64_t)c->history_since_ms, 8);
    if (config_moves(c)) {
        put_text(out, c->forward_to, strlen(c->forward_to));
        put_text(out, c->forward_token, strlen(c->forward_token));
    }
}

static void get_levels(struct decoder *r, struct queue_config *c)
{
    c->level_count = (uint8_t)get_be(r, 1);
    c->default_rank = (uint8_t)get_be(r, 1);
    if (c->level_count > LEVEL_COUNT_MAX)
        r->ok = false;
    for (int i = 0; r->ok && i < c->level_count; i++) {
        struct level *l = &c->levels[i];
        get_text(r, l->name, sizeof(l->name));
        l->has_number = get_bool(r);
        l->number = (int64_t)get_be(r, 8);
        l->weight = get_double(r);
        l->slot = (uint8_t)get_be(r, 1);
        if (r->format < 2)
            continue;
        l->age_ms = (int64_t)get_be(r, 8);
        l->max_wait_ms = (int64_t)get_be(r, 8);
        l->max_in_flight = (uint32_t)get_be(r, 4);
    }
}

static void get_pauses(struct decoder *r, struct queue_config *c)
{
    c->pause_count = (uint8_t)get_be(r, 1);
    if (c->pause_count > PAUSES_MAX)
        r->ok = false;
    for (int i = 0; r->ok && i < c->pause_count; i++) {
        c->pauses[i].from_ms = (int64_t)get_be(r, 8);
        c->pauses[i].until_ms = (int64_t)get_be(r, 8);
    }
}

bool record_get_queue(const char *data, size_t len, char name[QUEUE_NAME_MAX + 1],
                      struct queue_config *c)
{
    struct decoder r = decoder_of(data, len);
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
    if (r.ok && r.format >= 3 && r.at < r.end)
        c->history_since_ms = (int64_t)get_be(&r, 8);
    if (r.ok && r.format >= 3 && r.at < r.end) {
        get_text(&r, c->forward_to, sizeof(c->forward_to));
        get_text(&r, c->forward_token, sizeof(c->forward_token));
    }
    return at_end(&r) && name[0] && queue_prefix_valid(name, strlen(name)) &&
           policy_parse(policy, &c->policy) && config_valid(c);
}

/* Places */

void record_put_place(struct buf *out, const struct queue_place *place)
{
    static_assert(PLACE_MAP_MAX <= UINT16_MAX, "its length has two bytes");
    assert(place->epoch > 0);
    put_be(out, FORMAT, 1);
    put_be(out, place->epoch, 8);
    put_be(out, place->closed, 1);
    put_text(out, place->map, place->map_len);
}

struct queue_place *record_get_place(const char *data, size_t len)
{
    struct decoder r = decoder_of(data, len);
    get_format(&r);
    uint64_t epoch = get_be(&r, 8);
    bool closed = get_bool(&r);
    size_t map_len = get_be(&r, 2);
    const char *map = map_len <= PLACE_MAP_MAX ? get_bytes(&r, map_len) : NULL;
    bool whole = map && epoch > 0 && at_end(&r);
    return whole ? queue_place_new(epoch, closed, map, (uint32_t)map_len) : NULL;
}

/* Shares */

void record_put_share(struct buf *out, const struct queue_share *share)
{
    assert(share->epoch > 0);
    put_be(out, FORMAT, 1);
    put_be(out, share->epoch, 8);
    put_be(out, SHARE_COUNT, 1);
    for (int i = 0; i < SHARE_COUNT; i++)
        put_be(out, share->most[i], 8);
    put_text(out, share->note, share->note_len);
}

struct queue_share *record_get_share(const char *data, size_t len)
{
    struct decoder r = decoder_of(data, len);
    struct queue_share head = {0};
    get_format(&r);
    head.epoch = get_be(&r, 8);
    bool known = get_be(&r, 1) == SHARE_COUNT;
    for (int i = 0; i < SHARE_COUNT; i++) {
        head.most[i] = get_be(&r, 8);
        known = known && head.most[i] <= SHARE_WHOLE;
    }
    head.note_len = (uint32_t)get_be(&r, 2);
    const char *note = head.note_len <= PLACE_MAP_MAX ? get_bytes(&r, head.note_len) : NULL;
    if (!known || !note || head.epoch == 0 || head.epoch > INT64_MAX || !at_end(&r))
        return NULL;
    struct queue_share *share = mem_alloc(sizeof(*share) + head.note_len);
    memcpy(share, &head, sizeof(head));
    memcpy(share->note, note, head.note_len);
    return share;
}

/* Counters. Totals are written in the order of struct queue_totals. */

#define TOTAL_COUNT (sizeof(struct queue_totals) / sizeof(uint64_t))

static void put_peaks(struct buf *out, const struct peaks *p)
{
    put_be(out, (uint64_t)p->seen_ms, 8);
    put_be(out, p->count, 1);
    for (uint8_t i = 0; i < p->count; i++) {
        put_be(out, (uint64_t)p->at[i].wall_ms, 8);
        put_be(out, p->at[i].before_seq, 8);
    }
}

static void get_peaks(struct decoder *r, struct peaks *p)
{
    *p = (struct peaks){.seen_ms = INT64_MIN};
    if (r->format < 3)
        return;
    p->seen_ms = (int64_t)get_be(r, 8);
    p->count = (uint8_t)get_be(r, 1);
    if (p->count > PEAKS_MAX) {
        p->count = 0;
        r->ok = false;
    }
    for (uint8_t i = 0; i < p->count; i++) {
        p->at[i].wall_ms = (int64_t)get_be(r, 8);
        p->at[i].before_seq = get_be(r, 8);
    }
    if (!peaks_valid(p))
        r->ok = false;
}

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
    put_peaks(out, &c->peaks);
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

#define SEQ_MAX ((1ULL << 48) - 1) /* six bytes of a key */

static void get_lane(struct decoder *r, struct record_lane *l)
{
    l->cold_ready = get_be(r, 8);
    l->cold_scheduled = get_be(r, 8);
    l->dead = get_be(r, 8);
    l->clock_ms = (int64_t)get_be(r, 8);
    l->low_ms = (int64_t)get_be(r, 8);
    l->low_seq = get_be(r, 8);
    bool low = l->low_ms <= TIME_MS_MAX || l->low_ms == INT64_MAX; /* the last: nothing is cold */
    if (!low || l->clock_ms > TIME_MS_MAX || l->cold_ready > SEQ_MAX ||
        l->cold_scheduled > SEQ_MAX || l->dead > SEQ_MAX)
        r->ok = false;
}

bool record_get_counters(const char *data, size_t len, struct record_counters *c)
{
    struct decoder r = decoder_of(data, len);
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
    get_peaks(&r, &c->peaks);
    while (r.ok && r.at < r.end) {
        uint8_t slot = (uint8_t)get_be(&r, 1);
        if (slot >= LEVEL_COUNT_MAX)
            return false;
        get_lane(&r, &c->lanes[slot]);
    }
    return r.ok && c->next_seq > 0 && c->next_seq <= SEQ_MAX;
}
