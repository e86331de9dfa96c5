#include "engine/cells/division.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_CELLS_MAX 1024

static_assert(SHARE_COUNT <= 32, "a bit for each limit");

/* Aims */

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > SHARE_WHOLE - b ? SHARE_WHOLE : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What is left for the cells that were reached; false: nobody knows. */
static bool room_of(uint64_t limit, const struct portion *p, uint32_t count, uint64_t *room)
{
    uint64_t away = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!p[i].reached && p[i].grant == SHARE_WHOLE)
            return false;
        away = plus(away, p[i].reached ? 0 : p[i].grant);
    }
    *room = less(limit, away);
    return true;
}

/* Of those that satisfy the test the one whose turn comes first; -1: there is none. */
static int first_in_turn(const struct portion *p, uint32_t count,
                         bool (*wants)(const struct portion *p))
{
    int best = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (p[i].reached && wants(&p[i]) && (best < 0 || p[i].turn < p[best].turn))
            best = (int)i;
    }
    return best;
}

static bool lacks(const struct portion *p)
{
    return p->aim < plus(p->used, p->needs);
}

/* By what each needs; what that leaves goes one by one, in turn. */
static void divide(uint64_t rest, uint64_t needs, struct portion *p, uint32_t count)
{
    uint64_t given = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!p[i].reached)
            continue;
        uint64_t part = (uint64_t)((unsigned __int128)rest * p[i].needs / needs);
        p[i].aim += part;
        given += part;
    }
    int next;
    while (given < rest && (next = first_in_turn(p, count, lacks)) >= 0) {
        p[next].aim++;
        given++;
    }
}

static void spread(uint64_t rest, struct portion *p, uint32_t count)
{
    uint32_t open = 0, at = 0;
    for (uint32_t i = 0; i < count; i++)
        open += p[i].reached && p[i].open;
    for (uint32_t i = 0; i < count; i++) {
        if (p[i].reached && p[i].open)
            p[i].aim += rest / open + (at++ < rest % open);
    }
}

void division_aim(uint64_t limit, struct portion *p, uint32_t count)
{
    uint64_t room = 0, used = 0, needs = 0;
    bool known = room_of(limit, p, count, &room);
    for (uint32_t i = 0; i < count; i++) {
        p[i].aim = p[i].reached && !known ? p[i].share : 0;
        used = plus(used, p[i].reached ? p[i].used : 0);
        needs = plus(needs, p[i].reached ? p[i].needs : 0);
    }
    if (!known || used > room)
        return;
    for (uint32_t i = 0; i < count; i++)
        p[i].aim = p[i].reached ? p[i].used : 0;
    uint64_t rest = room - used;
    if (needs > rest) {
        divide(rest, needs, p, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        p[i].aim += p[i].reached ? p[i].needs : 0;
    spread(rest - needs, p, count);
}

bool division_helps(const struct portion *p, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t wants = plus(p[i].used, p[i].needs);
        if (!p[i].reached || p[i].needs == 0 || p[i].share >= wants || p[i].aim <= p[i].share)
            continue;
        if (p[i].aim >= wants || p[i].aim - p[i].share >= p[i].aim / 8)
            return true;
    }
    return false;
}

/* Grants */

static bool wants_grant(const struct portion *p)
{
    return p->grant < p->aim;
}

void division_grant(uint64_t limit, struct portion *p, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum = plus(sum, p[i].grant);
    uint64_t free = less(limit, sum);
    int next;
    while (free > 0 && (next = first_in_turn(p, count, wants_grant)) >= 0) {
        uint64_t more = p[next].aim - p[next].grant;
        more = more < free ? more : free;
        p[next].grant += more;
        free -= more;
    }
}

/* The ledger: a line with the numbers of the limits, then a line for each cell, its name and its
 * grants. An unknown one is a "-". */

void grants_fini(struct grants *l)
{
    free(l->entries);
    *l = (struct grants){0};
}

struct grant *grants_find(const struct grants *l, const char *cell)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (strcmp(l->entries[i].cell, cell) == 0)
            return &l->entries[i];
    }
    return NULL;
}

struct grant *grants_add(struct grants *l, const char *cell)
{
    struct grant *e = grants_find(l, cell);
    if (e)
        return e;
    l->entries = mem_realloc(l->entries, (l->count + 1) * sizeof(l->entries[0]));
    e = &l->entries[l->count++];
    *e = (struct grant){0};
    snprintf(e->cell, sizeof(e->cell), "%s", cell);
    for (int k = 0; k < SHARE_COUNT; k++)
        e->grants[k] = SHARE_WHOLE;
    return e;
}

void grants_remove(struct grants *l, const char *cell)
{
    struct grant *e = grants_find(l, cell);
    if (e)
        *e = l->entries[--l->count];
}

void grants_write(const struct grants *l, uint32_t which, struct buf *out)
{
    bool first = true;
    for (int k = 0; k < SHARE_COUNT; k++) {
        if (which >> k & 1) {
            buf_printf(out, first ? "%d" : " %d", k);
            first = false;
        }
    }
    buf_putc(out, '\n');
    for (uint32_t i = 0; i < l->count; i++) {
        const struct grant *e = &l->entries[i];
        buf_puts(out, e->cell);
        for (int k = 0; k < SHARE_COUNT; k++) {
            if (!(which >> k & 1))
                continue;
            if (e->grants[k] == SHARE_WHOLE)
                buf_lit(out, " -");
            else
                buf_printf(out, " %llu", (unsigned long long)e->grants[k]);
        }
        buf_putc(out, '\n');
    }
}

static bool read_number(const char **at, const char *end, uint64_t *number)
{
    const char *from = *at;
    *number = 0;
    if (*at < end && **at == '-') {
        (*at)++;
        *number = SHARE_WHOLE;
        return true;
    }
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (*number > SHARE_WHOLE / 10 - 1)
            return false;
        *number = *number * 10 + (uint64_t)(**at - '0');
    }
    return *at > from;
}

static bool read_which(const char **at, const char *end, int which[SHARE_COUNT], int *count)
{
    *count = 0;
    while (*at < end && **at != '\n') {
        uint64_t number;
        if (*count == SHARE_COUNT || !read_number(at, end, &number) || number >= SHARE_COUNT)
            return false;
        which[(*count)++] = (int)number;
        if (*at < end && **at == ' ')
            (*at)++;
    }
    return (*at)++ < end;
}

static bool read_entry(const char **at, const char *end, const int which[SHARE_COUNT], int count,
                       struct grants *l)
{
    char name[CELL_NAME_MAX + 1] = "";
    size_t len = 0;
    while (*at + len < end && (*at)[len] != ' ' && (*at)[len] != '\n')
        len++;
    if (len == 0 || len > CELL_NAME_MAX || memchr(*at, '\0', len))
        return false;
    memcpy(name, *at, len);
    *at += len;
    if (l->count == LEDGER_CELLS_MAX || grants_find(l, name))
        return false;
    struct grant *e = grants_add(l, name);
    for (int i = 0; i < count; i++) {
        if (*at == end || *(*at)++ != ' ' || !read_number(at, end, &e->grants[which[i]]))
            return false;
    }
    return *at < end && *(*at)++ == '\n';
}

bool grants_read(const char *text, size_t len, struct grants *l)
{
    const char *at = text, *end = text + len;
    int which[SHARE_COUNT], count = 0;
    *l = (struct grants){0};
    bool ok = len == 0 || read_which(&at, end, which, &count);
    while (ok && at < end)
        ok = read_entry(&at, end, which, count, l);
    if (!ok)
        grants_fini(l);
    return ok;
}
