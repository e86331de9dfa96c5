/* The stream of server-sent events: what changes in queues, while somebody listens. At most once a
 * second a stream has the broker look for queues that changed since its last look (broker/watch.c),
 * and sends what was found. While nobody listens nothing is done.
 *
 * A look begins only when the client has read everything that was found before. So a slow client
 * gets fewer looks and sees the same in the end, and nothing is kept for it but the last look. What
 * a look finds is counted in the client's budget; a look for which there is no room ends the
 * stream.
 *
 * The id of an event is the run of the server and the number of the look. A client that gives it
 * back is shown what changed since then. */
#include "api/auth.h"
#include "api/call.h"
#include "api/config.h"
#include "api/encode.h"
#include "api/stats.h"
#include "base/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define LOOK_MS       1000
#define KEEP_ALIVE_MS 15000        /* without an event: a comment */
#define SLICE_SIZE    (128 * 1024) /* written in one turn */
#define EVENT_ROOM    (256 * 1024) /* that has to be left for an event, its copies and the buffer */

struct events {
    struct watcher watch;
    bool synced;  /* the whole picture was sent */
    bool looking; /* the broker has the call's request, and its shards write to c->out */
    bool ending;
    bool cramped; /* there was no room for all events */
    size_t sent;  /* bytes of c->out */
    int64_t looked_ms, spoke_ms;
    bool levels;
    char prefix[QUEUE_NAME_MAX + 1];
    uint32_t queue_count; /* 0: all */
    struct queue_name queues[EVENT_QUEUES_MAX];
};

static struct events *events_of(const struct call *c)
{
    assert(c->extra);
    return c->extra;
}

/* On the shards' threads */

static bool wanted(const struct call *c, const char *name)
{
    const struct events *ev = events_of(c);
    bool named = ev->queue_count == 0;
    for (uint32_t i = 0; i < ev->queue_count && !named; i++)
        named = strcmp(ev->queues[i].text, name) == 0;
    return named && strncmp(name, ev->prefix, strlen(ev->prefix)) == 0 &&
           (!c->token || auth_allows(c->token, 0, name));
}

static bool has_room(struct call *c)
{
    struct events *ev = events_of(c);
    call_count(c);
    if (!ev->cramped && c->out.cap - c->out.len < EVENT_ROOM)
        ev->cramped = account_room(c->account, BUDGET_BYTES) < c->out.cap / 4 + EVENT_ROOM;
    return !ev->cramped;
}

static void put_alerts(struct buf *out, const struct queue_facts *facts)
{
    static const char *const names[ALERT_KIND_COUNT] = {
#define X(symbol, name) [ALERT_##symbol] = name,
        ALERT_KINDS(X)
#undef X
    };
    const char *comma = "";
    buf_lit(out, ",\"alerts\":[");
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        if (!(facts->alerts >> kind & 1))
            continue;
        buf_printf(out, "%s\"%s\"", comma, names[kind]);
        comma = ",";
    }
    buf_putc(out, ']');
}

static void put_oldest(struct buf *out, const struct queue_facts *facts)
{
    buf_lit(out, ",\"oldest_ready_at\":");
    if (facts->oldest_ready_ms < 0)
        buf_lit(out, "null");
    else
        encode_time(out, clock_now().wall_ms - facts->oldest_ready_ms);
}

static void put_totals(struct buf *out, const struct queue_totals *t)
{
    buf_printf(out,
               ",\"totals\":{\"enqueued\":%" PRIu64 ",\"claimed\":%" PRIu64 ",\"acked\":%" PRIu64
               ",\"nacked\":%" PRIu64 ",\"lease_expired\":%" PRIu64 ",\"dead\":%" PRIu64 "}",
               t->enqueued, t->claimed, t->acked, t->nacked, t->lease_expired, t->dead);
}

