/* export: a whole queue as NDJSON, its configuration and every message in it. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/transfer.h"
#include "term/args.h"
#include "term/member.h"
#include "term/progress.h"
#include "term/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct export
{
    const struct cli *cli;
    const char *queue;
    bool dead;
    FILE *to;
    struct client call;
    struct buf lines; /* not written yet */
    struct buf after; /* cursor of the next page, terminated; empty at the end */
    struct progress progress;
    int64_t bytes, messages;
};

static int export_write(struct export *ex)
{
    ex->bytes += (int64_t)ex->lines.len;
    progress_update(&ex->progress, ex->bytes, ex->messages);
    bool ok = text_write(ex->to, ex->lines.data, ex->lines.len);
    buf_clear(&ex->lines);
    if (ok)
        return CLI_DONE;
    cli_complain("cannot write: %s", strerror(errno));
    return CLI_USAGE;
}

static int export_head(struct export *ex)
{
    static const char *const without[] = {"name", NULL};
    struct client *c = &ex->call;
    client_begin(c, ex->cli);
    client_path(c, "/v1/queues/%s", ex->queue);
    int status = client_run(c, "GET", NULL);
    if (status != CLI_DONE)
        return status;
    buf_putc(&ex->lines, '{');
    member_put_text(&ex->lines, TRANSFER_QUEUE, ex->queue);
    member_put(&ex->lines, TRANSFER_CONFIGURATION);
    transfer_configuration(&ex->lines, &c->doc, 0, without);
    buf_puts(&ex->lines, "}\n");
    return export_write(ex);
}

/* A schedule that was deleted after it was listed is left out. */
static int export_schedule(struct export *ex, const char *name)
{
    struct client *c = &ex->call;
    client_begin(c, ex->cli);
    client_path(c, "/v1/queues/%s/schedules/%s", ex->queue, name);
    client_try(c, "GET", NULL);
    if (!client_succeeded(c))
        return client_is(c, "schedule-not-found") ? CLI_DONE : client_complain(c);
    buf_putc(&ex->lines, '{');
    member_put_text(&ex->lines, TRANSFER_SCHEDULE, name);
    member_put(&ex->lines, TRANSFER_DEFINITION);
    transfer_schedule(&ex->lines, &c->doc, true);
    buf_puts(&ex->lines, "}\n");
    return export_write(ex);
}

static int export_schedules(struct export *ex)
{
    struct client *c = &ex->call;
    struct buf names = {0}; /* each ends in a NUL */
    client_begin(c, ex->cli);
    client_path(c, "/v1/queues/%s/schedules", ex->queue);
    client_query(c, "limit", "1000"); /* no queue has more */
    int status = client_run(c, "GET", NULL);
    uint32_t array = status == CLI_DONE && c->is_json ? json_array(&c->doc, 0, "schedules") : 0;
    for (uint32_t i = array ? json_first(&c->doc, array) : 0; i; i = json_next(&c->doc, array, i)) {
        const struct json_token *name = json_get(&c->doc, i, "name");
        buf_put(&names, name ? name->str : "", name ? name->len : 0);
        buf_putc(&names, '\0');
    }
    for (size_t at = 0; status == CLI_DONE && at < names.len; at += strlen(names.data + at) + 1)
        status = export_schedule(ex, names.data + at);
    buf_fini(&names);
    return status;
}

static int export_foot(struct export *ex)
{
    buf_printf(&ex->lines, "{\"" TRANSFER_EXPORTED "\":%" PRId64 "}\n", ex->messages);
    return export_write(ex);
}

static int export_page(struct export *ex)
{
    struct client *c = &ex->call;
    client_begin(c, ex->cli);
    client_path(c, "/v1/queues/%s/export", ex->queue);
    client_query(c, "limit", "1000");
    if (ex->dead)
        client_query(c, "state", "dead");
    if (ex->after.len > 0)
        client_query(c, "after", ex->after.data);
    int status = client_run(c, "GET", NULL);
    if (status != CLI_DONE)
        return status;
    for (size_t i = 0; i < c->answer.len; i++)
        ex->messages += c->answer.data[i] == '\n';
    buf_put(&ex->lines, c->answer.data, c->answer.len);
    buf_clear(&ex->after);
    buf_put(&ex->after, c->cursor.data, c->cursor.len);
    buf_cstr(&ex->after);
    return export_write(ex);
}

static int export_run(const struct cli *cli, const char *queue, bool dead, FILE *to)
{
    struct export ex = {.cli = cli, .queue = queue, .dead = dead, .to = to};
    client_init(&ex.call);
    progress_init(&ex.progress, !isatty(fileno(to)), 0);
    int status = dead ? CLI_DONE : export_head(&ex);
    if (status == CLI_DONE && !dead)
        status = export_schedules(&ex);
    while (status == CLI_DONE) {
        status = export_page(&ex);
        if (ex.after.len == 0)
            break;
    }
    if (status == CLI_DONE && !dead)
        status = export_foot(&ex);
    progress_wipe(&ex.progress);
    client_fini(&ex.call);
    buf_fini(&ex.lines);
    buf_fini(&ex.after);
    return status;
}

int cmd_export(int argc, char **argv, const struct cli *cli)
{
    bool dead = false;
    const char *path = NULL;
    const struct arg_option options[] = {
        {"dead", 0, ARG_FLAG, &dead, NULL, "only the dead letters, and no configuration"},
        {"output", 'o', ARG_TEXT, &path, "PATH", "write to a file"},
        {0},
    };
    const struct arg_spec spec = {
        "export QUEUE [--dead] [--output PATH]",
        "Writes a queue as NDJSON, for import: its configuration, its schedules, every message "
        "that is\n"
        "scheduled, ready, leased or dead, with its payload, priority, times, attempts, dedup key\n"
        "and reason, then how many these were. Claims nothing. Pause the queue first and wait\n"
        "until nothing is in flight, or what is worked on meanwhile may be done twice.",
        "  triage export mail > mail.ndjson\n"
        "  triage export mail --dead | jq -r .reason | sort | uniq -c\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    FILE *to = path ? fopen(path, "we") : stdout;
    if (to == NULL) {
        cli_complain("%s: %s", path, strerror(errno));
        return CLI_USAGE;
    }
    status = export_run(cli, ops.items[0], dead, to);
    if ((path ? fclose(to) : fflush(to)) != 0 && status == CLI_DONE) {
        cli_complain("%s: %s", path ? path : "cannot write", strerror(errno));
        status = CLI_USAGE;
    }
    return status;
}
