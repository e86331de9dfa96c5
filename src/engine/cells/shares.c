#include "engine/cells/shares.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/policy.h"
#include "engine/cells/division.h"

#include <stdlib.h>
#include <string.h>

#define PACE_MS   100 /* rounds that nobody waits for are so far apart: a share stays for a while */
#define SETTLE_MS 2000 /* … and while some cell has never been heard */
#define TRIES_MAX 32   /* other servers were faster */
#define BEGUN_MAX 16   /* rounds that time alone begins at a time */

enum step { STEP_NONE, STEP_LOOK, STEP_LOWER, STEP_WRITE, STEP_RAISE };

/* What is known of a cell. */
struct holding {
    struct cell_part *asked; /* the round waits for this answer */
    bool reached;            /* in this step, or nobody asked it */
    bool stale;              /* it refused: somebody else was faster */
    bool known;              /* `most` is as of some answer */
    uint64_t epoch;          /* of its share; 0: it has none */
    uint64_t most[SHARE_COUNT];
    uint64_t used[SHARE_COUNT];
    uint64_t next[SHARE_COUNT];      /* the share that it is to have after the round */
    uint64_t needs[SHARE_BYTES + 1]; /* refused since the last round */
};

struct shares {
    enum step step;
    bool again; /* the configuration or the ledger is another: the round begins anew */
    bool must;  /* … and is to be carried out, whether somebody needs it or not */
    bool next_must;
    bool settled; /* a round has reached all cells */
    bool wanted;
    bool stuck; /* a cell went away: the step may be over */
    uint32_t tries;
    uint32_t pending;
    uint32_t version;                    /* of the configuration that the round goes by */
    int64_t ended_ms;                    /* mono */
    struct trip *waiting, *next_waiting; /* by trip->next: for this round, for the one after it */
    struct grants ledger;                /* of the round */
    struct queue_share *home;            /* owned: the share of the home, with its ledger; NULL */
    struct portion *portions;            /* owned: by limit, then by ledger entry */
    struct holding cells[];
};

static void step_over(struct whole *w);

/* Limits */

static uint64_t limit_of(const struct queue_config *config, int which)
{
    int rank =
        which < SHARE_LEVEL ? -1 : levels_rank_of_slot(config, (uint8_t)(which - SHARE_LEVEL));
    switch (which) {
    case SHARE_DEPTH:
        return config->max_depth;
    case SHARE_BYTES:
        return config->max_bytes;
    case SHARE_IN_FLIGHT:
        return config->max_in_flight;
    default:
        return rank < 0 ? 0 : config->levels[rank].max_in_flight;
    }
}

/* The limits that are divided: a bit for each. */
static uint32_t divided(const struct whole *w)
{
    uint32_t which = 0;
    int count = whole_is_live(w) ? SHARE_IN_FLIGHT : SHARE_COUNT;
    for (int k = 0; k < count; k++)
        which |= limit_of(&w->face.config, k) > 0 ? 1u << k : 0;
    return which;
}

bool whole_is_live(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (!cell_is_live(&w->cells->cells[i]))
            return false;
    }
    return true;
}

bool shares_apply(const struct whole *w)
{
    return w->cells->cell_count > 1 && divided(w) != 0;
}

uint64_t share_room(const struct partition *p, int slot)
{
    const struct shares *s = p->whole->shares;
    const struct holding *h = s ? &s->cells[p->cell->number] : NULL;
    const struct queue_view *v = &p->q->view;
    int which = slot < 0 ? SHARE_IN_FLIGHT : SHARE_LEVEL + slot;
    uint64_t leased = slot < 0 ? v->leased : v->lanes[slot].leased;
    if (limit_of(&p->whole->face.config, which) == 0)
        return UINT64_MAX;
    uint64_t most = h && h->known ? h->most[which] : 0;
    return most > leased ? most - leased : 0;
}

bool share_blocks(const struct partition *p, uint8_t slot)
{
    const struct whole *w = p->whole;
    const struct holding *h = w->shares ? &w->shares->cells[p->cell->number] : NULL;
    const struct queue_config *config = &w->face.config;
    if (!h || !h->known || whole_is_live(w))
        return false;
    return (h->most[SHARE_IN_FLIGHT] == 0 && config->max_in_flight > 0) ||
           (h->most[SHARE_LEVEL + slot] == 0 && limit_of(config, SHARE_LEVEL + slot) > 0);
}

