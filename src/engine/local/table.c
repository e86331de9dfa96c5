#include "engine/local/table.h"
#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FOOTER          53
#define TRAILER         5 /* of a block: how it is compressed, checksum */
#define MAGIC           0x88e241b785f4cff7ULL
#define SUM_XXH3        4
#define RESTART_ENTRIES 16
#define SEQ_BYTES       8 /* behind each key: seq and kind */
#define BLOCK_MAX       (256ULL * 1024 * 1024)

struct handle {
    uint64_t offset, size; /* without the trailer */
};

struct table {
    char *path;
    int fd;
    uint64_t size, read;
    table_damage *damage;
    void *ctx;
    int family;
    bool delta_index; /* as its properties say */
    struct handle *index;
    size_t index_count, index_at;
    bool walking; /* there is no index: each block tells where the next one begins */
    uint64_t walk_at;
    struct buf window; /* the part of the file that is walked through */
    uint64_t window_at;
    struct table_ranges ranges;
    /* The block at hand. */
    struct buf block;
    const char *at, *end; /* of its entries */
    struct buf key;       /* whole, of the entry at hand */
};

static void tell(const struct table *t, uint64_t offset, const char *what)
{
    struct buf line = {0};
    buf_printf(&line, "%s offset %llu: %s", t->path, (unsigned long long)offset, what);
    t->damage(t->ctx, buf_cstr(&line));
    buf_fini(&line);
}

/* Bytes */

static bool read_at(struct table *t, uint64_t offset, uint64_t len, struct buf *out)
{
    buf_clear(out);
    if (len > BLOCK_MAX || offset > t->size || len > t->size - offset)
        return false;
    buf_reserve(out, len + 1);
    while (out->len < len) {
        ssize_t got =
            pread(t->fd, out->data + out->len, len - out->len, (off_t)(offset + out->len));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        out->len += (size_t)got;
    }
    t->read += len;
    return true;
}

