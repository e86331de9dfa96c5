#include "engine/cells/placement.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SEATS_MAX  1024
#define TOKENS_MAX 20000

const char *const seat_state_names[SEAT_STATE_COUNT] = {"open", "draining", "removed"};

void placement_fini(struct placement *p)
{
    for (uint32_t i = 0; i < p->seat_count; i++)
        free(p->seats[i].levels);
    free(p->seats);
    free(p->moved);
    *p = (struct placement){0};
}

void placement_copy(const struct placement *from, struct placement *to)
{
    *to = *from;
    to->seats = mem_dup(from->seats, from->seat_count * sizeof(from->seats[0]));
    to->moved = mem_dup(from->moved, from->moved_count * sizeof(from->moved[0]));
    for (uint32_t i = 0; i < to->seat_count; i++) {
        const char *levels = from->seats[i].levels;
        to->seats[i].levels = levels ? mem_dup(levels, strlen(levels)) : NULL;
    }
}

int placement_seat(const struct placement *p, const char *cell)
{
    for (uint32_t i = 0; i < p->seat_count; i++) {
        if (strcmp(p->seats[i].cell, cell) == 0)
            return (int)i;
    }
    return -1;
}

/* Buckets */

uint32_t bucket_of(const char *key, size_t len)
{
    return (uint32_t)(XXH3_64bits(key, len) % BUCKETS);
}

bool bucket_set_has(const struct bucket_set *s, uint32_t bucket)
{
    return s->bits[bucket / 64] >> bucket % 64 & 1;
}

void bucket_set_add(struct bucket_set *s, uint32_t bucket)
{
    s->bits[bucket / 64] |= 1ULL << bucket % 64;
}

static bool read_number(const char **at, const char *end, uint32_t max, uint32_t *out)
{
    uint32_t value = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (uint32_t)(**at - '0');
        if (value > max)
            return false;
    }
    *out = value;
    return *at > from;
}

bool bucket_set_read(const char *text, size_t len, struct bucket_set *s)
{
    const char *at = text, *end = text + len;
    *s = (struct bucket_set){0};
    while (at < end) {
        uint32_t from, to;
        if (!read_number(&at, end, BUCKETS - 1, &from))
            return false;
        to = from;
        if (at < end && *at == '-') {
            at++;
            if (!read_number(&at, end, BUCKETS - 1, &to) || to < from)
                return false;
        }
        for (uint32_t i = from; i <= to; i++)
            bucket_set_add(s, i);
        if (at < end && *at++ != ' ')
            return false;
    }
    return true;
}

void bucket_set_write(const struct bucket_set *s, struct buf *out)
{
    bool first = true;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        uint32_t from = i;
        if (!bucket_set_has(s, i))
            continue;
        while (i + 1 < BUCKETS && bucket_set_has(s, i + 1))
            i++;
        buf_printf(out, first ? "%u" : " %u", from);
        if (i > from)
            buf_printf(out, "-%u", i);
        first = false;
    }
}

uint32_t placement_bucket_count(const struct placement *p, uint32_t seat)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        count += p->buckets[i] == seat;
    return count;
}

/* Writing */

static void write_levels(const char *levels, struct buf *out)
{
    buf_lit(out, ",\"levels\":[");
    for (const char *at = levels; *at;) {
        size_t len = strcspn(at, "\n");
        if (at > levels)
            buf_putc(out, ',');
        json_put_string(out, at, len);
        at += len + (at[len] == '\n');
    }
    buf_putc(out, ']');
}

static void write_seat(const struct seat *s, struct buf *out)
{
    buf_lit(out, "{\"cell\":");
    json_put_cstr(out, s->cell);
    if (s->state != SEAT_OPEN)
        buf_printf(out, ",\"state\":\"%s\"", seat_state_names[s->state]);
    if (s->drained)
        buf_lit(out, ",\"drained\":true");
    if (s->levels)
        write_levels(s->levels, out);
    buf_putc(out, '}');
}

/* Runs of a seat and how many buckets in a row it has: [0,128,1,128]. */
static void write_buckets(const struct placement *p, struct buf *out)
{
    for (uint32_t i = 0; i < BUCKETS;) {
        uint32_t run = 1;
        while (i + run < BUCKETS && p->buckets[i + run] == p->buckets[i])
            run++;
        buf_printf(out, i > 0 ? ",%u,%u" : "%u,%u", p->buckets[i], run);
        i += run;
    }
}