bool share_lacks(const struct partition *p, uint8_t slot, uint64_t want)
{
    const struct shares *s = p->whole->shares;
    bool known = s && s->cells[p->cell->number].known && !whole_is_live(p->whole);
    return known && (share_room(p, -1) < want || share_room(p, slot) < want);
}

static uint64_t ready_of(const struct partition *p, int which)
{
    const struct queue_view *v = &p->q->view;
    return which == SHARE_IN_FLIGHT ? v->ready : v->lanes[which - SHARE_LEVEL].ready;
}

static bool idles_elsewhere(const struct partition *p, int which)
{
    const struct whole *w = p->whole;
    int slot = which == SHARE_IN_FLIGHT ? -1 : which - SHARE_LEVEL;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *other = &w->partitions[i];
        if (other != p && partition_serves(other) && w->shares->cells[i].known &&
            share_room(other, slot) > ready_of(other, which))
            return true;
    }
    return false;
}

bool share_idles(const struct partition *p, uint8_t slot, uint64_t want)
{
    const struct shares *s = p->whole->shares;
    bool level = share_room(p, slot) >= want, queue = share_room(p, -1) >= want;
    if (!s || !s->cells[p->cell->number].known)
        return true;
    return (!level || !queue) && (level || idles_elsewhere(p, SHARE_LEVEL + slot)) &&
           (queue || idles_elsewhere(p, SHARE_IN_FLIGHT));
}

/* Making and freeing */

static struct shares *shares_of(struct whole *w)
{
    if (!w->shares)
        w->shares =
            mem_zalloc(sizeof(*w->shares) + w->cells->cell_count * sizeof(w->shares->cells[0]));
    return w->shares;
}

static void round_forget(struct shares *s)
{
    grants_fini(&s->ledger);
    free(s->portions);
    free(s->home);
    s->portions = NULL;
    s->home = NULL;
}

void shares_free(struct whole *w)
{
    if (!w->shares)
        return;
    assert(!w->shares->waiting);
    assert(!w->shares->next_waiting);
    round_forget(w->shares);
    free(w->shares);
    w->shares = NULL;
}

/* Asking a cell */

struct asking {
    uint64_t used[SHARE_COUNT];
    struct queue_share next; /* last: with its note */
};

static void answered(struct cell_part *part)
{
    struct whole *w = part->partition->whole;
    struct shares *s = w->shares;
    struct holding *h = &s->cells[part->cell->number];
    struct queue_share *now = part->op.status ? NULL : part->op.share.now;
    if (h->asked != part) { /* nobody waits for it any more */
        free(now);
        return;
    }
    h->asked = NULL;
    h->reached = !part->op.status;
    h->stale = h->reached && part->op.share.stale;
    s->again = s->again || part->op.outdated;
    if (h->reached) {
        h->known = true;
        h->epoch = now ? now->epoch : 0;
        for (int k = 0; k < SHARE_COUNT; k++)
            h->most[k] = now ? now->most[k] : SHARE_WHOLE;
        memcpy(h->used, part->op.share.used, sizeof(h->used));
    }
    if (h->reached && part->partition == whole_home(w)) {
        free(s->home);
        s->home = now;
        now = NULL;
    }
    free(now);
    if (--s->pending == 0)
        step_over(w);
}

/* most NULL: only to know. */
static void ask(struct partition *p, const uint64_t *most, const char *note, size_t note_len)
{
    struct shares *s = p->whole->shares;
    struct holding *h = &s->cells[p->cell->number];
    struct cell_part *part = part_new_alone(p->whole->cells, p->cell, p);
    struct asking *a = part->items = mem_zalloc(sizeof(*a) + note_len);
    part->op.verb = ENGINE_QUEUE_SHARE;
    part->op.share.used = a->used;
    part->done = answered;
    if (most) {
        a->next.epoch = h->epoch + 1;
        memcpy(a->next.most, most, sizeof(a->next.most));
        a->next.note_len = (uint32_t)note_len;
        if (note_len > 0)
            memcpy(a->next.note, note, note_len);
        part->op.share.next = &a->next;
    }
    h->asked = part;
    h->reached = false;
    s->pending++;
    part_submit(part);
}

