#include "api/routes.h"

#include "api/auth.h"
#include "api/call.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

#define QUEUE    "/v1/queues/{queue}"
#define MESSAGES QUEUE "/messages"
#define MESSAGE  MESSAGES "/{id}"
#define DEAD     QUEUE "/dead"
#define SCHEDULE QUEUE "/schedules/{name}"

/* Literal segments come before parameters: the first pattern that fits is the resource. */
static const struct route routes[] = {
    /* The table is searched from the top, so the routes that are used most come first. */
    {VERB_POST, MESSAGES, messages_enqueue, ROLE_PRODUCE, ROUTE_CHANGES | ROUTE_QUERY,
     BODY_MESSAGE},
    {VERB_GET, MESSAGES, claim_one, ROLE_CONSUME, ROUTE_CHANGES | ROUTE_QUERY, 0},
    {VERB_POST, MESSAGES "/batch", batch_enqueue, ROLE_PRODUCE, ROUTE_CHANGES, BODY_BATCH},
    {VERB_POST, MESSAGES "/import", import_lines, ROLE_ADMIN, ROUTE_CHANGES | ROUTE_QUERY,
     BODY_IMPORT},
    {VERB_POST, MESSAGES "/claim", claim_one, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/ack", receipts_ack_many, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/nack", receipts_nack_many, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/release", receipts_release_many, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/extend", receipts_extend_many, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/priority", priority_set_many, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/cancel", cancel_many, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGES "/promote", promote_many, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_GET, MESSAGES "/browse", browse_get, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_GET, MESSAGE, message_get, ROLE_READ | ROLE_PRODUCE, 0, 0},
    {VERB_DELETE, MESSAGE, message_delete, ROLE_CONSUME | ROLE_PRODUCE, ROUTE_CHANGES | ROUTE_QUERY,
     0},
    {VERB_POST, MESSAGE "/nack", receipts_nack, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGE "/release", receipts_release, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGE "/extend", receipts_extend, ROLE_CONSUME, ROUTE_CHANGES, 0},
    {VERB_GET, MESSAGE "/position", position_get, ROLE_READ | ROLE_PRODUCE, 0, 0},
    {VERB_POST, MESSAGE "/priority", priority_set, ROLE_PRODUCE, ROUTE_CHANGES, 0},
    {VERB_POST, MESSAGE "/promote", message_promote, ROLE_PRODUCE, ROUTE_CHANGES, 0},

    {VERB_POST, "/v1/claim", claim_many, ROLE_CONSUME, ROUTE_CHANGES, 0},

    {VERB_GET, "/", server_home, 0, ROUTE_OPEN | ROUTE_QUERY, 0},
    {VERB_GET, "/healthz", server_health, 0, ROUTE_OPEN | ROUTE_QUERY, 0},
    {VERB_GET, "/readyz", server_ready, 0, ROUTE_OPEN | ROUTE_QUERY, 0},
    {VERB_GET, "/metrics", metrics_get, ROLE_READ, ROUTE_SERVER | ROUTE_QUERY, 0},
    {VERB_GET, "/openapi.yaml", server_openapi, 0, ROUTE_QUERY, 0},
    {VERB_GET, "/v1/info", server_info, 0, 0, 0},
    {VERB_POST, "/v1/admin/backup", admin_backup, ROLE_ADMIN, ROUTE_SERVER | ROUTE_CHANGES, 0},
    {VERB_GET, "/v1/admin/backup", admin_backup_show, ROLE_ADMIN, ROUTE_SERVER, 0},

    {VERB_GET, "/v1/events", events_get, ROLE_READ, ROUTE_QUERY, 0},

    {VERB_GET, "/v1/cells", cells_list, ROLE_READ, ROUTE_SERVER, 0},
    {VERB_POST, "/v1/cells", cells_post, ROLE_ADMIN, ROUTE_SERVER | ROUTE_CHANGES, 0},

    {VERB_GET, "/v1/queues", queues_list, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_PUT, QUEUE, queues_put, ROLE_ADMIN, ROUTE_CHANGES | ROUTE_QUERY, 0},
    {VERB_PATCH, QUEUE, queues_patch, ROLE_ADMIN, ROUTE_CHANGES | ROUTE_QUERY, 0},
    {VERB_GET, QUEUE, queues_get, ROLE_READ, 0, 0},
    {VERB_DELETE, QUEUE, queues_delete, ROLE_ADMIN, ROUTE_CHANGES | ROUTE_QUERY, 0},
    {VERB_POST, QUEUE "/purge", queues_purge, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, QUEUE "/pause", queues_pause, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, QUEUE "/resume", queues_resume, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_GET, QUEUE "/stats", stats_get, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_GET, QUEUE "/history", history_get, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_GET, QUEUE "/placement", placement_get, ROLE_READ, 0, 0},
    {VERB_POST, QUEUE "/placement", placement_post, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, QUEUE "/move", move_begin, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_GET, QUEUE "/move", move_show, ROLE_READ, 0, 0},
    {VERB_DELETE, QUEUE "/move", move_end, ROLE_ADMIN, ROUTE_CHANGES | ROUTE_QUERY, 0},
    {VERB_GET, QUEUE "/export", export_lines, ROLE_READ, ROUTE_QUERY, 0},

    {VERB_GET, QUEUE "/schedules", schedules_list, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_PUT, SCHEDULE, schedules_put, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_GET, SCHEDULE, schedules_get, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_DELETE, SCHEDULE, schedules_delete, ROLE_ADMIN, ROUTE_CHANGES, 0},

    {VERB_GET, DEAD, dead_list, ROLE_READ, ROUTE_QUERY, 0},
    {VERB_POST, DEAD "/redrive", dead_redrive, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, DEAD "/purge", dead_purge, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_GET, DEAD "/{id}", dead_get, ROLE_READ, 0, 0},
    {VERB_DELETE, DEAD "/{id}", dead_delete, ROLE_ADMIN, ROUTE_CHANGES, 0},
    {VERB_POST, DEAD "/{id}/redrive", dead_amend, ROLE_ADMIN, ROUTE_CHANGES, BODY_MESSAGE},
};

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

