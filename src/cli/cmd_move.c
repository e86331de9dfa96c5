/* move: the server hands a queue over to another server while it serves; this command begins it,
 * shows how far it is, and ends it. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/simple.h"
#include "term/args.h"
#include "term/member.h"
#include "term/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_US (200 * 1000)

struct move_options {
    const char *to;
    bool end, cancel, no_wait, yes;
};

static int64_t number_of(const struct client *c, const char *name)
{
    int64_t number = 0;
    return c->is_json && json_i64(json_get(&c->doc, 0, name), &number) ? number : 0;
}

static void begin_body(struct client *c, const struct move_options *o)
{
    const char *token = getenv("TRIAGE_TO_TOKEN");
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "to", o->to);
    if (token && *token)
        member_put_text(&c->body, "token", token);
    buf_putc(&c->body, '}');
}

static int begin(const struct cli *cli, const char *queue, const struct move_options *o)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, "/v1/queues/%s/move", queue);
    begin_body(&c, o);
    int status = client_run(&c, "POST", TYPE_JSON);
    if (status == CLI_DONE && o->no_wait)
        out_answer(&c, cli);
    client_fini(&c);
    return status;
}

/* Says once what keeps the move, and once that it goes on. */
static void tell_error(const struct client *c, struct buf *told)
{
    const struct json_token *error = json_get(&c->doc, 0, "error");
    bool has = error && error->type == JSON_STRING;
    if (!has || (told->len == error->len && memcmp(told->data, error->str, error->len) == 0))
        return;
    buf_clear(told);
    buf_put(told, error->str, error->len);
    cli_complain("the move waits: %s", buf_cstr(told));
}

static int look(struct client *c, const struct cli *cli, const char *queue)
{
    client_begin(c, cli);
    client_path(c, "/v1/queues/%s/move", queue);
    return client_run(c, "GET", NULL);
}

/* Waits until nothing is left to move. Ctrl-C ends the wait and not the move. */
static int await(const struct cli *cli, const char *queue)
{
    struct client c;
    struct progress p;
    struct buf told = {0};
    int status;
    client_init(&c);
    progress_init(&p, true, 0);
    p.hide_bytes = true;
    while ((status = look(&c, cli, queue)) == CLI_DONE) {
        const struct json_token *state = json_get(&c.doc, 0, "state");
        if (!state || !json_is(state, "moving"))
            break;
        progress_update(&p, 0, number_of(&c, "moved"));
        tell_error(&c, &told);
        usleep(LOOK_US);
    }
    progress_wipe(&p);
    if (status == CLI_DONE)
        out_answer(&c, cli);
    buf_fini(&told);
    client_fini(&c);
    return status;
}

static int move_end(const struct cli *cli, const struct operands *ops, const struct move_options *o)
{
    int status = o->cancel
                     ? CLI_DONE
                     : cli_confirm(o->yes, "Delete the queue %s here, and pass on nothing more?",
                                   ops->items[0]);
    if (status != CLI_DONE)
        return status;
    return simple_send(cli, "DELETE",
                       o->cancel ? "/v1/queues/%s/move?cancel=true" : "/v1/queues/%s/move", ops);
}

int cmd_move(int argc, char **argv, const struct cli *cli)
{
    struct move_options o = {0};
    const struct arg_option options[] = {
        {"to", 0, ARG_TEXT, &o.to, "URL", "the server that gets the queue: begins, or goes on"},
        {"no-wait", 0, ARG_FLAG, &o.no_wait, NULL, "do not wait until everything has moved"},
        {"end", 0, ARG_FLAG, &o.end, NULL, "delete the queue here; it has to be empty"},
        {"yes", 'y', ARG_FLAG, &o.yes, NULL, "with --end: do not ask"},
        {"cancel", 0, ARG_FLAG, &o.cancel, NULL, "this server keeps what it still has"},
        {0},
    };
    const struct arg_spec spec = {
        "move QUEUE [--to URL [--no-wait]] [--end [--yes]] [--cancel]",
        "Moves a queue from the server of --server to another one while producers and consumers "
        "go\n"
        "on. The other server gets the configuration, the schedules and the messages; what still\n"
        "comes to this one is passed on, until --end. The work is done by the server: this "
        "command\n"
        "waits and shows it, may be stopped, and may be given again. Without options it shows how\n"
        "far the move is. The token for the other server, with its role admin, is "
        "$TRIAGE_TO_TOKEN.\n"
        "What has moved comes back with the same command at the other server, after --cancel "
        "here.\n"
        "Needs the role admin.",
        "  triage move mail --to https://new.example:7420\n"
        "  triage move mail\n"
        "  triage move mail --end\n"
        "  triage move mail --cancel\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if ((o.to != NULL) + o.end + o.cancel > 1)
        return args_refuse(&spec, "--to, --end and --cancel exclude each other");
    if (o.end || o.cancel)
        return move_end(cli, &ops, &o);
    if (!o.to)
        return simple_send(cli, "GET", "/v1/queues/%s/move", &ops);
    status = begin(cli, ops.items[0], &o);
    return status == CLI_DONE && !o.no_wait ? await(cli, ops.items[0]) : status;
}
