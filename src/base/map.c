#include "base/map.h"
#include "base/mem.h"
#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint8_t hash_key[MAP_KEY_BYTES];

void map_key(const uint8_t key[MAP_KEY_BYTES])
{
    static_assert(MAP_KEY_BYTES == SIPHASH_KEY_BYTES, "what the hash takes");
    memcpy(hash_key, key, MAP_KEY_BYTES);
}

static uint32_t hash_of(const char *key, size_t len)
{
    return (uint32_t)siphash_map(hash_key, key, len);
}

void map_fini(struct map *m)
{
    free(m->entries);
    *m = (struct map){0};
}

static struct map_entry *probe(const struct map *m, const char *key, size_t len, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        struct map_entry *e = &m->entries[i & (m->cap - 1)];
        if (!e->value)
            return e;
        if (e->hash == hash && e->key_len == len && memcmp(e->key, key, len) == 0)
            return e;
    }
}

void *map_get(const struct map *m, const char *key, size_t len)
{
    if (m->count == 0)
        return NULL;
    return probe(m, key, len, hash_of(key, len))->value;
}

static void resize(struct map *m, size_t cap)
{
    struct map old = *m;
    assert((cap & (cap - 1)) == 0);
    assert(cap > old.count);
    m->cap = cap;
    m->entries = mem_zalloc(cap * sizeof(*m->entries));
    for (size_t i = 0; i < old.cap; i++) {
        struct map_entry *e = &old.entries[i];
        if (e->value)
            *probe(m, e->key, e->key_len, e->hash) = *e;
    }
    free(old.entries);
}

void map_put(struct map *m, const char *key, size_t len, void *value)
{
    assert(value);
    assert(len <= UINT32_MAX);
    if ((m->count + 1) * 4 > m->cap * 3)
        resize(m, m->cap ? m->cap * 2 : 16);
    assert(m->count < m->cap); /* with no free place a search would not end */
    uint32_t hash = hash_of(key, len);
    struct map_entry *e = probe(m, key, len, hash);
    assert(!e->value);
    *e = (struct map_entry){key, (uint32_t)len, hash, value};
    m->count++;
}

void *map_remove(struct map *m, const char *key, size_t len)
{
    if (m->count == 0)
        return NULL;
    struct map_entry *e = probe(m, key, len, hash_of(key, len));
    void *value = e->value;
    if (!value)
        return NULL;
    /* Closes the gap: a later entry moves back if its own place is at or before the gap. */
    size_t gap = (size_t)(e - m->entries), mask = m->cap - 1;
    for (size_t i = (gap + 1) & mask; m->entries[i].value; i = (i + 1) & mask) {
        size_t home = m->entries[i].hash & mask;
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            m->entries[gap] = m->entries[i];
            gap = i;
        }
    }
    m->entries[gap].value = NULL;
    m->count--;
    return value;
}

void map_check(const struct map *m)
{
    size_t seen = 0;
    assert((m->cap & (m->cap - 1)) == 0);
    for (size_t i = 0; i < m->cap; i++) {
        struct map_entry *e = &m->entries[i];
        if (!e->value)
            continue;
        assert(e->hash == hash_of(e->key, e->key_len)); /* the borrowed key has not changed */
        assert(probe(m, e->key, e->key_len, e->hash) == e);
        seen++;
    }
    assert(seen == m->count);
}

void *map_each(const struct map *m, size_t *at)
{
    while (*at < m->cap) {
        void *value = m->entries[(*at)++].value;
        if (value)
            return value;
    }
    return NULL;
}
