/* A body of many messages, read in steps of about one message. A large body is not read in one turn
 * of the loop: it is taken from the connection, and reading goes on in the next turns. */
#ifndef TRIAGE_API_BODY_H
#define TRIAGE_API_BODY_H

#include "api/call.h"

struct body {
    const char *at, *end;
    struct json_doc *doc; /* the api's, or its own when it is large */
    bool large;
    /* Only of a large body. */
    struct buf memory;
    struct json_doc own;
};

/* Begins to read the body of the call's request. */
void body_init(struct body *b, struct call *c);
void body_fini(struct body *b);
/* Calls `read` until the whole body is read, then calls `then`. Each call of `read` reads one
 * message, or about BODY_STEP bytes. Until `then` is called, c->reading is in use. */
#define BODY_STEP (128 * 1024)
void body_read(struct call *c, struct body *b, body_reader *read, call_finish *then);

#endif