static void put_numbers(struct buf *out, const struct queue_facts *facts, bool levels)
{
    struct queue_row row;
    stats_row(facts, &row);
    buf_lit(out, "event: queue\ndata: {\"queue\":");
    json_put_cstr(out, row.name);
    buf_printf(out,
               ",\"ready\":%" PRIu64 ",\"scheduled\":%" PRIu64 ",\"in_flight\":%" PRIu64
               ",\"dead\":%" PRIu64 ",\"depth\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"waiting_consumers\":%" PRIu64 ",\"paused\":%s",
               row.ready, row.scheduled, row.leased, row.dead, row.ready + row.scheduled, row.bytes,
               row.waiting, row.paused ? "true" : "false");
    put_oldest(out, facts);
    put_alerts(out, facts);
    if (levels)
        stats_levels_put(out, facts);
    put_totals(out, &row.totals);
    buf_lit(out, "}\n\n");
}

static void show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    const struct events *ev = events_of(c);
    if (!wanted(c, facts->queue->name) || !has_room(c))
        return;
    if (facts->changes & CHANGE_CONFIG) {
        buf_lit(&c->out, "event: config\ndata: ");
        config_put(&c->out, facts->queue->name, &facts->queue->config);
        buf_lit(&c->out, "\n\n");
    }
    if (facts->changes & (CHANGE_NUMBERS | CHANGE_CONFIG))
        put_numbers(&c->out, facts, ev->levels);
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        if (!(facts->changes & (uint32_t)CHANGE_ALERT << kind))
            continue;
        buf_lit(&c->out, "event: alert\ndata: ");
        broker_alert_put(facts, (enum alert_kind)kind, &c->out);
        buf_lit(&c->out, "\n\n");
    }
}

static void gone(struct request *r, const char *queue)
{
    struct call *c = call_of(r);
    if (!wanted(c, queue) || !has_room(c))
        return;
    buf_lit(&c->out, "event: deleted\ndata: {\"queue\":");
    json_put_cstr(&c->out, queue);
    buf_lit(&c->out, "}\n\n");
}

/* A look */

static void put_id(struct call *c)
{
    buf_printf(&c->out, "id: %016" PRIx64 "-%" PRIu64 "\n", broker_epoch(c->api->options.broker),
               events_of(c)->watch.now);
}

/* An id without data is remembered by clients, and is no event to them. */
static void looked(struct request *r)
{
    struct call *c = call_of(r);
    struct events *ev = events_of(c);
    ev->looking = false;
    if (ev->cramped)
        account_note(c->account, BUDGET_REFUSED_ANSWER);
    if (ev->ending || ev->cramped || r->status == STATUS_DRAINING) {
        call_close(c);
        return;
    }
    if (r->status || ev->watch.lost) { /* again, with the whole picture when queues were missed */
        call_sent(c);
        ev->synced = ev->synced && r->status;
        return;
    }
    if (!ev->synced)
        buf_lit(&c->out, "event: synced\ndata: {}\n");
    if (c->out.len > 0) {
        put_id(c);
        buf_putc(&c->out, '\n');
        http_stream_more(c->http);
    }
    ev->synced = true;
    ev->watch.since = ev->watch.now;
}

static void look(struct call *c)
{
    struct events *ev = events_of(c);
    struct request *r = &c->request;
    ev->looked_ms = clock_now().mono_ms;
    ev->looking = true;
    ev->sent = 0;
    if (!ev->synced) {
        ev->watch.since = 0;
        buf_lit(&c->out, "event: snapshot\ndata: {}\n\n");
    }
    request_init(r);
    r->kind = REQUEST_QUEUES;
    r->done = looked;
    r->show.each = show;
    r->show.watch = &ev->watch;
    broker_submit(c->api->port, r);
}

/* The stream */

/* Tokens may have been exchanged: then the client has to show its own again. */
static bool is_stale(struct call *c)
{
    struct api *api = c->api;
    if (!c->auth)
        return false;
    auth_refresh(api->options.auth, &api->auth);
    return api->auth != c->auth;
}

