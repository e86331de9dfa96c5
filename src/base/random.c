#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void fill(uint8_t *out, size_t len)
{
    while (len > 0) {
        ssize_t got = getrandom(out, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            fprintf(stderr, "triage: no random bytes from the kernel: %s\n", strerror(errno));
            abort();
        }
        out += got;
        len -= (size_t)got;
    }
}

void random_bytes(void *out, size_t len)
{
    static _Thread_local uint8_t pool[4096];
    static _Thread_local size_t left;
    assert(len <= sizeof(pool));
    if (left < len) {
        fill(pool, sizeof(pool));
        left = sizeof(pool);
    }
    uint8_t *from = pool + sizeof(pool) - left;
    memcpy(out, from, len);
    memset(from, 0, len); /* so that a receipt is not found in memory later */
    left -= len;
}