/* The round */

static void look(struct whole *w)
{
    struct shares *s = w->shares;
    round_forget(s);
    s->step = STEP_LOOK;
    s->again = false;
    s->version = w->face.version;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        s->cells[i].reached = false;
        s->cells[i].stale = false;
        if (partition_serves(p))
            ask(p, NULL, NULL, 0);
    }
    if (s->pending == 0)
        step_over(w);
}

static void begin(struct whole *w)
{
    struct shares *s = w->shares;
    assert(s->step == STEP_NONE);
    assert(!s->waiting);
    s->waiting = s->next_waiting;
    s->must = s->next_must;
    s->next_waiting = NULL;
    s->next_must = false;
    s->wanted = false;
    s->tries = 0;
    w->cells->base.counters.own[COUNT_DIVISIONS]++;
    look(w);
}

static void finish(struct whole *w, bool ok)
{
    struct shares *s = w->shares;
    struct trip *list = s->waiting;
    s->waiting = NULL;
    s->step = STEP_NONE;
    s->ended_ms = w->cells->now.mono_ms;
    round_forget(s);
    for (uint32_t i = 0; i < w->cells->cell_count; i++)
        memset(s->cells[i].needs, 0, sizeof(s->cells[i].needs));
    w->busy++; /* until the calls have returned */
    for (struct trip *t; (t = list);) {
        list = t->next;
        t->next = NULL;
        if (!ok && t->must)
            t->status = STATUS_ENGINE_UNAVAILABLE;
        t->then(t);
    }
    w->busy--;
    if (s->next_waiting && s->step == STEP_NONE)
        begin(w);
}

static void retry(struct whole *w)
{
    struct shares *s = w->shares;
    if (++s->tries > TRIES_MAX || w->retired || w->deleting) {
        finish(w, false);
        return;
    }
    whole_follow(w);
    look(w);
}

/* Whether the round cannot go on as it was begun. */
static bool is_void(const struct whole *w)
{
    const struct shares *s = w->shares;
    return s->again || s->version != w->face.version || w->retired || w->deleting;
}

/* Planning */

static struct partition *partition_named(const struct whole *w, const char *cell)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (strcmp(cell_name(w->cells, i), cell) == 0)
            return (struct partition *)&w->partitions[i];
    }
    return NULL;
}

/* The ledger has every cell that holds something of the queue, or may. A cell of the placement that
 * has never been seen may hold anything. */
static bool read_ledger(struct whole *w)
{
    struct shares *s = w->shares;
    const struct placement *at = &w->placement;
    if (!grants_read(s->home ? s->home->note : "", s->home ? s->home->note_len : 0, &s->ledger)) {
        log_error("cells: the ledger of a queue's limits cannot be read", "queue=%s", w->face.name);
        return false;
    }
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (w->partitions[i].q)
            grants_add(&s->ledger, cell_name(w->cells, i));
    }
    for (uint32_t i = 0; i < at->seat_count; i++) {
        const struct partition *p = partition_named(w, at->seats[i].cell);
        bool there = p && p->q, out = at->seats[i].state == SEAT_OUT;
        if (!there && out)
            grants_remove(&s->ledger, at->seats[i].cell);
        else if (!there && (!p || p->cell->away))
            grants_add(&s->ledger, at->seats[i].cell);
    }
    return true;
}

static struct portion *portions_of(const struct shares *s, int which)
{
    return &s->portions[(uint32_t)which * s->ledger.count];
}

/* How many messages of a level are ready and could be leased, and when the first of them became
 * so. */
static uint64_t lane_needs(const struct shares *s, const struct partition *p, uint32_t row,
                           int slot, int64_t *head_ms)
{
    const struct lane_view *v = &p->q->view.lanes[slot];
    uint64_t ready = v->ready;
    *head_ms = time_from_cell(p->cell, v->head_ms);
    if (limit_of(&p->whole->face.config, SHARE_LEVEL + slot) > 0) {
        const struct portion *level = &portions_of(s, SHARE_LEVEL + slot)[row];
        uint64_t room = level->aim > level->used ? level->aim - level->used : 0;
        ready = ready < room ? ready : room;
    }
    return ready;
}

