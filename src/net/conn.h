/* The inside of net: one connection, and the server it belongs to. Only files of
 * this folder include it.
 *
 * A connection is worked on in three places. on_read() parses the bytes that came and
 * calls the handler. http_respond() appends an answer to the output. conn_end_turn()
 * runs once in a turn of the loop for each connection that is dirty: it goes on with
 * input that had to wait, writes the output, and closes a connection that has ended.
 * Nothing but conn_end_turn(), a read error, the sweep and the end of the server closes
 * a connection: so a handler never loses the connection that it is being called for.
 *
 * A turn of the loop is short, whatever the peers do: it takes few connections, and
 * of one connection few requests and few bytes of answers. A connection that has more
 * is late: it goes on in the next turn, after the others. */
#ifndef TRIAGE_NET_CONN_H
#define TRIAGE_NET_CONN_H

#include "base/tag.h"
#include "net/budget.h"
#include "net/parse.h"
#include "net/server.h"
#include "net/tls_stream.h"

#include <sys/queue.h>
#include <uv.h>

#define CONN_READ_SIZE   (64 * 1024)   /* one read; also how much may wait behind a full pipeline */
#define CONN_PAUSE_SIZE  (64 * 1024)   /* unsent output at which no further request is taken */
#define CONN_KERNEL_SIZE (128 * 1024)  /* what the kernel takes before the peer has room for it */
#define CONN_DISCARD_MAX (1024 * 1024) /* bytes thrown away after the last request */
#define CONN_LINGER_MS   2000          /* for a refused client to read why */
#define CONN_REFUSED_MAX 64            /* connections past the limit that are told so */
#define CONN_IDLERS_MAX  256           /* connections looked at, to find one that gives way */
#define CONN_SPARE_MAX   64            /* output buffers kept for the next answers */
#define CONN_SPARE_SIZE  (1024 * 1024) /* and what they take together */
#define SERVER_SWEEP_MS  250

/* Which clock runs against the peer's sending. Each is a list in the server, by time. */
enum watch {
    WATCH_NONE,     /* no clock: its requests are under way */
    WATCH_WAIT,     /* no clock: all its requests wait, so it may have to give way to others */
    WATCH_GREETING, /* TLS: its handshake */
    WATCH_HEAD,
    WATCH_BODY,
    WATCH_IDLE,
    WATCH_LINGER,
    WATCH_COUNT
};

TAILQ_HEAD(conn_list, conn);
STAILQ_HEAD(request_list, http_request);
TAILQ_HEAD(stream_list, http_request);

/* The stream of a connection or a listener: TCP, or a socket in the file system. */
union stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct listener {
    uint32_t tag; /* LISTENER_TAG */
    union stream io;
    struct http_server *server;
    struct tls *tls; /* borrowed; NULL: plain */
    bool local;      /* for this machine alone */
    bool waits;      /* libuv holds a connection that is taken in the next turn */
    TAILQ_ENTRY(listener) next;
};

TAILQ_HEAD(listener_list, listener);

/* In each group the fields of every turn stand before those that are seldom used, and what is large
 * and seldom used stands at the end: so a turn of the connection touches few cache lines. */
struct conn {
    uint32_t tag; /* CONN_TAG */
    union stream io;
    struct http_server *server;
    struct tls_stream *tls; /* NULL: plain HTTP; what follows is the text inside TLS */

    bool reading; /* uv_read_start is in force */
    bool ended;   /* the peer has ended its side */
    bool last;    /* no further request is taken */
    bool refused; /* ended by us: let the peer read why before closing */
    bool broken;  /* too much unsent: close without more words */
    bool shut;    /* our side is ended */
    bool over;    /* it came past the limit, and is being told so */
    bool local;   /* of a listener for this machine alone */
    bool closing;
    bool input_waits;    /* `in` was left before its end: full, or had its share of the turn */
    bool late;           /* goes on in the next turn */
    bool dirty;          /* conn_end_turn() is due */
    bool greeting_waits; /* `in` has bytes of the handshake, which had its share of the turn */
    bool chunked;        /* the body that comes in */
    bool continue_due;   /* 100 Continue is owed once its turn comes */
    bool body_taken;     /* the handler took the body: `in` has only the rest now */
    bool body_out;       /* … and its request is not answered yet */
    bool charged;        /* it is in the server's list `charged` */
    bool starved;        /* it is not read from until there is room again */
    uint8_t starved_sweeps;

