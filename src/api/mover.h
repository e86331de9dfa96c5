/* Movers, which move queues to other servers. A mover has one queue, lives on the loop of the api
 * that began it, and goes on until its queue is deleted or moves no more. It repeats the same
 * round:
 *
 *   look       how the queue is configured and what it holds
 *   schedules  each is set at the target, then deleted here. Until then it goes on here
 *   page       scheduled, ready and dead messages are listed; leased ones stay where they are
 *   import     the page is imported at the target, with its past
 *   end        what the target has is ended here
 *   pause      when nothing is left to move, or something went wrong
 *
 * Nothing is remembered between two rounds: a mover that was killed begins anew. What was imported
 * but not ended here is imported again, and the target knows it: see import_key(). Nobody can claim
 * it here meanwhile, because a queue that moves hands nothing out. Private to src/api. */
#ifndef TRIAGE_API_MOVER_H
#define TRIAGE_API_MOVER_H

#include "api/api.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define MOVE_ERROR_MAX 256

/* How far a mover has come. */
struct move_progress {
    bool running;
    uint64_t moved;             /* messages, since this server was started */
    char error[MOVE_ERROR_MAX]; /* why the last round stopped; empty: it did not */
};

const char *moves_server(const struct moves *m); /* the name of this process, another each time */

void mover_start(struct api *api, const char *queue); /* unless there is one already */
/* Before a move is cancelled: no page is begun for a while. False: one is under way, and part of it
 * may be on both servers; ask again. */
bool mover_hold(struct moves *m, const char *queue);
void mover_progress(struct moves *m, const char *queue, struct move_progress *p);

#endif
