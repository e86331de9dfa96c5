/* Looks: what an op is going to read of the store is read before the op takes effect, by the
 * reader. So a turn of the loop waits for no disk.
 *
 *   plan    which records the op will ask for. Each is looked for in memtables and cache. Those
 *           that only the disk has are listed, and the op is parked (hold.c)
 *   ask     the reader gets the list, or is asked for the next part of a page
 *   take    the answers are kept with the queue. The op is planned again: what is known now may
 *           name more (the dedup key is in the body). Each round knows more than the one before,
 *           so the rounds end
 *   apply   the op takes effect, with the records in hand (look_get, look_page)
 *
 * A sweep of a queue is planned in the same way. The queue is held from the plan on: nothing
 * changes these records before the op or the sweep does. A record that no plan has named is read on
 * the loop, and counted (LOCAL_LOOP_READS): there is none, unless a plan is wrong. */
#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct look {
    struct read_job job;    /* first */
    struct local_queue *lq; /* NULL: the queue is gone */
};

/* Records */

static void note(struct looks *s, struct read_record *r)
{
    assert(r->state != RECORD_ASKED);
    assert(r->state == RECORD_FOUND || r->value.len == 0);
    r->next = s->records;
    s->records = r;
    map_put(&s->known, r->key.bytes, r->key.len, r);
}

static const struct read_record *known(const struct looks *s, const struct key *k)
{
    return s->known.count > 0 ? map_get(&s->known, k->bytes, k->len) : NULL;
}

static void ask_for(struct looks *s, struct read_record *r)
{
    assert(!s->under_way);
    r->state = RECORD_ASKED;
    r->next = s->asked;
    s->asked = r;
}

static struct read_record *record_new(const struct key *k)
{
    struct read_record *r = mem_zalloc(sizeof(*r));
    r->key.len = k->len;
    memcpy(r->key.bytes, k->bytes, k->len);
    return r;
}

/* The record of a key, or NULL: it is not known yet, and will be asked for. */
static const struct read_record *need(struct local_queue *lq, const struct key *k)
{
    struct looks *s = &lq->looks;
    const struct read_record *there = known(s, k);
    if (there)
        return there;
    struct read_record *r = record_new(k);
    enum peek peek = store_peek(lq->local->shared->store, STORE_COLD, k, &r->value);
    if (peek == PEEK_ELSEWHERE) {
        ask_for(s, r);
        return NULL;
    }
    r->state = peek == PEEK_FOUND ? RECORD_FOUND : RECORD_ABSENT;
    note(s, r);
    return r;
}

/* The key of a draft. That none has it, as is the rule, is not noted: look_lacks_key() says so for
 * every key of the op that has no record here. */
static void need_draft_key(struct local_queue *lq, const char *key, size_t len)
{
    struct looks *s = &lq->looks;
    struct local *l = lq->local;
    struct key k;
    if (len == 0 || queue_key_here(&lq->rq->core, key, len))
        return;
    key_dedup(&k, lq->rq->face.id, key, len);
    s->drafts = true;
    if (known(s, &k))
        return;
    enum peek peek = store_peek(l->shared->store, STORE_COLD, &k, &l->scratch);
    if (peek == PEEK_ABSENT)
        return;
    struct read_record *r = record_new(&k);
    if (peek == PEEK_ELSEWHERE) {
        ask_for(s, r);
        return;
    }
    r->state = RECORD_FOUND;
    buf_put(&r->value, l->scratch.data, l->scratch.len);
    note(s, r);
}

static void need_draft(struct local_queue *lq, const struct draft *d)
{
    if (d->dedup_len > 0)
        need_draft_key(lq, d->body + d->payload_len + d->metadata_len, d->dedup_len);
}

static void need_import(struct local_queue *lq, const struct import_item *item)
{
    char key[IMPORT_KEY_BYTES];
    import_key(item, key);
    need_draft_key(lq, key, sizeof(key));
    need_draft(lq, &item->draft);
}

