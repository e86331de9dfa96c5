#include "base/zone.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct zone_reader {
    const uint8_t *at, *end;
};

static int64_t get(struct zone_reader *r, size_t width)
{
    uint64_t value = r->at[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | *r->at++;
    return (int64_t)value;
}

/* The counts at the head of a block. */
struct zone_head {
    uint8_t version;
    uint32_t ut_count, std_count, leap_count, change_count, type_count, name_bytes;
};

#define HEAD_BYTES 44

static bool head_read(struct zone_reader *r, struct zone_head *h)
{
    if (r->end - r->at < HEAD_BYTES || memcmp(r->at, "TZif", 4) != 0)
        return false;
    h->version = r->at[4];
    r->at += 20;
    uint32_t *const counts[] = {&h->ut_count,     &h->std_count,  &h->leap_count,
                                &h->change_count, &h->type_count, &h->name_bytes};
    for (size_t i = 0; i < 6; i++)
        *counts[i] = (uint32_t)get(r, 4);
    return true;
}

/* Whether the block fits the file. Each count is checked before it is multiplied. */
static bool head_fits(const struct zone_head *h, size_t width, const struct zone_reader *r)
{
    if (h->change_count > ZONE_CHANGES_MAX || h->type_count == 0 || h->type_count > 256 ||
        h->name_bytes > ZONE_BYTES_MAX || h->leap_count > ZONE_CHANGES_MAX || h->ut_count > 256 ||
        h->std_count > 256)
        return false;
    size_t bytes = h->change_count * (width + 1) + h->type_count * 6 + h->name_bytes +
                   h->leap_count * (width + 4) + h->ut_count + h->std_count;
    return (size_t)(r->end - r->at) >= bytes;
}

static bool offset_fits(int64_t offset)
{
    return offset >= -ZONE_OFFSET_MAX && offset <= ZONE_OFFSET_MAX;
}

/* Reads a block whose times have `width` bytes. What comes after the types is skipped. */
static struct zone *block_read(struct zone_reader *r, const struct zone_head *h, size_t width)
{
    const uint8_t *times = r->at, *types = times + h->change_count * width;
    const uint8_t *infos = types + h->change_count;
    r->at = infos + h->type_count * 6 + h->name_bytes + h->leap_count * (width + 4) + h->ut_count +
            h->std_count;
    int32_t offsets[256];
    for (uint32_t i = 0; i < h->type_count; i++) {
        struct zone_reader info = {infos + i * 6, r->end};
        int64_t offset = get(&info, 4);
        if (!offset_fits(offset))
            return NULL;
        offsets[i] = (int32_t)offset;
    }
    struct zone *z = mem_zalloc(sizeof(*z) + h->change_count * sizeof(z->changes[0]));
    z->first = offsets[0];
    for (uint32_t i = 0; i < h->change_count; i++) {
        struct zone_reader time = {times + i * width, r->end};
        int64_t at_s = get(&time, width);
        bool later = z->count == 0 || at_s > z->changes[z->count - 1].at_s;
        if (types[i] >= h->type_count || !later) {
            free(z);
            return NULL;
        }
        int32_t before = z->count > 0 ? z->changes[z->count - 1].offset : z->first;
        if (offsets[types[i]] != before) /* a change of the name alone is no change */
            z->changes[z->count++] = (struct zone_change){at_s, offsets[types[i]]};
    }
    return z;
}

static bool footer_read(struct zone_reader *r, struct zone *z)
{
    if (r->at == r->end || *r->at != '\n')
        return false;
    const char *text = (const char *)r->at + 1;
    const char *stop = memchr(text, '\n', (size_t)((const char *)r->end - text));
    if (!stop)
        return false;
    if (stop == text) /* no rule: the time after the last change is not known */
        return true;
    z->has_rule = zone_rule_parse(text, (size_t)(stop - text), &z->rule);
    return z->has_rule;
}

struct zone *zone_parse(const void *data, size_t len)
{
    struct zone_reader r = {data, (const uint8_t *)data + len};
    struct zone_head h;
    if (len > ZONE_BYTES_MAX || !head_read(&r, &h) || !head_fits(&h, 4, &r) || h.leap_count > 0)
        return NULL;
    struct zone *z = block_read(&r, &h, 4);
    if (!z || h.version == 0)
        return z;
    free(z);
    if (!head_read(&r, &h) || !head_fits(&h, 8, &r) || h.leap_count > 0)
        return NULL;
    z = block_read(&r, &h, 8);
    if (z && footer_read(&r, z))
        return z;
    free(z);
    return NULL;
}

/* Finds the span by the rule, for a time after the last change of the list, which `s` has. */
static void rule_apply(const struct zone_rule *rule, int64_t at_s, struct zone_span *s)
{
    int64_t year;
    int month, day;
    if (!rule->has_summer)
        return;
    calendar_date(floor_div(at_s, 86400), &year, &month, &day);
    /* Looks at the year before and after, too: local years begin up to a day earlier or later than
     * those of UTC. */
    for (int i = 0; i < 6; i++) {
        int32_t offset;
        int64_t change = zone_rule_change(rule, year - 1 + i / 2, i % 2, &offset);
        if (change > at_s) {
            if (change < s->until_s)
                s->until_s = change;
        } else if (change >= s->from_s) {
            if (change > s->from_s) /* otherwise the list has it, too */
                s->before = s->offset;
            s->offset = offset;
            s->from_s = change;
        }
    }
}

struct zone_span zone_span(const struct zone *z, int64_t at_s)
{
    struct zone_span s = {INT64_MIN, INT64_MAX, 0, 0};
    if (!z)
        return s;
    uint32_t low = 0, high = z->count; /* how many changes there were by then */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (z->changes[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    s.offset = low > 0 ? z->changes[low - 1].offset : z->first;
    s.before = low > 1 ? z->changes[low - 2].offset : z->first;
    s.from_s = low > 0 ? z->changes[low - 1].at_s : INT64_MIN;
    s.until_s = low < z->count ? z->changes[low].at_s : INT64_MAX;
    if (low == z->count && z->has_rule)
        rule_apply(&z->rule, at_s, &s);
    return s;
}
