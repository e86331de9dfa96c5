#include "engine/local/manifest.h"
#include "base/mem.h"

#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

static void list(struct manifest *m, rocksdb_t *db)
{
    const rocksdb_livefiles_t *files = rocksdb_livefiles(db);
    int count = rocksdb_livefiles_count(files);
    m->tables = mem_zalloc(((size_t)count + 1) * sizeof(*m->tables));
    for (int i = 0; i < count; i++) {
        const char *name = rocksdb_livefiles_name(files, i);
        bool cold = strcmp(rocksdb_livefiles_column_family_name(files, i), "cold") == 0;
        name += name[0] == '/';
        m->tables[m->count++] = (struct manifest_table){.name = mem_dup(name, strlen(name)),
                                                        .size = rocksdb_livefiles_size(files, i),
                                                        .family = cold ? STORE_COLD : STORE_HOT};
    }
    rocksdb_livefiles_destroy(files);
}

/* Without its paranoid checks RocksDB does not look at the tables themselves: that is for us. */
bool manifest_read(const char *store, struct manifest *m, struct buf *error)
{
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_options_set_paranoid_checks(o, 0);
    rocksdb_options_set_max_open_files(o, 16);
    const char *names[] = {"default", "cold"};
    const rocksdb_options_t *options[] = {o, o};
    rocksdb_column_family_handle_t *families[2];
    char *message = NULL;
    rocksdb_t *db = rocksdb_open_for_read_only_column_families(o, store, 2, names, options,
                                                               families, 0, &message);
    *m = (struct manifest){0};
    if (message) {
        buf_puts(error, message);
        rocksdb_free(message);
    } else {
        list(m, db);
        for (int i = 0; i < 2; i++)
            rocksdb_column_family_handle_destroy(families[i]);
        rocksdb_close(db);
    }
    rocksdb_options_destroy(o);
    return message == NULL;
}

void manifest_fini(struct manifest *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->tables[i].name);
    free(m->tables);
    *m = (struct manifest){0};
}
