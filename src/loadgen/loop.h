/* Connections and their epoll loop: submits requests of slots, gives back their
 * answers. Knows nothing of mixes, counts or reports. */
#ifndef TRIAGE_LOADGEN_LOOP_H
#define TRIAGE_LOADGEN_LOOP_H

#include "loadgen/loadgen.h"

struct loadgen_conn {
    int fd;
    uint32_t queue;
    bool wants_write;           /* the socket was full: epoll tells when it is not */
    uint32_t ring_first;        /* oldest request under way */
    uint32_t ring_count;        /* requests under way */
    struct loadgen_slot **ring; /* `pipeline` entries */
    struct loadgen_slot *slots; /* `pipeline` entries */
    struct buf in;              /* the front of an answer that is not complete */
    struct buf out;             /* encoded and not sent */
};

struct loadgen_loop;

/* The slot is free when this is called and may be submitted again at once; the loop sends what was
 * submitted on the slot's own connection. A NULL answer means that the connection was lost and is
 * open again. */
typedef void loadgen_answer_fn(struct loadgen_loop *loop, struct loadgen_slot *slot,
                               const struct loadgen_answer *answer);

struct loadgen_loop {
    const struct loadgen_config *config;
    void *state; /* the driver's */
    loadgen_answer_fn *on_answer;
    void *context; /* for on_answer */
    int epoll_fd;
    uint32_t conn_count;
    struct loadgen_conn *conns;
    uint64_t busy;   /* requests under way */
    uint64_t now_us; /* when the bytes being answered were read */
    uint64_t lost;   /* connections that ended early */
    bool failed;     /* a connection could not be opened again, or talked garbage */
    char error[LOADGEN_ERROR_MAX];
    char *scratch;
    struct loadgen_lease *leases;
};

/* Opens conn_count connections, the i-th on queue i modulo the number of queues. On false
 * loop->error says why; loadgen_loop_close is due in both cases. */
bool loadgen_loop_open(struct loadgen_loop *loop, const struct loadgen_config *config, void *state,
                       uint32_t conn_count);
void loadgen_loop_close(struct loadgen_loop *loop);

/* Encodes the request; it leaves with the next flush of the connection. */
void loadgen_loop_submit(struct loadgen_loop *loop, struct loadgen_slot *slot, enum loadgen_op op,
                         uint64_t sent_us);
void loadgen_loop_flush(struct loadgen_loop *loop, struct loadgen_conn *conn);

/* Handles what is ready, waiting for it until deadline_us at most. */
void loadgen_loop_wait(struct loadgen_loop *loop, uint64_t deadline_us);

#endif
