#include "core/schedule.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/cron.h"
#include "base/json.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

static_assert(SCHEDULE_METADATA_MAX < METADATA_MAX, "what the server adds has room");
static_assert(SCHEDULE_METADATA_KEYS_MAX + 2 <= METADATA_KEYS_MAX, "schedule and due_at");
static_assert(SCHEDULE_PAYLOAD_MAX <= PAYLOAD_MAX, "it is a message's");
static_assert(SCHEDULE_NEVER <= TIME_MS_MAX, "it is a time");
static_assert(MISSED_COUNT <= UINT8_MAX, "missed");

const char *const missed_names[MISSED_COUNT] = {
#define X(symbol, name) [MISSED_##symbol] = name,
    MISSED_KINDS(X)
#undef X
};

void schedule_fini(struct schedule *s)
{
    draft_fini(&s->draft);
}

static size_t body_len(const struct draft *d)
{
    return (size_t)d->payload_len + d->metadata_len + d->dedup_len;
}

void schedule_copy(struct schedule *to, const struct schedule *from)
{
    *to = *from;
    to->draft.body = mem_dup(from->draft.body, body_len(&from->draft));
}

int64_t schedule_next(const struct schedule_rule *rule, const struct zone *zone, int64_t after_ms)
{
    int64_t after_s = floor_div(after_ms, 1000), next_s;
    struct cron cron;
    char why[CRON_WHY_MAX];
    if (rule->every_s > 0)
        next_s = (floor_div(after_s, rule->every_s) + 1) * rule->every_s;
    else if (cron_parse(rule->cron, strlen(rule->cron), &cron, why))
        next_s = cron_next(&cron, zone, after_s);
    else
        return SCHEDULE_NEVER;
    return next_s < SCHEDULE_NEVER / 1000 ? next_s * 1000 : SCHEDULE_NEVER;
}

static bool rule_same(const struct schedule_rule *a, const struct schedule_rule *b)
{
    return a->every_s == b->every_s && strcmp(a->cron, b->cron) == 0 &&
           strcmp(a->time_zone, b->time_zone) == 0;
}

void schedule_inherit(struct schedule *s, const struct schedule *old)
{
    int64_t next_ms = s->paused ? SCHEDULE_NEVER : s->timing.next_ms;
    s->timing = old ? old->timing : (struct schedule_timing){.last_ms = SCHEDULE_NEVER_YET};
    if (old && !old->paused && !s->paused && rule_same(&old->rule, &s->rule))
        return;
    s->timing.next_ms = next_ms;
    s->timing.made_up = 0;
}

int schedule_rank(const struct schedule *s, const struct queue_config *config)
{
    const struct priority_ref *priority = &s->draft.priority;
    return priority->kind == PRIORITY_DEFAULT ? -1 : levels_resolve(config, priority);
}

bool schedule_name_level(struct schedule *s, const struct level *level)
{
    struct priority_ref *priority = &s->draft.priority;
    if (priority->kind == PRIORITY_NAME && strcmp(priority->name, level->name) == 0)
        return false;
    *priority = (struct priority_ref){.kind = PRIORITY_NAME};
    memcpy(priority->name, level->name, sizeof(priority->name));
    return true;
}

/* The last due time that is not after now; at least due_ms itself. */
static int64_t last_due(const struct schedule_rule *rule, const struct zone *zone, int64_t due_ms,
                        int64_t now_ms)
{
    int64_t low = floor_div(due_ms, 1000) - 1, high = floor_div(now_ms, 1000);
    while (low + 1 < high) { /* after `low` comes a due time up to now, after `high` none */
        int64_t middle = low + (high - low) / 2;
        if (schedule_next(rule, zone, middle * 1000) <= now_ms)
            low = middle;
        else
            high = middle;
    }
    return schedule_next(rule, zone, low * 1000);
}

struct schedule_step schedule_decide(const struct schedule *s, const struct zone *zone,
                                     int64_t now_ms)
{
    int64_t due_ms = s->timing.next_ms;
    bool late = now_ms - due_ms > s->grace_ms;
    bool each = !late || (s->missed == MISSED_ALL && s->timing.made_up < SCHEDULE_MADE_UP_MAX);
    assert(due_ms <= now_ms);
    assert(s->missed < MISSED_COUNT);
    struct schedule_step step = {
        .due_ms = due_ms,
        .next_ms = schedule_next(&s->rule, zone, each ? due_ms : now_ms),
        .puts = each || s->missed == MISSED_ONCE,
        .at_ms = due_ms,
        .made_up = late && each ? s->timing.made_up + 1 : 0,
    };
    if (!each && step.puts)
        step.at_ms = last_due(&s->rule, zone, due_ms, now_ms);
    assert(step.next_ms > due_ms); /* a schedule never goes back */
    return step;
}

struct schedule_timing schedule_after(const struct schedule_timing *t, struct schedule_step *step)
{
    assert(step->due_ms == t->next_ms);
    struct schedule_timing after = *t;
    step->puts = step->puts && step->at_ms > t->last_ms;
    after.next_ms = step->next_ms;
    after.made_up = step->made_up;
    after.count += step->puts;
    if (step->puts)
        after.last_ms = step->at_ms;
    return after;
}

void schedule_draft(const struct schedule *s, int64_t due_ms, struct draft *out)
{
    const struct draft *d = &s->draft;
    const char *metadata = d->body + d->payload_len;
    char time[TIME_TEXT_MAX];
    struct buf body = {0};
    size_t time_len = time_format_ms(due_ms, time);
    buf_put(&body, d->body, d->payload_len);
    buf_lit(&body, "{\"schedule\":");
    json_put_cstr(&body, s->name);
    buf_lit(&body, ",\"due_at\":");
    json_put_string(&body, time, time_len);
    if (d->metadata_len > 0) { /* append its members, without the opening brace */
        buf_putc(&body, ',');
        buf_put(&body, metadata + 1, d->metadata_len - 1U);
    } else {
        buf_putc(&body, '}');
    }
    *out = *d;
    out->seq_min = 0;
    out->metadata_len = (uint16_t)(body.len - d->payload_len);
    assert(out->metadata_len <= METADATA_MAX);
    buf_put(&body, metadata + d->metadata_len, d->dedup_len);
    out->body = buf_take(&body);
}