/* Whose turn it is: by the level under strict order, then by age. */
static void queue_needs(const struct shares *s, const struct partition *p, uint32_t row,
                        struct portion *portion)
{
    const struct queue_config *config = &p->whole->face.config;
    for (int rank = 0; rank < config->level_count; rank++) {
        int64_t head_ms;
        uint64_t ready = lane_needs(s, p, row, config->levels[rank].slot, &head_ms);
        int64_t turn = head_ms + (config->policy == POLICY_STRICT ? (int64_t)rank << 48 : 0);
        if (ready > 0 && (portion->needs == 0 || turn < portion->turn))
            portion->turn = turn;
        portion->needs += ready;
    }
}

static void set_needs(const struct shares *s, const struct partition *p, uint32_t row, int which,
                      struct portion *portion)
{
    const struct lane_view *v = p->q->view.lanes;
    if (which <= SHARE_BYTES) {
        portion->needs = s->cells[p->cell->number].needs[which];
    } else if (which == SHARE_IN_FLIGHT) {
        queue_needs(s, p, row, portion);
    } else {
        portion->needs = v[which - SHARE_LEVEL].ready;
        portion->turn = time_from_cell(p->cell, v[which - SHARE_LEVEL].head_ms);
    }
}

static bool is_open(const struct partition *p, int which)
{
    const struct placement *at = &p->whole->placement;
    return which > SHARE_BYTES || p->seat < 0 || at->seats[p->seat].state == SEAT_OPEN;
}

static void fill(const struct whole *w, int which)
{
    const struct shares *s = w->shares;
    struct portion *portions = portions_of(s, which);
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        const struct grant *e = &s->ledger.entries[row];
        const struct partition *p = partition_named(w, e->cell);
        const struct holding *h = p ? &s->cells[p->cell->number] : NULL;
        struct portion *at = &portions[row];
        *at = (struct portion){.grant = e->grants[which]};
        if (!h || !h->reached || !p->q)
            continue;
        at->reached = true;
        at->share = h->most[which];
        at->used = h->used[which];
        at->open = is_open(p, which);
        set_needs(s, p, row, which, at);
    }
}

/* Whether the limit is not kept yet as the ledger stands. */
static bool is_loose(const struct shares *s, int which, uint64_t limit)
{
    const struct portion *p = portions_of(s, which);
    uint64_t sum = 0;
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        if (p[row].grant > limit - sum)
            return true;
        sum += p[row].grant;
    }
    return false;
}

/* Levels come before the queue, which goes by what they may lease. */
static bool aim(const struct whole *w, uint32_t which)
{
    struct shares *s = w->shares;
    bool worth = s->must;
    s->portions = mem_zalloc((size_t)SHARE_COUNT * s->ledger.count * sizeof(s->portions[0]));
    for (int k = SHARE_COUNT - 1; k >= 0; k--) {
        uint64_t limit = limit_of(&w->face.config, k);
        if (!(which >> k & 1))
            continue;
        fill(w, k);
        division_aim(limit, portions_of(s, k), s->ledger.count);
        worth =
            worth || is_loose(s, k, limit) || division_helps(portions_of(s, k), s->ledger.count);
    }
    return worth;
}

/* Lowering */

/* True: its share, or what the ledger grants it, is to be smaller. */
static bool lowered(const struct shares *s, uint32_t row, uint32_t which, struct holding *h)
{
    bool less = false;
    memcpy(h->next, h->most, sizeof(h->next));
    for (int k = 0; k < SHARE_COUNT; k++) {
        if (!(which >> k & 1))
            continue;
        const struct portion *p = &portions_of(s, k)[row];
        less = less || p->aim < p->share || p->aim < p->grant;
        h->next[k] = p->aim < p->share ? p->aim : p->share;
    }
    return less;
}

