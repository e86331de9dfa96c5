#include "engine/local/frame.h"

#include <string.h>
#include <xxhash.h>

#define FORMAT 1

static const char magic[4] = {'T', 'W', 'A', 'L'};

void frame_put_u64(char *at, uint64_t value)
{
    for (size_t i = 8; i-- > 0; value >>= 8)
        at[i] = (char)value;
}

uint64_t frame_get_u64(const char *at)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | (unsigned char)at[i];
    return value;
}

static uint64_t checksum(const char *at, size_t body_len)
{
    return XXH3_64bits(at + 8, FRAME_HEAD - 8 + body_len);
}

void frame_seal(char *at, const struct frame *f)
{
    memcpy(at + 8, magic, sizeof(magic));
    at[12] = (char)f->kind;
    at[13] = FORMAT;
    at[14] = at[15] = 0;
    frame_put_u64(at + 16, f->len);
    frame_put_u64(at + 24, f->epoch);
    frame_put_u64(at + 32, f->seq);
    frame_put_u64(at + 40, f->synced);
    frame_put_u64(at + 48, f->floor);
    frame_put_u64(at, checksum(at, f->len));
}

bool frame_open(const char *at, size_t room, struct frame *f)
{
    if (room < FRAME_HEAD || at[8] != magic[0] || memcmp(at + 8, magic, sizeof(magic)) != 0)
        return false; /* at most places of a segment there is none: the first byte tells cheaply */
    uint64_t len = frame_get_u64(at + 16);
    if (len > room - FRAME_HEAD || frame_get_u64(at) != checksum(at, len))
        return false;
    if (at[13] != FORMAT)
        return false;
    *f = (struct frame){
        .kind = (unsigned char)at[12],
        .len = len,
        .epoch = frame_get_u64(at + 24),
        .seq = frame_get_u64(at + 32),
        .synced = frame_get_u64(at + 40),
        .floor = frame_get_u64(at + 48),
    };
    return f->kind != FRAME_SEGMENT || len == 8;
}
