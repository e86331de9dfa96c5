/* A claim of several queues (CLAIM_MANY): which queue is served, and how one claim waits in all
 * their lines.
 *
 * The claim has a part for each queue. A part is an ordinary request to the queue's own shard. So
 * every queue keeps its own policy, line and limits, as if it were claimed alone. The shard of the
 * first queue leads, and all parts answer to it. The phases are:
 *
 *   LOOK   every part says how urgent its queue is, and takes its ticket there
 *   TAKE   the most urgent queue is claimed, up to the message at which the next queue is more
 *          urgent; then it is looked at again; and so on until there is enough, or nothing left
 *   WAIT   nothing was found, so every part stands in its queue's line. The parts are in a race:
 *          the first that has its turn takes, and the others are called back
 *   END    the leader waits for parts that are still under way; then the answer goes out
 *
 * So no more messages are taken than were asked for, and a claim that waits costs nothing.
 *
 * Known limit: the part that has its turn first wins the race. If two queues get a message in the
 * same moment, the less urgent one may win.
 *
 * When the consumer goes away, a part under way gives its messages back, as any claim does.
 * Messages that parts have brought before are released here. */
#include "base/mem.h"
#include "broker/shard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MISSES_MAX 3 /* so often a queue may look as if it had messages and give none */

struct part {
    struct request request;
    struct many *many;
    bool out;     /* its request is under way */
    bool passed;  /* it lost its turn in the race, and has to stand in line again */
    bool drained; /* its queue has nothing to take */
    uint8_t misses;
    bool any; /* whether its queue had messages at the last look */
    struct urgency urgency;
    uint64_t ticket;
    struct settle_item *items; /* the messages that it brought */
    uint32_t item_count;
    uint32_t brought; /* how many of them before the claim under way */
};

enum phase { PHASE_LOOK, PHASE_TAKE, PHASE_WAIT, PHASE_END };

struct many {
    struct request *request;
    struct shard *shard; /* the one that leads */
    enum phase phase;
    struct race race;
    int64_t until_ms; /* monotonic */
    uint32_t found;
    uint32_t out; /* how many parts are under way */
    enum status status;
    const struct part *failed; /* the part that `status` is of */
    uint32_t count;
    struct part parts[];
};

static void many_go_on(struct many *m);

static bool has_enough(const struct many *m)
{
    return m->found >= m->request->claim.max || m->request->answer_len >= ANSWER_FULL;
}

/* Parts */

static struct part *part_of(struct request *r)
{
    return container_of(r, struct part, request);
}

/* Runs on the thread of the part's shard, as does the next function. Only one part takes at a
 * time. */
static void part_visit(struct engine_op *op, const struct engine_queue *q,
                       const struct message *message, struct instant now)
{
    struct part *p = part_of(container_of(op, struct request, op));
    struct request *whole = p->many->request;
    assert(p->request.kind == REQUEST_CLAIM);
    assert(p->item_count < p->brought + p->request.claim.max); /* items has no room for more */
    struct settle_item *item = &p->items[p->item_count++];
    item->id = message_identity(message, q->id);
    memcpy(item->receipt, message->delivery->receipt, RECEIPT_BYTES);
    whole->op.visit(&whole->op, q, message, now);
    p->request.answer_len = whole->answer_len;
}

static uint32_t part_room(struct request *r)
{
    struct request *whole = part_of(r)->many->request;
    return whole->claim.room(whole);
}

static void part_done(struct request *r);

static void part_init(struct part *p, enum request_kind kind)
{
    const struct request *whole = p->many->request;
    size_t place = (size_t)(p - p->many->parts);
    p->request = (struct request){
        .kind = kind,
        .priority = whole->priority,
        .inner = true,
        .done = part_done,
    };
    memcpy(p->request.queue, whole->claim.many.queues[place].text, sizeof(p->request.queue));
}

static void part_send(struct part *p)
{
    assert(!p->out); /* a part has one request, under way once */
    assert(p->many->out < p->many->count);
    p->out = true;
    p->many->out++;
    broker_submit(p->many->shard->port, &p->request);
}

static void part_look(struct part *p)
{
    part_init(p, REQUEST_LOOK);
    p->request.look.wait_ms = p->many->request->claim.wait_ms;
    p->request.look.ticket = p->ticket;
    part_send(p);
}