static void lower(struct whole *w)
{
    struct shares *s = w->shares;
    uint32_t which = divided(w);
    s->step = STEP_LOWER;
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        struct grant *e = &s->ledger.entries[row];
        struct partition *p = partition_named(w, e->cell);
        struct holding *h = p ? &s->cells[p->cell->number] : NULL;
        if (!h || !h->reached || !p->q || !lowered(s, row, which, h))
            continue;
        bool home = s->home && p == whole_home(w);
        for (int k = 0; k < SHARE_COUNT; k++) { /* to be known when it has confirmed */
            if (which >> k & 1)
                portions_of(s, k)[row].grant = 0;
        }
        ask(p, h->next, home ? s->home->note : NULL, home ? s->home->note_len : 0);
    }
    if (s->pending == 0)
        step_over(w);
}

static void plan(struct whole *w)
{
    struct shares *s = w->shares;
    struct partition *home = whole_home(w);
    if (is_void(w)) {
        retry(w);
        return;
    }
    bool sure = home && home_is_sure(w, home) && s->cells[home->cell->number].reached;
    if (!sure || !read_ledger(w)) {
        finish(w, false);
        return;
    }
    bool alone = s->ledger.count == 1 && !s->home; /* its one cell keeps the limits as they are */
    bool all = true;
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        const struct partition *p = partition_named(w, s->ledger.entries[row].cell);
        all = all && p && s->cells[p->cell->number].reached;
    }
    s->settled = all;
    if (alone || !aim(w, divided(w)))
        finish(w, all);
    else
        lower(w);
}

/* Writing the ledger */

/* What the cells hold by now. The grant of one that has confirmed is what it may still come to
 * hold. */
static void take_stock(const struct whole *w, int which)
{
    const struct shares *s = w->shares;
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        const struct grant *e = &s->ledger.entries[row];
        const struct partition *p = partition_named(w, e->cell);
        const struct holding *h = p ? &s->cells[p->cell->number] : NULL;
        struct portion *at = &portions_of(s, which)[row];
        bool asked = at->reached && at->grant == 0 && e->grants[which] > 0;
        at->reached = at->reached && h->reached && !h->stale;
        if (!at->reached || !asked) {
            at->grant = e->grants[which];
            continue;
        }
        at->share = h->most[which];
        at->used = h->used[which];
        at->grant = at->share > at->used ? at->share : at->used;
    }
}

static void set_next(struct whole *w, uint32_t which)
{
    struct shares *s = w->shares;
    for (uint32_t row = 0; row < s->ledger.count; row++) {
        struct grant *e = &s->ledger.entries[row];
        const struct partition *p = partition_named(w, e->cell);
        struct holding *h = p ? &s->cells[p->cell->number] : NULL;
        for (int k = 0; k < SHARE_COUNT; k++) {
            if (!(which >> k & 1))
                continue;
            const struct portion *at = &portions_of(s, k)[row];
            uint64_t most = at->aim < at->grant ? at->aim : at->grant;
            e->grants[k] = at->grant;
            if (at->reached)
                h->next[k] = most > h->most[k] ? most : h->most[k];
        }
    }
}

/* Whether its share is to be larger. */
static bool is_raised(const struct holding *h)
{
    return h->reached && !h->stale && memcmp(h->next, h->most, sizeof(h->next)) != 0;
}

static bool anybody_raised(const struct whole *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->cells->cell_count; i++)
        any = any || is_raised(&w->shares->cells[i]);
    return any;
}

static void send_ledger(struct whole *w, struct partition *home, uint32_t which)
{
    struct shares *s = w->shares;
    struct buf text = {0};
    grants_write(&s->ledger, which, &text);
    bool same = s->home && s->home->note_len == text.len &&
                memcmp(s->home->note, buf_cstr(&text), text.len) == 0;
    s->step = STEP_WRITE;
    if (text.len > PLACE_MAP_MAX)
        log_warn("cells: the ledger of a queue's limits would be too large, and stays", "queue=%s",
                 w->face.name);
    else if (!same || anybody_raised(w))
        ask(home, s->cells[home->cell->number].next, buf_cstr(&text), text.len);
    if (s->pending == 0)
        finish(w, same && s->settled);
    buf_fini(&text);
}

