#include "net/budget.h"

#include "base/map.h"
#include "base/mem.h"

#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_PART   8    /* of the limit: only for addresses within their share */
#define OVERDRAFT_PART 4    /* of the limit: places beyond it, until others have given way */
#define SHORT_PART     16   /* of the limit: when less is left, somebody has to give way */
#define NOTHING_PART   4096 /* of the limit: an address that holds no more has no share */

/* An address in eight bytes and a letter, so that keys of two kinds are never equal. */
struct budget_key {
    char bytes[9];
};

struct account {
    struct budget *budget;
    struct budget_key key;
    uint32_t references;          /* under the budget's mutex … */
    _Atomic uint32_t connections; /* … as are changes of this */
    _Atomic int64_t held[BUDGET_KIND_COUNT];
};

struct budget {
    struct budget_limits limits;
    pthread_mutex_t mutex;
    struct map accounts;
    _Atomic int64_t total[BUDGET_KIND_COUNT];
    _Atomic int64_t wanting[BUDGET_KIND_COUNT]; /* accounts that hold something worth counting */
    _Atomic uint64_t events[BUDGET_EVENT_COUNT];
};

struct budget *budget_new(const struct budget_limits *limits)
{
    struct budget *b = mem_zalloc(sizeof(*b));
    b->limits = *limits;
    pthread_mutex_init(&b->mutex, NULL);
    return b;
}

