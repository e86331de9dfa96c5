#include "base/cron.h"
#include "base/mem.h"
#include "engine/local/field.h"
#include "engine/local/record.h"

static void put_draft(struct buf *out, const struct draft *d)
{
    put_be(out, d->kind, 1);
    put_be(out, d->priority.kind, 1);
    put_be(out, (uint64_t)d->priority.number, 8);
    put_text(out, d->priority.name, strlen(d->priority.name));
    put_be(out, (uint64_t)d->delay_ms, 8);
    put_be(out, (uint64_t)d->ttl_ms, 8);
    put_be(out, d->payload_len, 4);
    put_be(out, d->metadata_len, 2);
    put_be(out, d->dedup_len, 2);
    buf_put(out, d->body, (size_t)d->payload_len + d->metadata_len + d->dedup_len);
}

void record_put_schedule(struct buf *out, const struct schedule *s)
{
    put_be(out, FORMAT, 1);
    put_text(out, s->name, strlen(s->name));
    put_be(out, (uint64_t)s->timing.next_ms, 8);
    put_be(out, (uint64_t)s->timing.last_ms, 8);
    put_be(out, s->timing.count, 8);
    put_be(out, s->timing.made_up, 4);
    put_text(out, s->rule.cron, strlen(s->rule.cron));
    put_text(out, s->rule.time_zone, strlen(s->rule.time_zone));
    put_be(out, (uint64_t)s->rule.every_s, 8);
    put_be(out, s->missed, 1);
    put_be(out, s->paused, 1);
    put_be(out, (uint64_t)s->grace_ms, 8);
    put_draft(out, &s->draft);
}

static int64_t get_number(struct decoder *r, int64_t min, int64_t max)
{
    int64_t value = (int64_t)get_be(r, 8);
    if (value < min || value > max)
        r->ok = false;
    return value;
}

static void get_draft(struct decoder *r, struct draft *d)
{
    d->kind = (uint8_t)get_be(r, 1);
    uint64_t priority = get_be(r, 1);
    d->priority.number = (int64_t)get_be(r, 8);
    get_text(r, d->priority.name, sizeof(d->priority.name));
    d->ready_ms = READY_NOW;
    d->delay_ms = get_number(r, 0, DELAY_SECONDS_MAX * 1000);
    d->ttl_ms = get_number(r, TTL_DEFAULT, TTL_SECONDS_MAX * 1000);
    d->payload_len = (uint32_t)get_be(r, 4);
    d->metadata_len = (uint16_t)get_be(r, 2);
    d->dedup_len = (uint16_t)get_be(r, 2);
    if (d->kind > PAYLOAD_BYTES || priority > PRIORITY_NAME ||
        d->payload_len > SCHEDULE_PAYLOAD_MAX || d->metadata_len > SCHEDULE_METADATA_MAX ||
        d->dedup_len > DEDUP_KEY_MAX)
        r->ok = false;
    if (!r->ok)
        return;
    d->priority.kind = priority;
    size_t len = (size_t)d->payload_len + d->metadata_len + d->dedup_len;
    const char *body = get_bytes(r, len);
    if (at_end(r))
        d->body = mem_dup(body, len);
    else
        r->ok = false;
}

/* A rule that is never due would be passed over in silence. */
static bool rule_valid(const struct schedule_rule *rule)
{
    struct cron cron;
    char why[CRON_WHY_MAX];
    return rule->every_s > 0 ? !rule->cron[0]
                             : cron_parse(rule->cron, strlen(rule->cron), &cron, why);
}

bool record_get_schedule(const char *data, size_t len, struct schedule *s)
{
    struct decoder r = decoder_of(data, len);
    *s = (struct schedule){0};
    if (!get_format(&r))
        return false;
    get_text(&r, s->name, sizeof(s->name));
    s->timing.next_ms = get_number(&r, -TIME_MS_MAX, TIME_MS_MAX);
    s->timing.last_ms = get_number(&r, -TIME_MS_MAX, TIME_MS_MAX);
    s->timing.count = get_be(&r, 8);
    s->timing.made_up = (uint32_t)get_be(&r, 4);
    get_text(&r, s->rule.cron, sizeof(s->rule.cron));
    get_text(&r, s->rule.time_zone, sizeof(s->rule.time_zone));
    s->rule.every_s = get_number(&r, 0, SCHEDULE_EVERY_SECONDS_MAX);
    s->missed = (uint8_t)get_be(&r, 1);
    s->paused = get_bool(&r);
    s->grace_ms = get_number(&r, 0, SCHEDULE_GRACE_SECONDS_MAX * 1000LL);
    if (!r.ok || s->missed >= MISSED_COUNT || !s->name[0] || !rule_valid(&s->rule))
        return false;
    get_draft(&r, &s->draft);
    return r.ok;
}
