/* What `triage top` can do to a queue. Everything asks first, and the question names the queue and
 * the number: the row under the cursor may have changed since somebody looked at it. */
#include "cli/top.h"
#include "term/member.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void top_notice(struct top *t, bool is_bad, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    buf_clear(&t->notice);
    buf_vprintf(&t->notice, fmt, args);
    va_end(args);
    t->is_bad = is_bad;
}

/* The queue that keys are about; NULL when there is none. */
static const struct top_row *chosen(const struct top *t)
{
    if (t->mode == MODE_QUEUE)
        return t->detail.at_ms > 0 ? &t->detail.row : NULL;
    return top_row_at(t, t->cursor);
}

static bool begin(struct top *t, enum top_verb verb)
{
    const struct top_row *row = chosen(t);
    if (t->acting != ACT_NONE)
        top_notice(t, true, "the last one is still under way");
    if (row == NULL || t->acting != ACT_NONE)
        return false;
    t->act = (struct top_act){.verb = verb, .count = row->dead};
    memcpy(t->act.queue, row->name, sizeof(t->act.queue));
    return true;
}

void top_ask_pause(struct top *t)
{
    const struct top_row *row = chosen(t);
    if (row && begin(t, row->is_paused ? ACT_RESUME : ACT_PAUSE))
        t->prompt = PROMPT_CONFIRM;
}

void top_ask_redrive(struct top *t)
{
    if (!begin(t, ACT_REDRIVE))
        return;
    if (t->act.count > 0)
        t->prompt = PROMPT_CONFIRM;
    else
        top_notice(t, false, "%s has no dead letters", t->act.queue);
}

/* Counts what would be escalated; the answer becomes the question. */
void top_ask_escalate(struct top *t)
{
    const struct top_queue *q = &t->detail;
    if (t->level >= q->level_count || t->target >= q->level_count || !begin(t, ACT_COUNT))
        return;
    memcpy(t->act.from, q->levels[t->level].name, sizeof(t->act.from));
    memcpy(t->act.to, q->levels[t->target].name, sizeof(t->act.to));
    top_act_go(t);
}

void top_act_question(const struct top *t, struct buf *out)
{
    const struct top_act *a = &t->act;
    if (a->verb == ACT_PAUSE)
        buf_printf(out, "Pause %s? Nothing is claimed from it until it is resumed.", a->queue);
    else if (a->verb == ACT_RESUME)
        buf_printf(out, "Resume %s?", a->queue);
    else if (a->verb == ACT_REDRIVE)
        buf_printf(out, "Make %" PRId64 " dead letter%s of %s ready again?", a->count,
                   a->count == 1 ? "" : "s", a->queue);
    else
        buf_printf(out, "Escalate %" PRId64 " message%s of %s from %s to %s?", a->count,
                   a->count == 1 ? "" : "s", a->queue, a->from, a->to);
    buf_puts(out, " [y/N] ");
}

static void put_escalate(struct buf *body, const struct top_act *a)
{
    const char *user = getenv("USER");
    member_put_text(body, "priority", a->to);
    member_put(body, "filter");
    buf_putc(body, '{');
    member_put_text(body, "priority", a->from);
    buf_putc(body, '}');
    if (user && user[0])
        member_put_text(body, "actor", user);
    if (a->verb == ACT_COUNT) {
        member_put(body, "dry_run");
        buf_puts(body, "true");
    }
}

void top_act_go(struct top *t)
{
    static const char *const paths[] = {
        [ACT_PAUSE] = "/v1/queues/%s/pause",
        [ACT_RESUME] = "/v1/queues/%s/resume",
        [ACT_REDRIVE] = "/v1/queues/%s/dead/redrive",
        [ACT_COUNT] = "/v1/queues/%s/messages/priority",
        [ACT_ESCALATE] = "/v1/queues/%s/messages/priority",
    };
    struct client *c = &t->doing;
    const struct top_act *a = &t->act;
    client_begin(c, t->cli);
    client_path(c, paths[a->verb], a->queue);
    buf_putc(&c->body, '{');
    if (a->verb == ACT_REDRIVE) { /* those that were counted, and none that died since */
        member_put(&c->body, "max");
        buf_put_i64(&c->body, a->count);
    } else if (a->verb == ACT_COUNT || a->verb == ACT_ESCALATE) {
        put_escalate(&c->body, a);
    }
    buf_putc(&c->body, '}');
    client_arm(c, "POST", TYPE_JSON);
    client_send(c, t->multi);
    t->acting = a->verb;
    top_notice(t, false, "...");
}

static int64_t answered_number(const struct top *t, const char *name)
{
    const struct json_token *token = t->doing.is_json ? json_get(&t->doing.doc, 0, name) : NULL;
    int64_t value = 0;
    return token && json_i64(token, &value) ? value : 0;
}

/* The question is asked when nobody has begun another one meanwhile. */
static void counted(struct top *t)
{
    t->act.count = answered_number(t, "matched");
    t->act.verb = ACT_ESCALATE;
    buf_clear(&t->notice);
    if (t->act.count == 0)
        top_notice(t, false, "%s has nothing to escalate in %s", t->act.queue, t->act.from);
    else if (t->prompt == PROMPT_NONE)
        t->prompt = PROMPT_CONFIRM;
}

void top_act_answered(struct top *t)
{
    enum top_verb verb = t->acting;
    const char *queue = t->act.queue;
    t->acting = ACT_NONE;
    t->look_at_ms = 0; /* what came of it */
    if (!client_succeeded(&t->doing)) {
        buf_clear(&t->notice);
        client_explain(&t->doing, &t->notice);
        t->is_bad = true;
    } else if (verb == ACT_COUNT) {
        counted(t);
    } else if (verb == ACT_REDRIVE) {
        top_notice(t, false, "%s: %" PRId64 " ready again", queue, answered_number(t, "redriven"));
    } else if (verb == ACT_ESCALATE) {
        top_notice(t, false, "%s: %" PRId64 " escalated to %s", queue,
                   answered_number(t, "changed"), t->act.to);
    } else {
        top_notice(t, false, "%s %s", queue, verb == ACT_PAUSE ? "is paused" : "goes on");
    }
}
