/* A call that goes on at the server that its queue moves to. Enqueues and settles send there what
 * this server does not have, as a batch, whether the client sent one or not; a claim is sent as it
 * is. The answers come back in the place of what the broker would have said. Private to src/api. */
#ifndef TRIAGE_API_RELAY_H
#define TRIAGE_API_RELAY_H

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

struct call;
struct relay;

/* The request came back with a target: sends what is to be asked for there, and then finishes the
 * call. */
void relay_begin(struct call *c);
void relay_hangup(struct call *c);
void relay_free(struct relay *relay); /* NULL is fine */

/* In finish, for each item with the status QUEUE_MOVED, in order: what the other server says about
 * it. */
void relay_put(struct call *c, struct buf *out); /* its result of a batch, as it came */

/* The same when it was the only item. NULL: it was refused, and the call has been answered. */
const struct json_token *relay_only(struct call *c, const char *member);

bool relay_has(const struct call *c, const struct json_token *result, const char *member);
bool relay_urgent_waiting(const struct call *c); /* of an extend */

/* The status of an item that the client is told, when nobody was asked. */
enum status relay_status(enum status status);

#endif
