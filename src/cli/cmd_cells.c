/* The verbs of cells: which stores a queue is spread over. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLACEMENT_PATH "/v1/queues/%s/placement"

static int cells_show(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "cells list [QUEUE]",
        "Lists the cells of the server with the messages they hold; with a queue, the partitions\n"
        "of that queue.",
        "  triage cells list\n"
        "  triage cells list orders\n"
        "  triage cells list --json | jq '.cells[] | select(.state != \"ok\")'\n",
        NULL,
        0,
        1};
    static const char *const columns[] = {"cell", "engine", "state",        "partitions",
                                          "open", "ready",  "scheduled",    "in_flight",
                                          "dead", "split",  "split_detail", NULL};
    static const char *const of_queue[] = {"cell",  "state",     "placement", "buckets", "levels",
                                           "ready", "scheduled", "in_flight", "dead",    NULL};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (ops.count > 0)
        return list_whole(cli, PLACEMENT_PATH, ops.items[0], of_queue);
    return list_whole(cli, "/v1/cells", NULL, columns);
}

/* One change of one queue. */
static int change(struct client *c, const struct cli *cli, const char *queue, const char *cell,
                  const char *name, const struct buf *value)
{
    client_begin(c, cli);
    c->has_options = true;
    client_path(c, PLACEMENT_PATH, queue);
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "cell", cell);
    member_put(&c->body, name);
    buf_put(&c->body, value->data, value->len);
    buf_putc(&c->body, '}');
    return client_run(c, "POST", TYPE_JSON);
}

static int change_state(struct client *c, const struct cli *cli, const char *queue,
                        const char *cell, const char *state)
{
    struct buf value = {0};
    json_put_cstr(&value, state);
    int status = change(c, cli, queue, cell, "state", &value);
    buf_fini(&value);
    if (status == CLI_DONE && !cli->json)
        printf("%s: %s is %s\n", queue, cell, state);
    return status;
}

/* Names of queues, each ended by a NUL. */
static int queue_names(struct client *c, const struct cli *cli, struct buf *names)
{
    struct buf after = {0};
    int status;
    do {
        client_begin(c, cli);
        client_path(c, "/v1/queues");
        client_query(c, "limit", "1000");
        if (after.len > 0)
            client_query(c, "after", buf_cstr(&after));
        status = client_run(c, "GET", NULL);
        if (status != CLI_DONE)
            break;
        uint32_t array = json_array(&c->doc, 0, "queues");
        for (uint32_t i = array ? json_first(&c->doc, array) : 0; i;
             i = json_next(&c->doc, array, i)) {
            const struct json_token *name = json_get(&c->doc, i, "name");
            if (!name)
                continue;
            buf_put(names, name->str, name->len);
            buf_putc(names, '\0');
        }
        const struct json_token *next = json_get(&c->doc, 0, "next");
        buf_clear(&after);
        if (next && next->type == JSON_STRING)
            buf_put(&after, next->str, next->len);
    } while (after.len > 0);
    buf_fini(&after);
    return status;
}

/* Of one queue, or of all there are. What was done stays done: the command can be repeated. */
static int change_all(const struct cli *cli, const char *queue, const char *cell, const char *state)
{
    struct client c;
    struct buf names = {0};
    client_init(&c);
    int status = CLI_DONE;
    if (queue) {
        buf_puts(&names, queue);
        buf_putc(&names, '\0');
    } else {
        status = queue_names(&c, cli, &names);
    }
    int worst = status;
    for (size_t at = 0; status == CLI_DONE && at < names.len; at += strlen(names.data + at) + 1) {
        int one = change_state(&c, cli, names.data + at, cell, state);
        worst = one != CLI_DONE ? one : worst;
    }
    buf_fini(&names);
    client_fini(&c);
    return worst;
}

/* Draining: how much the cell still holds. */

static bool cell_left(struct client *c, const struct cli *cli, const char *queue, const char *cell,
                      int64_t *left)
{
    static const char *const counts[] = {"ready", "scheduled", "in_flight", "dead"};
    client_begin(c, cli);
    if (queue)
        client_path(c, PLACEMENT_PATH, queue);
    else
        client_path(c, "/v1/cells");
    if (client_run(c, "GET", NULL) != CLI_DONE)
        return false;
    uint32_t array = json_array(&c->doc, 0, queue ? "partitions" : "cells");
    *left = 0;
    for (uint32_t i = array ? json_first(&c->doc, array) : 0; i; i = json_next(&c->doc, array, i)) {
        const struct json_token *name = json_get(&c->doc, i, "cell");
        for (size_t k = 0; name && json_is(name, cell) && k < 4; k++) {
            const struct json_token *t = json_get(&c->doc, i, counts[k]);
            int64_t count = 0;
            *left += t && json_i64(t, &count) ? count : 0;
        }
    }
    return true;
}

static int wait_empty(const struct cli *cli, const char *queue, const char *cell)
{
    static const struct timespec pause = {.tv_nsec = 500000000};
    struct client c;
    int64_t left = 1, shown = -1;
    client_init(&c);
    bool ok = true;
    while (ok && (ok = cell_left(&c, cli, queue, cell, &left)) && left > 0) {
        if (left != shown && isatty(STDERR_FILENO))
            fprintf(stderr, "\r%s: %" PRId64 " messages left   ", cell, left);
        shown = left;
        nanosleep(&pause, NULL);
    }
    if (shown >= 0 && isatty(STDERR_FILENO))
        fputc('\n', stderr);
    client_fini(&c);
    return ok ? CLI_DONE : CLI_UNREACHED;
}

