/* What the write-ahead log consists of: frames, each sealed with the secret of the data directory.
 * A frame starts at a multiple of FRAME_ALIGN. Big endian:
 *
 *    0  seal 8       SipHash-2-4 of the head that follows
 *    8  magic 4      "TWAL"
 *   12  kind 1       FRAME_*, or'ed
 *   13  format 1     2
 *   14  zero 2
 *   16  len 8        of the body
 *   24  epoch 8      random, new for each use of a segment: frames of an older use do not match
 *   32  seq 8        1, 2, 3 … over all segments, never used twice for what was synced
 *   40  synced 8     every frame up to this one was on the disk when this one was written
 *   48  floor 8      every frame before this one was in the tables by then
 *   56  sum 8        XXH3 of the body, with a secret
 *   64  body
 *
 * Bodies hold bytes of clients, and a client may know this layout. Two things keep a client from
 * forging frames: it does not know the epoch (64 random bits), and it cannot make the seal.
 * The seal is a real one-way function, which XXH3 is not. It covers the head alone, because that is
 * cheap (56 bytes a frame); the head has the sum of the body. The sum finds damage. It has a secret
 * so that nobody can prepare two bodies with the same sum, of which a torn write would make one out
 * of the other.
 *
 * In format 1 the head had 56 bytes and no sum; in place of the seal it had XXH3 of all that
 * follows, without a secret. Format 1 is read once, when an older data directory is taken over. */
#ifndef TRIAGE_ENGINE_LOCAL_FRAME_H
#define TRIAGE_ENGINE_LOCAL_FRAME_H

#include "base/siphash.h"
#include "engine/local/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD  64
#define FRAME_ALIGN 64

/* A record takes one frame or several: the first and the last are marked. */
#define FRAME_FIRST   1u
#define FRAME_LAST    2u
#define FRAME_SEGMENT 4u /* starts a segment: the body is its number, `seq` the next frame's */

struct frame_key {
    uint8_t seal[SIPHASH_KEY_BYTES];
    uint8_t sum[192];
};

struct frame {
    unsigned kind;
    unsigned format;
    uint64_t len;
    uint64_t epoch, seq, synced, floor;
};

static inline size_t frame_end(size_t at)
{
    return (at + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

static inline size_t frame_size(size_t body_len)
{
    return frame_end(FRAME_HEAD + body_len);
}

void frame_key_init(struct frame_key *k, const uint8_t secret[SECRET_BYTES]);

/* Writes the head of a frame at `at`. The body stands behind it already. */
void frame_seal(char *at, const struct frame *f, const struct frame_key *k);

/* Reads a head, if the bytes look like one and the body fits into `room`. Nothing is checked: the
 * bytes may be a client's. */
bool frame_read(const char *at, size_t room, struct frame *f);
/* Whether the frame, head and body, is as we wrote it. In format 1 it may be a client's. */
bool frame_sealed(const char *at, const struct frame *f, const struct frame_key *k);

size_t frame_body(const struct frame *f); /* where it starts, from the head on */

void frame_put_u64(char *at, uint64_t value);
uint64_t frame_get_u64(const char *at);

#endif