static void write_slice(struct call *c, int64_t now_ms)
{
    struct events *ev = events_of(c);
    size_t left = c->out.len - ev->sent;
    size_t slice = left < SLICE_SIZE ? left : SLICE_SIZE;
    http_stream_write(c->http, c->out.data + ev->sent, slice);
    ev->sent += slice;
    ev->spoke_ms = now_ms;
    if (slice < left)
        http_stream_more(c->http);
    else
        call_sent(c);
}

static void tick(struct http_request *req)
{
    struct call *c = call_of_http(req);
    struct events *ev = events_of(c);
    int64_t now_ms = clock_now().mono_ms;
    if (ev->looking)
        return;
    if (c->out.len > 0) {
        write_slice(c, now_ms);
    } else if (is_stale(c)) {
        call_close(c);
    } else if (now_ms - ev->spoke_ms >= KEEP_ALIVE_MS) {
        http_stream_write(req, ":\n\n", 3);
        ev->spoke_ms = now_ms;
    } else if (now_ms - ev->looked_ms >= LOOK_MS) {
        look(c);
    }
}

static void hang_up(struct http_request *req)
{
    struct call *c = call_of_http(req);
    struct events *ev = events_of(c);
    ev->ending = true;
    if (!ev->looking)
        call_close(c);
}

/* Where an earlier stream of this run of the server ended. An id of another run, or none at all,
 * begins with the whole picture. */
static void resume(struct call *c, struct http_slice id)
{
    struct events *ev = events_of(c);
    char text[40], epoch[17];
    uint64_t look;
    if (id.len == 0 || id.len >= sizeof(text))
        return;
    memcpy(text, id.data, id.len);
    text[id.len] = '\0';
    snprintf(epoch, sizeof(epoch), "%016" PRIx64, broker_epoch(c->api->options.broker));
    if (strncmp(text, epoch, 16) != 0 || sscanf(text + 16, "-%" SCNu64, &look) != 1 || look == 0)
        return;
    ev->watch.since = look;
    ev->synced = true;
}

static bool take_name(struct field *f, char out[QUEUE_NAME_MAX + 1])
{
    const char *name;
    size_t len;
    if (!field_text(f, 0, QUEUE_NAME_MAX, &name, &len))
        return false;
    if (!queue_prefix_valid(name, len))
        return field_refuse(f, "must be the name of a queue, or the start of one.");
    memcpy(out, name, len);
    out[len] = '\0';
    return true;
}

static bool take_queue(struct field *f, void *target)
{
    struct events *ev = target;
    if (ev->queue_count == EVENT_QUEUES_MAX)
        return field_refuse(f, "may be given 32 times; use prefix for more queues.");
    return take_name(f, ev->queues[ev->queue_count++].text);
}

static bool take_prefix(struct field *f, void *target)
{
    return take_name(f, ((struct events *)target)->prefix);
}

static bool take_levels(struct field *f, void *target)
{
    return field_bool(f, &((struct events *)target)->levels);
}

void events_get(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD_REPEATED("queue", take_queue),
        FIELD("prefix", take_prefix),
        FIELD("levels", take_levels),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct events *ev = c->extra = mem_zalloc(sizeof(*ev));
    ev->watch.gone = gone;
    if (!call_query(c, &table, ev))
        return;
    if (c->http->verb == VERB_HEAD) {
        call_reply_as(c, 200, "text/event-stream", NULL);
        return;
    }
    if (!http_wait(c->http, 1)) {
        call_refuse_as(c, STATUS_OVERLOADED, NULL,
                       "Too many clients wait already; try again after Retry-After.");
        return;
    }
    resume(c, http_header(c->http, "Last-Event-ID"));
    ev->spoke_ms = clock_now().mono_ms;
    ev->looked_ms = ev->spoke_ms - LOOK_MS;
    c->http->user = c;
    c->http->on_hangup = hang_up;
    http_stream_begin(c->http, "text/event-stream", "Cache-Control: no-store\r\n", tick);
}
