/* backup: the server copies its data directory while it serves; this command shows how far it is.
 */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "term/args.h"
#include "term/member.h"
#include "term/progress.h"

#include <unistd.h>

#define LOOK_MS        500
#define SECONDS_AT_ALL (7L * 24 * 3600) /* the server is silent until it is done */
#define PATH           "/v1/admin/backup"

static bool number_of(const struct client *c, const char *name, int64_t *out)
{
    return c->is_json && json_i64(json_get(&c->doc, 0, name), out);
}

static void show_progress(struct client *look, const struct cli *cli, struct progress *p)
{
    int64_t bytes;
    client_begin(look, cli);
    client_path(look, PATH);
    client_try(look, "GET", NULL);
    if (!number_of(look, "bytes", &bytes) || !number_of(look, "bytes_total", &p->bytes_total))
        return;
    progress_update(p, bytes, 0);
}

/* Waits for the call that is under way. */
static void await(struct client *c, CURLM *multi, const struct cli *cli, struct progress *p)
{
    struct client look;
    int running = 1, left;
    client_init(&look);
    for (curl_multi_perform(multi, &running); running > 0; curl_multi_perform(multi, &running)) {
        curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL);
        if (p->shown)
            show_progress(&look, cli, p);
    }
    CURLMsg *message = curl_multi_info_read(multi, &left);
    client_finish(c, message ? message->data.result : CURLE_RECV_ERROR);
    client_fini(&look);
}

static int backup_run(const struct cli *cli, const char *directory)
{
    struct client c;
    struct progress p;
    CURLM *multi = curl_multi_init();
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, PATH);
    c.wait_seconds = SECONDS_AT_ALL;
    buf_putc(&c.body, '{');
    member_put_text(&c.body, "directory", directory);
    buf_putc(&c.body, '}');
    progress_init(&p, true, 0);
    p.hide_messages = true;
    client_arm(&c, "POST", TYPE_JSON);
    client_send(&c, multi);
    await(&c, multi, cli, &p);
    progress_wipe(&p);
    int status = client_succeeded(&c) ? CLI_DONE : client_complain(&c);
    if (status == CLI_DONE)
        out_answer(&c, cli);
    client_fini(&c);
    curl_multi_cleanup(multi);
    return status;
}

int cmd_backup(int argc, char **argv, const struct cli *cli)
{
    static const struct arg_option options[] = {{0}};
    const struct arg_spec spec = {
        "backup DIR",
        "Has the server copy its data directory while it serves. DIR is a new folder on the\n"
        "server's machine, right in the one that its setting backup_dir names: a name, or the\n"
        "whole path. Everything that was answered before the moment which is printed is in it.\n"
        "To restore it: stop the server, put DIR in the place of its data directory, start it.\n"
        "On the same file system it has links to the table files of the server, so copy it to\n"
        "another disk or machine. Ctrl-C ends it, and nothing is left. Needs the role admin.",
        "  triage backup monday\n"
        "  triage backup /srv/backups/$(date +%F)\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    return status == ARGS_GO ? backup_run(cli, ops.items[0]) : status;
}
