/* The history of a run over several cells, and how well it kept the order.
 *
 * A message U was passed over by a claim that took something else L, if
 *   - U was surely ready when that claim began: its enqueue had been answered, and its cell was
 *     there; and
 *   - that claim was over before the claim that took U began.
 * Claims that were under way at the same time pass over nothing: either of them may have been the
 * first. For each message the ledger asks:
 *
 *   between levels  L is less urgent. How long had U been ready when the last such claim began?
 *   within a level  L is of the same level, and its enqueue began after that of U was answered. How
 *                   much later? (Engines promise this order inside one cell.)
 *
 * The answer is 0 for a message that nobody passed over. */
#ifndef TRIAGE_SIMULATE_LEDGER_H
#define TRIAGE_SIMULATE_LEDGER_H

#include "base/hist.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger_message {
    int64_t put_us; /* its enqueue began */
    int64_t
        ready_us; /* its enqueue was answered; -1: not yet, or nobody knows whether it is there */
    uint32_t cell;
    uint8_t rank;
    bool taken;
};

/* The claims of one level, by when they were over. */
struct ledger_claims {
    struct ledger_claim {
        int64_t over_us;
        int64_t began_us; /* the latest of this one and all before it, as the next */
        int64_t put_us;
    } * items; /* owned */
    size_t count, room;
};

struct ledger {
    struct ledger_message *messages; /* owned; by number */
    uint32_t count, room;
    uint32_t cell_count;
    int64_t *since_us; /* owned; by cell: since when it is there; INT64_MAX: it is away */
    struct ledger_claims claims[LEVEL_COUNT_MAX];
    uint64_t passed_between, passed_within; /* messages */
    struct hist between_us, within_us;
};

void ledger_init(struct ledger *l, uint32_t cell_count);
void ledger_fini(struct ledger *l);

uint32_t ledger_begin(struct ledger *l, uint8_t rank, int64_t now_us); /* a new message's number */
void ledger_ready(struct ledger *l, uint32_t number, uint32_t cell, int64_t now_us);
/* The claim that took the message began then, and is over now. It counted as `rank`. */
void ledger_taken(struct ledger *l, uint32_t number, uint8_t rank, int64_t began_us,
                  int64_t now_us);
void ledger_cell(struct ledger *l, uint32_t cell, bool there, int64_t now_us);
/* The end: messages that still wait have been passed over, too. */
void ledger_close(struct ledger *l);

#endif
