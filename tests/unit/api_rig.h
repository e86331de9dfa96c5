/* The api between two stand-ins: a broker of a few lines, with the memory engine, no threads and no
 * waiting, and a net that keeps the last answer. They go by the names of the real ones, so that a
 * test has either these or those. */
#ifndef TRIAGE_TESTS_API_RIG_H
#define TRIAGE_TESTS_API_RIG_H

#include "api/api.h"
#include "base/json.h"
#include "broker/broker.h"
#include "net/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define API_ROOM (512 * 1024 * 1024) /* what clients may hold; one of them seven eighths of it */

struct api_rig {
    struct engine *engine;
    struct api *api;
    struct budget *budget; /* of one client */
    struct account *account;
    bool wait_refused;   /* there is no place for a claim that waits */
    struct json_doc doc; /* the answer's body */
    struct buf body;
    char headers[200];
    char type[64];
    int status;
    unsigned hangups;
    bool hold;   /* claims park */
    bool vanish; /* what got another priority is gone before anyone looks */
    struct request *parked;
    struct request *queue[8]; /* submitted, not done: done never fires inside submit */
    unsigned queued;
    struct request *later; /* goes on in another turn */
    unsigned turns;        /* that were asked for so */
};

extern struct api_rig t;

int api_setup(void **state);
int api_teardown(void **state);

/* Headers beside the usual ones. */
struct ask {
    const char *type;
    const char *receipt;
    const char *authorization;
};

/* Asks, and returns the status: 0 when there is no answer yet. A body that is JSON is in t.doc. */
int ask(enum http_verb verb, const char *target, const char *body);
int ask_as(struct http_request *req, const struct ask *ask, enum http_verb verb, const char *target,
           const char *body);

const char *text(const char *key); /* a member of the answer; good until the next call */
void problem_is(int status, const char *type, const char *field); /* field NULL: any */

#endif
