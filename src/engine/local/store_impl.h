/* Private to the store: store.c opens and reads it, store_write.c writes it, store_space.c watches
 * the disk. */
#ifndef TRIAGE_ENGINE_LOCAL_STORE_IMPL_H
#define TRIAGE_ENGINE_LOCAL_STORE_IMPL_H

#include "engine/local/secret.h"
#include "engine/local/store.h"
#include "engine/local/terms.h"
#include "engine/local/wal.h"

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>

#define STORE_FAMILIES 2

/* The records of a family that are in memtables only. The writer's, but for `last`. */
struct unflushed {
    uint64_t bytes;
    uint64_t log_from;  /* bytes of the log when the first of these records was written */
    atomic_ullong last; /* the last record of the log with anything for this family */
};

/* The disk, as far as it is known. */
struct space {
    uint64_t reserve; /* as configured; 0: what the store may need */
    uint64_t need_min;
    atomic_ullong free;      /* bytes, when they were looked at */
    atomic_llong room;       /* bytes that may still be stored; below 0: full */
    atomic_ullong stored;    /* bytes that were let in … */
    atomic_ullong done;      /* … and of these, those that were applied or given up */
    atomic_bool refused;     /* somebody was refused since the last look */
    atomic_bool scarce;      /* the disk may be full soon: keep spare segments ready */
    atomic_ullong scarce_us; /* mono; when space was last scarce */

    /* The writer's. */
    uint64_t looked_us, looked_log; /* mono; bytes of the log */
    uint64_t squeezed_us, squeezed_seq;
    uint32_t squeezes; /* since a record was applied */
};

/* The thread that makes room in the log. */
struct keeper {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wanted;
    bool running, kicked, stopping;
};

struct store {
    char *dir;
    int lock_fd;
    long format; /* as found: 0 when there was none */
    uint8_t secret[SECRET_BYTES];
    rocksdb_t *db;
    rocksdb_column_family_handle_t *families[STORE_FAMILIES];
    rocksdb_options_t *db_options;
    rocksdb_options_t *family_options[STORE_FAMILIES];
    rocksdb_cache_t *cache;
    rocksdb_compactionfilter_t *filter;
    rocksdb_writeoptions_t *write;
    rocksdb_flushoptions_t *flush_now, *flush_later;
    rocksdb_readoptions_t *read, *read_tables;
    struct space space;

    struct wal *wal;
    uint64_t buffer_bytes, log_bytes_max, segment_bytes;
    uint64_t kicked_at;   /* bytes of the log */
    uint64_t applied_end; /* the last frame of the last record that was applied */
    struct unflushed unflushed[STORE_FAMILIES];
    atomic_ullong applied; /* the last record that is in memtables or tables */
    struct keeper keeper;
    struct terms terms;
};

struct key store_key_behind(const struct key *prefix);
enum status store_failure(char *message, struct buf *error); /* takes RocksDB's sentence */

/* store_space.c */
void space_init(struct store *s, uint64_t reserve, uint64_t need_min);
bool space_for(const struct store *s, uint64_t bytes); /* asks the file system */

/* store_copy.c */
void store_copy_forget(const struct store *s); /* removes what a copy that was cut off left */

/* store_write.c */
MUST_USE enum status store_flush(struct store *s, int f, bool wait, struct buf *error);
MUST_USE enum status store_note_position(struct store *s, int f, struct buf *error); /* again */
void store_kick_keeper(struct store *s);
MUST_USE enum status store_recover(struct store *s, bool direct, struct buf *error);
void store_keeper_start(struct store *s);
void store_keeper_stop(struct store *s);

#endif
