/* Limits over several cells: each cell keeps to its share, and shares go where they are needed.
 *
 *   look    every cell is asked for its share and for what it holds; the home also for the ledger
 *   lower   cells that are to have less get a smaller share, and confirm what they hold then
 *   write   the home takes a new ledger, in which what was confirmed is given to others
 *   raise   those others get a larger share
 *
 * This is a round. Each step is taken by a cell only if nobody has changed its share since the look
 * (the epoch), and the ledger is written in the same way. So of two servers one begins anew, and a
 * message of a server that stood still for an hour changes nothing. A server that dies on the way
 * leaves shares that are too small, and never too large: the next round finds them. A cell that is
 * away keeps its grant.
 *
 * Why no share is ever larger than the grant in the ledger: a grant is made smaller only after its
 * cell has confirmed a new epoch in this round, and a share is made larger only after this round
 * has written the ledger. So whoever was to make that share larger either did so before the cell
 * was asked, and it has confirmed the larger share; or has an epoch that the cell refuses. */
#ifndef TRIAGE_ENGINE_CELLS_SHARES_H
#define TRIAGE_ENGINE_CELLS_SHARES_H

#include "engine/cells/impl.h"

/* Whether limits of the queue are divided among its cells. */
bool shares_apply(const struct whole *w);
/* Whether one process has all cells, and sees exactly what each holds at every moment: then it
 * keeps in-flight limits by itself. */
bool whole_is_live(const struct whole *w);

/* `then` is called when a round that begins after this call is over. t->status is as it was, but
 * with `must`, and when not every cell has confirmed: then it is ENGINE_UNAVAILABLE. */
void shares_await(struct trip *t, bool must, void (*then)(struct trip *t));
/* A round is to come soon; nobody waits for it. */
void shares_want(struct whole *w);
/* A partition has refused these, because its share is too small. */
void shares_need(struct partition *p, uint64_t messages, uint64_t bytes);

/* Whether a partition is known to have no share of an in-flight limit that a level is under; or
 * less than `want` that its leases leave. What was seen of the leases may be older than the share.
 */
bool share_blocks(const struct partition *p, uint8_t slot);
bool share_lacks(const struct partition *p, uint8_t slot, uint64_t want);
/* Whether another partition has a share of such a limit that it has nothing for, and this one less
 * than `want` left: as far as is known. */
bool share_idles(const struct partition *p, uint8_t slot, uint64_t want);
/* How many messages of a level, or of all (slot -1), may be leased in a partition of an engine with
 * an exact view, by its share. */
uint64_t share_room(const struct partition *p, int slot);

void shares_cell_away(struct cells_engine *c, const struct cell *cell);
void shares_tick(struct cells_engine *c); /* what time does */
void shares_free(struct whole *w);

#endif
