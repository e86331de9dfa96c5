#include "engine/local/frame.h"
#include "base/plant.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT    2
#define HEAD_OF_1 56
#define SUM_AT    56

static const char magic[4] = {'T', 'W', 'A', 'L'};

static_assert(8 + sizeof(magic) == 12, "the kind stands behind seal and magic");
static_assert(SUM_AT + 8 == FRAME_HEAD, "the sum is the last of the head");
static_assert(HEAD_OF_1 == SUM_AT, "up to the sum both formats have the same fields");
static_assert(FRAME_HEAD % FRAME_ALIGN == 0, "the smallest frame is a head");
static_assert((FRAME_FIRST | FRAME_LAST | FRAME_SEGMENT) <= UINT8_MAX, "a kind has one byte");

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

/* XXH3 wants a long secret: it is made of the second half of ours, word by word. */
void frame_key_init(struct frame_key *k, const uint8_t secret[SECRET_BYTES])
{
    static_assert(SECRET_BYTES == 2 * SIPHASH_KEY_BYTES, "a key for each");
    static_assert(sizeof(k->sum) >= XXH3_SECRET_SIZE_MIN, "enough for XXH3");
    memcpy(k->seal, secret, SIPHASH_KEY_BYTES);
    for (size_t at = 0; at < sizeof(k->sum); at += 8) {
        char place[8];
        frame_put_u64(place, at);
        frame_put_u64((char *)k->sum + at, siphash(secret + SIPHASH_KEY_BYTES, place, 8));
    }
}

static uint64_t seal_of(const char *at, const struct frame_key *k)
{
    return siphash(k->seal, at + 8, FRAME_HEAD - 8);
}

static uint64_t sum_of(const char *at, size_t len, const struct frame_key *k)
{
    return XXH3_64bits_withSecret(at + FRAME_HEAD, len, k->sum, sizeof(k->sum));
}

void frame_seal(char *at, const struct frame *f, const struct frame_key *k)
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
    frame_put_u64(at + SUM_AT, sum_of(at, f->len, k));
    frame_put_u64(at, seal_of(at, k));
}

size_t frame_body(const struct frame *f)
{
    return f->format == 1 ? HEAD_OF_1 : FRAME_HEAD;
}

/* A frame cannot know of later ones: what claims to is none. */
static bool plausible(const struct frame *f)
{
    return f->synced < f->seq && f->floor <= f->seq && (f->kind != FRAME_SEGMENT || f->len == 8);
}

bool frame_read(const char *at, size_t room, struct frame *f)
{
    if (room < FRAME_HEAD || at[8] != magic[0] || memcmp(at + 8, magic, sizeof(magic)) != 0)
        return false; /* at most places of a segment there is none: the first byte tells cheaply */
    *f = (struct frame){
        .kind = (unsigned char)at[12],
        .format = (unsigned char)at[13],
        .len = frame_get_u64(at + 16),
        .epoch = frame_get_u64(at + 24),
        .seq = frame_get_u64(at + 32),
        .synced = frame_get_u64(at + 40),
        .floor = frame_get_u64(at + 48),
    };
    return f->format >= 1 && f->format <= FORMAT && f->len <= room - frame_body(f) && plausible(f);
}

bool frame_sealed(const char *at, const struct frame *f, const struct frame_key *k)
{
    if (PLANTED(ANY_EPOCH))
        return true;
    if (f->format == 1)
        return frame_get_u64(at) == XXH3_64bits(at + 8, HEAD_OF_1 - 8 + f->len);
    return frame_get_u64(at) == seal_of(at, k) &&
           frame_get_u64(at + SUM_AT) == sum_of(at, f->len, k);
}