void placement_write(const struct placement *p, struct buf *out)
{
    buf_lit(out, "{\"seats\":[");
    for (uint32_t i = 0; i < p->seat_count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        write_seat(&p->seats[i], out);
    }
    buf_lit(out, "],\"buckets\":[");
    write_buckets(p, out);
    buf_lit(out, "],\"moved\":[");
    for (uint32_t i = 0; i < p->moved_count; i++) {
        const struct moved *m = &p->moved[i];
        buf_printf(out, "%s{\"from\":%u,\"until_ms\":%lld", i > 0 ? "," : "", m->from,
                   (long long)m->until_ms);
        if (m->epoch > 0)
            buf_printf(out, ",\"epoch\":%llu", (unsigned long long)m->epoch);
        buf_lit(out, ",\"buckets\":\"");
        bucket_set_write(&m->buckets, out);
        buf_lit(out, "\"}");
    }
    buf_putc(out, ']');
    if (p->split_ms > 0)
        buf_printf(out, ",\"split_ms\":%lld", (long long)p->split_ms);
    buf_putc(out, '}');
}

/* Reading: what a store gave back may be anything. */

static bool read_levels(const struct json_doc *doc, uint32_t array, struct seat *s)
{
    struct buf names = {0};
    bool ok = true;
    for (uint32_t i = json_first(doc, array); i && ok; i = json_next(doc, array, i)) {
        const struct json_token *t = &doc->tokens[i];
        ok = t->type == JSON_STRING && t->len > 0 && !memchr(t->str, '\n', t->len) &&
             !memchr(t->str, '\0', t->len);
        if (ok)
            buf_put(&names, t->str, t->len);
        buf_putc(&names, '\n');
    }
    s->levels = ok ? mem_dup(buf_cstr(&names), names.len) : NULL;
    buf_fini(&names);
    return ok;
}

static bool read_state(const struct json_token *t, enum seat_state *state)
{
    for (int i = 0; t && i < SEAT_STATE_COUNT; i++) {
        *state = (enum seat_state)i;
        if (json_is(t, seat_state_names[i]))
            return true;
    }
    *state = SEAT_OPEN;
    return !t;
}

static bool read_seats(const struct json_doc *doc, struct placement *p)
{
    uint32_t array = json_array(doc, 0, "seats");
    uint32_t count = array ? doc->tokens[array].count : 0;
    if (count == 0 || count > SEATS_MAX)
        return false;
    p->seats = mem_zalloc(count * sizeof(p->seats[0]));
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i)) {
        const struct json_token *name = json_get(doc, i, "cell");
        struct seat *s = &p->seats[p->seat_count];
        uint32_t levels = json_array(doc, i, "levels");
        if (!name || name->type != JSON_STRING || name->len > CELL_NAME_MAX)
            return false;
        memcpy(s->cell, name->str, name->len);
        s->drained = json_get(doc, i, "drained") != NULL;
        p->seat_count++;
        if (!read_state(json_get(doc, i, "state"), &s->state) ||
            (levels && !read_levels(doc, levels, s)))
            return false;
    }
    return true;
}

static bool read_buckets(const struct json_doc *doc, struct placement *p)
{
    uint32_t array = json_array(doc, 0, "buckets"), at = 0;
    for (uint32_t i = array ? json_first(doc, array) : 0; i;) {
        uint32_t next = json_next(doc, array, i);
        int64_t seat, run;
        if (!next || !json_i64(&doc->tokens[i], &seat) || !json_i64(&doc->tokens[next], &run))
            return false;
        if (seat < 0 || seat >= p->seat_count || run < 1 || run > BUCKETS - at)
            return false;
        for (; run > 0; run--)
            p->buckets[at++] = (uint16_t)seat;
        i = json_next(doc, array, next);
    }
    return at == BUCKETS;
}

static bool read_move(const struct json_doc *doc, uint32_t at, uint32_t seat_count, struct moved *m)
{
    const struct json_token *from = json_get(doc, at, "from"),
                            *until = json_get(doc, at, "until_ms"),
                            *epoch = json_get(doc, at, "epoch"),
                            *buckets = json_get(doc, at, "buckets");
    int64_t seat, moved_by = 0;
    if (!from || !until || !buckets || !json_i64(from, &seat) || !json_i64(until, &m->until_ms))
        return false;
    if ((epoch && !json_i64(epoch, &moved_by)) || moved_by < 0 || seat < 0 || seat >= seat_count)
        return false;
    m->from = (uint16_t)seat;
    m->epoch = (uint64_t)moved_by;
    return buckets->type == JSON_STRING && bucket_set_read(buckets->str, buckets->len, &m->buckets);
}

static bool read_moved(const struct json_doc *doc, struct placement *p)
{
    uint32_t array = json_array(doc, 0, "moved");
    uint32_t count = array ? doc->tokens[array].count : 0;
    if (!array || count > MOVED_MAX)
        return false;
    p->moved = mem_zalloc((count + 1) * sizeof(p->moved[0]));
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i)) {
        if (!read_move(doc, i, p->seat_count, &p->moved[p->moved_count++]))
            return false;
    }
    return true;
}

