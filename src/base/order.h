/* An ordered set: a doubly linked skip list of nodes that live inside what they
 * order. Order is total: by key, then by tie; two nodes never share both.
 *
 * Appending a largest key and taking the smallest cost the same at ten nodes and
 * at ten million; so does removing a node that is at hand. Anything else is a
 * search in O(log n). Heights come from a hash of the tie, so that the same
 * history always builds the same list. */
#ifndef TRIAGE_BASE_ORDER_H
#define TRIAGE_BASE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_HEIGHT_MAX 12 /* 4^12 nodes before searches lengthen */

struct order_node;

struct order_link {
    struct order_node *next;
    struct order_node *prev;
};

/* Ends with as many links as order_height(tie) says: the last member of what embeds it, allocated
 * with order_node_extra(tie) bytes more. */
struct order_node {
    int64_t key;
    uint64_t tie;
    uint32_t height; /* 0 while in no set */
    uint32_t tag;    /* the owner's: of what embeds the node (base/tag.h) */
    struct order_link links[];
};

struct order {
    uint64_t count;
    struct order_node *sentinel; /* owned; its links close each level into a ring */
};

void order_init(struct order *o);
void order_fini(struct order *o); /* the nodes are the caller's */

uint32_t order_height(uint64_t tie);
size_t order_node_extra(uint64_t tie); /* bytes of links behind the node */

/* The node's key and tie are set by the caller, and stay while it is in the set. */
void order_insert(struct order *o, struct order_node *node);
void order_remove(struct order *o, struct order_node *node);

/* NULL when empty. */
static inline struct order_node *order_first(const struct order *o)
{
    struct order_node *first = o->sentinel->links[0].next;
    return first == o->sentinel ? NULL : first;
}

struct order_node *order_last(const struct order *o);
struct order_node *order_next(const struct order *o, const struct order_node *node);
struct order_node *order_prev(const struct order *o, const struct order_node *node);

/* The first node whose (key, tie) is not below the given pair; NULL when there is none. */
struct order_node *order_seek(const struct order *o, int64_t key, uint64_t tie);

/* How many nodes stand before the given pair. They are counted as far as that is cheap; further
 * back the number is estimated from a sample of the nodes, and *exact is set to false. */
uint64_t order_count_before(const struct order *o, int64_t key, uint64_t tie, bool *exact);

void order_check(const struct order *o); /* walks every level and asserts; for tests */

#endif
