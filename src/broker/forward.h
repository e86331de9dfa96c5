/* Requests to another Triage server, for a queue that moves there. A thread of its own, started
 * with the first request, sends them with libcurl: no event loop waits for the network. The answer
 * comes back on the loop that asked. There is a limit to how many are under way, and to their
 * bytes; each has a time limit. Nothing is sent twice: a request whose answer did not come may have
 * been carried out, and only its sender knows whether it may be repeated.
 *
 * Where a forward may go is said by the rules for webhooks: webhook.h. */
#ifndef TRIAGE_BROKER_FORWARD_H
#define TRIAGE_BROKER_FORWARD_H

#include "base/buf.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define FORWARDS_MAX       1024 /* under way; a quarter of them is for those that do not wait */
#define FORWARD_BYTES_MAX  (128 * 1024 * 1024) /* of their bodies; one alone may be larger */
#define FORWARD_ANSWER_MAX HTTP_BODY_MAX
#define FORWARD_MS         30000 /* from the name lookup to the whole answer */
#define FORWARD_CONNECT_MS 5000

struct broker_port;
struct forward;
struct forwards;
struct request;
struct webhook_options;

/* The server that a queue moves to. */
struct target {
    char url[FORWARD_URL_MAX + 1];
    char token[FORWARD_TOKEN_MAX + 1]; /* empty: none */
};

/* On the thread of the forwards: the answer is about to have `len` bytes. False: there is no room
 * for them, and no answer comes. */
typedef bool forward_grows(struct forward *f, size_t len);

struct forward {
    /* Set by the caller; the rest is zero. */
    struct request *request; /* of the port, and not under way: its `done` is called */
    const char *method;      /* NULL: nothing is sent, it comes back when its time is over */
    const struct target *target;
    struct buf path;  /* "/v1/…" */
    const char *type; /* of the body; NULL: there is none */
    struct buf body;
    int64_t timeout_ms;
    forward_grows *grows; /* NULL: it may have up to FORWARD_ANSWER_MAX */
    bool waits;           /* the other server may take its time: a claim that waits for a message */
    /* Set by the thread. */
    long status;       /* of the answer; 0: none came */
    struct buf answer; /* its body */
    const char *why;   /* no answer came: a constant text */
    /* Private. */
    struct forwards *owner;
    struct broker_port *port;
    void *easy, *headers;
    struct buf url;
    size_t sent;
    uint64_t until_ms; /* of one that sends nothing */
    bool local;        /* its address is not allowed */
    bool crowded;      /* there was no room for its answer */
    bool cancelled;
    TAILQ_ENTRY(forward) next;
};

void forward_fini(struct forward *f); /* not while it is under way */

struct forwards *forwards_new(const struct webhook_options *options);
void forwards_put(struct forwards *fs, struct broker_port *port, struct forward *f);
void forwards_cancel(struct forwards *fs, struct forward *f);
/* All that are under way come back without an answer, and so do those to come. */
void forwards_end(struct forwards *fs);
void forwards_free(struct forwards *fs); /* after the end; NULL is fine */

#endif