void budget_free(struct budget *b)
{
    if (!b)
        return;
    assert(b->accounts.count == 0);
    map_fini(&b->accounts);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

/* Addresses */

static struct budget_key key_of(const struct sockaddr *peer)
{
    struct budget_key key = {{0}};
    if (peer->sa_family == AF_INET) {
        key.bytes[0] = '4';
        memcpy(key.bytes + 1, &((const struct sockaddr_in *)peer)->sin_addr, 4);
    } else if (peer->sa_family == AF_INET6) {
        const struct in6_addr *addr = &((const struct sockaddr_in6 *)peer)->sin6_addr;
        bool v4 = IN6_IS_ADDR_V4MAPPED(addr);
        key.bytes[0] = v4 ? '4' : '6';
        memcpy(key.bytes + 1, addr->s6_addr + (v4 ? 12 : 0), v4 ? 4 : 8);
    }
    return key;
}

static struct account *account_get(struct budget *b, const struct budget_key *key)
{
    struct account *a = map_get(&b->accounts, key->bytes, sizeof(key->bytes));
    if (a)
        return a;
    a = mem_zalloc(sizeof(*a));
    a->budget = b;
    a->key = *key;
    map_put(&b->accounts, a->key.bytes, sizeof(a->key.bytes), a);
    return a;
}

static void note(struct budget *b, enum budget_event event)
{
    atomic_fetch_add_explicit(&b->events[event], 1, memory_order_relaxed);
}

struct account *account_open(struct budget *b, const struct sockaddr *peer)
{
    struct budget_key key = key_of(peer);
    pthread_mutex_lock(&b->mutex);
    struct account *a = account_get(b, &key);
    bool full = b->limits.connections_max > 0 && a->connections >= b->limits.connections_max;
    if (!full) {
        a->connections++;
        a->references++;
    }
    pthread_mutex_unlock(&b->mutex);
    if (full)
        note(b, BUDGET_REFUSED_CONNECTION);
    return full ? NULL : a;
}

uint32_t account_connections(const struct account *a)
{
    return atomic_load_explicit(&a->connections, memory_order_relaxed);
}

struct account *account_ref(struct account *a)
{
    pthread_mutex_lock(&a->budget->mutex);
    a->references++;
    pthread_mutex_unlock(&a->budget->mutex);
    return a;
}

static void release(struct account *a, uint32_t connections)
{
    struct budget *b = a->budget;
    pthread_mutex_lock(&b->mutex);
    a->connections -= connections;
    bool last = --a->references == 0;
    if (last)
        map_remove(&b->accounts, a->key.bytes, sizeof(a->key.bytes));
    pthread_mutex_unlock(&b->mutex);
    if (!last)
        return;
    for (int kind = 0; kind < BUDGET_KIND_COUNT; kind++)
        assert(a->held[kind] == 0);
    free(a);
}

void account_unref(struct account *a)
{
    release(a, 0);
}

void account_close(struct account *a)
{
    if (a)
        release(a, 1);
}

/* Shares */

static int64_t get(const _Atomic int64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static int64_t limit_of(const struct budget *b, enum budget_kind kind)
{
    return (int64_t)b->limits.max[kind];
}

static int64_t soft_of(const struct budget *b, enum budget_kind kind)
{
    return limit_of(b, kind) - limit_of(b, kind) / RESERVE_PART;
}

/* What all addresses together may hold while some are giving way. */
static int64_t ceiling_of(const struct budget *b, enum budget_kind kind)
{
    int64_t limit = limit_of(b, kind);
    return kind == BUDGET_WAITING ? limit + limit / OVERDRAFT_PART : limit;
}

static bool wants(const struct budget *b, enum budget_kind kind, int64_t held)
{
    return held > limit_of(b, kind) / NOTHING_PART;
}

/* The share of this address, which is about to hold something. */
static int64_t share_of(const struct account *a, enum budget_kind kind, int64_t held)
{
    const struct budget *b = a->budget;
    int64_t others = get(&b->wanting[kind]) - wants(b, kind, held);
    int64_t share = others > 0 ? limit_of(b, kind) / (others + 1) : limit_of(b, kind);
    return share < soft_of(b, kind) ? share : soft_of(b, kind);
}

static uint64_t more_of(int64_t a, int64_t b)
{
    int64_t more = a > b ? a : b;
    return more > 0 ? (uint64_t)more : 0;
}

uint64_t account_due(const struct account *a, enum budget_kind kind)
{
    int64_t held = get(&a->held[kind]);
    return more_of(soft_of(a->budget, kind) - get(&a->budget->total[kind]),
                   share_of(a, kind, held) - held);
}

uint64_t account_room(const struct account *a, enum budget_kind kind)
{
    uint64_t left = more_of(ceiling_of(a->budget, kind) - get(&a->budget->total[kind]), 0);
    uint64_t due = account_due(a, kind);
    return due < left ? due : left;
}

bool budget_is_short(const struct budget *b, enum budget_kind kind)
{
    int64_t limit = limit_of(b, kind);
    return get(&b->total[kind]) > limit - limit / SHORT_PART;
}

bool budget_is_spent(const struct budget *b)
{
    return get(&b->total[BUDGET_BYTES]) >= limit_of(b, BUDGET_BYTES);
}

bool account_is_over(const struct account *a, enum budget_kind kind)
{
    int64_t held = get(&a->held[kind]);
    return held > share_of(a, kind, held);
}

/* Counts are exact, because each change is one atomic step that gives the value before it. The
 * order of changes between threads does not matter. */
void account_charge(struct account *a, enum budget_kind kind, int64_t change)
{
    struct budget *b = a->budget;
    int64_t before = atomic_fetch_add_explicit(&a->held[kind], change, memory_order_relaxed);
    assert(before + change >= 0);
    atomic_fetch_add_explicit(&b->total[kind], change, memory_order_relaxed);
    int64_t more = (int64_t)wants(b, kind, before + change) - wants(b, kind, before);
    if (more)
        atomic_fetch_add_explicit(&b->wanting[kind], more, memory_order_relaxed);
}

/* Counters */

void account_note(struct account *a, enum budget_event event)
{
    note(a->budget, event);
}

struct budget_counters budget_counters(struct budget *b)
{
    pthread_mutex_lock(&b->mutex);
    uint64_t addresses = b->accounts.count;
    pthread_mutex_unlock(&b->mutex);
    return (struct budget_counters){
        .budget_bytes = (uint64_t)get(&b->total[BUDGET_BYTES]),
        .budget_limit_bytes = b->limits.max[BUDGET_BYTES],
        .waiting_open = (uint64_t)get(&b->total[BUDGET_WAITING]),
        .addresses_open = addresses,
        .refused_connections = b->events[BUDGET_REFUSED_CONNECTION],
        .refused_bodies = b->events[BUDGET_REFUSED_BODY],
        .refused_answers = b->events[BUDGET_REFUSED_ANSWER],
        .refused_waiting = b->events[BUDGET_REFUSED_WAITING],
        .ended_waits = b->events[BUDGET_ENDED_WAIT],
        .shed_connections = b->events[BUDGET_SHED],
    };
}