    /* Requests handed over, in order; the first unanswered one holds back the rest. */
    unsigned request_count;
    struct request_list requests;

    /* Output. */
    struct buf out;              /* answers in order, not yet given to the kernel */
    struct buf sending;          /* owned by `write` while it is under way */
    size_t held;                 /* bytes of answers that wait for their turn */
    struct http_request *stream; /* the last request, when its answer is written in pieces */

    /* What the connection takes of the budget: memory.c. */
    struct account *account; /* NULL: it was turned away */
    size_t request_bytes;    /* of requests under way */
    size_t charge;           /* what the account has of it; bytes given back may stay a while */
    unsigned waiting;        /* requests that wait */
    unsigned waiting_charge;

    TAILQ_ENTRY(conn) dirty_link;
    enum watch watch;
    TAILQ_ENTRY(conn) watch_link;
    uint64_t watch_ms; /* since when */

    /* Input. `in` starts with the request being received and is empty when every byte was used. */
    struct buf in;
    size_t scanned;    /* of a head that is not whole */
    size_t head_len;   /* 0 until the head is whole */
    uint64_t began_ms; /* the request being received */
    uint64_t content_length;
    size_t body_max;
    const void *pass; /* what admit gave, for the handler of the request that is coming in */
    uint64_t skip;    /* bytes still to come of a body that was refused */
    size_t discarded;
    const char *rest;    /* in `in`: what is behind the request that a handler has */
    uint64_t waits_turn; /* in which input_waits was set */
    struct parse_chunks chunks;
    uint64_t window_ms; /* when the present window of its body began … */
    size_t window_len;  /* … and how many bytes of the body were there then */

    TAILQ_ENTRY(conn) all;
    TAILQ_ENTRY(conn) charged_link;
    TAILQ_ENTRY(conn) late_link;
    TAILQ_ENTRY(conn) writer_link;
    size_t writer_left; /* bytes unsent at the beginning of the present window … */
    uint64_t writer_ms; /* … and when that was */
    uv_write_t write;
    uv_shutdown_t shutdown;
};

struct http_server {
    uint32_t tag; /* SERVER_TAG */
    uv_loop_t *loop;
    struct http_hooks hooks;
    struct http_limits limits;
    struct http_counters counters; /* written by one thread, read by any: counter_add() */

    struct listener_list listeners;
    uv_timer_t sweep;
    uv_check_t check;
    uv_prepare_t prepare;
    uv_idle_t idle;        /* active while some connection is late */
    unsigned handle_count; /* not yet closed, connections included */
    unsigned conn_count;
    unsigned over_count; /* of them, turned away and still being told */

    struct conn_list conns;
    struct conn_list dirty;
    struct conn_list late;
    struct conn_list watched[WATCH_COUNT];
    struct conn_list writers;
    struct conn_list charged;
    struct stream_list streams;
    struct budget *budget;
    struct budget *own_budget; /* NULL: it is shared */
    uint64_t swept_ms;

    uint64_t turn; /* of the loop */
    unsigned turn_accepts;
    unsigned turn_handshakes;
    uint64_t turn_handshakes_us;                              /* when the first of them began */
    const struct account *turn_greeters[HTTP_HANDSHAKES_MAX]; /* the accounts that had them */
    unsigned greetings_waiting; /* connections whose handshake waits for a later turn */

    bool draining;
    bool closing;
    uint64_t drain_ms; /* loop time at which a drain stops being polite */
    http_server_done *drained;
    void *drained_arg;
    http_server_done *closed;
    void *closed_arg;

    struct request_list request_pool;
    struct buf spare[CONN_SPARE_MAX];
    unsigned spare_count;
    size_t spare_bytes;
    struct parse_head head;    /* of the request in hand */
    struct http_request asked; /* the request as admit sees it */
    char id_prefix[9];         /* eight random digits and a dash, not terminated */
    uint64_t id_count;
    char too_large[80]; /* the sentence of the refusal in hand */
    char date[48];      /* the whole header line */
    uint64_t date_s;    /* loop time for which it holds */
    char input[CONN_READ_SIZE];
    char text[CONN_READ_SIZE]; /* the text of TLS records */
};

/* Whose handle, or whose request of libuv, it is. */

#define CONN_TAG     TAG('c', 'o', 'n', 'n')
#define LISTENER_TAG TAG('l', 'i', 's', 't')
#define SERVER_TAG   TAG('h', 't', 't', 'p')
#define ASKED_TAG    TAG('r', 'e', 'q', 'u') /* of a request that is not answered yet */

