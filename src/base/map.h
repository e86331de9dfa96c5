/* A hash map from short byte strings to pointers (SipHash, linear probing). The
 * keys are borrowed: each lives inside its value for as long as it is in the map. */
#ifndef TRIAGE_BASE_MAP_H
#define TRIAGE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#define MAP_KEY_BYTES 16

/* Sets the hash's key for all maps of the process. Call it before the first map is used. Clients
 * choose names and dedup keys: without knowing this key they cannot choose many that collide. When
 * it is not called, the order of map_each is the same in every run. */
void map_key(const uint8_t key[MAP_KEY_BYTES]);

struct map_entry {
    const char *key;
    uint32_t key_len;
    uint32_t hash;
    void *value; /* NULL: free */
};

struct map {
    size_t count;
    size_t cap; /* a power of two, or 0 */
    struct map_entry *entries;
};

void map_fini(struct map *m); /* a zeroed struct is an empty map */
void *map_get(const struct map *m, const char *key, size_t len);
void map_put(struct map *m, const char *key, size_t len, void *value); /* key not present */
void *map_remove(struct map *m, const char *key, size_t len);          /* what was there, or NULL */

/* for (size_t at = 0; (v = map_each(m, &at));) …  in no useful order; no change meanwhile. */
void *map_each(const struct map *m, size_t *at);

void map_check(const struct map *m); /* walks all of it and asserts; for tests */

#endif
