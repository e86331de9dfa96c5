#include "engine/local/remains.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/local/batch.h"
#include "engine/local/ending.h"
#include "engine/local/frame.h"
#include "engine/local/manifest.h"
#include "engine/local/table.h"
#include "engine/local/tree.h"
#include "engine/local/wal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FAMILIES 2

/* A change that the log has, and when it came. */
struct change {
    struct table_entry e; /* its bytes are in `records` */
    uint64_t record, order;
};

struct changes {
    struct change *items; /* by key, the latest first */
    size_t count, cap;
    struct change *ranges; /* in no order */
    size_t range_count;
};

/* A range of keys that was deleted: by a change of the log, or in a table. */
struct range {
    const struct table_entry *e;
    bool change;
    uint64_t order; /* of the change */
};

/* Those of the family at hand. Keys come in order, so only those around the present one are looked
 * at: there may be as many as queues were deleted. */
struct ranges {
    struct range *items; /* by their first key */
    size_t count, at;
    struct range *around; /* those that have begun, and have not ended */
    size_t around_count;
};

/* A table that is being gone through, and where it stands. */
struct remains_source {
    struct table *table;
    struct table_entry e;
    bool ended;
};

struct remains {
    char *dir;
    int lock_fd;
    long format;
    remains_damage *damage;
    void *ctx;
    struct manifest manifest;
    struct changes changes[FAMILIES];
    char **records; /* of the log, owned */
    size_t record_count;
    uint64_t *told; /* digests of what was told: files are read several times */
    size_t told_count;
    uint64_t bytes_now, bytes_total;
    /* What is gone through now. */
    struct remains_source *sources;
    size_t source_count;
    struct ranges ranges;
    /* While the log is read. */
    uint64_t gap, positions[FAMILIES];
    enum store_family family;
    uint64_t record, order;
};

static char *path_in(const char *dir, const char *name)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", dir, name);
    return buf_take(&path);
}

static void on_damage(void *ctx, const char *sentence)
{
    struct remains *r = ctx;
    uint64_t digest = XXH3_64bits(sentence, strlen(sentence));
    for (size_t i = 0; i < r->told_count; i++) {
        if (r->told[i] == digest)
            return;
    }
    if ((r->told_count & (r->told_count - 1)) == 0)
        r->told = mem_realloc(r->told, (r->told_count ? 2 * r->told_count : 1) * sizeof(*r->told));
    r->told[r->told_count++] = digest;
    r->damage(r->ctx, sentence);
}

static void tell(struct remains *r, struct buf *sentence)
{
    on_damage(r, buf_cstr(sentence));
    buf_fini(sentence);
}

/* The directory */

static enum status lock(struct remains *r, struct buf *error)
{
    char *path = path_in(r->dir, "LOCK");
    enum status status = STATUS_OK;
    r->lock_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->lock_fd >= 0 && flock(r->lock_fd, LOCK_SH | LOCK_NB) != 0) {
        buf_printf(error,
                   "%s is in use by a triaged; stop it first, or make a backup and look at that",
                   r->dir);
        status = STATUS_ENGINE_UNAVAILABLE;
    }
    free(path);
    return status;
}

static bool is_folder(const char *dir, const char *name)
{
    struct stat st;
    char *path = path_in(dir, name);
    bool is = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    free(path);
    return is;
}

/* It may be damaged like everything else, so the log itself has the last word. */
static void read_format(struct remains *r)
{
    char *path = path_in(r->dir, "FORMAT"), text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *end = text;
    r->format = got > 0 ? strtol(text, &end, 10) : 0;
    if (r->format < 2 || r->format > STORE_FORMAT) {
        struct buf line = {0};
        buf_printf(&line,
                   "%s does not hold the number of a format that this triaged reads, 2 to %d", path,
                   STORE_FORMAT);
        tell(r, &line);
        r->format = STORE_FORMAT;
    }
    free(path);
}

/* Tables */

static bool is_table_name(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && strspn(name, "0123456789") == len - 4 && strcmp(name + len - 4, ".sst") == 0;
}

