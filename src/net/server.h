/* HTTP/1.1 over libuv: bytes in, requests out, answers back in order. It knows
 * nothing of queues, routes or JSON; whatever it has to refuse by itself is
 * worded by the `problem` hook.
 *
 * One server belongs to one uv_loop_t and every function here is called on that
 * loop's thread, except http_server_counters(). For more threads make more
 * servers and let them share a port (`shared` in http_server_listen).
 *
 * Life of a request: when its head is whole, and before any of its body is read or
 * waited for, `admit` says whether it may come in. If so, the handler is called with
 * the whole request, body included, and leads to exactly one http_respond(), at once
 * or in a later turn of the loop. Requests of one connection may be answered in any order; the
 * answers leave in the order in which the requests came.
 *
 * Hang-up: when the connection fails, or the peer ends it while some unanswered
 * request has an on_hangup, every unanswered request of the connection is cut
 * off: its on_hangup is called, and its answer will go nowhere. When the peer
 * ends its side and no unanswered request has an on_hangup, it may be a client
 * that closed only its sending half: the answers are still written, then the
 * connection is closed. So a request whose answer must not go to someone who has
 * left (a claim) sets on_hangup; a request that has to be done anyway does not.
 *
 * Streams: an answer may be written in pieces (http_stream_begin), for as long as the client and
 * the server like. Its request is unanswered until http_stream_end().
 *
 * End of a wait: a request that took places to wait in (http_wait) may have to give
 * them to another address. Its on_hangup is called. The handler answers soon after,
 * that nothing came, and this answer still goes to the client. */
#ifndef TRIAGE_NET_SERVER_H
#define TRIAGE_NET_SERVER_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct account;
struct budget;
struct conn;
struct http_server;
struct parse_head;
struct tls;
struct uv_loop_s;

enum http_verb { VERB_GET, VERB_HEAD, VERB_POST, VERB_PUT, VERB_PATCH, VERB_DELETE, VERB_OTHER };

struct http_slice {
    const char *data; /* borrowed, not terminated; NULL when absent */
    size_t len;
};

#define HTTP_REQUEST_ID_MAX 64

struct http_request;

/* Called for a stream when the kernel has taken everything that was written to it, about four times
 * a second (less often where thousands of streams share a loop), or in the next turn after
 * http_stream_more(). */
typedef void http_tick(struct http_request *req);

/* Private to net. */
struct http_stream {
    http_tick *tick; /* NULL: the answer is no stream */
    bool chunked;
    bool begun;    /* its head is out: the answers before it are */
    bool more;     /* it is to be called in the next turn */
    uint64_t turn; /* in which it was called last */
    TAILQ_ENTRY(http_request) link;
};

struct http_request {
    /* Borrowed: valid only until the handler returns. */
    const char *path; /* raw, up to '?', starts with '/', at most HTTP_PATH_MAX */
    size_t path_len;
    const char *query; /* raw, without the '?'; NULL when there is none */
    size_t query_len;
    const char *body;
    size_t body_len;
    struct http_slice content_type;
    struct http_slice authorization;
    struct http_slice host;
    struct http_slice origin;
    struct http_slice fetch_site; /* Sec-Fetch-Site */
    struct http_slice receipt;    /* X-Receipt-Handle */
    struct http_slice accept;
    struct http_slice traceparent;
    struct http_slice client; /* the name in the client's certificate, which was verified */
    bool local;               /* it came through a socket for this machine alone */
    bool has_body;            /* it announced one, of whatever length */
    bool fresh;       /* for the handler: no other request came between admit and this call */
    const void *pass; /* for the handler: http_verdict.pass of admit */

    /* Valid until http_respond. */
    char id[HTTP_REQUEST_ID_MAX + 1]; /* the client's X-Request-Id, or a fresh one; terminated */
    uint8_t id_len;
    enum http_verb verb;

    /* The handler's own; zero when the handler is called. */
    void *user;
    void (*on_hangup)(struct http_request *req); /* called at most once, before the answer; the
                                                  * answer is still owed, and may be given in it */

