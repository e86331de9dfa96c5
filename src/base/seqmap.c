#include "base/seqmap.h"
#include "base/mem.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define BITS 6
#define FAN  (1u << BITS)

struct seqmap_node {
    uint32_t used;
    void *slots[FAN]; /* nodes, or values in the lowest level */
};

static uint32_t digit(uint64_t seq, uint32_t level)
{
    return (uint32_t)(seq >> (level * BITS)) & (FAN - 1);
}

static bool fits(uint64_t seq, uint32_t levels)
{
    return levels * BITS >= 64 || seq >> (levels * BITS) == 0;
}

static void free_tree(struct seqmap_node *node, uint32_t level)
{
    for (uint32_t i = 0; level > 0 && i < FAN; i++) {
        if (node->slots[i])
            free_tree(node->slots[i], level - 1);
    }
    free(node);
}

void seqmap_fini(struct seqmap *m)
{
    if (m->root)
        free_tree(m->root, m->levels - 1);
    *m = (struct seqmap){0};
}

/* Adds levels on top until seq can be addressed. */
static void grow(struct seqmap *m, uint64_t seq)
{
    if (!m->root) {
        m->root = mem_zalloc(sizeof(*m->root));
        m->levels = 1;
    }
    while (!fits(seq, m->levels)) {
        struct seqmap_node *top = mem_zalloc(sizeof(*top));
        if (m->root->used > 0) {
            top->slots[0] = m->root;
            top->used = 1;
        } else {
            free(m->root);
            m->leaf = NULL;
        }
        m->root = top;
        m->levels++;
    }
}

static struct seqmap_node *find_leaf(struct seqmap *m, uint64_t seq)
{
    uint64_t base = seq >> BITS;
    if (m->leaf && m->leaf_base == base)
        return m->leaf;
    if (!m->root || !fits(seq, m->levels))
        return NULL;
    struct seqmap_node *node = m->root;
    for (uint32_t level = m->levels - 1; level > 0 && node; level--)
        node = node->slots[digit(seq, level)];
    if (node) {
        m->leaf = node;
        m->leaf_base = base;
    }
    return node;
}

void seqmap_put(struct seqmap *m, uint64_t seq, void *value)
{
    assert(value);
    struct seqmap_node *leaf = find_leaf(m, seq);
    if (!leaf) {
        grow(m, seq);
        leaf = m->root;
        for (uint32_t level = m->levels - 1; level > 0; level--) {
            void **slot = &leaf->slots[digit(seq, level)];
            if (!*slot) {
                *slot = mem_zalloc(sizeof(struct seqmap_node));
                leaf->used++;
            }
            leaf = *slot;
        }
        assert(fits(seq, m->levels));
        m->leaf = leaf;
        m->leaf_base = seq >> BITS;
    }
    void **slot = &leaf->slots[digit(seq, 0)];
    assert(!*slot);
    assert(leaf->used < FAN);
    *slot = value;
    leaf->used++;
    m->count++;
}

void *seqmap_get(struct seqmap *m, uint64_t seq)
{
    struct seqmap_node *leaf = find_leaf(m, seq);
    return leaf ? leaf->slots[digit(seq, 0)] : NULL;
}

/* Frees the empty nodes on the way down to seq; true when `node` itself became empty. */
static bool prune(struct seqmap_node *node, uint64_t seq, uint32_t level)
{
    if (level > 0) {
        void **slot = &node->slots[digit(seq, level)];
        if (prune(*slot, seq, level - 1)) {
            assert(node->used > 0);
            free(*slot);
            *slot = NULL;
            node->used--;
        }
    }
    return node->used == 0;
}

void *seqmap_remove(struct seqmap *m, uint64_t seq)
{
    struct seqmap_node *leaf = find_leaf(m, seq);
    void **slot = leaf ? &leaf->slots[digit(seq, 0)] : NULL;
    void *value = slot ? *slot : NULL;
    if (!value)
        return NULL;
    assert(leaf->used > 0);
    *slot = NULL;
    leaf->used--;
    m->count--;
    if (leaf->used == 0) {
        m->leaf = NULL;
        if (prune(m->root, seq, m->levels - 1)) {
            free(m->root);
            m->root = NULL;
            m->levels = 0;
        }
        assert((m->count == 0) == !m->root);
    }
    return value;
}

/* How many values are below a node; empty nodes are freed at once. */
static uint64_t check_node(const struct seqmap_node *node, uint32_t level)
{
    uint64_t values = 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i < FAN; i++) {
        if (!node->slots[i])
            continue;
        used++;
        values += level > 0 ? check_node(node->slots[i], level - 1) : 1;
    }
    assert(used > 0);
    assert(used == node->used);
    return values;
}

void seqmap_check(const struct seqmap *m)
{
    assert(!m->root == (m->levels == 0));
    assert(m->count == (m->root ? check_node(m->root, m->levels - 1) : 0));
}

static void *next_in(const struct seqmap_node *node, uint32_t level, uint64_t from, uint64_t base,
                     uint64_t *seq)
{
    for (uint32_t i = digit(from, level); i < FAN; i++) {
        uint64_t here = base | (uint64_t)i << (level * BITS);
        if (!node->slots[i])
            continue;
        if (level == 0) {
            *seq = here;
            return node->slots[i];
        }
        void *found = next_in(node->slots[i], level - 1, here > from ? here : from, here, seq);
        if (found)
            return found;
    }
    return NULL;
}

void *seqmap_next(const struct seqmap *m, uint64_t from, uint64_t *seq)
{
    if (!m->root || !fits(from, m->levels))
        return NULL;
    return next_in(m->root, m->levels - 1, from, 0, seq);
}