/* All that are there, when nobody says which of them count. */
static void list_all(struct remains *r, const char *store)
{
    DIR *dir = opendir(store);
    struct manifest *m = &r->manifest;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_table_name(e->d_name))
            continue;
        m->tables = mem_realloc(m->tables, (m->count + 1) * sizeof(*m->tables));
        m->tables[m->count++] =
            (struct manifest_table){.name = mem_dup(e->d_name, strlen(e->d_name)),
                                    .size = UINT64_MAX,
                                    .family = STORE_COLD};
    }
    if (dir)
        closedir(dir);
}

static void look_at_size(struct remains *r, const char *store, const struct manifest_table *t)
{
    char *path = path_in(store, t->name);
    struct stat st;
    struct buf line = {0};
    if (stat(path, &st) != 0)
        buf_printf(&line, "%s is missing: %s", path, strerror(errno));
    else if ((uint64_t)st.st_size != t->size)
        buf_printf(&line, "%s has %llu bytes, and was written with %llu", path,
                   (unsigned long long)st.st_size, (unsigned long long)t->size);
    if (line.len > 0)
        tell(r, &line);
    r->bytes_total += t->size;
    free(path);
}

static void find_tables(struct remains *r)
{
    char *store = path_in(r->dir, "store");
    struct buf line = {0};
    if (manifest_read(store, &r->manifest, &line)) {
        for (size_t i = 0; i < r->manifest.count; i++)
            look_at_size(r, store, &r->manifest.tables[i]);
    } else {
        buf_printf(&line, " (the list of tables in %s; all that are there are read instead)",
                   store);
        tell(r, &line);
        list_all(r, store);
        r->bytes_total = tree_bytes(store);
    }
    free(store);
}

/* The family as the table itself says it, or as the manifest does. */
static void open_source(struct remains *r, const struct manifest_table *m, enum store_family f)
{
    char *store = path_in(r->dir, "store"), *path = path_in(store, m->name);
    bool known = m->size != UINT64_MAX;
    struct table *t = NULL;
    if (!known || (m->family == f && access(path, F_OK) == 0))
        t = table_open(path, on_damage, r);
    int own = t ? table_family(t) : -1;
    if (t && (own < 0 ? m->family : (enum store_family)own) != f) {
        table_close(t);
        t = NULL;
    }
    if (t)
        r->sources[r->source_count++] = (struct remains_source){.table = t};
    free(store);
    free(path);
}

