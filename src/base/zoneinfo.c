#include "base/zoneinfo.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER    "/usr/share/zoneinfo"
#define LOOK_MS   3600000
#define KNOWN_MAX 2000 /* tzdata has 600 names */

struct known_zone {
    char name[ZONE_NAME_MAX + 1];
    const struct zone *zone;
    int64_t looked_ms; /* mono */
    struct timespec changed;
    off_t size;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct map names; /* struct known_zone */

bool zone_name_valid(const char *name, size_t len)
{
    char before = '/';
    for (size_t i = 0; i < len; before = name[i++]) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '+' && c != '-' && (c != '/' || before == '/'))
            return false;
    }
    return len > 0 && len <= ZONE_NAME_MAX && before != '/';
}

static struct zone *file_read(int fd, off_t size)
{
    if (size <= 0 || size > ZONE_BYTES_MAX)
        return NULL;
    char *data = mem_alloc((size_t)size);
    ssize_t got = read(fd, data, (size_t)size);
    struct zone *z = got == size ? zone_parse(data, (size_t)size) : NULL;
    free(data);
    return z;
}

/* Reads the file of a zone, unless it is unchanged. The zone that was read before is never freed:
 * another thread may be using it, and such changes are rare. */
static bool look(struct known_zone *k)
{
    char path[sizeof(FOLDER) + ZONE_NAME_MAX + 1];
    struct stat st;
    snprintf(path, sizeof(path), FOLDER "/%s", k->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return k->zone != NULL;
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    bool same = is_file && k->zone && st.st_size == k->size &&
                st.st_mtim.tv_sec == k->changed.tv_sec && st.st_mtim.tv_nsec == k->changed.tv_nsec;
    struct zone *z = is_file && !same ? file_read(fd, st.st_size) : NULL;
    close(fd);
    if (z) {
        k->zone = z;
        k->size = st.st_size;
        k->changed = st.st_mtim;
    }
    return k->zone != NULL;
}

static bool find(const char *name, const struct zone **zone)
{
    int64_t now_ms = clock_now().mono_ms;
    struct known_zone *k = map_get(&names, name, strlen(name));
    if (!k) {
        struct known_zone found = {.looked_ms = now_ms};
        snprintf(found.name, sizeof(found.name), "%s", name);
        if (names.count >= KNOWN_MAX || !look(&found))
            return false;
        k = mem_dup(&found, sizeof(found));
        map_put(&names, k->name, strlen(k->name), k);
    } else if (now_ms - k->looked_ms >= LOOK_MS) {
        k->looked_ms = now_ms;
        look(k);
    }
    *zone = k->zone;
    return true;
}

bool zone_find(const char *name, const struct zone **zone)
{
    if (strcmp(name, "UTC") == 0) {
        *zone = NULL;
        return true;
    }
    if (!zone_name_valid(name, strlen(name)))
        return false;
    pthread_mutex_lock(&mutex);
    bool found = find(name, zone);
    pthread_mutex_unlock(&mutex);
    return found;
}