static bool read_split(const struct json_doc *doc, struct placement *p)
{
    const struct json_token *t = json_get(doc, 0, "split_ms");
    return !t || (json_i64(t, &p->split_ms) && p->split_ms >= 0);
}

bool placement_read(const char *text, size_t len, uint64_t epoch, struct placement *p)
{
    struct json_doc doc;
    *p = (struct placement){.epoch = epoch};
    json_init(&doc);
    bool ok = json_parse(&doc, text, len, TOKENS_MAX) && read_seats(&doc, p) &&
              read_buckets(&doc, p) && read_moved(&doc, p) && read_split(&doc, p);
    json_fini(&doc);
    if (!ok)
        placement_fini(p);
    return ok;
}

/* Changes */

void placement_add(struct placement *p, const char *cell, enum seat_state state)
{
    assert(placement_seat(p, cell) < 0);
    assert(p->seat_count < SEATS_MAX);
    p->seats = mem_realloc(p->seats, (p->seat_count + 1) * sizeof(p->seats[0]));
    struct seat *s = &p->seats[p->seat_count++];
    *s = (struct seat){.state = state};
    snprintf(s->cell, sizeof(s->cell), "%s", cell);
}

static uint32_t open_count(const struct placement *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->seat_count; i++)
        count += p->seats[i].state == SEAT_OPEN;
    return count;
}

void placement_spread(struct placement *p)
{
    uint32_t open = open_count(p), at = 0;
    for (uint32_t i = 0; open > 0 && i < p->seat_count; i++) {
        if (p->seats[i].state != SEAT_OPEN)
            continue;
        for (uint32_t b = at; b < BUCKETS; b += open)
            p->buckets[b] = (uint16_t)i;
        at++;
    }
}

/* The move that this one belongs to; NULL: there is no room for another. */
static struct moved *move_of(struct placement *p, uint32_t from)
{
    for (uint32_t i = 0; i < p->moved_count; i++) {
        if (p->moved[i].from == from && p->moved[i].epoch == p->epoch)
            return &p->moved[i];
    }
    if (p->moved_count == MOVED_MAX)
        return NULL;
    p->moved = mem_realloc(p->moved, (p->moved_count + 1) * sizeof(p->moved[0]));
    p->moved[p->moved_count] =
        (struct moved){.from = (uint16_t)from, .epoch = p->epoch, .until_ms = MOVED_FOR_GOOD};
    return &p->moved[p->moved_count++];
}

static bool give_one(struct placement *p, uint32_t bucket, uint32_t seat)
{
    if (p->buckets[bucket] == seat)
        return true;
    struct moved *m = move_of(p, p->buckets[bucket]);
    if (!m)
        return false;
    bucket_set_add(&m->buckets, bucket);
    p->buckets[bucket] = (uint16_t)seat;
    return true;
}

static bool too_many(const char **why)
{
    *why = "too many moves of buckets are under way: wait until the dedup window of the queue is "
           "over";
    return false;
}

static bool unknown(const char **why)
{
    *why = "the queue has no partition in that cell";
    return false;
}

/* From the seat that has most, one after the other. */
static bool take_share(struct placement *p, uint32_t seat)
{
    uint32_t fair = BUCKETS / open_count(p);
    while (placement_bucket_count(p, seat) < fair) {
        uint32_t richest = seat;
        for (uint32_t i = 0; i < p->seat_count; i++) {
            if (placement_bucket_count(p, i) > placement_bucket_count(p, richest))
                richest = i;
        }
        uint32_t bucket = 0;
        while (bucket < BUCKETS && p->buckets[bucket] != richest)
            bucket++;
        if (richest == seat || !give_one(p, bucket, seat))
            return richest == seat;
    }
    return true;
}

bool placement_open(struct placement *p, const char *cell, const char **why)
{
    int seat = placement_seat(p, cell);
    if (seat < 0) {
        placement_add(p, cell, SEAT_OPEN);
        seat = (int)p->seat_count - 1;
    }
    p->seats[seat].drained = p->seats[seat].drained || p->seats[seat].state == SEAT_DRAINING;
    p->seats[seat].state = SEAT_OPEN;
    return take_share(p, (uint32_t)seat) || too_many(why);
}

static int poorest_open(const struct placement *p)
{
    int best = -1;
    for (uint32_t i = 0; i < p->seat_count; i++) {
        if (p->seats[i].state == SEAT_OPEN &&
            (best < 0 || placement_bucket_count(p, i) < placement_bucket_count(p, (uint32_t)best)))
            best = (int)i;
    }
    return best;
}