static void source_step(struct remains *r, struct remains_source *s)
{
    uint64_t before = table_read(s->table);
    s->ended = !table_next(s->table, &s->e);
    r->bytes_now += table_read(s->table) - before;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int by_first_key(const void *a, const void *b)
{
    const struct table_entry *x = ((const struct range *)a)->e, *y = ((const struct range *)b)->e;
    return compare(x->key, x->key_len, y->key, y->key_len);
}

static void gather_ranges(struct remains *r)
{
    const struct changes *c = &r->changes[r->family];
    struct ranges *all = &r->ranges;
    size_t count = c->range_count;
    for (size_t i = 0; i < r->source_count; i++)
        count += table_ranges(r->sources[i].table)->count;
    *all = (struct ranges){.items = mem_zalloc((count + 1) * sizeof(*all->items)),
                           .around = mem_zalloc((count + 1) * sizeof(*all->around))};
    for (size_t i = 0; i < c->range_count; i++)
        all->items[all->count++] = (struct range){&c->ranges[i].e, true, c->ranges[i].order};
    for (size_t i = 0; i < r->source_count; i++) {
        const struct table_ranges *t = table_ranges(r->sources[i].table);
        for (size_t k = 0; k < t->count; k++)
            all->items[all->count++] = (struct range){&t->items[k], false, 0};
    }
    if (all->count > 1)
        qsort(all->items, all->count, sizeof(*all->items), by_first_key);
}

/* To the ranges around this key, which is behind the last one. */
static void ranges_step(struct ranges *all, const char *key, size_t len)
{
    size_t kept = 0;
    while (all->at < all->count &&
           compare(all->items[all->at].e->key, all->items[all->at].e->key_len, key, len) <= 0)
        all->around[all->around_count++] = all->items[all->at++];
    for (size_t i = 0; i < all->around_count; i++) {
        const struct table_entry *e = all->around[i].e;
        if (compare(key, len, e->value, e->value_len) < 0)
            all->around[kept++] = all->around[i];
    }
    all->around_count = kept;
}

static void open_sources(struct remains *r, enum store_family f)
{
    r->family = f;
    r->sources = mem_zalloc((r->manifest.count + 1) * sizeof(*r->sources));
    r->source_count = 0;
    for (size_t i = 0; i < r->manifest.count; i++)
        open_source(r, &r->manifest.tables[i], f);
    gather_ranges(r);
    for (size_t i = 0; i < r->source_count; i++)
        source_step(r, &r->sources[i]);
}

static void close_sources(struct remains *r)
{
    for (size_t i = 0; i < r->source_count; i++)
        table_close(r->sources[i].table);
    free(r->ranges.items);
    free(r->ranges.around);
    free(r->sources);
    r->sources = NULL;
}

/* Merging */

/* The log goes over the tables, and in each the later over the earlier. */
static bool entry_deleted(struct remains *r, const struct table_entry *e)
{
    struct ranges *all = &r->ranges;
    ranges_step(all, e->key, e->key_len);
    for (size_t i = 0; i < all->around_count; i++) {
        if (all->around[i].change || all->around[i].e->seq > e->seq)
            return true;
    }
    return false;
}

static bool change_deleted(struct remains *r, const struct change *c)
{
    struct ranges *all = &r->ranges;
    ranges_step(all, c->e.key, c->e.key_len);
    for (size_t i = 0; i < all->around_count; i++) {
        if (all->around[i].change && all->around[i].order > c->order)
            return true;
    }
    return false;
}

/* The source with the smallest key, and of those with the same the latest; NULL at the end. */
static struct remains_source *first_source(struct remains *r)
{
    struct remains_source *first = NULL;
    for (size_t i = 0; i < r->source_count; i++) {
        struct remains_source *s = &r->sources[i];
        if (s->ended)
            continue;
        int order = first ? compare(s->e.key, s->e.key_len, first->e.key, first->e.key_len) : -1;
        if (order < 0 || (order == 0 && s->e.seq > first->e.seq))
            first = s;
    }
    return first;
}

/* Steps over everything with this key, in all tables. */
static void pass(struct remains *r, const struct buf *key)
{
    for (size_t i = 0; i < r->source_count; i++) {
        struct remains_source *s = &r->sources[i];
        while (!s->ended && compare(s->e.key, s->e.key_len, key->data, key->len) == 0)
            source_step(r, s);
    }
}

static void show_table_entry(struct remains *r, struct remains_source *s, struct buf *key,
                             remains_record *each, void *ctx)
{
    buf_clear(key);
    buf_put(key, s->e.key, s->e.key_len);
    if (each && s->e.kind == TABLE_PUT && !entry_deleted(r, &s->e))
        each(ctx, s->e.key, s->e.key_len, s->e.value, s->e.value_len);
    pass(r, key);
}

static void show_change(struct remains *r, const struct change *c, struct buf *key,
                        remains_record *each, void *ctx)
{
    buf_clear(key);
    buf_put(key, c->e.key, c->e.key_len);
    if (c->e.kind == TABLE_PUT && !change_deleted(r, c))
        each(ctx, c->e.key, c->e.key_len, c->e.value, c->e.value_len);
    pass(r, key);
}

void remains_each(struct remains *r, enum store_family f, remains_record *each, void *ctx)
{
    const struct changes *c = &r->changes[f];
    struct buf key = {0};
    size_t at = 0;
    open_sources(r, f);
    for (;;) {
        struct remains_source *s = first_source(r);
        const struct change *change = at < c->count ? &c->items[at] : NULL;
        if (!s && !change)
            break;
        if (!change || (s && compare(s->e.key, s->e.key_len, change->e.key, change->e.key_len) < 0))
            show_table_entry(r, s, &key, each, ctx);
        else
            show_change(r, change, &key, each, ctx);
        while (at < c->count &&
               compare(c->items[at].e.key, c->items[at].e.key_len, key.data, key.len) <= 0)
            at++;
    }
    close_sources(r);
    buf_fini(&key);
}

void remains_progress(const struct remains *r, uint64_t *bytes, uint64_t *bytes_total)
{
    *bytes = r->bytes_now;
    *bytes_total = r->bytes_total;
}

/* The log */

/* The last record of the log that a family's tables have; 0 when that is not readable. */
static uint64_t position_of(struct remains *r, enum store_family f)
{
    uint64_t position = 0;
    struct buf key = {0};
    open_sources(r, f);
    for (struct remains_source *s; (s = first_source(r)) && s->e.key[0] <= KEY_LOG;) {
        if (s->e.key_len == 1 && s->e.key[0] == KEY_LOG && s->e.value_len == 8)
            position = frame_get_u64(s->e.value);
        show_table_entry(r, s, &key, NULL, NULL);
    }
    close_sources(r);
    buf_fini(&key);
    return position;
}

static void add_change(void *ctx, const struct table_entry *e)
{
    struct remains *r = ctx;
    struct changes *c = &r->changes[r->family];
    struct change change = {.e = *e, .record = r->record, .order = r->order++};
    if (e->kind == TABLE_DELETE_RANGE) {
        c->ranges = mem_realloc(c->ranges, (c->range_count + 1) * sizeof(*c->ranges));
        c->ranges[c->range_count++] = change;
        return;
    }
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 1024;
        c->items = mem_realloc(c->items, c->cap * sizeof(*c->items));
    }
    c->items[c->count++] = change;
}