struct segments {
    uint32_t count;
    struct http_slice at[ROUTE_SEGMENTS_MAX];
};

/* The patterns, split once: a path is then compared with few of them, last segment first. */
static struct segments split[ROUTE_COUNT];
static pthread_once_t split_once = PTHREAD_ONCE_INIT;

static bool segments_split(const char *path, size_t len, struct segments *s)
{
    const char *at = path + 1, *end = path + len;
    s->count = 0;
    for (;;) {
        if (s->count == ROUTE_SEGMENTS_MAX)
            return false;
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *stop = slash ? slash : end;
        s->at[s->count++] = (struct http_slice){at, (size_t)(stop - at)};
        if (!slash)
            return true;
        at = slash + 1;
    }
}

static void split_all(void)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        bool fits = segments_split(routes[i].pattern, strlen(routes[i].pattern), &split[i]);
        assert(fits);
    }
}

static bool is_parameter(struct http_slice segment)
{
    return segment.len > 0 && segment.data[0] == '{';
}

static bool segments_match(const struct segments *pattern, const struct segments *path)
{
    if (pattern->count != path->count)
        return false;
    for (uint32_t i = path->count; i-- > 0;) {
        struct http_slice want = pattern->at[i], have = path->at[i];
        if (is_parameter(want))
            continue;
        if (want.len != have.len || memcmp(want.data, have.data, want.len) != 0)
            return false;
    }
    return true;
}

static bool verb_fits(const struct route *r, enum http_verb verb)
{
    return r->verb == verb ||
           (verb == VERB_HEAD && r->verb == VERB_GET && !(r->flags & ROUTE_CHANGES));
}

static void allow_add(const struct route *r, char *allow, size_t room)
{
    static const char *const names[] = {[VERB_GET] = "GET",
                                        [VERB_POST] = "POST",
                                        [VERB_PUT] = "PUT",
                                        [VERB_PATCH] = "PATCH",
                                        [VERB_DELETE] = "DELETE"};
    size_t len = strlen(allow);
    const char *head = verb_fits(r, VERB_HEAD) ? ", HEAD" : "";
    snprintf(allow + len, room - len, "%s%s%s", len ? ", " : "", names[r->verb], head);
}

static void parameters_take(const struct segments *pattern, const struct segments *path,
                            struct route_match *match)
{
    for (uint32_t i = 0; i < pattern->count; i++) {
        if (!is_parameter(pattern->at[i]))
            continue;
        if (pattern->at[i].data[1] == 'q')
            match->queue = path->at[i];
        else if (pattern->at[i].data[1] == 'n')
            match->name = path->at[i];
        else
            match->id = path->at[i];
    }
}

void route_find(enum http_verb verb, const char *path, size_t len, struct route_match *match)
{
    struct segments s;
    match->route = NULL;
    match->known = false;
    match->allow[0] = '\0';
    pthread_once(&split_once, split_all);
    if (len == 0 || path[0] != '/' || !segments_split(path, len, &s))
        return;
    size_t first = 0;
    while (first < ROUTE_COUNT && !segments_match(&split[first], &s))
        first++;
    for (size_t i = first; i < ROUTE_COUNT; i++) {
        if (i != first && strcmp(routes[i].pattern, routes[first].pattern) != 0)
            break; /* the methods of one resource stand together */
        if (verb_fits(&routes[i], verb)) {
            match->route = &routes[i];
            parameters_take(&split[i], &s, match);
            return;
        }
        allow_add(&routes[i], match->allow, sizeof(match->allow));
        match->known = true;
    }
}

void route_parameters(const struct route *route, const char *path, size_t len,
                      struct route_match *match)
{
    struct segments s;
    const struct segments *pattern = &split[route - routes];
    bool fits = segments_split(path, len, &s);
    assert(fits);
    assert(segments_match(pattern, &s));
    parameters_take(pattern, &s, match);
}

const struct route *route_at(size_t i)
{
    return i < ROUTE_COUNT ? &routes[i] : NULL;
}

static const struct body_rule {
    size_t max;
    uint8_t media; /* bits */
    const char *advice;
} bodies[] = {
    [BODY_SMALL] =
        {SMALL_BODY_MAX, 1 << MEDIA_JSON,
         "Send Content-Type: application/json, also without a body; with curl: --json '{}'."},
    [BODY_MESSAGE] = {MESSAGE_BODY_MAX, 1 << MEDIA_JSON | 1 << MEDIA_BYTES,
                      "Send Content-Type: application/json (with curl --json in place of -d), or "
                      "application/octet-stream with the payload itself as the body."},
    [BODY_BATCH] = {HTTP_BODY_MAX, 1 << MEDIA_JSON | 1 << MEDIA_NDJSON,
                    "Send Content-Type: application/json (with curl --json in place of -d), or "
                    "application/x-ndjson with one message a line."},
    [BODY_IMPORT] = {HTTP_BODY_MAX, 1 << MEDIA_NDJSON,
                     "Send Content-Type: application/x-ndjson with one exported message a line."},
};

size_t route_body_max(enum route_body body)
{
    return bodies[body].max;
}

bool route_takes(enum route_body body, enum media media)
{
    return bodies[body].media >> media & 1;
}

const char *route_advice(enum route_body body)
{
    return bodies[body].advice;
}
