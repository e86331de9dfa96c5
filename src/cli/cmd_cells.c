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
    static const char *const columns[] = {
        "cell",      "engine",    "state", "placement", "partitions",   "open", "ready",
        "scheduled", "in_flight", "dead",  "split",     "split_detail", NULL};
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

/* Whether the queue has a partition in the cell, or the server cannot say so. */
static bool has_partition(struct client *c, const struct cli *cli, const char *queue,
                          const char *cell)
{
    client_begin(c, cli);
    client_path(c, PLACEMENT_PATH, queue);
    if (client_run(c, "GET", NULL) != CLI_DONE)
        return true;
    uint32_t array = json_array(&c->doc, 0, "partitions");
    for (uint32_t i = array ? json_first(&c->doc, array) : 0; i; i = json_next(&c->doc, array, i)) {
        const struct json_token *name = json_get(&c->doc, i, "cell");
        if (name && json_is(name, cell))
            return true;
    }
    return false;
}

static int change_cell(struct client *c, const struct cli *cli, const char *cell, const char *state)
{
    client_begin(c, cli);
    client_path(c, "/v1/cells");
    c->has_options = true;
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "cell", cell);
    member_put_text(&c->body, "state", state);
    buf_putc(&c->body, '}');
    int status = client_run(c, "POST", TYPE_JSON);
    if (status == CLI_DONE && !cli->json)
        printf("%s is %s\n", cell, state);
    return status;
}

/* Every queue that there is. What was done stays done: the command can be repeated. */
static int change_queues(struct client *c, const struct cli *cli, const char *cell,
                         const char *state)
{
    struct buf names = {0};
    bool opens = strcmp(state, "open") == 0;
    int status = queue_names(c, cli, &names), worst = status;
    for (size_t at = 0; status == CLI_DONE && at < names.len; at += strlen(names.data + at) + 1) {
        if (!opens && !has_partition(c, cli, names.data + at, cell))
            continue;
        int one = change_state(c, cli, names.data + at, cell, state);
        worst = one != CLI_DONE ? one : worst;
    }
    buf_fini(&names);
    return worst;
}

/* Of one queue; or of the cell as a whole, first or last, and of all queues. */
static int change_all(const struct cli *cli, const char *queue, const char *cell, const char *state)
{
    struct client c;
    client_init(&c);
    bool removes = strcmp(state, "removed") == 0;
    int status = queue     ? change_state(&c, cli, queue, cell, state)
                 : removes ? CLI_DONE
                           : change_cell(&c, cli, cell, state);
    if (!queue && status == CLI_DONE)
        status = change_queues(&c, cli, cell, state);
    if (!queue && removes && status == CLI_DONE)
        status = change_cell(&c, cli, cell, state);
    client_fini(&c);
    return status;
}

/* What a cell, or the partition of a queue there, still holds. */

enum { LEFT_COUNTS = 4 };
static const char *const left_names[LEFT_COUNTS] = {"ready", "scheduled", "in_flight", "dead"};

struct left {
    int64_t counts[LEFT_COUNTS];
    int64_t all;
    char placement[16]; /* "draining"; empty: it is not there */
};

static int cell_left(struct client *c, const struct cli *cli, const char *queue, const char *cell,
                     struct left *left)
{
    *left = (struct left){0};
    client_begin(c, cli);
    if (queue)
        client_path(c, PLACEMENT_PATH, queue);
    else
        client_path(c, "/v1/cells");
    int status = client_run(c, "GET", NULL);
    uint32_t array =
        status == CLI_DONE ? json_array(&c->doc, 0, queue ? "partitions" : "cells") : 0;
    for (uint32_t i = array ? json_first(&c->doc, array) : 0; i; i = json_next(&c->doc, array, i)) {
        const struct json_token *name = json_get(&c->doc, i, "cell"),
                                *placement = json_get(&c->doc, i, "placement");
        if (!name || !json_is(name, cell))
            continue;
        if (placement && placement->type == JSON_STRING)
            snprintf(left->placement, sizeof(left->placement), "%.*s", (int)placement->len,
                     placement->str);
        for (size_t k = 0; k < LEFT_COUNTS; k++) {
            const struct json_token *t = json_get(&c->doc, i, left_names[k]);
            if (t && json_i64(t, &left->counts[k]))
                left->all += left->counts[k];
        }
    }
    return status;
}

