#include "core/series.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const struct series_tier series_tiers[SERIES_TIERS] = {
    {1, 3600}, {10, 86400}, {60, 7 * 86400}, {900, 90 * 86400}};

#define BLOCK_SIZE 448 /* bytes of points */
#define POINT_MAX  (10 + 2 + SERIES_VALUES * 11)
#define EXPIRE_MAX 8 /* blocks of a tier in one call */

struct series_block {
    struct series_block *older, *newer; /* of the pool's tier */
    struct series_block *next;          /* of the series' tier, newer */
    struct series *series;
    int64_t first_s, last_s;
    uint16_t tier, used, cap;
    uint8_t data[];
};

struct series {
    struct {
        struct series_block *oldest, *newest;
        int64_t last_s;
        uint64_t values[SERIES_VALUES]; /* of the last point */
    } tiers[SERIES_TIERS];
};

void series_pool_init(struct series_pool *pool, size_t bytes_max)
{
    *pool = (struct series_pool){.bytes_max = bytes_max};
}

/* Numbers of few bytes: seven bits each, the lowest first. */

static uint8_t *put_varint(uint8_t *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

static const uint8_t *take_varint(const uint8_t *from, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0;; shift += 7) {
        *value |= (uint64_t)(*from & 0x7f) << shift;
        if (!(*from++ & 0x80))
            return from;
    }
}

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (uint64_t) - (int64_t)(difference >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
    return value >> 1 ^ (uint64_t) - (int64_t)(value & 1);
}

/* A point: seconds since the one before it, how many numbers changed, and of each of these how many
 * are skipped before it, and its difference. */

static size_t point_encode(uint8_t out[POINT_MAX], int64_t after_s, const uint64_t *before,
                           const uint64_t *values)
{
    uint8_t *to = put_varint(out, (uint64_t)after_s);
    uint64_t changed = 0;
    for (int i = 0; i < SERIES_VALUES; i++)
        changed += before[i] != values[i];
    to = put_varint(to, changed);
    for (int i = 0, from = 0; i < SERIES_VALUES; i++) {
        if (before[i] == values[i])
            continue;
        to = put_varint(to, (uint64_t)(i - from));
        to = put_varint(to, zigzag(values[i] - before[i]));
        from = i + 1;
    }
    return (size_t)(to - out);
}

static const uint8_t *point_decode(const uint8_t *from, int64_t *at_s, uint64_t *values)
{
    uint64_t after_s, changed, skipped, difference;
    from = take_varint(from, &after_s);
    from = take_varint(from, &changed);
    *at_s += (int64_t)after_s;
    for (uint64_t i = 0; changed > 0; changed--, i++) {
        from = take_varint(from, &skipped);
        from = take_varint(from, &difference);
        i += skipped;
        assert(i < SERIES_VALUES);
        values[i] += unzigzag(difference);
    }
    return from;
}

/* Blocks */

static size_t block_bytes(const struct series_block *b)
{
    return sizeof(*b) + b->cap;
}

static void list_append(struct series_list *list, struct series_block *b)
{
    b->older = list->newest;
    b->newer = NULL;
    *(list->newest ? &list->newest->newer : &list->oldest) = b;
    list->newest = b;
}

static void list_remove(struct series_list *list, struct series_block *b)
{
    *(b->older ? &b->older->newer : &list->oldest) = b->newer;
    *(b->newer ? &b->newer->older : &list->newest) = b->older;
}

/* A series loses its oldest block first, as does the pool; so it is the first of its series, unless
 * it was spared as the only one (series_expire). */
static void block_free(struct series_pool *pool, struct series_block *b)
{
    struct series_list *list = &pool->lists[b->tier];
    struct series *s = b->series;
    struct series_block **link = &s->tiers[b->tier].oldest, *before = NULL;
    for (; *link != b; link = &(*link)->next)
        before = *link;
    *link = b->next;
    if (s->tiers[b->tier].newest == b)
        s->tiers[b->tier].newest = before;
    list_remove(list, b);
    assert(list->bytes >= block_bytes(b));
    assert(pool->bytes >= block_bytes(b));
    list->bytes -= block_bytes(b);
    pool->bytes -= block_bytes(b);
    free(b);
}

/* False: nothing can be let go of. */
static bool make_room(struct series_pool *pool, size_t bytes)
{
    while (pool->bytes + bytes > pool->bytes_max) {
        struct series_list *most = &pool->lists[0];
        for (int tier = 1; tier < SERIES_TIERS; tier++)
            most = pool->lists[tier].bytes > most->bytes ? &pool->lists[tier] : most;
        if (!most->oldest)
            return false;
        block_free(pool, most->oldest);
    }
    return true;
}

