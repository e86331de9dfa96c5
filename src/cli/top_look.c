/* Asks for what is on the page, and reads the answers. Whatever an answer lacks counts as 0. */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/top.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct top_order top_orders[] = {
    {"trouble", "trouble"}, {"name", "name"},           {"ready", "ready"},
    {"dead", "dead"},       {"oldest", "age"},          {"depth", "depth"},
    {"claims", "claims/s"}, {"in_flight", "in flight"}, {"scheduled", "scheduled"},
};
static_assert(sizeof(top_orders) / sizeof(top_orders[0]) == TOP_ORDER_COUNT, "all have a digit");

void top_init(struct top *t, const struct cli *cli, const struct top_options *o)
{
    *t = (struct top){.cli = cli, .o = o, .page_rows = 1};
    t->multi = curl_multi_init();
    if (t->multi == NULL)
        abort();
    client_init(&t->look);
    client_init(&t->doing);
}

void top_fini(struct top *t)
{
    client_abandon(&t->look);
    client_abandon(&t->doing);
    client_fini(&t->look);
    client_fini(&t->doing);
    curl_multi_cleanup(t->multi);
    free(t->page.rows);
    buf_fini(&t->away);
    buf_fini(&t->notice);
}

/* Reading */

static int64_t number(const struct json_doc *doc, uint32_t at, const char *name)
{
    const struct json_token *token = json_get(doc, at, name);
    int64_t value = 0;
    return token && json_i64(token, &value) && value > 0 ? value : 0;
}

static double decimal(const struct json_doc *doc, uint32_t at, const char *name)
{
    const struct json_token *token = json_get(doc, at, name);
    double value = 0;
    return token && json_double(token, &value) ? value : 0;
}

static bool flag(const struct json_doc *doc, uint32_t at, const char *name)
{
    const struct json_token *token = json_get(doc, at, name);
    return token && token->type == JSON_BOOL && token->boolean;
}

/* False when it is no text, or does not fit. */
static bool text(const struct json_doc *doc, uint32_t at, const char *name, char *out, size_t size)
{
    const struct json_token *token = json_get(doc, at, name);
    if (!token || token->type != JSON_STRING || token->len >= size ||
        memchr(token->str, '\0', token->len))
        return false;
    memcpy(out, token->str, token->len);
    out[token->len] = '\0';
    return true;
}

static void read_numbers(struct top_row *row, const struct json_doc *doc, uint32_t at)
{
    const struct json_token *totals = json_get(doc, at, "totals");
    row->ready = number(doc, at, "ready");
    row->scheduled = number(doc, at, "scheduled");
    row->in_flight = number(doc, at, "in_flight");
    row->oldest_s = number(doc, at, "oldest_message_age_seconds");
    row->waiting = number(doc, at, "waiting_consumers");
    row->in_rate = row->out_rate = -1;
    row->raw = doc->tokens[at].count > 0 ? doc->tokens[at].raw : "{}";
    row->raw_len = doc->tokens[at].count > 0 ? doc->tokens[at].raw_len : 2;
    if (totals == NULL)
        return;
    row->enqueued = number(doc, json_index(doc, totals), "enqueued");
    row->acked = number(doc, json_index(doc, totals), "acked");
}

/* Totals shrink when a queue was deleted and made again between the looks. */
static double rate(int64_t before, int64_t now, int64_t ms)
{
    return ms > 0 && now >= before ? (double)(now - before) * 1000 / (double)ms : -1;
}

static void row_rates(struct top_row *row, const struct top_row *before, int64_t ms)
{
    row->in_rate = rate(before->enqueued, row->enqueued, ms);
    row->out_rate = rate(before->acked, row->acked, ms);
}

static void page_rates(struct top_page *page, const struct top_page *before)
{
    int64_t ms = before->at_ms > 0 ? page->at_ms - before->at_ms : 0;
    for (size_t i = 0; i < page->count; i++)
        for (size_t k = 0; k < before->count; k++)
            if (strcmp(page->rows[i].name, before->rows[k].name) == 0)
                row_rates(&page->rows[i], &before->rows[k], ms);
    if (page->all.queues == before->all.queues) /* else some came or went with their totals */
        row_rates(&page->all, &before->all, ms);
}