/* The key of a message that has its body, and may end. */
static void need_key_of(struct local_queue *lq, const struct message *m)
{
    struct key k;
    if (m->dedup_len == 0 || queue_key_here(&lq->rq->core, message_dedup_key(m), m->dedup_len))
        return;
    key_dedup(&k, lq->rq->face.id, message_dedup_key(m), m->dedup_len);
    need(lq, &k);
}

static void need_key_in(struct local_queue *lq, struct message *copy)
{
    if (copy)
        need_key_of(lq, copy);
    message_free(copy);
}

static void need_key_of_record(struct local_queue *lq, const struct read_record *r,
                               const struct message_id *id)
{
    if (r && r->state == RECORD_FOUND)
        need_key_in(lq, record_get_message(r->value.data, r->value.len, id));
}

static void need_key_of_dead(struct local_queue *lq, const struct read_record *r, uint64_t seq)
{
    int64_t until_ms;
    if (r && r->state == RECORD_FOUND)
        need_key_in(lq, record_get_whole(r->value.data, r->value.len, seq, &until_ms));
}

/* A message in memory: its body if that is elsewhere, and its key if it ends. */
static void need_of(struct local_queue *lq, const struct message *m, bool ends)
{
    struct message_id id = local_id(&lq->rq->core, m);
    struct key k;
    if (m->body) {
        if (ends)
            need_key_of(lq, m);
        return;
    }
    key_message(&k, &id);
    const struct read_record *r = need(lq, &k);
    if (ends)
        need_key_of_record(lq, r, &id);
}

/* A message that is not in memory: as guest.c looks for it. */
static void need_recall(struct local_queue *lq, const struct message_id *id, bool ends)
{
    uint32_t queue = lq->rq->face.id;
    struct key k;
    key_message(&k, id);
    const struct read_record *r = need(lq, &k);
    if (ends)
        need_key_of_record(lq, r, id);
    if (r && r->state == RECORD_FOUND)
        return;
    key_seq(&k, KEY_DEAD, queue, id->seq);
    r = need(lq, &k);
    if (ends)
        need_key_of_dead(lq, r, id->seq);
    key_seq(&k, KEY_HISTORY, queue, id->seq);
    if (!r || r->state != RECORD_FOUND)
        need(lq, &k);
}

static bool nowhere(const struct local_queue *lq, const struct message_id *id)
{
    return id->queue != lq->rq->face.id || id->seq >= lq->rq->face.next_seq;
}

static void need_message(struct local_queue *lq, const struct message_id *id, bool shows, bool ends)
{
    const struct message *m = seqmap_get(&lq->rq->core.messages, id->seq);
    if (!m && !nowhere(lq, id))
        need_recall(lq, id, ends);
    else if (m && (ends || shows))
        need_of(lq, m, ends);
}

/* What becomes of the message decides whether its body and its key are asked for. */
static void need_settled(struct local_queue *lq, const struct engine_op *op,
                         const struct message_id *id)
{
    const struct message *m = seqmap_get(&lq->rq->core.messages, id->seq);
    if (!m) {
        if (!nowhere(lq, id))
            need_recall(lq, id, false);
        return;
    }
    bool outlived = m->expiry && m->expiry->node.key <= lq->local->now.wall_ms;
    bool done = op->verb == ENGINE_ACK;
    if (op->verb == ENGINE_EXTEND)
        return;
    if (m->dedup_len > 0 && (done || outlived))
        need_of(lq, m, true);
    else if (!m->body && (!done || lq->rq->face.config.history_ms > 0))
        need_of(lq, m, false);
}

/* Pages */

static void page_clear(struct looks *s)
{
    read_records_free(s->page.first);
    s->page = (struct look_page){0};
}

static bool page_is(const struct look_page *p, const struct key *start)
{
    return p->there && p->start.len == start->len &&
           memcmp(p->start.bytes, start->bytes, start->len) == 0;
}