static void block_new(struct series_pool *pool, struct series *s, int tier, int64_t at_s,
                      const uint64_t *values)
{
    static const uint64_t zeros[SERIES_VALUES];
    uint8_t point[POINT_MAX];
    size_t len = point_encode(point, 0, zeros, values);
    size_t cap = len > BLOCK_SIZE ? len : BLOCK_SIZE;
    if (!make_room(pool, sizeof(struct series_block) + cap))
        return;
    struct series_block *b = mem_alloc(sizeof(*b) + cap);
    *b = (struct series_block){.series = s, .first_s = at_s, .last_s = at_s};
    b->tier = (uint16_t)tier;
    b->cap = (uint16_t)cap;
    b->used = (uint16_t)len;
    memcpy(b->data, point, len);
    struct series_block *newest = s->tiers[tier].newest;
    *(newest ? &newest->next : &s->tiers[tier].oldest) = b;
    s->tiers[tier].newest = b;
    list_append(&pool->lists[tier], b);
    pool->lists[tier].bytes += block_bytes(b);
    pool->bytes += block_bytes(b);
}

static bool is_zero(const uint64_t values[SERIES_VALUES])
{
    for (int i = 0; i < SERIES_VALUES; i++) {
        if (values[i] != 0)
            return false;
    }
    return true;
}

static bool series_make(struct series_pool *pool, struct series **s, const uint64_t *values)
{
    if (*s)
        return true;
    if (is_zero(values) || !make_room(pool, sizeof(**s)))
        return false;
    *s = mem_zalloc(sizeof(**s));
    pool->bytes += sizeof(**s);
    return true;
}

void series_record(struct series_pool *pool, struct series **out, int tier, int64_t at_s,
                   const uint64_t values[SERIES_VALUES])
{
    uint8_t point[POINT_MAX];
    if (!series_make(pool, out, values))
        return;
    struct series *s = *out;
    uint64_t *last = s->tiers[tier].values;
    struct series_block *b = s->tiers[tier].newest;
    if (at_s <= s->tiers[tier].last_s ||
        (b && memcmp(last, values, sizeof(s->tiers[0].values)) == 0))
        return;
    size_t len = b ? point_encode(point, at_s - b->last_s, last, values) : 0;
    if (b && b->used + len <= b->cap) {
        memcpy(b->data + b->used, point, len);
        b->used = (uint16_t)(b->used + len);
        b->last_s = at_s;
    } else {
        block_new(pool, s, tier, at_s, values);
    }
    s->tiers[tier].last_s = at_s;
    memcpy(last, values, sizeof(s->tiers[0].values));
}

/* The newest block of a series says what its numbers still are, however old it is. It goes behind
 * the others, so that these are looked at. */
void series_expire(struct series_pool *pool, int64_t now_s)
{
    for (int tier = 0; tier < SERIES_TIERS; tier++) {
        struct series_list *list = &pool->lists[tier];
        int64_t until_s = now_s - series_tiers[tier].span_s;
        for (int i = 0; i < EXPIRE_MAX && list->oldest && list->oldest->last_s < until_s; i++) {
            struct series_block *b = list->oldest;
            if (b->series->tiers[tier].newest != b) {
                block_free(pool, b);
                continue;
            }
            list_remove(list, b);
            list_append(list, b);
        }
    }
}

void series_read(const struct series *s, int tier, int64_t from_s, int64_t to_s,
                 series_visit *visit, void *ctx)
{
    const struct series_block *b = s ? s->tiers[tier].oldest : NULL;
    while (b && b->next && b->next->first_s <= from_s)
        b = b->next;
    uint64_t values[SERIES_VALUES], before[SERIES_VALUES];
    int64_t before_s = INT64_MIN;
    for (; b && b->first_s <= to_s; b = b->next) {
        int64_t at_s = b->first_s;
        memset(values, 0, sizeof(values));
        for (const uint8_t *from = b->data; from < b->data + b->used;) {
            from = point_decode(from, &at_s, values);
            if (at_s > from_s && before_s != INT64_MIN)
                visit(ctx, before_s, before);
            if (at_s > to_s)
                return;
            before_s = INT64_MIN;
            if (at_s > from_s) {
                visit(ctx, at_s, values);
            } else {
                before_s = at_s;
                memcpy(before, values, sizeof(before));
            }
        }
    }
    if (before_s != INT64_MIN)
        visit(ctx, before_s, before);
}

void series_free(struct series_pool *pool, struct series **s)
{
    if (!*s)
        return;
    for (int tier = 0; tier < SERIES_TIERS; tier++) {
        while ((*s)->tiers[tier].oldest)
            block_free(pool, (*s)->tiers[tier].oldest);
    }
    assert(pool->bytes >= sizeof(**s));
    pool->bytes -= sizeof(**s);
    free(*s);
    *s = NULL;
}
