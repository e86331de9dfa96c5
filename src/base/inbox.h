/* Hands things from any thread to one loop: put appends and wakes, take empties.
 * Order is kept per sender. The things embed an inbox_node. */
#ifndef TRIAGE_BASE_INBOX_H
#define TRIAGE_BASE_INBOX_H

#include <uv.h>

struct inbox_node {
    struct inbox_node *next;
};

struct inbox {
    uv_mutex_t mutex;
    struct inbox_node *first, **last;
    uv_async_t async;
};

/* `on_mail` runs on the loop, once for any number of puts; it calls inbox_take. */
void inbox_open(struct inbox *in, uv_loop_t *loop, uv_async_cb on_mail, void *data);
void inbox_close(struct inbox *in, uv_close_cb closed); /* on the loop; frees nothing */
void inbox_put(struct inbox *in, struct inbox_node *node);
struct inbox_node *inbox_take(struct inbox *in); /* a list in order, or NULL */
void inbox_wake(struct inbox *in);               /* on_mail will run, mail or not */

#endif
