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
#include "api/routes.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tag.h"
#include "broker/broker.h"
#include "net/budget.h"

struct auth_token;
struct auth_version;
struct body;
struct call;
struct relay;
struct request_table;

#define CALLS_SPARE_MAX 1024
#define CALL_KEEP_MAX   (64 * 1024) /* a buffer larger than this is given back */

/* What api_admit() found out about the request, for its handler. */
struct entry {
    const struct route *route;
    const struct auth_token *token; /* NULL: anonymous */
    struct message_id id;
    size_t queue_len;
    char queue[QUEUE_NAME_MAX + 1]; /* empty: the path names no queue */
    char name[QUEUE_NAME_MAX + 1];  /* of a schedule; empty: the path names none */
};

struct api {
    uint32_t tag; /* API_TAG */
    struct broker_port *port;
    struct api_options options;
    struct turn_watch *turns;    /* NULL: requests are not timed */
    struct request_table *times; /* with `turns` */
    struct auth_version *auth;   /* held: the tokens in force when the last request came */
    struct entry entry;
    struct { /* the last Host that was good, and for which sockets: clients repeat their Host */
        char text[64];
        size_t len;
        bool local;
    } host;
    char allow[80];      /* the header of a 405 */
    struct json_doc doc; /* the parsed body of the request that is being handled */
    struct buf scratch;  /* … and its decoded query */
    struct call *spare;
    uint32_t spare_count;
};

typedef void call_finish(struct call *c);
typedef void call_cleanup(struct call *c);

/* What a step of reading a body came to: see body.h. */
enum body_step {
    BODY_MORE,
    BODY_END,
    BODY_REFUSED, /* the call was refused, and is gone with the body */
};
typedef enum body_step body_reader(struct call *c);

struct call_reading {
    struct body *body;
    body_reader *read;
    call_finish *then;
    bool ended; /* nothing is left to read */
};

/* Where a listing stands that is fetched in steps. */
struct listing {
    uint32_t limit;
    uint32_t shown;
    struct message_id last; /* shown last */
    call_finish *finish;
};

struct call {
    uint32_t tag;      /* CALL_TAG, until it is answered */
    bool shows;        /* the change is made; the message is read for the answer alone */
    bool waits;        /* its answer may come whenever it likes: it is timed apart */
    uint64_t began_us; /* by the clock of api->turns */
    struct api *api;
    struct http_request *http;
    const struct route *route;
    const struct auth_token *token; /* NULL: anonymous */
    struct auth_version *auth;      /* held, for the token */
    call_finish *finish;
    call_cleanup *cleanup;   /* frees `extra`; NULL: free() does */
    struct buf out;          /* the answer */
    struct account *account; /* the account in which `out` is counted while it grows … */
    size_t counted;          /* … and how many bytes of it are */
    struct buf text;         /* copies of request text that outlive the handler */
    void *extra;             /* owned; arrays of batches and listings */
    struct relay *relay;     /* owned: it went on at another server; NULL: it did not */
    struct call *next;       /* while spare */
    struct request request;  /* large: what every call needs stands before it, close together */
    struct message_id id;    /* {id} of the path */
    char name[QUEUE_NAME_MAX + 1]; /* {name} of the path */
    union {
        struct put_item put;
        struct settle_item settle;
        struct listing listing;
        struct call_reading reading;
    };
};

#define API_TAG  TAG('a', 'p', 'i', ' ')
#define CALL_TAG TAG('c', 'a', 'l', 'l')

static inline struct api *api_of(void *ctx)
{
    struct api *api = (struct api *)ctx;
    tag_check(api->tag, API_TAG);
    return api;
}

static inline struct call *call_checked(struct call *c)
{
    tag_check(c->tag, CALL_TAG);
    return c;
}

static inline struct call *call_of(struct request *r)
{
    return call_checked(container_of(r, struct call, request));
}

static inline struct call *call_of_http(const struct http_request *req)
{
    return call_checked((struct call *)req->user);
}

static inline struct call *call_of_op(struct engine_op *op)
{
    return call_of(container_of(op, struct request, op));
}

struct call *call_new(struct api *api, struct http_request *http);
void call_submit(struct call *c, enum request_kind kind, call_finish *finish);
void call_renew(struct call *c); /* in finish: its request is zero again, but for the queue */
void call_end_with_peer(struct call *c); /* before call_submit: the broker hears of a hang-up */
void call_again(struct call *c);         /* in finish: submits c->request again, as it is now */