static void part_claim(struct part *p, const struct urgency *least, struct race *race)
{
    struct many *m = p->many;
    const struct request *whole = m->request;
    assert(!p->out);
    assert(m->found < whole->claim.max); /* no more is taken than was asked for */
    assert(!race || m->found == 0);
    part_init(p, REQUEST_CLAIM);
    p->passed = false;
    p->request.claim.max = whole->claim.max - m->found;
    p->request.claim.room = whole->claim.room ? part_room : NULL;
    p->request.op.visit = part_visit;
    p->request.op.claim.lease_ms = whole->op.claim.lease_ms;
    p->request.claim.part.bounded = least != NULL;
    if (least)
        p->request.claim.part.least = *least;
    p->request.claim.part.race = race;
    p->request.claim.part.ticket = p->ticket;
    p->request.claim.part.place = (uint32_t)(p - m->parts) + 1;
    if (race)
        p->request.claim.wait_ms = m->until_ms - m->shard->now.mono_ms;
    p->brought = p->item_count;
    p->items = mem_realloc(p->items, (p->item_count + p->request.claim.max) * sizeof(*p->items));
    part_send(p);
}

static void part_drop(struct part *p)
{
    assert(!p->out);
    assert(p->item_count > 0);
    part_init(p, REQUEST_SETTLE);
    p->request.op.verb = ENGINE_RELEASE;
    p->request.op.settle.items = p->items;
    p->request.op.settle.count = p->item_count;
    p->item_count = 0;
    part_send(p);
}

/* The end */

static void call_back(struct many *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->parts[i].out)
            broker_hangup(&m->parts[i].request);
    }
}

static void many_end(struct many *m)
{
    if (m->phase == PHASE_END)
        return;
    m->phase = PHASE_END;
    call_back(m);
}

static void many_free(struct many *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        free(m->parts[i].items);
    free(m);
}

/* Gives back what the parts have brought. True: something is on its way. */
static bool parts_drop(struct many *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->parts[i].item_count > 0)
            part_drop(&m->parts[i]);
    }
    return m->out > 0;
}

static void many_answer(struct many *m)
{
    struct request *r = m->request;
    bool unwanted = request_hung_up(r) || m->status;
    assert(m->out == 0); /* a part under way would answer to freed memory */
    if (unwanted && parts_drop(m))
        return;
    r->op.claim.found = unwanted ? 0 : m->found;
    assert(r->claim.many.state == m);
    assert(m->found <= r->claim.max);
    assert(m->shard->led > 0);
    r->claim.many.state = NULL;
    m->shard->led--;
    request_finish(m->shard, r, m->status);
    many_free(m);
}

/* Answers of parts */

/* A part was refused. If messages were found before, and none of them by this claim of the part,
 * they are the answer. */
static void part_failed(struct part *p)
{
    struct many *m = p->many;
    struct request *r = m->request;
    assert(p->item_count >= p->brought);
    bool spoiled = p->item_count > p->brought;
    p->item_count = p->brought;
    if (m->phase == PHASE_END || (m->found > 0 && !spoiled)) {
        many_end(m);
        return;
    }
    if (m->failed && m->failed < p)
        return;
    m->failed = p;
    m->status = p->request.status;
    memcpy(r->field, p->request.field, sizeof(r->field));
    memcpy(r->detail, p->request.detail, sizeof(r->detail));
    /* In LOOK all are asked at once, and the first in the list counts. */
    if (m->phase != PHASE_LOOK)
        many_end(m);
}

/* A number has to mean the level of the same name in every queue; from now on that name is used. A
 * queue that does not exist has no say. */
static void check_level(struct many *m)
{
    struct request *r = m->request;
    const struct part *first = NULL;
    for (uint32_t i = 0; i < m->count && r->priority.kind == PRIORITY_NUMBER; i++) {
        const struct part *p = &m->parts[i];
        if (p->request.priority.kind != PRIORITY_NAME)
            continue;
        first = first ? first : p;
        if (strcmp(first->request.priority.name, p->request.priority.name) == 0)
            continue;
        m->failed = p;
        m->status = STATUS_UNKNOWN_PRIORITY;
        snprintf(r->field, sizeof(r->field), "/min_priority");
        snprintf(r->detail, sizeof(r->detail),
                 "%" PRId64 " is level \"%s\" of queue \"%s\" and level \"%s\" of queue \"%s\": "
                 "give the name of a level that all of them have, or claim them apart.",
                 r->priority.number, first->request.priority.name, first->request.queue,
                 p->request.priority.name, p->request.queue);
        return;
    }
    if (first)
        r->priority = first->request.priority;
}

static void part_looked(struct part *p)
{
    p->any = p->request.look.any;
    p->urgency = p->request.look.urgency;
    p->ticket = p->request.look.ticket;
}

static void part_claimed(struct part *p)
{
    struct many *m = p->many;
    uint32_t found = p->request.op.claim.found;
    assert(p->request.kind == REQUEST_CLAIM);
    assert(found <= p->request.claim.max);
    m->found += found;
    /* A status: its queue was deleted. */
    p->passed = p->request.claim.part.passed || p->request.status;
    if (m->phase == PHASE_WAIT) {
        /* Only the holder of the race takes: two would bring more than was asked for. */
        assert(found == 0 || atomic_load(&m->race.holder) == p->request.claim.part.place);
        if (found > 0)
            many_end(m);
        else if (atomic_load(&m->race.holder) == p->request.claim.part.place)
            atomic_store(&m->race.holder, 0);
        return;
    }
    p->misses = found > 0 ? 0 : p->misses + 1;
    p->drained =
        p->misses >= MISSES_MAX || (!p->request.claim.part.bounded && found < p->request.claim.max);
    p->any = false;
    if (m->phase == PHASE_TAKE && !p->drained && !has_enough(m))
        part_look(p);
}

