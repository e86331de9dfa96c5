/* One HTTP request under way, from its handler to its answer, and what the
 * handlers share. Private to src/api.
 *
 * A handler reads the request (its text is gone when the handler returns), fills
 * in c->request and ends in exactly one of call_submit, call_reply, call_refuse.
 * After call_submit the call is the broker's until finish; a request that failed
 * is answered without finish being called. Callbacks of the request that run on a
 * shard's thread may touch the call and nothing of the api. */
#ifndef TRIAGE_API_CALL_H
#define TRIAGE_API_CALL_H

#include "api/api.h"
#include "api/fields.h"
#include "api/problem.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "broker/broker.h"

struct auth_token;
struct call;
struct route;

#define CALLS_SPARE_MAX 1024
#define CALL_KEEP_MAX   (64 * 1024) /* a buffer larger than this is given back */

struct api {
    struct broker_port *port;
    struct api_options options;
    struct json_doc doc; /* the body of the request in hand */
    struct buf scratch;  /* its decoded query */
    struct call *spare;
    uint32_t spare_count;
};

typedef void call_finish(struct call *c);
typedef void call_cleanup(struct call *c);

/* Where a listing stands that is fetched in steps, so that an answer stays within OUTPUT_BUDGET. */
struct listing {
    uint32_t limit;
    uint32_t shown;
    struct message_id last; /* shown last */
    call_finish *finish;
};

struct call {
    struct request request;
    struct api *api;
    struct http_request *http;
    const struct route *route;
    const struct auth_token *token; /* NULL: anonymous */
    call_finish *finish;
    call_cleanup *cleanup; /* frees `extra`; NULL: free() does */
    struct message_id id;  /* {id} of the path */
    struct buf out;        /* the answer */
    struct buf text;       /* what of the request has to outlive the handler */
    void *extra;           /* owned; arrays of batches and listings */
    union {
        struct put_item put;
        struct settle_item settle;
        struct listing listing;
    };
    struct call *next; /* while spare */
};

static inline struct call *call_of(struct request *r)
{
    return container_of(r, struct call, request);
}

static inline struct call *call_of_op(struct engine_op *op)
{
    return call_of(container_of(op, struct request, op));
}

struct call *call_new(struct api *api, struct http_request *http);
void call_submit(struct call *c, enum request_kind kind, call_finish *finish);
void call_end_with_peer(struct call *c); /* before it is submitted: the broker hears of a hang-up */
void call_again(struct call *c); /* in finish: once more, with what was changed in c->request */

/* Answer with c->out and end the call. `type` NULL is JSON. */
void call_reply(struct call *c, int http_status);
void call_reply_as(struct call *c, int http_status, const char *type, const char *headers);

void call_refuse(struct call *c, const struct problem *p);
void call_refuse_as(struct call *c, enum status status, const char *field, const char *detail);

/* The body as fields of a table, or the query; false when the call was refused and is gone. An
 * empty body is an empty object. */
MUST_USE bool call_body(struct call *c, const struct field_table *table, void *target);
MUST_USE bool call_json(struct call *c); /* only parsed, into api->doc */
MUST_USE bool call_query(struct call *c, const struct field_table *table, void *target);

/* The next line of a body that has something in it; false at the end. */
bool call_line(const char **at, const char *end, const char **line, size_t *len);

/* The problem of a request or an item that came back with `status`. */
void call_problem(const struct call *c, enum status status, struct problem *p);

enum media { MEDIA_JSON, MEDIA_BYTES, MEDIA_NDJSON, MEDIA_OTHER };
enum media media_of(struct http_slice content_type); /* absent is JSON */

bool queue_name_valid(const char *name, size_t len);
bool queue_prefix_valid(const char *prefix, size_t len); /* what a name may start with */

/* Handlers, by the file they live in. */
typedef void call_handler(struct call *c);
call_handler messages_enqueue, messages_claim;                                 /* messages.c */
call_handler batch_enqueue;                                                    /* batch.c */
call_handler import_lines;                                                     /* import.c */
call_handler receipts_nack, receipts_release, receipts_extend, receipts_batch; /* receipts.c */
call_handler priority_set, priority_set_many, position_get;                    /* priority.c */
call_handler lookup_get, lookup_delete, lookup_export;                         /* lookup.c */
call_handler queues_put, queues_get, queues_list, queues_delete, queues_purge, queues_pause,
    queues_resume;                                                                  /* queues.c */
call_handler dead_list, dead_get, dead_delete, dead_redrive, dead_purge;            /* dead.c */
call_handler stats_get;                                                             /* stats.c */
call_handler metrics_get;                                                           /* metrics.c */
call_handler server_home, server_health, server_ready, server_info, server_openapi; /* server.c */

void messages_put_result(struct call *c, const struct put_item *item); /* appends to c->out */
void receipts_ack(struct call *c, struct http_slice receipt);          /* DELETE with a receipt */
void lookup_show(struct call *c); /* in finish: answers with the message as it is now */

/* Fetches a listing in steps; each message is encoded by op.visit. finish is called at the end,
 * with request.op.list.more telling whether anything is left. */
#define OUTPUT_BUDGET (24 * 1024 * 1024)
void listing_start(struct call *c, call_finish *finish);
bool listing_take_limit(struct field *f, void *call); /* the `limit` parameter of one */

#endif