static struct key key_after(const struct key *k)
{
    struct key next = *k;
    assert(next.len < KEY_MAX);
    next.bytes[next.len++] = 0;
    return next;
}

static void page_take(struct local_queue *lq, struct read_job *job)
{
    struct look_page *p = &lq->looks.page;
    struct read_record **last = &p->first;
    while (*last)
        last = &(*last)->next;
    *last = job->records;
    job->records = NULL;
    for (const struct read_record *r = *last; r; r = r->next) {
        p->count++;
        p->bytes += r->value.len;
        if (!r->next)
            p->next = key_after(&r->key);
    }
    p->end = !job->more;
    if (job->damage)
        journal_damage(lq->local, job->damage);
}

static void page_job(const struct look_page *p, struct read_job *job)
{
    job->kind = READ_PAGE;
    job->prefix = p->prefix;
    job->start = p->next;
    job->max = p->want;
}

static void page_begin(struct local_queue *lq, const struct key *prefix, const struct key *start,
                       uint32_t want)
{
    struct look_page *p = &lq->looks.page;
    assert(want > 0);
    assert(start->len >= prefix->len);
    page_clear(&lq->looks);
    *p = (struct look_page){.there = true, .prefix = *prefix, .start = *start, .next = *start};
    p->want = want;
}

/* A page is wanted until it has all that is asked for, or all that there is. */
static void page_need(struct local_queue *lq, const struct key *prefix, const struct key *start,
                      uint32_t want)
{
    struct look_page *p = &lq->looks.page;
    if (!page_is(p, start))
        page_begin(lq, prefix, start, want);
    p->wanted = !p->end && p->count < want;
}

/* A portion of a job is that, or as many bytes as one portion may have. */
static void page_need_portion(struct local_queue *lq, const struct key *prefix,
                              const struct key *start, uint32_t want)
{
    struct look_page *p = &lq->looks.page;
    page_need(lq, prefix, start, want);
    p->wanted = p->wanted && p->bytes < READ_BYTES_MAX;
}

const struct look_page *look_page(const struct local_queue *lq, const struct key *start)
{
    return page_is(&lq->looks.page, start) ? &lq->looks.page : NULL;
}

/* Plans */

static void plan_dead(struct local_queue *lq, uint64_t from_seq, uint32_t count)
{
    struct key prefix, start;
    if (lq->rq->face.view.dead == 0)
        return;
    guests_dead_range(lq, from_seq, &prefix, &start);
    page_need(lq, &prefix, &start, count);
}

static void plan_dead_list(struct local_queue *lq, const struct engine_op *op)
{
    struct key prefix, start;
    if (lq->rq->face.view.dead == 0)
        return;
    guests_dead_range(lq, op->list.after.seq + 1, &prefix, &start);
    page_need_portion(lq, &prefix, &start, op->list.limit + 1);
}

/* Bodies that a list shows from memory. */
static void plan_shown(struct local_queue *lq, const struct engine_op *op)
{
    const struct queue *q = &lq->rq->core;
    uint64_t seq = op->list.after.seq + 1;
    uint32_t left = op->list.limit + 1, passed = 0;
    if (q->bodiless == 0 || op->list.after.phase != 0)
        return;
    for (struct message *m; left > 0 && (m = seqmap_next(&q->messages, seq, &seq)); seq++) {
        if (passed == RESIDENT_PASSED_MAX)
            return;
        if (!engine_lists(op, m->state)) {
            passed++;
            continue;
        }
        if (walk_lists(m))
            continue;
        need_of(lq, m, false);
        left--;
    }
}

static void plan_list(struct local_queue *lq, const struct engine_op *op)
{
    struct key prefix, start;
    uint32_t want;
    if (walk_tail_range(lq, op, &prefix, &start, &want)) {
        page_need(lq, &prefix, &start, want);
        if (lq->looks.page.count > 0) /* the op takes what there is, and comes back for more */
            lq->looks.page.wanted = false;
        return;
    }
    plan_shown(lq, op);
    if (engine_lists(op, MESSAGE_DEAD) && op->list.after.phase < 2)
        plan_dead(lq, op->list.after.phase ? op->list.after.seq + 1 : 0, op->list.limit + 1);
}