/* What is no name of a queue is left out: nothing could be asked of it. */
static void read_rows(struct top_page *page, const struct json_doc *doc)
{
    uint32_t array = json_array(doc, 0, "queues");
    page->rows = mem_zalloc(((array ? doc->tokens[array].count : 0) + 1) * sizeof(*page->rows));
    for (uint32_t i = array ? json_first(doc, array) : 0; i; i = json_next(doc, array, i)) {
        struct top_row *row = &page->rows[page->count];
        if (!text(doc, i, "name", row->name, sizeof(row->name)) || row->name[0] == '\0')
            continue;
        read_numbers(row, doc, i);
        row->dead = number(doc, i, "dead");
        row->is_paused = flag(doc, i, "paused");
        page->count++;
    }
}

void top_list_read(struct top *t, const struct client *c, int64_t skip, int64_t now_ms)
{
    struct top_page page = {.skip = skip, .at_ms = now_ms};
    const struct json_token *all = json_get(&c->doc, 0, "all");
    read_rows(&page, &c->doc);
    page.all.raw = "{}";
    page.all.raw_len = 2;
    if (all != NULL) {
        uint32_t at = json_index(&c->doc, all);
        read_numbers(&page.all, &c->doc, at);
        page.all.dead = number(&c->doc, at, "dead");
        page.all.queues = number(&c->doc, at, "queues");
        page.all.paused = number(&c->doc, at, "paused");
    }
    page_rates(&page, &t->page);
    free(t->page.rows);
    t->page = page;
}

static void read_levels(struct top_queue *q, const struct json_doc *doc)
{
    uint32_t array = json_array(doc, 0, "levels");
    int count = 0;
    for (uint32_t i = array ? json_first(doc, array) : 0; i && count < LEVEL_COUNT_MAX;
         i = json_next(doc, array, i)) {
        struct top_level *level = &q->levels[count];
        char name[LEVEL_NAME_MAX + 1] = "";
        if (!text(doc, i, "level", name, sizeof(name)))
            continue;
        if (strcmp(name, level->name) != 0)
            q->is_configured = false; /* other levels: their weights are to be read again */
        memcpy(level->name, name, sizeof(name));
        level->ready = number(doc, i, "ready");
        level->scheduled = number(doc, i, "scheduled");
        level->in_flight = number(doc, i, "in_flight");
        level->dead = number(doc, i, "dead");
        level->oldest_s = number(doc, i, "oldest_message_age_seconds");
        count++;
    }
    q->level_count = count;
}

static void stats_read(struct top *t, const struct client *c, int64_t now_ms)
{
    struct top_queue *q = &t->detail;
    struct top_row before = q->row;
    memcpy(q->row.name, t->queue, sizeof(q->row.name));
    read_numbers(&q->row, &c->doc, 0);
    q->row.dead = number(&c->doc, 0, "dlq_depth");
    q->row.is_paused = flag(&c->doc, 0, "paused");
    q->aged = number(&c->doc, 0, "aged");
    q->late = number(&c->doc, 0, "late");
    q->claims_per_second = decimal(&c->doc, 0, "claims_per_second");
    if (q->at_ms > 0)
        row_rates(&q->row, &before, now_ms - q->at_ms);
    q->at_ms = now_ms;
    read_levels(q, &c->doc);
    if (t->level >= q->level_count)
        t->level = q->level_count > 0 ? q->level_count - 1 : 0;
}

static void config_read(struct top_queue *q, const struct json_doc *doc)
{
    uint32_t array = json_array(doc, 0, "levels");
    q->is_weighted = json_is(json_get(doc, 0, "policy"), "weighted");
    for (uint32_t i = array ? json_first(doc, array) : 0; i; i = json_next(doc, array, i))
        for (int k = 0; k < q->level_count; k++)
            if (json_is(json_get(doc, i, "name"), q->levels[k].name))
                q->levels[k].weight = decimal(doc, i, "weight");
    q->is_configured = true;
}

double top_share(const struct top_queue *q, int level)
{
    double sum = 0;
    int first = -1; /* the most urgent level that has something */
    for (int i = 0; i < q->level_count; i++) {
        if (q->levels[i].ready == 0)
            continue;
        first = first < 0 ? i : first;
        sum += q->levels[i].weight;
    }
    if (!q->is_configured)
        return -1;
    if (q->levels[level].ready == 0)
        return 0;
    if (!q->is_weighted)
        return level == first ? 1 : 0;
    return sum > 0 ? q->levels[level].weight / sum : -1;
}

/* Asking */