#define PAUSE_MS 500
#define LINE_MS  10000 /* how often a line is written where nothing can be drawn over */

static void put_left(struct buf *out, const char *cell, const struct left *left, double per_second)
{
    buf_printf(out, "%s:", cell);
    for (size_t k = 0; k < LEFT_COUNTS; k++)
        buf_printf(out, " %" PRId64 " %s%s", left->counts[k], k == 2 ? "in flight" : left_names[k],
                   k + 1 < LEFT_COUNTS ? "," : " left");
    if (per_second >= 1)
        buf_printf(out, ", %.0f a second", per_second);
}

static void show_left(const char *cell, const struct left *left, double per_second, int64_t at_ms)
{
    struct buf line = {0};
    put_left(&line, cell, left, per_second);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s\033[K", buf_cstr(&line));
    else if (at_ms % LINE_MS == 0)
        fprintf(stderr, "%s\n", buf_cstr(&line));
    buf_fini(&line);
}

static int wait_empty(const struct cli *cli, const char *queue, const char *cell)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    struct client c;
    struct left left;
    int64_t before = -1, at_ms = 0;
    double per_second = 0; /* smoothed */
    client_init(&c);
    int status = cell_left(&c, cli, queue, cell, &left);
    for (; status == CLI_DONE && left.all > 0; at_ms += PAUSE_MS) {
        double now = before > left.all ? (double)(before - left.all) * 1000 / PAUSE_MS : 0;
        per_second = before < 0 ? 0 : per_second * 0.8 + now * 0.2;
        show_left(cell, &left, per_second, at_ms);
        before = left.all;
        nanosleep(&pause, NULL);
        status = cell_left(&c, cli, queue, cell, &left);
    }
    if (at_ms > 0 && isatty(STDERR_FILENO))
        fputc('\n', stderr);
    client_fini(&c);
    if (status == CLI_DONE && !cli->json)
        printf("%s is empty\n", cell);
    return status;
}

static int cells_drain(int argc, char **argv, const struct cli *cli)
{
    const char *queue = NULL;
    bool wait = false;
    const struct arg_option options[] = {
        {"queue", 0, ARG_TEXT, &queue, "QUEUE",
         "of this queue alone; else of all, and of new ones"},
        {"wait", 0, ARG_FLAG, &wait, NULL, "until the cell is empty; shows what is left"},
        {0},
    };
    const struct arg_spec spec = {
        "cells drain CELL [--queue QUEUE] [--wait]",
        "The cell takes no new messages, also of queues that are made later. What is ready is\n"
        "claimed by consumers as before; delayed messages, dead letters, and what nobody has\n"
        "claimed for a minute move to the other cells, and so do its dedup keys. What is in\n"
        "flight stays until it is settled. Can be stopped and repeated; `triage cells open`\n"
        "takes it back.",
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

/* A cell that is open would be filled again. */
static int refuse_open(const struct cli *cli, const char *cell)
{
    struct client c;
    struct left left;
    client_init(&c);
    int status = cell_left(&c, cli, NULL, cell, &left);
    client_fini(&c);
    if (status != CLI_DONE || strcmp(left.placement, "open") != 0)
        return status;
    fprintf(stderr,
            "triage: %s takes messages: drain it first, with triage cells drain %s --wait\n", cell,
            cell);
    return CLI_REFUSED;
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
    if (status != ARGS_GO)
        return status;
    status = queue ? CLI_DONE : refuse_open(cli, ops.items[0]);
    return status == CLI_DONE ? change_all(cli, queue, ops.items[0], "removed") : status;
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
