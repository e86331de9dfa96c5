/* A tournament over a fixed number of places: who holds the smallest key is known at once, and a
 * key changes in O(log n). Of equal keys the lower place wins.
 *
 *            2            each winner is the smaller of the two below it
 *         /     \
 *        1       2
 *       / \     / \
 *      0   1   2   3      places; each has a key, or is out
 *
 * The smallest of all but some is found by going below those winners alone that do not count. */
#ifndef TRIAGE_BASE_TOURNEY_H
#define TRIAGE_BASE_TOURNEY_H

#include <stdbool.h>
#include <stdint.h>

#define TOURNEY_NONE UINT32_MAX

/* Keys are compared member by member, in this order. */
struct tourney_key {
    int64_t major, minor;
    uint64_t tie;
};

/* Zero: it has no places yet, and nobody is in. */
struct tourney {
    uint32_t size;            /* places, filled up to a power of 2 */
    struct tourney_key *keys; /* owned; of those who are in */
    uint32_t *winners;        /* owned; [1] is the first of all, [size + place] a place itself */
};

void tourney_init(struct tourney *t, uint32_t places); /* all are out */
void tourney_fini(struct tourney *t);

static inline bool tourney_is_in(const struct tourney *t, uint32_t place)
{
    return t->size > 0 && t->winners[t->size + place] != TOURNEY_NONE;
}

/* The place is in with this key from now on. */
void tourney_set(struct tourney *t, uint32_t place, const struct tourney_key *key);
void tourney_out(struct tourney *t, uint32_t place); /* it may be out already */

/* Who holds the smallest key; TOURNEY_NONE: everybody is out. */
static inline uint32_t tourney_first(const struct tourney *t)
{
    return t->size > 0 ? t->winners[1] : TOURNEY_NONE;
}

/* Whether a place does not count. */
typedef bool tourney_skips(const void *ctx, uint32_t place);

/* The smallest of those who count and have at most this `major`: O(log n) for each smaller one that
 * does not count. */
uint32_t tourney_first_but(const struct tourney *t, int64_t most, tourney_skips *skips,
                           const void *ctx);

#endif