/* To be called after something was added to c->out, on any thread: counts it in the client's
 * budget. */
void call_count(struct call *c);
/* How many messages are sure to fit into what the client's budget has left. */
uint32_t call_room(const struct call *c);
/* The same for an answer that is not in c->out: `bytes` of it are held now. */
void call_count_bytes(struct call *c, size_t bytes);
uint64_t call_bytes_left(const struct call *c); /* of the client's budget */
/* To be called before a message is asked for that the answer will show. False: there is no room for
 * it, and the call was refused. */
MUST_USE bool call_has_room(struct call *c);
void call_refuse_no_room(struct call *c); /* the same refusal, for an answer of another kind */

/* Answer with c->out and end the call. `type` NULL is JSON. */
void call_reply(struct call *c, int http_status);
void call_reply_as(struct call *c, int http_status, const char *type, const char *headers);

/* For an answer that is a stream (http_stream_begin): c->out was sent; and the end of both. */
void call_sent(struct call *c);
void call_close(struct call *c);

void call_refuse(struct call *c, const struct problem *p);
void call_refuse_as(struct call *c, enum status status, const char *field, const char *detail);

/* Read the body as fields of a table, the body as JSON into api->doc, or the query as fields of a
 * table. False: the call was refused, and is gone. An empty body is an empty object. */
MUST_USE bool call_body(struct call *c, const struct field_table *table, void *target);
MUST_USE bool call_json(struct call *c);
MUST_USE bool call_query(struct call *c, const struct field_table *table, void *target);

/* Parses a body that must not be empty into api->doc. False: the caller has to answer with the
 * problem. */
MUST_USE bool call_parse(struct call *c, uint32_t tokens_max, struct problem *p);

/* The next line of a body that is not blank; false at the end. */
bool call_line(const char **at, const char *end, const char **line, size_t *len);

/* Makes the problem document of a request or an item that came back with `status`. */
void call_problem(const struct call *c, enum status status, struct problem *p);

enum media media_of(struct http_slice content_type); /* absent is MEDIA_OTHER */

bool queue_name_valid(const char *name, size_t len);

/* Handlers, by the file they live in. */
typedef void call_handler(struct call *c);
call_handler messages_enqueue;                                 /* messages.c */
call_handler claim_one, claim_many;                            /* claim.c */
call_handler batch_enqueue;                                    /* batch.c */
call_handler import_lines;                                     /* import.c */
call_handler receipts_nack, receipts_release, receipts_extend; /* receipts.c */
call_handler receipts_ack_many, receipts_nack_many, receipts_release_many,
    receipts_extend_many;                                   /* receipts_batch.c */
call_handler priority_set, priority_set_many, position_get; /* priority.c */
call_handler message_get, message_delete;                   /* message.c */
call_handler browse_get;                                    /* browse.c */
call_handler cancel_many, promote_many;                     /* chosen.c */
call_handler message_promote;                               /* message.c */
call_handler export_lines;                                  /* export.c */
call_handler move_begin, move_show, move_end;               /* move.c */
call_handler queues_put, queues_patch, queues_get, queues_list, queues_delete, queues_purge,
    queues_pause, queues_resume;                                             /* queues.c */
call_handler dead_list, dead_get, dead_delete, dead_redrive, dead_purge;     /* dead.c */
call_handler dead_amend;                                                     /* amend.c */
call_handler schedules_put, schedules_get, schedules_list, schedules_delete; /* schedules.c */
call_handler cells_list, cells_post, placement_get, placement_post;          /* cells.c */
call_handler events_get;                                                     /* events.c */
call_handler history_get;                                                    /* history.c */
call_handler stats_get;                                                      /* stats.c */
call_handler metrics_get;                                                    /* metrics.c */
call_handler admin_backup, admin_backup_show;                                /* backup.c */
call_handler server_home, server_health, server_ready, server_info, server_openapi; /* server.c */

void messages_put_result(struct call *c, const struct put_item *item); /* appends to c->out */
void receipts_ack(struct call *c, struct http_slice receipt);          /* DELETE with a receipt */
void message_show(struct call *c); /* in finish: answers with the message as it is now */

/* Fetches a listing in steps. op.visit encodes each message, and then calls listing_shown(). At the
 * end `finish` is called; request.op.list.more says whether there are messages left. */
void listing_start(struct call *c, call_finish *finish);
void listing_shown(struct call *c);
bool listing_take_limit(struct field *f, void *call); /* the `limit` parameter of one */

#endif
