/* How a limit of a queue is divided among its cells. Pure arithmetic: no I/O.
 *
 * The ledger of a queue, which its home keeps, says how much each cell may hold of each limit: its
 * grant. What a cell may take in (its share) and what it holds are never more than its grant, and
 * the grants together are never more than the limit. So a grant is made smaller only after its cell
 * has confirmed a smaller share, and a share larger only after the ledger has the larger grant
 * (shares.c sees to both). */
#ifndef TRIAGE_ENGINE_CELLS_DIVISION_H
#define TRIAGE_ENGINE_CELLS_DIVISION_H

#include "base/buf.h"
#include "core/share.h"
#include "engine/cells/placement.h"

#include <stdbool.h>
#include <stdint.h>

/* A cell's part of one limit. */
struct portion {
    uint64_t grant; /* SHARE_WHOLE: it is not known */
    uint64_t share; /* SHARE_WHOLE: it has none */
    uint64_t used;
    uint64_t needs; /* beyond what is used */
    int64_t turn;   /* if not all needs can be met, the cell with the smallest is the first */
    bool reached;   /* it has answered. Of others only the grant is looked at, and that stays */
    bool open;      /* it may have of what nobody needs */
    uint64_t aim;   /* out: what its share should be; of one that was not reached 0 */
};

/* Sets the aims. Those of all cells and the grants of those that were not reached are not more than
 * the limit, unless these grants alone are. What is used comes first, then what is needed, and the
 * rest is spread evenly. While more is used than the limit allows, every aim is 0: so nothing new
 * comes in anywhere. If the grant of a cell that was not reached is not known, the aims are the
 * present shares. */
void division_aim(uint64_t limit, struct portion *portions, uint32_t count);

/* Whether some need is worth a change: a cell comes to have all that it needs, or an eighth more
 * than now. */
bool division_helps(const struct portion *portions, uint32_t count);

/* The grants after some cells have confirmed smaller shares: portion.share and .used are as they
 * confirmed them, .grant is the smallest that this allows. Raises grants towards the aims, in turn,
 * as far as the limit allows. */
void division_grant(uint64_t limit, struct portion *portions, uint32_t count);

/* The ledger */

struct grant {
    char cell[CELL_NAME_MAX + 1];
    uint64_t grants[SHARE_COUNT]; /* SHARE_WHOLE: not known */
};

struct grants {
    uint32_t count;
    struct grant *entries; /* owned */
};

void grants_fini(struct grants *l);
struct grant *grants_find(const struct grants *l, const char *cell); /* NULL: none */
/* Its entry, made if need be: then nothing is known of it. */
struct grant *grants_add(struct grants *l, const char *cell);
void grants_remove(struct grants *l, const char *cell);
/* The grants of the limits in `which` (a bit for each); the others are not known afterwards. */
void grants_write(const struct grants *l, uint32_t which, struct buf *out);
/* False for a text that grants_write() cannot have written: then *l is empty. */
bool grants_read(const char *text, size_t len, struct grants *l);

#endif
