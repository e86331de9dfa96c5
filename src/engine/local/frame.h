/* What the write-ahead log consists of: frames, each with a checksum over head and body. A frame
 * starts at a multiple of FRAME_ALIGN. Big endian:
 *
 *    0  checksum 8   XXH3 of all that follows, body included
 *    8  magic 4      "TWAL"
 *   12  kind 1       FRAME_*, or'ed
 *   13  format 1
 *   14  zero 2
 *   16  len 8        of the body
 *   24  epoch 8      random, of the segment it was written to: what an older life of the file left
 *                    behind does not match
 *   32  seq 8        1, 2, 3 … over all segments, never used twice for what was synced
 *   40  synced 8     every frame up to this one was on the disk when this one was written
 *   48  floor 8      every frame before this one was in the tables by then
 *   56  body */
#ifndef TRIAGE_ENGINE_LOCAL_FRAME_H
#define TRIAGE_ENGINE_LOCAL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD  56
#define FRAME_ALIGN 64

/* A record takes one frame or several: the first and the last are marked. */
#define FRAME_FIRST   1u
#define FRAME_LAST    2u
#define FRAME_SEGMENT 4u /* starts a segment; `seq` is the next frame's, the body is its number */

struct frame {
    unsigned kind;
    uint64_t len;
    uint64_t epoch, seq, synced, floor;
};

static inline size_t frame_size(size_t body_len)
{
    return (FRAME_HEAD + body_len + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

void frame_seal(char *at, const struct frame *f); /* the head, around a body that is in place */
bool frame_open(const char *at, size_t room, struct frame *f); /* false: there is none */

void frame_put_u64(char *at, uint64_t value);
uint64_t frame_get_u64(const char *at);

#endif