static void write_grants(struct whole *w)
{
    struct shares *s = w->shares;
    struct partition *home = whole_home(w);
    uint32_t which = divided(w);
    const struct holding *h = home ? &s->cells[home->cell->number] : NULL;
    if (is_void(w) || (h && h->stale) || (home && !partition_is_known(home))) {
        retry(w);
        return;
    }
    if (!h || !h->reached || !home_is_sure(w, home)) {
        finish(w, false);
        return;
    }
    for (int k = 0; k < SHARE_COUNT; k++) {
        if (!(which >> k & 1))
            continue;
        take_stock(w, k);
        division_grant(limit_of(&w->face.config, k), portions_of(s, k), s->ledger.count);
    }
    set_next(w, which);
    send_ledger(w, home, which);
}

static void raise_others(struct whole *w)
{
    struct shares *s = w->shares;
    const struct partition *home = whole_home(w);
    const struct holding *h = home ? &s->cells[home->cell->number] : NULL;
    s->step = STEP_RAISE;
    if (!h || !h->reached) {
        finish(w, false);
        return;
    }
    if (h->stale || s->again || w->retired || w->deleting) {
        retry(w);
        return;
    }
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        if (p != home && partition_serves(p) && is_raised(&s->cells[i]))
            ask(p, s->cells[i].next, NULL, 0);
    }
    if (s->pending == 0)
        step_over(w);
}

/* With `must` every cell has confirmed, or the caller is told that not all have. */
static void end(struct whole *w)
{
    struct shares *s = w->shares;
    bool ok = s->settled;
    for (uint32_t i = 0; i < w->cells->cell_count; i++)
        ok = ok && !s->cells[i].stale && (s->cells[i].reached || !w->partitions[i].q);
    if (!ok && s->must && !w->retired && !w->deleting && s->settled)
        retry(w);
    else
        finish(w, ok);
}

static void step_over(struct whole *w)
{
    switch (w->shares->step) {
    case STEP_NONE:
        break;
    case STEP_LOOK:
        plan(w);
        break;
    case STEP_LOWER:
        write_grants(w);
        break;
    case STEP_WRITE:
        raise_others(w);
        break;
    case STEP_RAISE:
        end(w);
        break;
    }
}

/* Callers */

void shares_await(struct trip *t, bool must, void (*then)(struct trip *t))
{
    struct shares *s = shares_of(t->whole);
    struct trip **at = &s->next_waiting;
    while (*at)
        at = &(*at)->next;
    *at = t;
    t->next = NULL;
    t->then = then;
    t->must = must;
    s->next_must = s->next_must || must;
    if (s->step == STEP_NONE)
        begin(t->whole);
}

void shares_want(struct whole *w)
{
    struct shares *s = shares_of(w);
    s->wanted = true;
    if (s->step == STEP_NONE && w->cells->now.mono_ms - s->ended_ms >= PACE_MS)
        begin(w);
}

void shares_need(struct partition *p, uint64_t messages, uint64_t bytes)
{
    struct holding *h = &shares_of(p->whole)->cells[p->cell->number];
    h->needs[SHARE_DEPTH] += messages;
    h->needs[SHARE_BYTES] += bytes;
}

/* A step that waited for this cell alone is over. Ending one may make queues come and go, so the
 * search begins anew each time. */
void shares_cell_away(struct cells_engine *c, const struct cell *cell)
{
    size_t at = 0;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        struct shares *s = w->shares;
        if (!s || !s->cells[cell->number].asked)
            continue;
        s->cells[cell->number].asked = NULL;
        s->stuck = --s->pending == 0;
    }
    at = 0;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        if (!w->shares || !w->shares->stuck)
            continue;
        w->shares->stuck = false;
        step_over(w);
        at = 0;
    }
}

static bool is_due(const struct whole *w, int64_t now_ms)
{
    const struct shares *s = w->shares;
    if (w->deleting || w->there == 0 || divided(w) == 0)
        return false;
    if (!s || s->step != STEP_NONE)
        return !s;
    int64_t pace_ms = s->wanted ? PACE_MS : s->settled ? INT64_MAX : SETTLE_MS;
    return now_ms - s->ended_ms >= pace_ms;
}

void shares_tick(struct cells_engine *c)
{
    size_t at = 0;
    uint32_t begun = 0;
    for (struct whole *w; begun < BEGUN_MAX && (w = whole_of(map_each(&c->queues, &at)));) {
        if (!is_due(w, c->now.mono_ms))
            continue;
        shares_of(w);
        begin(w);
        begun++;
    }
}
