/* The load generator behind `triage bench`: one thread, one epoll loop, many
 * connections, and per request one write, one read and a few memory scans, because
 * it shares the machine with the server it measures.
 *
 * What differs between servers is a driver (struct loadgen_driver): it turns an
 * operation into bytes and bytes into an answer, and knows nothing of sockets or time.
 *
 * A connection has `pipeline` slots. A slot runs one chain of operations after another
 * (the mix says which: enqueue; or claim, ack; or enqueue, claim, ack), always with one
 * request under way. Answers come in the order of the requests. */
#ifndef TRIAGE_LOADGEN_LOADGEN_H
#define TRIAGE_LOADGEN_LOADGEN_H

#include "base/buf.h"
#include "base/hist.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum loadgen_op {
    LOADGEN_ENQUEUE,
    LOADGEN_CLAIM,
    LOADGEN_ACK,
    LOADGEN_POLL, /* a claim that waits for a message */
    LOADGEN_OP_COUNT
};

enum loadgen_mix {
    LOADGEN_MIX_ENQUEUE,
    LOADGEN_MIX_CLAIM, /* ends when a claim finds nothing, unless refilled */
    LOADGEN_MIX_MIXED, /* each slot: enqueue, claim, ack; a claim may get another slot's message */
    LOADGEN_MIX_POLL,  /* all connections wait on the first queue, one more sends */
    LOADGEN_MIX_COUNT
};

extern const char *const loadgen_op_names[LOADGEN_OP_COUNT];
extern const char *const loadgen_mix_names[LOADGEN_MIX_COUNT];

struct loadgen_report;

#define LOADGEN_PIDS_MAX 8

struct loadgen_config {
    const struct loadgen_driver *driver;
    char host[256];
    char port[8];
    const char *path;  /* of the URL, "/" when it has none */
    const char *token; /* of a Triage server; NULL: none */
    const char *queue; /* name, or prefix of the names when there are several queues */
    enum loadgen_mix mix;
    uint32_t connections;
    uint32_t pipeline;      /* slots of each connection */
    uint32_t batch;         /* messages of one claim, and of the ack after it */
    uint32_t enqueue_batch; /* messages of one enqueue */
    bool refill; /* in the mix claim, one more connection puts back as many messages as were claimed
                  */
    uint32_t queue_count;
    uint32_t payload_len;
    uint32_t priority_min;
    uint32_t priority_max;
    uint32_t delay_seconds;
    uint64_t rate;        /* chains a second over all slots; 0: as fast as answers come */
    uint64_t count;       /* messages, rounded up to whole batches; 0: until duration_ms */
    uint64_t duration_ms; /* of the measurement; with a count it is only the limit */
    uint64_t warmup_ms;
    bool leave_leased;       /* claims are not followed by acks */
    size_t server_pid_count; /* 0: unknown */
    pid_t server_pids[LOADGEN_PIDS_MAX];
};

/* What one delivery needs for its ack. The bytes are the driver's own. */
struct loadgen_lease {
    uint8_t id_len;
    uint8_t receipt_len;
    char id[62];
    char receipt[128];
};

struct loadgen_slot {
    struct loadgen_conn *conn;
    uint64_t sent_us; /* when it was sent, or was due under a rate */
    enum loadgen_op op;
    uint32_t queue;
    uint32_t lease_count;
    struct loadgen_lease *leases; /* `batch` of them */
};

struct loadgen_answer {
    uint32_t messages;  /* accepted, delivered or acked */
    uint32_t refused;   /* of the same request, refused */
    int status;         /* of what was refused, as an HTTP status; 0 when nothing was */
    const char *detail; /* borrowed from the answer's bytes; NULL when nothing was refused */
    size_t detail_len;
};

#define LOADGEN_MORE    ((size_t)0)  /* decode: the answer is not complete yet */
#define LOADGEN_GARBAGE ((size_t)-1) /* decode: not this protocol; the connection is given up */

#define LOADGEN_ERROR_MAX 256

/* setup, greet and waiting run before the measurement, on a blocking socket, and may use
 * loadgen_talk(). A callback that may be NULL says so. */
struct loadgen_driver {
    const char *scheme;
    const char *port;    /* when the URL has none */
    unsigned ops;        /* bits 1 << LOADGEN_… of the operations it has */
    bool has_delay;      /* honours delay_seconds */
    uint32_t claims_max; /* largest batch of a claim */