static uint32_t le32(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint64_t le64(const char *at)
{
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static bool varint(const char **at, const char *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint64_t byte = (unsigned char)*(*at)++;
        *out |= (byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool get_handle(const char **at, const char *end, struct handle *h)
{
    return varint(at, end, &h->offset) && varint(at, end, &h->size);
}

/* Blocks */

static bool sum_fits(const char *block, size_t len)
{
    uint32_t kind = (unsigned char)block[len];
    uint32_t sum = (uint32_t)XXH3_64bits(block, len) ^ kind * 0x6b9083d9u;
    return kind == 0 && sum == le32(block + len + 1);
}

static bool read_block(struct table *t, const struct handle *h, struct buf *out, const char *what)
{
    struct buf why = {0};
    errno = 0;
    bool ok = h->size <= BLOCK_MAX && read_at(t, h->offset, h->size + TRAILER, out);
    if (!ok)
        buf_printf(&why, "%s of %llu bytes cannot be read%s%s", what, (unsigned long long)h->size,
                   errno ? ": " : "; the file is shorter", errno ? strerror(errno) : "");
    else if (!sum_fits(out->data, h->size))
        buf_printf(&why, "%s of %llu bytes has another checksum than it was written with", what,
                   (unsigned long long)h->size);
    if (why.len > 0)
        tell(t, h->offset, buf_cstr(&why));
    ok = ok && why.len == 0;
    buf_fini(&why);
    return ok;
}

/* Where the entries of a block end: behind them are restart points, and their number. */
static const char *entries_end(const struct buf *block, uint64_t size)
{
    uint64_t restarts = size >= 4 ? le32(block->data + size - 4) : UINT32_MAX;
    return restarts > (size - 4) / 4 || size < 4 ? block->data
                                                 : block->data + size - 4 - 4 * restarts;
}

/* The next entry: a part of the key before is used again. */
static bool step(const char **at, const char *end, struct buf *key, const char **value,
                 uint64_t *value_len)
{
    uint64_t shared, rest;
    if (!varint(at, end, &shared) || !varint(at, end, &rest) || !varint(at, end, value_len))
        return false;
    if (shared > key->len || rest > (uint64_t)(end - *at) ||
        *value_len > (uint64_t)(end - *at) - rest)
        return false;
    key->len = shared;
    buf_put(key, *at, rest);
    *value = *at + rest;
    *at += rest + *value_len;
    return true;
}

/* The parts of a table beside its messages */

static void read_properties(struct table *t, const struct handle *h)
{
    struct buf block = {0}, key = {0};
    const char *value;
    uint64_t len, number;
    if (read_block(t, h, &block, "the block of properties")) {
        const char *at = block.data, *end = entries_end(&block, h->size);
        while (at < end && step(&at, end, &key, &value, &len)) {
            const char *from = value;
            if (!varint(&from, value + len, &number))
                continue;
            if (strcmp(buf_cstr(&key), "rocksdb.column.family.id") == 0 && number < 2)
                t->family = (int)number;
            else if (strcmp(buf_cstr(&key), "rocksdb.index.value.is.delta.encoded") == 0)
                t->delta_index = number != 0;
        }
    }
    buf_fini(&block);
    buf_fini(&key);
}

/* Splits what stands behind a key: seq and kind. */
static bool split(struct buf *key, struct table_entry *e)
{
    if (key->len < SEQ_BYTES)
        return false;
    uint64_t tail = le64(key->data + key->len - SEQ_BYTES);
    e->key = key->data;
    e->key_len = key->len - SEQ_BYTES;
    e->seq = tail >> 8;
    e->kind = (enum table_kind)(tail & 255);
    return e->kind == TABLE_DELETE || e->kind == TABLE_PUT || e->kind == TABLE_DELETE_ONCE ||
           e->kind == TABLE_DELETE_RANGE;
}

static void add_range(struct table *t, const struct table_entry *e)
{
    struct table_ranges *r = &t->ranges;
    r->items = mem_realloc(r->items, (r->count + 1) * sizeof(*r->items));
    struct table_entry *to = &r->items[r->count++];
    *to = *e;
    to->key = mem_dup(e->key, e->key_len);
    to->value = mem_dup(e->value, e->value_len);
}

static void read_ranges(struct table *t, const struct handle *h)
{
    struct buf block = {0}, key = {0};
    struct table_entry e;
    uint64_t len;
    if (read_block(t, h, &block, "the block of deleted ranges")) {
        const char *at = block.data, *end = entries_end(&block, h->size);
        while (at < end && step(&at, end, &key, &e.value, &len)) {
            e.value_len = len;
            if (split(&key, &e) && e.kind == TABLE_DELETE_RANGE)
                add_range(t, &e);
        }
    }
    buf_fini(&block);
    buf_fini(&key);
}

static void look_at_filter(struct table *t, const struct handle *h)
{
    struct buf block = {0};
    read_block(t, h, &block, "the filter");
    buf_fini(&block);
}

static void read_part(struct table *t, const char *name, const struct handle *h)
{
    if (strcmp(name, "rocksdb.properties") == 0)
        read_properties(t, h);
    else if (strcmp(name, "rocksdb.range_del") == 0)
        read_ranges(t, h);
    else if (strncmp(name, "fullfilter.", 11) == 0)
        look_at_filter(t, h);
}

static bool read_parts(struct table *t, const struct handle *h)
{
    struct buf block = {0}, key = {0};
    const char *value;
    uint64_t len;
    struct handle part;
    bool ok = read_block(t, h, &block, "the list of its parts");
    const char *at = block.data, *end = ok ? entries_end(&block, h->size) : at;
    while (at < end && step(&at, end, &key, &value, &len)) {
        const char *from = value;
        if (get_handle(&from, value + len, &part))
            read_part(t, buf_cstr(&key), &part);
    }
    buf_fini(&block);
    buf_fini(&key);
    return ok;
}

static void add_block(struct table *t, const struct handle *h)
{
    if ((t->index_count & (t->index_count - 1)) == 0)
        t->index = mem_realloc(t->index, (t->index_count ? 2 * t->index_count : 1) * sizeof(*h));
    t->index[t->index_count++] = *h;
}

/* An index has no lengths of values, and may leave out what follows from the handle before. */
static bool index_step(const struct table *t, const char **at, const char *end, struct handle *h)
{
    uint64_t shared, rest, len = 0, delta;
    if (!varint(at, end, &shared) || !varint(at, end, &rest) ||
        (!t->delta_index && !varint(at, end, &len)) || rest > (uint64_t)(end - *at))
        return false;
    *at += rest;
    if (!t->delta_index || shared == 0)
        return get_handle(at, end, h);
    if (!varint(at, end, &delta))
        return false;
    h->offset += h->size + TRAILER;
    h->size += (delta >> 1) ^ (0 - (delta & 1));
    return true;
}

static bool read_index(struct table *t, const struct handle *h)
{
    struct buf block = {0};
    struct handle next = {0};
    bool ok = read_block(t, h, &block, "the index");
    const char *at = block.data, *end = ok ? entries_end(&block, h->size) : at;
    while (ok && at < end) {
        ok = index_step(t, &at, end, &next);
        if (ok)
            add_block(t, &next);
        else
            tell(t, h->offset, "the index does not decode");
    }
    buf_fini(&block);
    return ok;
}

/* The footer tells where the index and the other parts are. */
static bool read_footer(struct table *t)
{
    struct handle parts, index;
    const char *at;
    if (t->size < FOOTER || !read_at(t, t->size - FOOTER, FOOTER, &t->block) ||
        le64(t->block.data + FOOTER - 8) != MAGIC) {
        tell(t, t->size < FOOTER ? 0 : t->size - FOOTER, "it does not end as a table does");
        return false;
    }
    at = t->block.data + 1;
    if (t->block.data[0] != SUM_XXH3 || !get_handle(&at, t->block.data + 41, &parts) ||
        !get_handle(&at, t->block.data + 41, &index)) {
        tell(t, t->size - FOOTER, "the footer does not decode");
        return false;
    }
    return read_parts(t, &parts) && read_index(t, &index);
}

struct table *table_open(const char *path, table_damage *damage, void *ctx)
{
    struct table *t = mem_zalloc(sizeof(*t));
    struct stat st;
    *t = (struct table){.path = mem_dup(path, strlen(path)),
                        .damage = damage,
                        .ctx = ctx,
                        .family = -1,
                        .delta_index = true};
    t->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (t->fd < 0 || fstat(t->fd, &st) < 0) {
        tell(t, 0, strerror(errno));
        table_close(t);
        return NULL;
    }
    t->size = (uint64_t)st.st_size;
    if (!read_footer(t)) {
        t->walking = true;
        t->index_count = 0;
    }
    return t;
}

void table_close(struct table *t)
{
    if (t->fd >= 0)
        close(t->fd);
    for (size_t i = 0; i < t->ranges.count; i++) {
        free((void *)t->ranges.items[i].key);
        free((void *)t->ranges.items[i].value);
    }
    free(t->ranges.items);
    free(t->index);
    free(t->path);
    buf_fini(&t->block);
    buf_fini(&t->window);
    buf_fini(&t->key);
    free(t);
}

/* Blocks without an index */

/* The size of the block that starts here, or 0. Behind each entry the restart points might begin:
 * then there is the right number of them, and the checksum fits. */
static uint64_t block_size(const char *from, const char *end)
{
    struct buf key = {0};
    const char *at = from, *value;
    uint64_t len, count = 0, size = 0;
    struct table_entry e;
    while (size == 0 && step(&at, end, &key, &value, &len) && split(&key, &e)) {
        uint64_t restarts = count++ / RESTART_ENTRIES + 1, tail = 4 * restarts + 4;
        if ((uint64_t)(end - at) >= tail + TRAILER && le32(at + tail - 4) == restarts &&
            le32(at) == 0 && sum_fits(from, (size_t)(at - from) + tail))
            size = (uint64_t)(at - from) + tail;
    }
    buf_fini(&key);
    return size;
}

#define WINDOW_BYTES (4ULL * 1024 * 1024) /* no block is larger: a message has a limit */

/* Has the bytes from `at` on at hand, as many as a block may have. */
static bool window_move(struct table *t, uint64_t at)
{
    uint64_t end = t->window_at + t->window.len;
    if (t->window.len > 0 && (at + WINDOW_BYTES / 2 < end || end == t->size))
        return true;
    uint64_t len = t->size - at < WINDOW_BYTES ? t->size - at : WINDOW_BYTES;
    t->window_at = at;
    return read_at(t, at, len, &t->window);
}

/* Blocks follow each other from the start of the file. Behind one that is damaged nothing is looked
 * for: a block that begins anywhere may be a part of a payload, and then a client wrote it. */
static bool walk_block(struct table *t, struct handle *h)
{
    uint64_t size = 0, at = t->walk_at;
    if (at < t->size && window_move(t, at))
        size = block_size(t->window.data + (at - t->window_at), t->window.data + t->window.len);
    *h = (struct handle){at, size};
    t->walk_at = size > 0 ? at + size + TRAILER : t->size;
    if (size == 0 && at < t->size)
        tell(t, at,
             "from here on nothing is read: there is no index, and no whole block of "
             "messages begins here");
    return size > 0;
}

/* The next block whose checksum fits, by the index or without it. */
static bool next_block(struct table *t)
{
    struct handle h;
    while (t->walking ? walk_block(t, &h) : t->index_at < t->index_count) {
        if (!t->walking)
            h = t->index[t->index_at++];
        if (!read_block(t, &h, &t->block, "a block"))
            continue;
        t->at = t->block.data;
        t->end = entries_end(&t->block, h.size);
        buf_clear(&t->key);
        return true;
    }
    return false;
}

bool table_next(struct table *t, struct table_entry *e)
{
    uint64_t len;
    for (;;) {
        while (t->at < t->end && step(&t->at, t->end, &t->key, &e->value, &len)) {
            e->value_len = len;
            if (split(&t->key, e))
                return true;
        }
        if (!next_block(t))
            return false;
    }
}

int table_family(const struct table *t)
{
    return t->family;
}

const struct table_ranges *table_ranges(const struct table *t)
{
    return &t->ranges;
}

uint64_t table_read(const struct table *t)
{
    return t->read;
}
