/* Posts small JSON documents to URLs, in the background. Handing one over never waits for the
 * network: a thread of its own, started with the first, sends one after the other, tries each a few
 * times and then gives it up. What it cannot keep it drops, counts and logs. Any thread may post.
 *
 * Known limit: a receiver that does not answer holds up those behind it, for WEBHOOK_TRIES times
 * WEBHOOK_MS_MAX at most. */
#ifndef TRIAGE_BROKER_WEBHOOK_H
#define TRIAGE_BROKER_WEBHOOK_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define WEBHOOK_WAITING_MAX 100
#define WEBHOOK_MS_MAX      5000 /* one try, from the name lookup to the answer */
#define WEBHOOK_TRIES       3

struct webhooks;

struct webhooks *webhooks_new(void);
void webhooks_free(struct webhooks *w); /* what was not sent yet is lost; NULL is fine */

/* `url` is http:// or https://; other schemes fail. The log names `queue`, never the URL, which may
 * carry a secret. The body's memory changes owner. */
void webhooks_post(struct webhooks *w, const char *queue, const char *url, struct buf *body);

uint64_t webhooks_lost(const struct webhooks *w); /* dropped or given up */

#endif
