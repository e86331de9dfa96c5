#include "broker/alerts.h"
#include "base/json.h"
#include "base/log.h"
#include "broker/shard.h"
#include "broker/webhook.h"

static const char *const names[ALERT_KIND_COUNT] = {
#define X(symbol, name) [ALERT_##symbol] = name,
    ALERT_KINDS(X)
#undef X
};

void alerts_put(const struct dispatcher *d, enum alert_kind kind, struct buf *out)
{
    char at[TIME_TEXT_MAX];
    time_format_ms(d->shard->now.wall_ms, at);
    buf_lit(out, "{\"queue\":");
    json_put_cstr(out, d->name);
    buf_printf(out, ",\"alert\":\"%s\",\"value\":", names[kind]);
    buf_put_u64(out, d->alerts.value[kind]);
    buf_lit(out, ",\"threshold\":");
    buf_put_u64(out, d->alerts.threshold[kind]);
    buf_printf(out, ",\"at\":\"%s\",\"state\":\"%s\"}", at,
               d->alerts.raised[kind] ? "raised" : "cleared");
}

static void post(const struct dispatcher *d, enum alert_kind kind)
{
    const char *url = d->queue->config.alert_webhook;
    struct buf body = {0};
    if (!*url)
        return;
    alerts_put(d, kind, &body);
    webhooks_post(d->shard->broker->webhooks, d->name, url, &body);
}

static void set(struct dispatcher *d, enum alert_kind kind, bool raised, uint64_t value)
{
    struct alert_watch *w = &d->alerts;
    w->value[kind] = value;
    if (w->raised[kind] == raised)
        return;
    w->raised[kind] = raised;
    w->changed_ms[kind] = d->shard->now.mono_ms;
    log_event(raised ? LOG_WARN : LOG_INFO, raised ? "alert" : "alert cleared",
              "queue=%s kind=%s value=%llu threshold=%llu", d->name, names[kind],
              (unsigned long long)value, (unsigned long long)w->threshold[kind]);
    if (d->shard->alerts.speaks)
        post(d, kind);
}

/* Posts alerts again that the speaker before this one may not have posted: those that are raised,
 * and those that changed a short time ago. */
static void post_again(const struct dispatcher *d)
{
    const struct alert_watch *w = &d->alerts;
    int64_t now_ms = d->shard->now.mono_ms;
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        int64_t changed_ms = w->changed_ms[kind];
        if (w->raised[kind] || (changed_ms > 0 && now_ms - changed_ms < ALERT_AGAIN_MS))
            post(d, (enum alert_kind)kind);
    }
}

/* A threshold of 0 means no threshold: no value reaches it, and an alert that was raised before is
 * cleared. */
static void compare(struct dispatcher *d, enum alert_kind kind, uint64_t threshold, uint64_t value)
{
    if (threshold > 0)
        d->alerts.threshold[kind] = threshold;
    set(d, kind, threshold > 0 && value >= threshold, value);
}

static bool has_threshold(const struct queue_config *c)
{
    return c->alert_dead_letters > 0 || c->alert_oldest_ready_seconds > 0;
}

static void unlink_from(struct alert_list *list, struct dispatcher *d)
{
    struct alert_watch *w = &d->alerts;
    assert(w->watched);
    assert(w->prev ? w->prev->alerts.next == d : list->first == d);
    assert(!w->next || w->next->alerts.prev == d);
    *(w->prev ? &w->prev->alerts.next : &list->first) = w->next;
    if (w->next)
        w->next->alerts.prev = w->prev;
    w->next = w->prev = NULL;
    w->watched = false;
}

static void look(struct dispatcher *d)
{
    assert(d->state == DISPATCHER_OPEN);
    const struct queue_config *c = &d->queue->config;
    const struct queue_view *view = engine_queue_moment(d->queue);
    int64_t age_ms = shard_oldest_ready_ms(d);
    compare(d, ALERT_DEAD_LETTERS, c->alert_dead_letters, view->dead);
    /* While messages are ready but their age is not known, the alert stays as it is. */
    if (age_ms >= 0 || view->ready == 0)
        compare(d, ALERT_OLDEST_READY, (uint64_t)c->alert_oldest_ready_seconds,
                age_ms > 0 ? (uint64_t)age_ms / 1000 : 0);
    if (!has_threshold(c))
        unlink_from(&d->shard->alerts, d);
}

void alerts_watch(struct dispatcher *d)
{
    struct alert_list *list = &d->shard->alerts;
    struct alert_watch *w = &d->alerts;
    if (w->watched || !has_threshold(&d->queue->config))
        return;
    w->watched = true;
    w->prev = NULL;
    w->next = list->first;
    if (list->first)
        list->first->alerts.prev = d;
    else
        list->due_ms = d->shard->now.mono_ms;
    list->first = d;
}

void alerts_forget(struct dispatcher *d)
{
    if (!d->alerts.watched)
        return;
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++)
        set(d, (enum alert_kind)kind, false, 0);
    unlink_from(&d->shard->alerts, d);
}

void alerts_check(struct shard *s)
{
    struct alert_list *list = &s->alerts;
    if (!list->first || s->now.mono_ms < list->due_ms)
        return;
    bool speaks = engine_speaks(s->engine, s->now), begins = speaks && !list->speaks;
    list->speaks = speaks && !begins; /* a change found now is posted once, by post_again() */
    for (struct dispatcher *d = list->first, *next; d; d = next) {
        next = d->alerts.next;
        look(d);
        if (begins)
            post_again(d);
    }
    list->speaks = speaks;
    list->due_ms = s->now.mono_ms + ALERT_TICK_MS;
}

int64_t alerts_due_ms(const struct shard *s)
{
    return s->alerts.first ? s->alerts.due_ms - s->now.mono_ms : INT64_MAX;
}

uint32_t alerts_raised(const struct dispatcher *d)
{
    uint32_t bits = 0;
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++)
        bits |= (uint32_t)d->alerts.raised[kind] << kind;
    return bits;
}
