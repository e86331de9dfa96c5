/* A map from sequence numbers to pointers: a radix tree of 64-way nodes.
 * Sequence numbers are handed out in order and die roughly in order, so that
 * neighbours share a leaf: no hashing, no resizing pause, and the walk can be
 * done in order. Empty nodes are freed at once. */
#ifndef TRIAGE_BASE_SEQMAP_H
#define TRIAGE_BASE_SEQMAP_H

#include <stddef.h>
#include <stdint.h>

struct seqmap_node;

struct seqmap {
    uint64_t count;
    /* Private. */
    struct seqmap_node *root;
    uint32_t levels;
    struct seqmap_node *leaf; /* the leaf used last, or NULL */
    uint64_t leaf_base;
};

void seqmap_fini(struct seqmap *m);                           /* a zeroed struct is an empty map */
void seqmap_put(struct seqmap *m, uint64_t seq, void *value); /* value not NULL, seq not present */
void *seqmap_get(struct seqmap *m, uint64_t seq);             /* NULL when absent */
void *seqmap_remove(struct seqmap *m, uint64_t seq);          /* what was there, or NULL */

/* The entry with the smallest sequence number at or after `from`; NULL when there is none. */
void *seqmap_next(const struct seqmap *m, uint64_t from, uint64_t *seq);

void seqmap_check(const struct seqmap *m); /* walks every node and asserts; for tests */

#endif