    void *(*open)(const struct loadgen_config *config); /* builds the requests; borrows config */
    void (*close)(void *state);

    /* Once for a run: create queues, load scripts. On failure report->error says why, and a refusal
     * is counted in report->refused. May be NULL. */
    bool (*setup)(void *state, int fd, struct loadgen_report *report);
    /* For each new connection, which will work on `queue` only. May be NULL. */
    bool (*greet)(void *state, int fd, uint32_t queue, char error[LOADGEN_ERROR_MAX]);
    /* How many consumers wait on the first queue, -1 when the server does not say. May be NULL. */
    int64_t (*waiting)(void *state, int fd);

    /* Appends the request for slot->op; for an ack, of slot->leases. */
    void (*encode)(void *state, const struct loadgen_slot *slot, struct buf *out);
    /* Reads the answer to slot->op from the front of data. Returns the bytes it took, LOADGEN_MORE
     * or LOADGEN_GARBAGE. For a claim or poll fills slot->leases; otherwise leaves them alone. */
    size_t (*decode)(void *state, struct loadgen_slot *slot, const char *data, size_t len,
                     struct loadgen_answer *answer);
};

extern const struct loadgen_driver loadgen_http;
extern const struct loadgen_driver loadgen_bare;
extern const struct loadgen_driver loadgen_redis;
extern const struct loadgen_driver loadgen_beanstalk;

#define LOADGEN_STATUS_MAX 600

struct loadgen_op_report {
    uint64_t operations; /* answered without a refusal */
    uint64_t messages;
    struct hist latency_us;
};

struct loadgen_report {
    struct loadgen_op_report ops[LOADGEN_OP_COUNT];
    uint64_t elapsed_us;
    uint64_t completed; /* messages that reached the end of their chain */
    uint64_t empty;     /* claims that found nothing */
    uint64_t refused[LOADGEN_STATUS_MAX];
    uint64_t lost_connections;
    uint64_t unanswered; /* requests given up at the end of the run */
    char first_refusal[LOADGEN_ERROR_MAX];
    uint64_t own_cpu_ns;
    int64_t server_cpu_ns; /* -1 when unknown */
    /* Poll only. */
    struct hist delivery_us; /* from sending a message to the answer that carries it */
    int64_t waiting;         /* consumers the server counted before the first message; -1 unknown */
    uint64_t extra_wakeups;  /* polls answered early without the one message under way */
    char error[LOADGEN_ERROR_MAX]; /* why the run failed */
};

/* Called about once a second with the messages completed so far, in warmup too. */
typedef void loadgen_progress_fn(void *context, const struct loadgen_report *so_far, bool warmup,
                                 uint64_t elapsed_us);

/* Runs to the end. False when the server cannot be reached or does not speak the protocol:
 * report->error says why. Refused requests are not a failure of the run. */
bool loadgen_run(const struct loadgen_config *config, loadgen_progress_fn *progress, void *context,
                 struct loadgen_report *report);

/* The driver and the parts of SCHEME://HOST[:PORT][/PATH]; the path is borrowed from url. False
 * with a reason in error. */
bool loadgen_target_parse(struct loadgen_config *config, const char *url,
                          char error[LOADGEN_ERROR_MAX]);

/* The parts below are shared by the files of the load generator. */

/* `count` texts of payload_len letters and digits, one after the other, random but the same in
 * every run, so that no server wins by compression and all see the same bytes. Owned by the caller.
 */
char *loadgen_payloads(uint32_t count, uint32_t payload_len);

/* How many different requests of this size a driver prepares: enough to be no use to a compressor,
 * few enough to stay in the cache. */
uint32_t loadgen_variants(const struct loadgen_config *config, size_t request_len);

/* The priority of the i-th message: they take turns. */
uint32_t loadgen_priority(const struct loadgen_config *config, uint64_t i);

void loadgen_queue_name(const struct loadgen_config *config, uint32_t queue, struct buf *out);

/* False when the id or the receipt is empty or too long. */
bool loadgen_lease_set(struct loadgen_lease *lease, const char *id, size_t id_len,
                       const char *receipt, size_t receipt_len);

/* The first decimal number in the text; 0 when it starts with something else. */
uint64_t loadgen_number(const char *text, const char *end);

#endif
