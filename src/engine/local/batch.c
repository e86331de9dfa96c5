#include "engine/local/batch.h"

#define HEAD 12 /* a number of RocksDB's, how many there are */

/* What stands before each: the kind, and whether it names a family. */
static const struct {
    unsigned char tag;
    enum table_kind kind;
    bool family, value;
} tags[] = {
    {0x0, TABLE_DELETE, false, false},      {0x1, TABLE_PUT, false, true},
    {0x4, TABLE_DELETE, true, false},       {0x5, TABLE_PUT, true, true},
    {0x7, TABLE_DELETE_ONCE, false, false}, {0x8, TABLE_DELETE_ONCE, true, false},
    {0xf, TABLE_DELETE_RANGE, false, true}, {0xe, TABLE_DELETE_RANGE, true, true},
};

#define TAG_COUNT (sizeof(tags) / sizeof(tags[0]))

static bool number(const char **at, const char *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 35 && *at < end; shift += 7) {
        uint64_t byte = (unsigned char)*(*at)++;
        *out |= (byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool text(const char **at, const char *end, const char **out, size_t *len)
{
    uint64_t n;
    if (!number(at, end, &n) || n > (uint64_t)(end - *at))
        return false;
    *out = *at;
    *len = (size_t)n;
    *at += n;
    return true;
}

bool batch_read(const char *data, size_t len, batch_each *each, void *ctx)
{
    const char *at = data + HEAD, *end = data + len;
    if (len < HEAD)
        return len == 0;
    while (at < end) {
        unsigned char tag = (unsigned char)*at++;
        size_t i = 0;
        while (i < TAG_COUNT && tags[i].tag != tag)
            i++;
        struct table_entry e = {0};
        uint64_t family;
        if (i == TAG_COUNT || (tags[i].family && !number(&at, end, &family)) ||
            !text(&at, end, &e.key, &e.key_len) ||
            (tags[i].value && !text(&at, end, &e.value, &e.value_len)))
            return false;
        e.kind = tags[i].kind;
        each(ctx, &e);
    }
    return true;
}
