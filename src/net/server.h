/* HTTP/1.1 over libuv: bytes in, requests out, answers back in order. It knows
 * nothing of queues, routes or JSON; whatever it has to refuse by itself is
 * worded by the `problem` hook.
 *
 * One server belongs to one uv_loop_t and every function here is called on that
 * loop's thread, except http_server_counters(). For more threads make more
 * servers and let them share a port (`shared` in http_server_listen).
 *
 * Life of a request: the handler is called with the whole request, body
 * included, and leads to exactly one http_respond(), at once or in a later turn
 * of the loop. Requests of one connection may be answered in any order; the
 * answers leave in the order in which the requests came.
 *
 * Hang-up: when the connection fails, or the peer ends it while some unanswered
 * request has an on_hangup, every unanswered request of the connection is cut
 * off: its on_hangup is called, and its answer will go nowhere. When the peer
 * ends its side and no unanswered request has an on_hangup, it may be a client
 * that closed only its sending half: the answers are still written, then the
 * connection is closed. So what must not be handed to someone who has left sets
 * on_hangup; what has to be done anyway does not. */
#ifndef TRIAGE_NET_SERVER_H
#define TRIAGE_NET_SERVER_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct conn;
struct http_server;
struct parse_head;
struct uv_loop_s;

enum http_verb { VERB_GET, VERB_HEAD, VERB_POST, VERB_PUT, VERB_DELETE, VERB_OTHER };

struct http_slice {
    const char *data; /* borrowed, not terminated; NULL when absent */
    size_t len;
};

#define HTTP_REQUEST_ID_MAX 64

struct http_request {
    /* Borrowed: valid only until the handler returns. */
    enum http_verb verb;
    const char *path; /* raw, up to '?', starts with '/', at most HTTP_PATH_MAX */
    size_t path_len;
    const char *query; /* raw, without the '?'; NULL when there is none */
    size_t query_len;
    const char *body;
    size_t body_len;
    struct http_slice content_type;
    struct http_slice authorization;
    struct http_slice receipt; /* X-Receipt-Handle */

    /* Valid until http_respond: the client's X-Request-Id, or a fresh one. Terminated. */
    char id[HTTP_REQUEST_ID_MAX + 1];
    uint8_t id_len;

    /* The handler's own; zero when the handler is called. */
    void *user;
    void (*on_hangup)(struct http_request *req); /* called at most once, before the answer; the
                                                  * answer is still owed, and may be given in it */

    /* The rest is private to net. */
    struct http_server *server;
    struct conn *conn; /* NULL once the connection is gone */
    STAILQ_ENTRY(http_request) next;
    const struct parse_head *head;
    struct buf held; /* an answer that came before its turn */
    size_t held_head_len;
    bool answered;
    bool close;      /* the connection ends with this answer */
    bool keep_alive; /* an HTTP/1.0 client asked for it and has to be told */
};

/* Must lead to exactly one http_respond. */
typedef void http_handler(struct http_request *req, void *ctx);

/* The largest body this route takes; asked when the head is in and before any of the body is. */
typedef size_t http_body_limit(void *ctx, enum http_verb verb, const char *path, size_t path_len);

/* Appends the problem document for what net refuses by itself: malformed-request, request-timeout,
 * payload-too-large, headers-too-large, overloaded. `detail` is a sentence. */
typedef void http_problem(void *ctx, enum status status, const char *detail, struct buf *body);

struct http_hooks {
    http_handler *handle;
    http_body_limit *body_limit;
    http_problem *problem;
    void *ctx;
};

struct http_limits {
    size_t head_max;          /* bytes of request line and headers */
    unsigned headers_max;     /* at most HTTP_HEADERS_MAX */
    unsigned connections_max; /* of this server */
    unsigned accepts_max;     /* connections taken in one turn of the loop */
    unsigned pipeline_max;    /* requests of one connection under way, and begun in one turn */
    uint64_t head_ms;         /* the whole head, from its first byte; also the grace of a body */
    uint64_t body_rate;       /* bytes a second */
    uint64_t idle_ms;         /* nothing under way */
    uint64_t write_ms;        /* unsent bytes and no progress */
    size_t output_max;        /* unsent bytes of one connection */
    size_t buffers_max;       /* what all connections may hold in buffers, before large bodies are
                               * refused and unsent output holds back further requests */
};