static inline struct conn *conn_of(void *data)
{
    struct conn *c = (struct conn *)data;
    tag_check(c->tag, CONN_TAG);
    return c;
}

static inline struct listener *listener_of(void *data)
{
    struct listener *l = (struct listener *)data;
    tag_check(l->tag, LISTENER_TAG);
    return l;
}

static inline struct http_server *server_of(void *data)
{
    struct http_server *s = (struct http_server *)data;
    tag_check(s->tag, SERVER_TAG);
    return s;
}

static inline void counter_add(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

#define net_count(server, name, n) counter_add(&(server)->counters.name, (uint64_t)(n))

void conn_touch(struct conn *c);    /* makes it dirty: its turn ends before the loop waits */
void conn_postpone(struct conn *c); /* makes it dirty in the next turn of the loop */
void conn_end_turn(struct conn *c);
void conn_close(struct conn *c); /* at once; cuts off its requests */

/* Refuses the request that is being received, behind the answers of those before it, and ends the
 * connection. */
void conn_refuse(struct conn *c, enum status status, const char *detail);

void conn_watch(struct conn *c); /* finds out which clock runs: enum watch */

/* Whether nothing is being done for the connection: each of its requests waits for something that
 * may never happen, or is answered and stands behind such a request. */
bool conn_only_waits(const struct conn *c);

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len + c->sending.len + c->held;
}

/* In intake.c: makes requests of the bytes that were received. */
void intake_feed(struct conn *c, char *data, size_t len);
bool intake_is_full(const struct conn *c);    /* no further request is begun */
bool intake_may_resume(const struct conn *c); /* input had to wait, and need not any more */
void intake_resume(struct conn *c);

/* In greeting.c: takes the bytes of TLS records that were received. */
void records_feed(struct conn *c, const char *data, size_t len); /* may close */
void greeting_resume(struct conn *c); /* a handshake that had to wait for this turn; may close */
void records_end(struct conn *c);     /* the connection is closing */

/* In sweep.c: closes or refuses connections whose time is up. */
void conn_sweep(struct http_server *server);

/* In memory.c: the memory that connections hold is counted against the budget. */
void memory_count(struct conn *c);                   /* at the end of a turn; may refuse or close */
bool memory_fits(struct conn *c, uint64_t body_len); /* whether there is room for a body */
void memory_charge(struct conn *c);    /* charges what it holds now, with or without room */
void memory_give_back(struct conn *c); /* it is closing */
void memory_sweep(struct http_server *server);
bool memory_is_tight(const struct conn *c);                     /* its address has to give way */
void request_charge(struct http_request *req, size_t body_len); /* it is under way */
void request_discharge(struct http_request *req);               /* it is answered */
void request_orphan(struct http_request *req); /* its connection is gone, its memory is not */

/* In respond.c: a request from the pool, appended to the connection's. */
struct http_request *request_new(struct conn *c);
void request_name(struct http_request *req, struct http_slice wish); /* sets req->id */
void request_free(struct http_request *req);

/* Everything up to the Connection line, which is known only when the answer's turn has come. */
#define LENGTH_CHUNKED SIZE_MAX       /* in place of the body's length: it comes in chunks … */
#define LENGTH_UNSAID  (SIZE_MAX - 1) /* … or ends with the connection */
void response_head(struct buf *out, struct http_request *req, int status, const char *content_type,
                   const char *extra_headers, size_t body_len);

/* Moves the answers whose turn has come to the output. */
void conn_collect(struct conn *c);

/* Gives `b` the memory of a buffer that somebody is done with, if it has none of its own. */
void buffer_reuse(struct http_server *server, struct buf *b);

/* In stream.c: answers that are written in pieces. */
void stream_go_on(struct conn *c);                /* the turn's end: it may have more to write */
void stream_tick_all(struct http_server *server); /* a sweep */
void stream_end_all(struct http_server *server);  /* a drain */
void stream_leave(struct http_request *req);      /* it ends, or its connection does */

/* In listen.c: takes the connections that had to wait for this turn, one of each listener. */
void server_accept(struct http_server *server);
/* No more connections. */
void server_unlisten(struct http_server *server);

/* In server.c: one handle fewer; the last one ends a drain or a close. */
void server_handle_closed(struct http_server *server);

#endif