/* The log goes over the tables from the last gap on: there it has everything that came later.
 * Before a gap it counts where a family's tables do not say that they have it. */
static void read_part(struct remains *r, enum store_family f, const char *data, size_t len)
{
    r->family = f;
    if (r->record <= r->gap && r->record <= r->positions[f])
        return;
    if (batch_read(data, len, add_change, r))
        return;
    struct buf line = {0};
    buf_printf(&line, "%s/log: record %llu does not decode", r->dir, (unsigned long long)r->record);
    tell(r, &line);
}

static enum status on_record(void *ctx, uint64_t seq, const char *data, size_t len,
                             struct buf *error)
{
    struct remains *r = ctx;
    (void)error;
    uint64_t hot = len >= 8 ? frame_get_u64(data) : UINT64_MAX;
    if (len < 8 || hot > len - 8) {
        struct buf line = {0};
        buf_printf(&line, "%s/log: record %llu is malformed", r->dir, (unsigned long long)seq);
        tell(r, &line);
        return STATUS_OK;
    }
    char *bytes = mem_dup(data, len);
    if ((r->record_count & (r->record_count - 1)) == 0)
        r->records =
            mem_realloc(r->records, (r->record_count ? 2 * r->record_count : 1) * sizeof(char *));
    r->records[r->record_count++] = bytes;
    r->record = seq;
    read_part(r, STORE_HOT, bytes + 8, hot);
    read_part(r, STORE_COLD, bytes + 8 + hot, len - 8 - hot);
    return STATUS_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    int order = compare(x->e.key, x->e.key_len, y->e.key, y->e.key_len);
    return order != 0 ? order : (x->order < y->order) - (x->order > y->order);
}

static void look_at_end(struct remains *r, const struct wal *w)
{
    for (int f = 0; f < FAMILIES; f++) {
        if (r->positions[f] <= wal_end(w))
            continue;
        struct buf line = {0};
        buf_printf(&line, "%s/log ends at record %llu, and %s/store has record %llu", r->dir,
                   (unsigned long long)wal_end(w), r->dir, (unsigned long long)r->positions[f]);
        tell(r, &line);
        return;
    }
}

static void look_for_more(struct remains *r, const struct wal *w)
{
    uint64_t ending;
    struct buf line = {0};
    if (!ending_read(r->dir, &ending, &line) || !ending_reached(r->dir, ending, wal_end(w), &line))
        on_damage(r, buf_cstr(&line));
    buf_fini(&line);
}

static void sort_changes(struct remains *r)
{
    for (int f = 0; f < FAMILIES; f++) {
        if (r->changes[f].count > 1)
            qsort(r->changes[f].items, r->changes[f].count, sizeof(struct change), by_key);
    }
}

static void quiet(void *ctx, const char *sentence)
{
    (void)ctx, (void)sentence;
}

