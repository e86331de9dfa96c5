/* dead edit: a dead letter goes back with another payload. */
#include "base/file.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/editor.h"
#include "cli/out.h"
#include "cli/payload.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"

#include <errno.h>
#include <unistd.h>

/* What kind of payload it was; the new one is of the same kind. */
enum edit_kind { KIND_TEXT, KIND_JSON, KIND_BYTES };

struct edit {
    const struct cli *cli;
    char **target; /* QUEUE and ID */
    const char *file, *priority;
    enum edit_kind kind;
    struct buf before, after;
    char path[EDITOR_PATH_MAX]; /* the file that was edited by hand; empty: none was */
};

static int fetch(struct edit *e)
{
    struct client c;
    client_init(&c);
    client_begin(&c, e->cli);
    client_path(&c, "/v1/queues/%s/dead/%s", e->target[0], e->target[1]);
    int status = client_run(&c, "GET", NULL);
    if (status == CLI_DONE && c.is_json) {
        const struct json_token *payload = json_get(&c.doc, 0, "payload");
        e->kind = payload == NULL                ? KIND_BYTES
                  : payload->type == JSON_STRING ? KIND_TEXT
                                                 : KIND_JSON;
        payload_get(&c.doc, 0, &e->before);
    }
    client_fini(&c);
    return status;
}

static bool change(struct edit *e)
{
    static const char *const suffixes[] = {".txt", ".json", ".bin"};
    if (e->file != NULL) {
        bool read = file_read(strcmp(e->file, "-") == 0 ? NULL : e->file, &e->after);
        if (!read)
            cli_complain("%s: %s", e->file, strerror(errno));
        return read;
    }
    buf_put(&e->after, e->before.data, e->before.len);
    return editor_run(&e->after, suffixes[e->kind], e->path);
}

static bool put_body(struct buf *json, const struct edit *e)
{
    buf_putc(json, '{');
    if (e->kind == KIND_JSON) {
        member_put(json, "payload");
        buf_put(json, e->after.data, e->after.len);
    } else if (e->kind == KIND_BYTES) {
        payload_put_bytes(json, e->after.data, e->after.len);
    } else {
        payload_put(json, e->after.data, e->after.len);
    }
    if (e->priority)
        member_put_priority(json, "priority", e->priority);
    buf_putc(json, '}');
    return e->kind != KIND_JSON ||
           payload_check_json(&e->after, "the payload was JSON and is not any more");
}

static int send_back(struct edit *e)
{
    struct client c;
    client_init(&c);
    client_begin(&c, e->cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/dead/%s/redrive", e->target[0], e->target[1]);
    int status = put_body(&c.body, e) ? client_run(&c, "POST", TYPE_JSON) : CLI_USAGE;
    if (status == CLI_DONE && e->cli->json)
        text_document(&c.answer);
    else if (status == CLI_DONE)
        out_member(&c, "message_id");
    client_fini(&c);
    return status;
}

static int edit(struct edit *e)
{
    int status = fetch(e);
    if (status != CLI_DONE)
        return status;
    if (!change(e))
        return CLI_REFUSED;
    bool same = e->after.len == e->before.len &&
                (e->after.len == 0 || memcmp(e->after.data, e->before.data, e->after.len) == 0);
    if (same) {
        cli_complain("nothing was changed, and nothing redriven; `triage dead redrive` redrives it "
                     "as it is");
        status = CLI_REFUSED;
    } else {
        status = send_back(e);
    }
    if (e->path[0] != '\0' && (same || status == CLI_DONE))
        unlink(e->path);
    else if (e->path[0] != '\0')
        cli_complain("what you wrote is in %s; `--file` takes it", e->path);
    return status;
}

int cmd_dead_edit(int argc, char **argv, const struct cli *cli)
{
    struct edit e = {.cli = cli};
    const struct arg_option options[] = {
        {"file", 'f', ARG_TEXT, &e.file, "PATH|-", "the new payload, in place of the editor"},
        {"priority", 'p', ARG_TEXT, &e.priority, "P", "with this priority; else it keeps its own"},
        {0},
    };
    const struct arg_spec spec = {
        "dead edit QUEUE ID [--file PATH] [--priority P]",
        "Opens the payload of a dead letter in $VISUAL or $EDITOR and redrives it with what you\n"
        "made of it. It becomes a new message at the old place, with its metadata, and its id is\n"
        "printed; the dead letter is gone. Unchanged, it stays a dead letter, and the exit status\n"
        "is 1.",
        "  triage dead edit mail msg_01\n"
        "  triage dead show mail msg_01 --payload | sed s/oops/ok/ | triage dead edit mail msg_01 "
        "-f -\n",
        options,
        2,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    e.target = ops.items;
    status = edit(&e);
    buf_fini(&e.before);
    buf_fini(&e.after);
    return status;
}
