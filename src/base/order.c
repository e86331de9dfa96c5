#include "base/order.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

static bool before(const struct order_node *node, int64_t key, uint64_t tie)
{
    if (node->key != key)
        return node->key < key;
    return node->tie < tie;
}

static_assert(sizeof(struct order_node) == 24, "the tag takes no room of its own");

void order_init(struct order *o)
{
    struct order_node *s = mem_zalloc(sizeof(*s) + ORDER_HEIGHT_MAX * sizeof(struct order_link));
    s->height = ORDER_HEIGHT_MAX;
    for (int i = 0; i < ORDER_HEIGHT_MAX; i++)
        s->links[i] = (struct order_link){s, s};
    *o = (struct order){.sentinel = s};
}

void order_fini(struct order *o)
{
    free(o->sentinel);
    *o = (struct order){0};
}

/* Each further level with probability 1/4: 1.33 links a node on average. The multiplier is the
 * 64-bit golden ratio; its high bits are well mixed even for consecutive ties. */
uint32_t order_height(uint64_t tie)
{
    uint64_t mixed = tie * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 32;
    uint32_t height = 1;
    while (height < ORDER_HEIGHT_MAX && (mixed & 3) == 0) {
        mixed >>= 2;
        height++;
    }
    return height;
}

size_t order_node_extra(uint64_t tie)
{
    return order_height(tie) * sizeof(struct order_link);
}

static void link_after(struct order_node *prev, struct order_node *node, uint32_t level)
{
    struct order_node *next = prev->links[level].next;
    node->links[level] = (struct order_link){next, prev};
    prev->links[level].next = node;
    next->links[level].prev = node;
}

/* No two nodes may share key and tie: their order would not be defined. */
static void assert_in_place(const struct order *o, const struct order_node *node)
{
    const struct order_node *s = o->sentinel;
    const struct order_node *prev = node->links[0].prev, *next = node->links[0].next;
    assert(prev == s || before(prev, node->key, node->tie));
    assert(next == s || before(node, next->key, next->tie));
}

#define NEAR_STEPS 16

/* The node before the new one, if that is one of the last; else NULL. */
static struct order_node *near_end(const struct order *o, const struct order_node *node)
{
    struct order_node *at = o->sentinel->links[0].prev;
    for (int i = 0; i < NEAR_STEPS; i++, at = at->links[0].prev) {
        if (at == o->sentinel || before(at, node->key, node->tie))
            return at;
    }
    return NULL;
}

void order_insert(struct order *o, struct order_node *node)
{
    struct order_node *s = o->sentinel;
    assert(node->height == 0);
    node->height = order_height(node->tie);
    o->count++;

    struct order_node *last = s->links[0].prev;
    if (last == s || before(last, node->key, node->tie)) {
        for (uint32_t i = 0; i < node->height; i++)
            link_after(s->links[i].prev, node, i);
        return;
    }
    /* Most messages that arrive belong near the end. Three nodes in four have one link. */
    struct order_node *at = node->height == 1 ? near_end(o, node) : NULL;
    if (at) {
        link_after(at, node, 0);
        assert_in_place(o, node);
        return;
    }
    at = s;
    for (uint32_t i = ORDER_HEIGHT_MAX; i-- > 0;) {
        while (at->links[i].next != s && before(at->links[i].next, node->key, node->tie))
            at = at->links[i].next;
        if (i < node->height)
            link_after(at, node, i);
    }
    assert_in_place(o, node);
}

void order_remove(struct order *o, struct order_node *node)
{
    assert(node->height > 0);
    assert(o->count > 0);
    for (uint32_t i = 0; i < node->height; i++) {
        struct order_link link = node->links[i];
        assert(link.prev->links[i].next == node);
        assert(link.next->links[i].prev == node);
        link.prev->links[i].next = link.next;
        link.next->links[i].prev = link.prev;
    }
    node->height = 0;
    o->count--;
}

struct order_node *order_last(const struct order *o)
{
    struct order_node *last = o->sentinel->links[0].prev;
    return last == o->sentinel ? NULL : last;
}

struct order_node *order_next(const struct order *o, const struct order_node *node)
{
    struct order_node *next = node->links[0].next;
    return next == o->sentinel ? NULL : next;
}

struct order_node *order_prev(const struct order *o, const struct order_node *node)
{
    struct order_node *prev = node->links[0].prev;
    return prev == o->sentinel ? NULL : prev;
}

struct order_node *order_seek(const struct order *o, int64_t key, uint64_t tie)
{
    struct order_node *s = o->sentinel, *at = s;
    for (uint32_t i = ORDER_HEIGHT_MAX; i-- > 0;) {
        while (at->links[i].next != s && before(at->links[i].next, key, tie))
            at = at->links[i].next;
    }
    return order_next(o, at);
}

#define COUNT_STEPS 1024

/* How many nodes of one level stand before the place, but no more than `most`. */
static uint64_t level_before(const struct order *o, uint32_t level, int64_t key, uint64_t tie,
                             uint64_t most)
{
    const struct order_node *s = o->sentinel;
    uint64_t found = 0;
    for (const struct order_node *n = s->links[level].next;
         found < most && n != s && before(n, key, tie); n = n->links[level].next)
        found++;
    return found;
}

uint64_t order_count_before(const struct order *o, int64_t key, uint64_t tie, bool *exact)
{
    uint64_t near = level_before(o, 0, key, tie, COUNT_STEPS);
    if (near < COUNT_STEPS || near == o->count)
        return near;
    *exact = false;
    uint32_t level = 1; /* a quarter of the nodes of one level are in the next */
    while (level < ORDER_HEIGHT_MAX - 1 && o->count >> (2 * level) > COUNT_STEPS)
        level++;
    uint64_t all = level_before(o, level, INT64_MAX, UINT64_MAX, UINT64_MAX);
    uint64_t found = level_before(o, level, key, tie, UINT64_MAX);
    uint64_t guess = all ? (uint64_t)((double)o->count * (double)found / (double)all) : 0;
    return guess > near ? guess : near;
}

void order_check(const struct order *o)
{
    const struct order_node *s = o->sentinel;
    assert(s->height == ORDER_HEIGHT_MAX);
    for (uint32_t i = 0; i < ORDER_HEIGHT_MAX; i++) {
        uint64_t seen = 0;
        for (const struct order_node *n = s->links[i].next; n != s; n = n->links[i].next) {
            assert(n->height > i);
            assert(n->height == order_height(n->tie));
            assert(n->links[i].next->links[i].prev == n);
            assert(n->links[i].prev == s || before(n->links[i].prev, n->key, n->tie));
            seen++;
        }
        assert(i > 0 || seen == o->count);
    }
}