/* What a purge ends in memory. */
struct purge_plan {
    const struct engine_op *op;
    uint32_t count;
    size_t bytes; /* of bodies that have to be read */
};

/* False: the portion is full. */
static bool plan_purged(struct local_queue *lq, struct purge_plan *p, const struct message *m)
{
    if (p->count == p->op->bulk.max || p->bytes >= READ_BYTES_MAX)
        return false;
    p->count++;
    if (m->dedup_len == 0)
        return true;
    p->bytes += m->body ? 0 : message_body_len(m);
    need_of(lq, m, true);
    return true;
}

/* False: the portion is full. */
static bool plan_set(struct local_queue *lq, struct purge_plan *p, const struct order *set)
{
    bool room = true;
    for (struct order_node *n = order_first(set); n && room; n = order_next(set, n)) {
        const struct message *m = container_of(n, struct message, node);
        if (message_seq(m) < p->op->bulk.before_seq)
            room = plan_purged(lq, p, m);
    }
    return room;
}

/* Takes out of the page what a purge passes over. */
static void page_sift(struct local_queue *lq, const struct engine_op *op)
{
    struct look_page *p = &lq->looks.page;
    for (struct read_record **at = &p->first, *r; (r = *at);) {
        struct message_id id;
        bool passes = key_parse_message(r->key.bytes, r->key.len, &id) &&
                      (tail_in_memory(&lq->rq->core, id.seq) || id.seq >= op->bulk.before_seq);
        if (!passes) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = NULL;
        p->count--;
        p->bytes -= r->value.len;
        read_records_free(r);
    }
}

static void plan_purge_tail(struct local_queue *lq, const struct engine_op *op)
{
    struct look_page *p = &lq->looks.page;
    struct key prefix, start;
    walk_purge_range(lq, op, &prefix, &start);
    if (page_is(p, &start))
        page_sift(lq, op);
    page_need_portion(lq, &prefix, &start, op->bulk.max);
    for (const struct read_record *r = p->first; r && !p->wanted; r = r->next) {
        struct message_id id;
        if (key_parse_message(r->key.bytes, r->key.len, &id))
            need_key_of_record(lq, r, &id);
    }
}

static void plan_purge(struct local_queue *lq, const struct engine_op *op)
{
    const struct queue *q = &lq->rq->core;
    struct purge_plan p = {.op = op};
    bool room = true;
    if (q->tail > 0)
        plan_purge_tail(lq, op);
    for (int slot = 0; slot < LEVEL_COUNT_MAX && room; slot++)
        room =
            plan_set(lq, &p, &q->lanes[slot].ready) && plan_set(lq, &p, &q->lanes[slot].scheduled);
    lq->looks.portion = room ? UINT32_MAX : p.count;
}

static void plan_dead_bulk(struct local_queue *lq, const struct engine_op *op)
{
    bool ends = op->verb == ENGINE_DEAD_DROP;
    for (uint32_t i = 0; i < op->bulk.id_count; i++)
        need_message(lq, &op->bulk.ids[i], false, ends);
    if (op->bulk.id_count > 0 || lq->rq->face.view.dead == 0)
        return;
    struct key prefix, start;
    guests_dead_range(lq, 0, &prefix, &start);
    page_need_portion(lq, &prefix, &start, op->bulk.max + 1);
    const struct look_page *p = &lq->looks.page;
    for (const struct read_record *r = p->first; ends && !p->wanted && r; r = r->next) {
        uint32_t queue;
        uint64_t seq;
        if (key_parse_seq(r->key.bytes, r->key.len, &queue, &seq))
            need_key_of_dead(lq, r, seq);
    }
}

