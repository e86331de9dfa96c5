/* Our own reader of RocksDB's table files, block by block. RocksDB stops at the first damaged
 * block, and refuses a folder that lacks a file. This reader reads every block that is readable,
 * and names the others with file and offset. Nothing is written.
 *
 * It knows the layout that our own options make: block based, version 5 of the footer, no
 * compression, XXH3 in the trailer of each block, sixteen entries to a restart point. Where the
 * index of a file is damaged, or its end is cut off, blocks are found by trying: a block knows how
 * many entries it has, and its checksum tells whether that was one. */
#ifndef TRIAGE_ENGINE_LOCAL_TABLE_H
#define TRIAGE_ENGINE_LOCAL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table;

/* Told of each damage, in a sentence with file and offset. */
typedef void table_damage(void *ctx, const char *sentence);

enum table_kind {
    TABLE_DELETE = 0,
    TABLE_PUT = 1,
    TABLE_DELETE_ONCE = 7,
    TABLE_DELETE_RANGE = 15, /* only in a list of its own */
};

struct table_entry {
    const char *key, *value; /* borrowed until the next step */
    size_t key_len, value_len;
    uint64_t seq; /* RocksDB's: the highest of a key is the latest */
    enum table_kind kind;
};

/* All keys from `key` to before `value`, of entries with a smaller seq. */
struct table_ranges {
    struct table_entry *items; /* owned, with their bytes */
    size_t count;
};

/* NULL when nothing of the file can be read; `damage` was told then. */
struct table *table_open(const char *path, table_damage *damage, void *ctx);
void table_close(struct table *t);

bool table_next(struct table *t, struct table_entry *e); /* in order of keys; false at the end */
int table_family(const struct table *t);                 /* RocksDB's number; -1: not readable */
const struct table_ranges *table_ranges(const struct table *t);
uint64_t table_read(const struct table *t); /* how many of its bytes were read so far */

#endif