    /* The rest is private to net. */
    uint32_t tag;
    bool answered;
    bool body_taken; /* requests behind it wait until it is answered */
    bool close;      /* the connection ends with this answer */
    bool keep_alive; /* an HTTP/1.0 client asked for it and has to be told */
    struct http_server *server;
    struct conn *conn; /* NULL once the connection is gone */
    STAILQ_ENTRY(http_request) next;
    size_t charge;  /* what it takes until it is answered */
    unsigned waits; /* places that it has taken to wait in */
    const struct parse_head *head;
    struct buf held; /* an answer that came before its turn */
    size_t held_head_len;
    struct account *account; /* once the connection is gone: where the charge is */
    struct http_stream stream;
};

/* Must lead to exactly one http_respond. */
typedef void http_handler(struct http_request *req, void *ctx);

/* To be called in the handler: takes the memory in which the body lies, so that the body and the
 * head stay valid until `memory` is freed. False when the body has no memory of its own; a large
 * one always has. The requests behind this one are taken only when it is answered: so a body that
 * is read over several turns still comes before them. */
bool http_body_take(struct http_request *req, struct buf *memory);

/* The answer of admit. All zero when admit is called. */
struct http_verdict {
    size_t body_max;     /* the largest body that is taken */
    const void *pass;    /* for the handler, once the body is there; has to last until then */
    int status;          /* 0, or how the request is refused */
    const char *headers; /* of the refusal: NULL or whole lines, valid until the next admit */
    struct buf body;     /* of the refusal: a problem document; net frees it */
};

/* Asked once for each request, when its head is whole. `req` is borrowed, has no body yet and is
 * not to be answered or kept; it is not the one the handler gets. After a refusal a small body is
 * skipped; before a larger one, or one that waits for 100 Continue, the connection ends. */
typedef void http_admit(const struct http_request *req, void *ctx, struct http_verdict *verdict);

/* Appends the problem document for what net refuses by itself: malformed-request, request-timeout,
 * payload-too-large, headers-too-large, overloaded. `detail` is a sentence. */
typedef void http_problem(void *ctx, enum status status, const char *detail, struct buf *body);

struct http_hooks {
    http_handler *handle;
    http_admit *admit;
    http_problem *problem;
    void *ctx;
};

struct http_limits {
    size_t head_max;          /* bytes of request line and headers */
    unsigned headers_max;     /* at most HTTP_HEADERS_MAX */
    unsigned connections_max; /* of this server */
    unsigned accepts_max;     /* connections taken in one turn of the loop */
    unsigned handshakes_max;  /* steps of TLS handshakes in one turn */
    unsigned pipeline_max;    /* requests of one connection under way, and begun in one turn */
    uint64_t head_ms;         /* the whole head, from its first byte; also a TLS handshake from the
                               * connection's first moment */
    uint64_t body_rate;       /* bytes a second of a body … */
    uint64_t body_ms;         /* … in each window of this length */
    uint64_t idle_ms;         /* nothing under way */
    uint64_t write_ms;        /* unsent bytes and no progress */
    uint64_t hold_ms;         /* in this time a whole body has to come, or unsent bytes be read;
                               * each window has to bring its part of them */
    size_t output_max;        /* unsent bytes of one connection */
    struct budget *budget; /* borrowed, shared with other servers; NULL: one of its own, of … */
    uint64_t buffers_max;  /* … so many bytes in buffers, */
    uint64_t waiting_max;  /* claims that wait, */
    unsigned address_max;  /* and connections of one address; 0: no limit */
};

struct http_limits http_limits_default(void); /* from base/limits.h */