static void plan_leave(struct local_queue *lq, const struct engine_op *op)
{
    const struct message *m = NULL;
    for (uint32_t i = 0; i < op->leave.count; i++)
        need_message(lq, &op->leave.items[i].id, true, op->verb == ENGINE_LEFT);
    if (op->leave.count > 0)
        return;
    for (uint32_t i = 0; i < op->leave.limit && (m = queue_leaving(&lq->rq->core, m)); i++)
        need_of(lq, m, false);
}

static void plan(struct local_queue *lq, const struct engine_op *op)
{
    switch (op->verb) {
    case ENGINE_PUT:
        for (uint32_t i = 0; i < op->put.count; i++)
            need_draft(lq, &op->put.items[i].draft);
        return;
    case ENGINE_FIRE:
        if (op->fire.item)
            need_draft(lq, &op->fire.item->draft);
        return;
    case ENGINE_IMPORT:
        for (uint32_t i = 0; i < op->import.count; i++)
            need_import(lq, &op->import.items[i]);
        return;
    case ENGINE_GET:
    case ENGINE_CANCEL:
        need_message(lq, &op->one.id, true, op->verb == ENGINE_CANCEL);
        return;
    case ENGINE_ESCALATE:
        for (uint32_t i = 0; i < op->escalate.count; i++)
            need_message(lq, &op->escalate.items[i].id, false, false);
        return;
    case ENGINE_LEAVE:
    case ENGINE_LEFT:
        plan_leave(lq, op);
        return;
    case ENGINE_ACK:
    case ENGINE_NACK:
    case ENGINE_RELEASE:
    case ENGINE_EXTEND:
        for (uint32_t i = 0; i < op->settle.count; i++)
            need_settled(lq, op, &op->settle.items[i].id);
        return;
    case ENGINE_LIST:
        plan_list(lq, op);
        return;
    case ENGINE_DEAD_LIST:
        plan_dead_list(lq, op);
        return;
    case ENGINE_PURGE:
        for (uint32_t i = 0; i < op->bulk.id_count; i++)
            need_message(lq, &op->bulk.ids[i], true, true);
        if (op->bulk.id_count == 0)
            plan_purge(lq, op);
        return;
    case ENGINE_PROMOTE:
        for (uint32_t i = 0; i < op->bulk.id_count; i++)
            need_message(lq, &op->bulk.ids[i], false, false);
        return;
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        plan_dead_bulk(lq, op);
        return;
    default:
        return;
    }
}

/* As the plan to come says: a merge may have emptied the tail meanwhile. */
static void plan_anew(struct looks *s)
{
    assert(!s->under_way);
    read_records_free(s->asked);
    s->asked = NULL;
    s->page.wanted = false;
}

bool look_needed(struct local_queue *lq, const struct engine_op *op)
{
    struct looks *s = &lq->looks;
    plan_anew(s);
    plan(lq, op);
    return s->asked || s->page.wanted;
}

/* Sweeps */

/* A dead letter is written whole. A dedup key is in the body, and ends with any other message. */
static bool plan_end(void *ctx, const struct message *m, enum message_state to)
{
    struct local_queue *lq = ctx;
    struct local *l = lq->local;
    bool dies = to == MESSAGE_DEAD, drops_key = !dies && m->dedup_len > 0;
    size_t bytes = dies || (drops_key && !m->body) ? message_body_len(m) : 0;
    if (l->sweep_bytes > 0 && l->sweep_bytes + bytes > READ_BYTES_MAX)
        return false;
    l->sweep_bytes += bytes;
    if (l->shared->reader && (drops_key || (dies && !m->body)))
        need_of(lq, m, drops_key);
    return true;
}

bool look_needed_by_sweep(struct local_queue *lq, uint32_t *max, struct instant now)
{
    plan_anew(&lq->looks);
    *max = queue_sweep_ends(&lq->rq->core, *max, now, plan_end, lq);
    return lq->looks.asked;
}

#define LOOK_AHEAD 64 /* ops */