/* NULL when the folder cannot be read. */
static struct wal *open_log(struct remains *r, const char *dir, const uint8_t *secret, bool old,
                            wal_damage *damage)
{
    struct wal *w = NULL;
    struct buf error = {0};
    struct wal_options options = {.dir = dir,
                                  .segment_bytes = 2 * WAL_BLOCK,
                                  .secret = secret,
                                  .old = old,
                                  .damage = damage,
                                  .damage_ctx = r};
    if (wal_open(&options, &w, &error) != STATUS_OK)
        on_damage(r, buf_cstr(&error));
    buf_fini(&error);
    return w;
}

/* Whether the log is one without a seal, as it was up to format 2: what FORMAT says, unless the
 * files have nothing of the kind. */
static bool is_old(struct remains *r, const char *dir, const uint8_t *secret)
{
    bool old = r->format == 2;
    struct wal *w = open_log(r, dir, secret, old, quiet);
    struct wal *other = w && wal_empty(w) ? open_log(r, dir, secret, !old, quiet) : NULL;
    bool wrong = other && !wal_empty(other);
    if (wrong) {
        struct buf line = {0};
        buf_printf(&line, "%s/FORMAT says %ld, and the log is of another format", r->dir,
                   r->format);
        tell(r, &line);
    }
    if (w)
        wal_close(w);
    if (other)
        wal_close(other);
    return wrong ? !old : old;
}

static void read_log(struct remains *r, const uint8_t *secret)
{
    char *dir = path_in(r->dir, "log");
    struct buf error = {0};
    struct wal *w = open_log(r, dir, secret, is_old(r, dir, secret), on_damage);
    if (w && wal_empty(w)) {
        buf_printf(&error, "%s has no log in it; was it moved?", dir);
        on_damage(r, buf_cstr(&error));
    } else if (w) {
        r->gap = wal_gap(w);
        look_at_end(r, w);
        look_for_more(r, w);
        if (wal_replay(w, on_record, r, &error) != STATUS_OK)
            on_damage(r, buf_cstr(&error));
    }
    if (w)
        wal_close(w);
    sort_changes(r);
    buf_fini(&error);
    free(dir);
}

/* A log of format 2 has no secret. One that is lost is replaced by one that nobody knows: frames
 * under zeros could be a part of a payload. */
static void read_log_with_key(struct remains *r)
{
    uint8_t secret[SECRET_BYTES];
    struct buf line = {0};
    if (secret_open(r->dir, false, secret, &line) != STATUS_OK) {
        random_bytes(secret, sizeof(secret));
        if (r->format > 2)
            on_damage(r, buf_cstr(&line));
    }
    buf_fini(&line);
    read_log(r, secret);
}

enum status remains_open(const char *dir, remains_damage *damage, void *ctx, struct remains **out,
                         struct buf *error)
{
    struct remains *r = mem_zalloc(sizeof(*r));
    r->dir = mem_dup(dir, strlen(dir));
    r->lock_fd = -1;
    r->damage = damage;
    r->ctx = ctx;
    enum status status = STATUS_OK;
    if (!is_folder(dir, ".")) {
        buf_printf(error, "%s is no directory, or cannot be looked into", dir);
        status = STATUS_ENGINE_UNAVAILABLE;
    } else if (!is_folder(dir, "store") && !is_folder(dir, "log")) {
        buf_printf(error, "%s is no data directory: it has neither store nor log%s", dir,
                   is_folder(dir, "data") ? "; look at the folder data in it" : "");
        status = STATUS_ENGINE_UNAVAILABLE;
    }
    if (!status)
        status = lock(r, error);
    if (status) {
        remains_close(r);
        return status;
    }
    read_format(r);
    find_tables(r);
    for (enum store_family f = STORE_HOT; f <= STORE_COLD; f++)
        r->positions[f] = position_of(r, f);
    r->bytes_now = 0;
    read_log_with_key(r);
    *out = r;
    return STATUS_OK;
}

void remains_close(struct remains *r)
{
    for (int f = 0; f < FAMILIES; f++) {
        free(r->changes[f].items);
        free(r->changes[f].ranges);
    }
    for (size_t i = 0; i < r->record_count; i++)
        free(r->records[i]);
    free(r->records);
    free(r->told);
    manifest_fini(&r->manifest);
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    free(r->dir);
    free(r);
}