struct http_limits http_limits_default(void); /* from base/limits.h */

/* Everything counts up but connections_open, requests_open and buffer_bytes. */
#define HTTP_COUNTERS(X)                                                                           \
    X(connections_open, "Connections open now.")                                                   \
    X(connections_accepted, "Connections taken.")                                                  \
    X(connections_refused, "Connections turned away at the limit or for want of descriptors.")     \
    X(requests_open, "Requests handed to the handler and not yet answered.")                       \
    X(buffer_bytes, "Bytes held in connections' buffers now.")                                     \
    X(requests, "Requests handed to the handler.")                                                 \
    X(bytes_in, "Bytes received.")                                                                 \
    X(bytes_out, "Bytes sent.")                                                                    \
    X(timeouts_head, "Connections closed because a request head took too long.")                   \
    X(timeouts_body, "Connections closed because a request body came too slowly.")                 \
    X(timeouts_idle, "Connections closed because nothing was asked.")                              \
    X(timeouts_write, "Connections closed because the peer did not read.")                         \
    X(parse_errors, "Requests refused as malformed or too large.")                                 \
    X(hangups, "Requests whose peer left before the answer.")                                      \
    X(output_overflows, "Connections closed because too much was unsent.")                         \
    X(responses_2xx, "Answers of success.")                                                        \
    X(responses_3xx, "Answers of redirection.")                                                    \
    X(responses_4xx, "Answers of refusal.")                                                        \
    X(responses_5xx, "Answers of failure.")

struct http_counters {
#define X(name, meaning) uint64_t name;
    HTTP_COUNTERS(X)
#undef X
};

/* `hooks` and `limits` are copied; limits NULL means the defaults. The server's own handles do not
 * keep the loop alive; its listener and connections do. SIGPIPE is ignored in the whole process
 * from here on. */
struct http_server *http_server_new(struct uv_loop_s *loop, const struct http_hooks *hooks,
                                    const struct http_limits *limits);

/* `addr` is an IPv4 or IPv6 address in numbers; port 0 takes any. `shared` sets SO_REUSEPORT, so
 * that the servers of several threads may listen on one port. Returns 0 or a negative libuv error
 * (uv_strerror), after which another address may be tried. One listener per server. */
MUST_USE int http_server_listen(struct http_server *server, const char *addr, int port,
                                bool shared);
int http_server_port(const struct http_server *server); /* what listen got */

/* Answers. The body and the strings are copied. `content_type` may be NULL when there is no body;
 * `extra_headers` is NULL or whole lines ("Allow: GET\r\n"). Content-Length, Date, X-Request-Id and
 * Connection are added here; 204 and 304 have no body, and HEAD gets the head alone. `req` is dead
 * afterwards. Nothing is written before the next flush. */
void http_respond(struct http_request *req, int status, const char *content_type,
                  const char *extra_headers, const void *body, size_t body_len);

/* The value of the first header of this name (any case), without white space around it. Only while
 * the handler runs. */
struct http_slice http_header(const struct http_request *req, const char *name);

/* Writes every connection that has new output. The server does so itself after each poll and
 * before each wait; only who answers from a uv_prepare_t of its own has to call it. */
void http_server_flush(struct http_server *server);

/* Stops accepting, closes idle connections, lets what is under way be answered with
 * `Connection: close`. Requests that still come in reach the handler. `done` is called once, from
 * the loop, when no connection is left; those that remain after `drain_ms` are cut off. */
typedef void http_server_done(struct http_server *server, void *arg);
void http_server_drain(struct http_server *server, uint64_t drain_ms, http_server_done *done,
                       void *arg);

/* Cuts everything off at once and closes the server's handles; `done` (or NULL) is called from the
 * loop when the last is gone, and may free the server. Also the step after a drain. */
void http_server_close(struct http_server *server, http_server_done *done, void *arg);

/* After `done` of a close, and after every request has been answered. NULL is fine. */
void http_server_free(struct http_server *server);

/* Any thread. Each number is exact, the set of them need not be of one instant. */
struct http_counters http_server_counters(const struct http_server *server);

#endif
