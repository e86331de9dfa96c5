/* The answers of a batch, in the order of its entries. An entry is either an item that
 * is handed to the engine, or a problem that was found before. A problem stands in the
 * place of its entry, and does not stop the others. */
#ifndef TRIAGE_API_RESULTS_H
#define TRIAGE_API_RESULTS_H

#include "api/call.h"

#define RESULTS_MAX (ENQUEUE_BATCH_MAX > ACK_BATCH_MAX ? ENQUEUE_BATCH_MAX : ACK_BATCH_MAX)

/* A zeroed struct has no entries; `ends` needs no zeroing. */
struct results {
    uint32_t count;             /* entries of the request */
    uint32_t items;             /* of them, how many are items */
    struct buf errors;          /* the problems of the others, one after the other */
    uint32_t ends[RESULTS_MAX]; /* where in `errors` a problem ends; 0: it is an item */
};

void results_fini(struct results *r);
void results_add_item(struct results *r);
void results_add_problem(struct results *r, const struct problem *p);

/* results_reply() answers with {"results": […]}; `put` encodes the n-th item. results_put_all()
 * appends the same to the answer, without the last brace. */
typedef void results_put(struct call *c, uint32_t n);
void results_put_all(struct call *c, const struct results *r, results_put *put);
void results_reply(struct call *c, const struct results *r, results_put *put);

#endif