static void part_done(struct request *r)
{
    struct part *p = part_of(r);
    struct many *m = p->many;
    bool absent = r->status == STATUS_QUEUE_NOT_FOUND && m->shard->broker->options.auto_create;
    shard_look_at_clock(m->shard);
    assert(p->out);
    assert(m->out > 0);
    p->out = false;
    m->out--;
    if (r->kind == REQUEST_SETTLE) {
        /* The messages are given back, or their lease ends by itself. */
    } else if (r->status && !absent) {
        part_failed(p);
    } else if (r->kind == REQUEST_LOOK) {
        part_looked(p);
    } else {
        part_claimed(p);
    }
    many_go_on(m);
}

/* The parts together */

/* Whether part `a` is served before part `b`, which may be NULL. */
static bool goes_first(const struct many *m, const struct part *a, const struct part *b)
{
    if (!a->any || a->drained)
        return false;
    if (!b)
        return true;
    return m->request->claim.many.listed ? a < b
                                         : urgency_before(&a->urgency, &b->urgency) ||
                                               (a < b && !urgency_before(&b->urgency, &a->urgency));
}

static struct part *most_urgent_but(struct many *m, const struct part *other)
{
    struct part *first = NULL;
    for (uint32_t i = 0; i < m->count; i++) {
        if (&m->parts[i] != other && goes_first(m, &m->parts[i], first))
            first = &m->parts[i];
    }
    return first;
}

/* Claims from the part's queue, up to the message at which the next part's queue is more urgent. */
static void take_from(struct part *p, const struct part *next)
{
    struct many *m = p->many;
    struct urgency least;
    if (!next || m->request->claim.many.listed) {
        part_claim(p, NULL, NULL);
        return;
    }
    least = next->urgency;
    least.ready_ms -= p > next;
    part_claim(p, &least, NULL);
}

/* Claims from the most urgent queue. False: no queue has anything left. */
static bool take_some(struct many *m)
{
    struct part *p = most_urgent_but(m, NULL);
    if (!p || has_enough(m))
        return false;
    take_from(p, most_urgent_but(m, p));
    return true;
}

/* Sends parts that are not in line there, unless a part of the race is taking messages. */
static void wait_for_some(struct many *m)
{
    bool first = m->phase != PHASE_WAIT;
    m->phase = PHASE_WAIT;
    if (atomic_load(&m->race.holder) != 0)
        return;
    bool over = m->until_ms <= m->shard->now.mono_ms;
    for (uint32_t i = 0; i < m->count && !over; i++) {
        struct part *p = &m->parts[i];
        if (!p->out && (first || p->passed))
            part_claim(p, NULL, &m->race);
    }
}

static void many_go_on(struct many *m)
{
    const struct request *r = m->request;
    if (request_hung_up(r) && m->phase != PHASE_END)
        many_end(m);
    if (m->phase == PHASE_LOOK && m->out == 0) {
        if (!m->failed)
            check_level(m);
        m->phase = m->failed ? PHASE_END : PHASE_TAKE;
    }
    if (m->phase == PHASE_TAKE && m->out == 0 && !take_some(m) && m->found == 0 &&
        r->claim.wait_ms > 0 && !m->shard->draining)
        wait_for_some(m);
    else if (m->phase == PHASE_WAIT)
        wait_for_some(m);
    if (m->out == 0)
        many_answer(m);
}

void many_claim(struct shard *s, struct request *r)
{
    assert(r->kind == REQUEST_CLAIM_MANY);
    assert(!r->claim.many.state);
    assert(r->claim.max > 0);
    assert(r->claim.many.queue_count > 0);
    assert(r->claim.many.queue_count <= CLAIM_QUEUES_MAX);
    struct many *m = mem_zalloc(sizeof(*m) + r->claim.many.queue_count * sizeof(m->parts[0]));
    m->request = r;
    m->shard = s;
    m->count = r->claim.many.queue_count;
    m->until_ms = s->now.mono_ms + r->claim.wait_ms;
    r->claim.many.state = m;
    s->led++;
    for (uint32_t i = 0; i < m->count; i++) {
        m->parts[i].many = m;
        part_look(&m->parts[i]);
    }
}

void many_hangup(struct request *r)
{
    if (r->claim.many.state)
        many_end(r->claim.many.state);
}
