#include "cli/matching.h"

#include "cli/client.h"
#include "term/member.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LOOK_MAX 20000 /* messages that a call looks at */

/* A job so far. */
struct job_counts {
    int64_t matched, changed;
    struct buf after; /* the cursor of the next portion; empty: there is none */
};

bool match_asked(const struct match_options *o)
{
    return o->all || o->from || o->contains || o->reason || o->older_ms != ARG_UNSET ||
           o->meta.count > 0;
}

static bool put_filter(struct buf *json, const struct match_options *o)
{
    member_put(json, "filter");
    buf_putc(json, '{');
    if (o->from)
        member_put_priority(json, "priority", o->from);
    if (o->older_ms != ARG_UNSET)
        member_put_seconds(json, "older_than_seconds", o->older_ms);
    if (o->contains)
        member_put_text(json, "payload_contains", o->contains);
    if (o->reason)
        member_put_text(json, "reason", o->reason);
    bool fine = member_put_metadata(json, &o->meta);
    buf_putc(json, '}');
    return fine;
}

static void put_number(struct buf *json, const char *name, int64_t value)
{
    member_put(json, name);
    buf_put_i64(json, value);
}

static bool put_body(struct buf *json, const struct match_options *o, const char *priority,
                     int64_t max, const struct job_counts *j)
{
    buf_putc(json, '{');
    bool fine = put_filter(json, o);
    put_number(json, "look_max", LOOK_MAX);
    if (max != ARG_UNSET)
        put_number(json, "max", max - j->matched);
    if (priority)
        member_put_priority(json, "priority", priority);
    if (j->after.len > 0)
        member_put_text(json, "after", j->after.data);
    if (o->dry_run) {
        member_put(json, "dry_run");
        buf_puts(json, "true");
    }
    buf_putc(json, '}');
    return fine;
}

static int64_t count_in(const struct client *c, const char *name)
{
    int64_t count = 0;
    const struct json_token *t = c->is_json ? json_get(&c->doc, 0, name) : NULL;
    return t && json_i64(t, &count) ? count : 0;
}

static void take_answer(const struct client *c, const char *verb, struct job_counts *j)
{
    const struct json_token *next = c->is_json ? json_get(&c->doc, 0, "next") : NULL;
    j->matched += count_in(c, "matched");
    j->changed += count_in(c, verb);
    buf_clear(&j->after);
    if (next && next->type == JSON_STRING)
        buf_put(&j->after, next->str, next->len);
    buf_cstr(&j->after);
}

static void show_progress(const struct cli *cli, const char *verb, const struct job_counts *j)
{
    if (!cli->json && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%" PRId64 " matched, %" PRId64 " %s%s", j->matched, j->changed, verb,
                j->after.len > 0 ? " …" : "  \r\x1b[K");
}

int match_run(const struct cli *cli, const char *path, const char *queue,
              const struct match_options *o, const char *verb, const char *priority, int64_t max)
{
    struct job_counts j = {0};
    struct client c;
    int status;
    client_init(&c);
    do {
        client_begin(&c, cli);
        c.has_options = true;
        client_path(&c, path, queue);
        bool fine = put_body(&c.body, o, priority, max, &j);
        status = fine ? client_run(&c, "POST", TYPE_JSON) : CLI_USAGE;
        if (status != CLI_DONE)
            break;
        take_answer(&c, verb, &j);
        show_progress(cli, verb, &j);
        if (cli->json)
            text_document(&c.answer);
    } while (j.after.len > 0 && (max == ARG_UNSET || j.matched < max));
    if (status == CLI_DONE && !cli->json)
        printf("%" PRId64 " matched, %" PRId64 " %s\n", j.matched, j.changed, verb);
    client_fini(&c);
    buf_fini(&j.after);
    return status;
}