/* Everything counts up but connections_open, requests_open and buffer_bytes. */
#define HTTP_COUNTERS(X)                                                                           \
    X(connections_open, "Connections open now.")                                                   \
    X(connections_accepted, "Connections taken.")                                                  \
    X(connections_refused, "Connections turned away at the limit or for want of descriptors.")     \
    X(requests_open, "Requests handed to the handler and not yet answered.")                       \
    X(buffer_bytes, "Bytes held for connections and their requests now.")                          \
    X(requests, "Requests handed to the handler.")                                                 \
    X(bytes_in, "Bytes received.")                                                                 \
    X(bytes_out, "Bytes sent.")                                                                    \
    X(timeouts_head, "Connections closed because a request head took too long.")                   \
    X(timeouts_body, "Connections closed because a request body came too slowly.")                 \
    X(timeouts_idle, "Connections closed because nothing was asked.")                              \
    X(timeouts_write, "Connections closed because the peer did not read.")                         \
    X(timeouts_handshake, "Connections closed because a TLS handshake took too long.")             \
    X(handshakes, "TLS handshakes that were finished.")                                            \
    X(handshakes_resumed, "Of these, those that resumed a session.")                               \
    X(handshakes_failed, "TLS connections closed because they broke its rules.")                   \
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
 * keep the loop alive; its listeners and connections do. SIGPIPE is ignored in the whole process
 * from here on. */
struct http_server *http_server_new(struct uv_loop_s *loop, const struct http_hooks *hooks,
                                    const struct http_limits *limits);

/* A server listens on any number of sockets. All functions return a negative libuv error
 * (uv_strerror) on failure, after which something else may be tried.
 *
 * A socket is bound first: http_socket_tcp() to an IPv4 or IPv6 address in numbers, port 0 takes
 * any; `shared` sets SO_REUSEPORT, so that the servers of several threads may listen on one port.
 * http_socket_unix() makes a socket in the file system, for its owner and its group, in place of
 * one that nobody answers at any more; whoever made it removes it. Both return a descriptor. */
MUST_USE int http_socket_tcp(const char *addr, int port, bool shared);
MUST_USE int http_socket_unix(const char *path);
int http_socket_port(int fd);      /* 0 when it is not one of TCP */
bool http_socket_is_local(int fd); /* nobody but this machine can connect */

/* Takes a duplicate of the socket, so several servers may listen on the same. With `tls` it speaks
 * TLS there; NULL: plain HTTP. */
MUST_USE int http_server_listen_on(struct http_server *server, int fd, struct tls *tls);

/* http_socket_tcp() and http_server_listen_on() in one; and the port of the first listener. */
MUST_USE int http_server_listen(struct http_server *server, const char *addr, int port,
                                bool shared);
int http_server_port(const struct http_server *server);

/* Answers. The body and the strings are copied. `content_type` may be NULL when there is no body;
 * `extra_headers` is NULL or whole lines ("Allow: GET\r\n"). Content-Length, Date, X-Request-Id and
 * Connection are added here; 204 and 304 have no body, and HEAD gets the head alone. `req` is dead
 * afterwards. Nothing is written before the next flush. */
void http_respond(struct http_request *req, int status, const char *content_type,
                  const char *extra_headers, const void *body, size_t body_len);

/* Begins an answer of 200 that is written in pieces. To be called in the handler, once, with
 * on_hangup set. The connection takes no further request, and ends with the answer. on_hangup is
 * called, once, when the connection ends, when the wait has to give way (http_wait) and when the
 * server drains; http_stream_end() is still owed then.
 *
 * Pieces are copied, and are written in a tick alone: there is no tick while something is unsent,
 * so a slow reader slows its own stream, and one that reads nothing for write_ms is cut off. */
void http_stream_begin(struct http_request *req, const char *content_type,
                       const char *extra_headers, http_tick *tick);
void http_stream_write(struct http_request *req, const void *data, size_t len);
void http_stream_more(struct http_request *req); /* a tick in the next turn, please */
void http_stream_end(struct http_request *req);  /* `req` is dead afterwards */

/* The value of the first header of this name (any case), without white space around it. Only while
 * admit or the handler runs. */
struct http_slice http_header(const struct http_request *req, const char *name);

/* To be called before a request is made to wait for something that may never happen: takes so many
 * of the budget's places for waits, until the answer. The handler sets on_hangup, by which the wait
 * may be ended early. False: there are too few places; answer at once. */
MUST_USE bool http_wait(struct http_request *req, unsigned places);

/* Where the request's memory is counted: net/budget.h. Valid until http_respond, on any thread. */
struct account *http_account(const struct http_request *req);

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
