/* history: what the numbers of a queue were, a line of little bars for each series. */
#include "cli/client.h"
#include "cli/commands.h"
#include "term/args.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BARS_MAX 60

/* The bars stand for equal parts of the time; each shows the largest number of its part. */
struct bars {
    double largest[BARS_MAX];
    bool known[BARS_MAX];
    double least, most, last;
    bool any;
};

static void bars_add(struct bars *b, size_t at, size_t count, double value)
{
    size_t bar = count > BARS_MAX ? at * BARS_MAX / count : at;
    if (!b->known[bar] || value > b->largest[bar])
        b->largest[bar] = value;
    b->known[bar] = true;
    b->least = b->any && b->least < value ? b->least : value;
    b->most = b->any && b->most > value ? b->most : value;
    b->last = value;
    b->any = true;
}

static void bars_put(const struct bars *b, size_t count, struct buf *out)
{
    static const char *const shapes[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    for (size_t i = 0; i < count && i < BARS_MAX; i++) {
        int height = b->most > 0 ? (int)(b->largest[i] / b->most * 7 + 0.5) : 0;
        buf_puts(out, b->known[i] ? shapes[height] : " ");
    }
}

static size_t count_of(const struct json_doc *doc, uint32_t array)
{
    size_t count = 0;
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i))
        count++;
    return count;
}

static void series_put(const struct json_doc *doc, uint32_t array, struct buf *out)
{
    struct bars b = {0};
    size_t count = count_of(doc, array), at = 0;
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i), at++) {
        if (doc->tokens[i].type == JSON_NUMBER)
            bars_add(&b, at, count, strtod(doc->tokens[i].str, NULL));
    }
    struct buf name = {0};
    text_escape(&name, doc->tokens[array].key, doc->tokens[array].key_len, true);
    buf_printf(out, "%-20s", buf_cstr(&name));
    buf_fini(&name);
    if (b.any)
        buf_printf(out, " %10.10g %10.10g %10.10g  ", b.last, b.least, b.most);
    else
        buf_printf(out, " %10s %10s %10s  ", "-", "-", "-");
    bars_put(&b, count, out);
    buf_putc(out, '\n');
}

static void put_member(const struct json_doc *doc, const char *member, struct buf *out)
{
    const struct json_token *t = json_get(doc, 0, member);
    if (t)
        text_escape(out, t->str, t->len, true);
}

static void history_print(const struct json_doc *doc)
{
    struct buf out = {0};
    const struct json_token *series = json_get(doc, 0, "series");
    uint32_t object = series && series->type == JSON_OBJECT ? (uint32_t)(series - doc->tokens) : 0;
    put_member(doc, "from", &out);
    buf_lit(&out, " to ");
    put_member(doc, "to", &out);
    buf_lit(&out, ", every ");
    put_member(doc, "step_seconds", &out);
    buf_printf(&out, " s\n\n%-20s %10s %10s %10s\n", "", "last", "least", "most");
    for (uint32_t i = object ? json_first(doc, object) : 0; i; i = json_next(doc, object, i)) {
        if (doc->tokens[i].type == JSON_ARRAY)
            series_put(doc, i, &out);
    }
    text_write(stdout, out.data, out.len);
    buf_fini(&out);
}

int cmd_history(int argc, char **argv, const struct cli *cli)
{
    const char *from = NULL, *to = NULL, *level = NULL;
    int64_t step_ms = ARG_UNSET;
    const struct arg_option options[] = {
        {"from", 0, ARG_TIME, &from, "TIME", "since when, as -2h or 2026-04-09T15:00Z; else -1h"},
        {"to", 0, ARG_TIME, &to, "TIME", "until when; else now"},
        {"step", 0, ARG_DURATION, &step_ms, "TIME", "distance of the points, in whole seconds"},
        {"level", 0, ARG_TEXT, &level, "LEVEL", "of this level alone; no rates"},
        {0},
    };
    const struct arg_spec spec = {
        "history QUEUE [--from TIME] [--to TIME] [--step TIME] [--level LEVEL]",
        "What the numbers of a queue were, as the server remembers: an hour by seconds, a day\n"
        "by 10 seconds, a week by minutes, three months by quarters of an hour.",
        "  triage history mail\n"
        "  triage history mail --from -1d --level HIGH\n"
        "  triage history mail --json | jq .series.ready\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    char step[24];
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/history", ops.items[0]);
    if (from)
        client_query(&c, "from", from);
    if (to)
        client_query(&c, "to", to);
    if (level)
        client_query(&c, "level", level);
    snprintf(step, sizeof(step), "%" PRId64, step_ms / 1000);
    if (step_ms != ARG_UNSET)
        client_query(&c, "step", step);
    status = client_run(&c, "GET", NULL);
    if (status == CLI_DONE && cli->json)
        text_document(&c.answer);
    else if (status == CLI_DONE && c.is_json)
        history_print(&c.doc);
    client_fini(&c);
    return status;
}