bool placement_drain(struct placement *p, const char *cell, const char **why)
{
    int seat = placement_seat(p, cell);
    if (seat < 0 || p->seats[seat].state == SEAT_OUT)
        return unknown(why);
    p->seats[seat].state = SEAT_DRAINING;
    if (open_count(p) == 0) {
        *why = "no other cell takes messages of the queue: open one first";
        return false;
    }
    for (uint32_t b = 0; b < BUCKETS; b++) {
        if (p->buckets[b] == (uint32_t)seat && !give_one(p, b, (uint32_t)poorest_open(p)))
            return too_many(why);
    }
    return true;
}

static bool keys_are_known(const struct placement *p, int seat, int64_t now_ms)
{
    for (uint32_t i = 0; i < p->moved_count; i++) {
        const struct moved *m = &p->moved[i];
        bool ends = m->epoch > 0 || m->until_ms != MOVED_FOR_GOOD;
        if (m->from == seat && ends && m->until_ms > now_ms)
            return true;
    }
    return false;
}

bool placement_remove(struct placement *p, const char *cell, int64_t now_ms, const char **why)
{
    int seat = placement_seat(p, cell);
    if (seat < 0)
        return unknown(why);
    if (keys_are_known(p, seat, now_ms)) {
        *why = "its dedup keys are still known: wait until the dedup window of the queue, and a "
               "minute, have passed since it was drained";
        return false;
    }
    if (p->seats[seat].state == SEAT_OPEN) {
        *why = "the cell takes messages of the queue: drain it first";
        return false;
    }
    p->seats[seat].state = SEAT_OUT;
    p->seats[seat].drained = false;
    return true;
}

bool placement_give(struct placement *p, const char *cell, const struct bucket_set *buckets,
                    const char **why)
{
    int seat = placement_seat(p, cell);
    if (seat < 0 || p->seats[seat].state != SEAT_OPEN) {
        *why = "the cell takes no messages of the queue: open it first";
        return false;
    }
    for (uint32_t b = 0; b < BUCKETS; b++) {
        if (bucket_set_has(buckets, b) && !give_one(p, b, (uint32_t)seat))
            return too_many(why);
    }
    return true;
}

bool placement_share(struct placement *p, uint32_t from, uint32_t to, uint32_t count,
                     const char **why)
{
    for (uint32_t b = 0; b < BUCKETS && count > 0; b++) {
        if (p->buckets[b] != from)
            continue;
        if (!give_one(p, b, to))
            return too_many(why);
        count--;
    }
    return true;
}

bool placement_want(struct placement *p, const char *cell, const char *levels, const char **why)
{
    int seat = placement_seat(p, cell);
    if (seat < 0)
        return unknown(why);
    free(p->seats[seat].levels);
    p->seats[seat].levels = levels ? mem_dup(levels, strlen(levels)) : NULL;
    return true;
}

bool placement_unsettled(const struct placement *p, uint32_t seat, uint64_t epoch)
{
    for (uint32_t i = 0; i < p->moved_count; i++) {
        const struct moved *m = &p->moved[i];
        if (m->from == seat && m->epoch > 0 && m->epoch <= epoch)
            return true;
    }
    return false;
}

/* Those that end together are one from then on. */
void placement_settle(struct placement *p, uint32_t seat, uint64_t epoch, int64_t until_ms)
{
    struct moved all = {.from = (uint16_t)seat, .until_ms = until_ms};
    uint32_t kept = 0;
    if (!placement_unsettled(p, seat, epoch))
        return;
    for (uint32_t i = 0; i < p->moved_count; i++) {
        const struct moved *m = &p->moved[i];
        bool waits = m->epoch > 0 && m->epoch <= epoch;
        bool same = m->epoch == 0 && m->until_ms == until_ms;
        if (m->from != seat || (!waits && !same)) {
            p->moved[kept++] = *m;
            continue;
        }
        for (uint32_t k = 0; k < BUCKETS / 64; k++)
            all.buckets.bits[k] |= m->buckets.bits[k];
    }
    p->moved[kept++] = all;
    p->moved_count = kept;
}

void placement_tidy(struct placement *p, int64_t now_ms)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->moved_count; i++) {
        const struct moved *m = &p->moved[i];
        if (m->until_ms > now_ms && p->seats[m->from].state != SEAT_OUT)
            p->moved[kept++] = *m;
    }
    p->moved_count = kept;
}

bool placement_fits(const struct placement *p)
{
    struct buf text = {0};
    placement_write(p, &text);
    bool fits = text.len <= PLACE_MAP_MAX;
    buf_fini(&text);
    return fits;
}