static void query_number(struct client *c, const char *name, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, value);
    client_query(c, name, digits);
}

void top_list_ask(struct top *t, struct client *c, int64_t skip, int64_t limit)
{
    client_begin(c, t->cli);
    c->limit_ms = TOP_CALL_MS_MAX;
    client_path(c, "/v1/queues");
    client_query(c, "details", "true");
    client_query(c, "sort", top_orders[t->order].name);
    query_number(c, "skip", skip);
    query_number(c, "limit", limit < LIST_MAX ? limit : LIST_MAX);
    if (t->reverse)
        client_query(c, "reverse", "true");
    if (t->o->prefix)
        client_query(c, "prefix", t->o->prefix);
    if (t->match[0])
        client_query(c, "contains", t->match);
}

/* A page before and a page behind come along, so that keys find rows there. */
static int64_t window_skip(const struct top *t)
{
    return t->first > t->page_rows ? t->first - t->page_rows : 0;
}

static void queue_ask(struct top *t, const char *path)
{
    client_begin(&t->look, t->cli);
    t->look.limit_ms = TOP_CALL_MS_MAX;
    client_path(&t->look, path, t->queue);
}

static void look_send(struct top *t, enum top_look what)
{
    if (what == LOOK_LIST)
        top_list_ask(t, &t->look, window_skip(t), 3 * (int64_t)t->page_rows);
    else
        queue_ask(t, what == LOOK_STATS ? "/v1/queues/%s/stats" : "/v1/queues/%s");
    client_arm(&t->look, "GET", NULL);
    client_send(&t->look, t->multi);
    t->looking = what;
}

void top_look_start(struct top *t, int64_t now_ms)
{
    assert(t->looking == LOOK_NONE);
    t->look_at_ms = now_ms + t->o->interval_ms;
    look_send(t, t->mode == MODE_LIST ? LOOK_LIST : LOOK_STATS);
}

void top_look_soon(struct top *t)
{
    client_abandon(&t->look);
    t->looking = LOOK_NONE;
    t->look_at_ms = 0;
}

static void look_failed(struct top *t)
{
    if (t->mode == MODE_QUEUE && client_is(&t->look, "queue-not-found")) {
        top_notice(t, true, "%s is gone", t->queue);
        t->mode = MODE_LIST;
        t->look_at_ms = 0;
        return;
    }
    buf_clear(&t->away);
    if (t->look.http == 0)
        buf_puts(&t->away, "Trying again: ");
    client_explain(&t->look, &t->away);
}

/* The rows may have become fewer than the page is far down. */
static void cursor_fit(struct top *t)
{
    int64_t last = t->page.all.queues - 1;
    if (t->cursor > last)
        t->cursor = last > 0 ? last : 0;
    if (t->first > t->cursor) {
        t->first = t->cursor;
        t->look_at_ms = 0;
    }
}

/* The cursor stays with its queue while that is on the page. */
static void cursor_follow(struct top *t, const char *name)
{
    for (int64_t at = t->first; name[0] && at < t->first + t->page_rows; at++) {
        const struct top_row *row = top_row_at(t, at);
        if (row != NULL && strcmp(row->name, name) == 0)
            t->cursor = at;
    }
}

const struct top_row *top_row_at(const struct top *t, int64_t at)
{
    int64_t i = at - t->page.skip;
    return i >= 0 && i < (int64_t)t->page.count ? &t->page.rows[i] : NULL;
}

static void list_answered(struct top *t, int64_t now_ms)
{
    const struct top_row *row = top_row_at(t, t->cursor);
    char name[QUEUE_NAME_MAX + 1] = "";
    if (row != NULL && t->cursor > 0)
        memcpy(name, row->name, sizeof(name));
    top_list_read(t, &t->look, window_skip(t), now_ms);
    cursor_follow(t, name);
    cursor_fit(t);
}

void top_look_answered(struct top *t, int64_t now_ms)
{
    enum top_look what = t->looking;
    t->looking = LOOK_NONE;
    if (!client_succeeded(&t->look) || !t->look.is_json) {
        look_failed(t);
        return;
    }
    buf_clear(&t->away);
    if (what == LOOK_LIST) {
        list_answered(t, now_ms);
    } else if (what == LOOK_STATS) {
        stats_read(t, &t->look, now_ms);
        look_send(t, LOOK_CONFIG);
    } else {
        config_read(&t->detail, &t->look.doc);
    }
}