/* This only warms the cache: each op is planned again when it is first. */
void look_ahead(struct local_queue *lq, const struct engine_op *first)
{
    const struct engine_op *op = first;
    if (!lq->looks.asked || first->verb != ENGINE_PUT)
        return;
    for (int i = 0; i < LOOK_AHEAD && (op = op->next) && op->verb == ENGINE_PUT; i++)
        plan(lq, op);
}

static void forget_records(struct looks *s)
{
    read_records_free(s->asked);
    read_records_free(s->records);
    map_fini(&s->known);
    s->asked = s->records = NULL;
}

void look_pages_now(struct local_queue *lq, const struct engine_op *op)
{
    while (look_needed(lq, op) && lq->looks.page.wanted) {
        struct read_job job = {0};
        page_job(&lq->looks.page, &job);
        read_run(lq->local->shared->store, &job);
        page_take(lq, &job);
        read_free(&job);
    }
    forget_records(&lq->looks); /* these are read when they are needed, after a wait for commits */
}

/* Asking */

void look_ask(struct local_queue *lq)
{
    struct looks *s = &lq->looks;
    if (!s->asked && !s->page.wanted)
        return;
    static_assert(offsetof(struct look, job) == 0, "a job that comes back is its look");
    assert(lq->rq->held); /* until the answers are here nothing changes them */
    assert(!s->under_way);
    struct look *look = s->under_way = mem_zalloc(sizeof(*look));
    look->lq = lq;
    look->job.shard = lq->local->shard;
    look->job.kind = READ_RECORDS;
    look->job.records = s->asked;
    if (!s->asked) /* one thing at a time: the next plan asks for the page */
        page_job(&s->page, &look->job);
    s->asked = NULL;
    lq->local->r.base.reading++;
    reader_submit(lq->local->shared->reader, &look->job);
}

static void take_records(struct looks *s, struct read_job *job)
{
    for (struct read_record *r = job->records, *next; r; r = next) {
        next = r->next;
        r->next = NULL;
        if (known(s, &r->key)) /* the op named it twice */
            read_records_free(r);
        else
            note(s, r);
    }
    job->records = NULL;
}

void look_take(struct read_job *job)
{
    struct look *look = (struct look *)job;
    struct local_queue *lq = look->lq;
    if (lq) {
        assert(lq->looks.under_way == look);
        assert(lq->rq->held);
        lq->looks.under_way = NULL;
        if (job->kind == READ_PAGE && lq->looks.page.there)
            page_take(lq, job);
        else if (job->kind == READ_RECORDS)
            take_records(&lq->looks, job);
    }
    read_free(job);
    free(look);
}

/* Using */

bool look_get(struct local_queue *lq, const struct key *k, struct buf *value, bool *damaged)
{
    struct local *l = lq->local;
    const struct read_record *r = known(&lq->looks, k);
    if (!r) {
        l->r.base.counters.own[LOCAL_LOOP_READS] += l->shared->reader != NULL;
        return store_get(l->shared->store, STORE_COLD, k, value, damaged);
    }
    *damaged = r->state == RECORD_UNREADABLE;
    if (r->state != RECORD_FOUND)
        return false;
    buf_clear(value);
    buf_put(value, r->value.data, r->value.len);
    return true;
}

bool look_lacks_key(const struct local_queue *lq, const struct key *k)
{
    return lq->looks.drafts && !known(&lq->looks, k);
}

void look_done(struct local_queue *lq)
{
    struct looks *s = &lq->looks;
    s->drafts = s->resumed = false;
    if (s->records || s->asked)
        forget_records(s);
    if (s->page.there)
        page_clear(s);
}

void look_page_done(struct local_queue *lq)
{
    page_clear(&lq->looks);
}

void look_abandon(struct local_queue *lq)
{
    struct looks *s = &lq->looks;
    if (s->under_way)
        s->under_way->lq = NULL;
    s->under_way = NULL;
    look_done(lq);
}