static int cells_drain(int argc, char **argv, const struct cli *cli)
{
    const char *queue = NULL;
    bool wait = false;
    const struct arg_option options[] = {
        {"queue", 0, ARG_TEXT, &queue, "QUEUE", "of this queue alone; else of all"},
        {"wait", 0, ARG_FLAG, &wait, NULL, "until the cell is empty; shows what is left"},
        {0},
    };
    const struct arg_spec spec = {
        "cells drain CELL [--queue QUEUE] [--wait]",
        "The cell takes no new messages. What it has is claimed by consumers as before; messages\n"
        "with a delay wait there until they are due. Its dedup keys go to the other cells. Can be\n"
        "stopped and repeated; `triage cells open` takes it back.",
        "  triage cells drain b --wait\n"
        "  triage cells drain b --queue orders\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    status = change_all(cli, queue, ops.items[0], "draining");
    return status == CLI_DONE && wait ? wait_empty(cli, queue, ops.items[0]) : status;
}

static int cells_open(int argc, char **argv, const struct cli *cli)
{
    const char *queue = NULL;
    const struct arg_option options[] = {
        {"queue", 0, ARG_TEXT, &queue, "QUEUE", "of this queue alone; else of all"},
        {0},
    };
    const struct arg_spec spec = {
        "cells open CELL [--queue QUEUE]",
        "The cell takes new messages, and a fair share of the dedup keys. For a cell that was\n"
        "drained or removed; one that was added to the configuration is opened by itself.",
        "  triage cells open b\n"
        "  triage cells open c --queue orders\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    return status == ARGS_GO ? change_all(cli, queue, ops.items[0], "open") : status;
}

static int cells_remove(int argc, char **argv, const struct cli *cli)
{
    const char *queue = NULL;
    const struct arg_option options[] = {
        {"queue", 0, ARG_TEXT, &queue, "QUEUE", "of this queue alone; else of all"},
        {0},
    };
    const struct arg_spec spec = {
        "cells remove CELL [--queue QUEUE]",
        "A drained cell that is empty gives up its partitions. Afterwards it can be taken out of\n"
        "the configuration. The first cell stays: placements and schedules are there.",
        "  triage cells drain b --wait && triage cells remove b\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    return status == ARGS_GO ? change_all(cli, queue, ops.items[0], "removed") : status;
}

static int cells_split(int argc, char **argv, const struct cli *cli)
{
    const char *to = NULL;
    const struct arg_option options[] = {
        {"to", 0, ARG_TEXT, &to, "CELL", "the cell that gets a partition"},
        {0},
    };
    const struct arg_spec spec = {"cells split QUEUE --to CELL",
                                  "The queue gets one more partition. Nothing that is there moves.",
                                  "  triage cells split orders --to c\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!to)
        return args_refuse(&spec, "--to is needed");
    return change_all(cli, ops.items[0], to, "open");
}

static int send_value(const struct cli *cli, const char *queue, const char *cell, const char *name,
                      struct buf *value)
{
    struct client c;
    client_init(&c);
    int status = change(&c, cli, queue, cell, name, value);
    if (status == CLI_DONE && !cli->json)
        printf("%s: %s of %s changed\n", queue, name, cell);
    client_fini(&c);
    buf_fini(value);
    return status;
}

static int cells_bucket(int argc, char **argv, const struct cli *cli)
{
    const char *to = NULL;
    const struct arg_option options[] = {
        {"to", 0, ARG_TEXT, &to, "CELL", "where they go"},
        {0},
    };
    const struct arg_spec spec = {
        "cells bucket QUEUE BUCKETS --to CELL",
        "Moves buckets of dedup keys: 0 to 255, and ranges of them. Messages stay where they\n"
        "are. For one dedup window a key is looked for in both cells.",
        "  triage cells bucket orders '0-41 99' --to b\n",
        options,
        2,
        2};
    struct operands ops;
    struct buf value = {0};
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!to)
        return args_refuse(&spec, "--to is needed");
    json_put_cstr(&value, ops.items[1]);
    return send_value(cli, ops.items[0], to, "buckets", &value);
}

static int cells_levels(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "cells levels QUEUE CELL [LEVELS]",
        "New messages of these levels go to this cell: names with commas between them. Without\n"
        "levels it takes those that no cell names. Messages with a dedup key go by their key.",
        "  triage cells levels orders fast 9,8,7\n"
        "  triage cells levels orders fast\n",
        NULL,
        2,
        3};
    struct operands ops;
    struct buf value = {0};
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    buf_putc(&value, '[');
    for (const char *at = ops.count > 2 ? ops.items[2] : ""; *at;) {
        size_t len = strcspn(at, ",");
        if (value.len > 1)
            buf_putc(&value, ',');
        json_put_string(&value, at, len);
        at += len + (at[len] == ',');
    }
    buf_putc(&value, ']');
    return send_value(cli, ops.items[0], ops.items[1], "levels", &value);
}

static const struct cli_verb cells_verbs[] = {
    {"list", "the cells, or the partitions of a queue", cells_show},
    {"drain", "a cell takes no new messages", cells_drain},
    {"open", "a cell takes new messages", cells_open},
    {"remove", "a drained cell gives up its partitions", cells_remove},
    {"split", "a queue gets one more partition", cells_split},
    {"bucket", "move buckets of dedup keys", cells_bucket},
    {"levels", "which levels a cell wants", cells_levels},
    {NULL, NULL, NULL},
};

int cmd_cells(int argc, char **argv, const struct cli *cli)
{
    if (argc == 1) /* without a verb */
        return cells_show(argc, argv, cli);
    return cli_run_verb(cells_verbs, argc, argv, cli);
}
