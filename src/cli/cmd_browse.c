/* The command that looks for messages: browse. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "term/args.h"
#include "term/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS 7 /* of the query, beside those of --meta */

struct browse_options {
    const char *state, *level, *contains, *reason;
    int64_t older_ms;
    struct arg_list meta;
    bool payload;
};

static const char *const without_payload[] = {"message_id", "state",       "level",    "attempts",
                                              "reason",     "enqueued_at", "metadata", NULL};
static const char *const with_payload[] = {"message_id",     "state",       "level",    "attempts",
                                           "reason",         "enqueued_at", "metadata", "payload",
                                           "payload_base64", NULL};

/* Splits K=V into a parameter meta.K; false: it has no "=". The name is the caller's to free. */
static bool meta_parameter(const char *pair, struct list_parameter *p)
{
    struct buf name = {0};
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return false;
    buf_puts(&name, "meta.");
    buf_put(&name, pair, (size_t)(equals - pair));
    buf_cstr(&name);
    p->name = buf_take(&name);
    p->value = equals + 1;
    return true;
}

static int browse(const struct arg_spec *spec, const struct browse_options *o,
                  struct list_options *list, const char *queue, const struct cli *cli)
{
    size_t count = 0;
    int status = CLI_DONE;
    struct list_parameter *parameters =
        mem_zalloc((PARAMETERS + o->meta.count) * sizeof(*parameters));
    for (; count < o->meta.count && status == CLI_DONE; count++) {
        if (!meta_parameter(o->meta.items[count], &parameters[count]))
            status = args_refuse(spec, "--meta takes K=V");
    }
    struct buf seconds = {0};
    if (o->older_ms != ARG_UNSET)
        buf_printf(&seconds, "%.3f", (double)o->older_ms / 1000);
    const struct list_parameter rest[] = {
        {"state", o->state},
        {"level", o->level},
        {"payload_contains", o->contains},
        {"reason", o->reason},
        {"older_than", seconds.len > 0 ? buf_cstr(&seconds) : NULL},
        {"payload", o->payload ? NULL : "false"},
    };
    static_assert(sizeof(rest) / sizeof(rest[0]) < PARAMETERS, "the last one has no name");
    if (status == CLI_DONE) {
        memcpy(parameters + count, rest, sizeof(rest));
        list->parameters = parameters;
        status = list_print(cli, "/v1/queues/%s/messages/browse", queue, list,
                            o->payload ? with_payload : without_payload);
    }
    for (size_t i = 0; i < count; i++)
        free((char *)parameters[i].name);
    free(parameters);
    buf_fini(&seconds);
    return status;
}

int cmd_browse(int argc, char **argv, const struct cli *cli)
{
    struct browse_options o = {.older_ms = ARG_UNSET};
    struct list_options list = {.limit = ARG_UNSET, .sparse = true};
    const struct arg_option options[] = {
        {"state", 's', ARG_TEXT, &o.state, "STATE",
         "scheduled, ready, leased, dead, or done; else all but done"},
        {"level", 0, ARG_TEXT, &o.level, "P", "of this level: its name or its number"},
        {"meta", 0, ARG_LIST, &o.meta, "K=V", "with this metadata; may be repeated"},
        {"contains", 0, ARG_TEXT, &o.contains, "TEXT", "with this somewhere in the payload"},
        {"reason", 0, ARG_TEXT, &o.reason, "TEXT", "whose last failure has this reason"},
        {"older-than", 0, ARG_DURATION, &o.older_ms, "10m", "enqueued before that"},
        {"payload", 0, ARG_FLAG, &o.payload, NULL, "with the payloads"},
        {"limit", 0, ARG_INT, &list.limit, "N", "at most so many; without it all"},
        {"after", 0, ARG_TEXT, &list.after, "CURSOR", "go on where `next` of --json says"},
        {0},
    };
    const struct arg_spec spec = {
        "browse QUEUE [options]",
        "Looks for messages in a queue, and claims nothing. A message has to match all options "
        "that\n"
        "are given. The whole queue is looked through, in portions.",
        "  triage browse mail --state ready --level HIGH --older-than 10m\n"
        "  triage browse mail --meta tenant=acme --contains 'ann@example.com' --payload\n"
        "  triage browse mail --state dead --reason 'smtp timeout' --json\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO)
        status = browse(&spec, &o, &list, ops.items[0], cli);
    free(o.meta.items);
    return status;
}
