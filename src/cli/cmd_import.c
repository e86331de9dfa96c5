/* import: a file of messages into a queue. Lines that export wrote are stored as they were; other
 * lines are enqueued.
 *
 * The file is read twice. The first pass finds where each message stands, and whether the export is
 * complete. Then the messages are sent in the order in which they once arrived. An export has
 * another order, by state and level, and of two messages with the same ready time the one that
 * arrived first goes first. */
#include "base/limits.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/import_levels.h"
#include "cli/transfer.h"
#include "core/message.h"
#include "term/args.h"
#include "term/progress.h"
#include "term/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_BYTES_MAX (HTTP_BODY_MAX / 4)
#define LINE_BYTES_MAX  (HTTP_BODY_MAX / 4) /* several times what the largest message needs */
#define LINE_TOKENS_MAX 200000
#define ENQUEUED_HERE   UINT64_MAX /* not from an export: sent last, in the order of the lines */

/* Where a message stands in the file. */
struct import_line {
    uint64_t seq; /* its order of arrival in the old queue, or ENQUEUED_HERE */
    int64_t offset;
    int64_t number; /* from 1 on */
};

struct import_run {
    const struct cli *cli;
    const char *queue;
    bool configure; /* --configure was given, or the queue was made here */
    FILE *file;
    struct client call;
    struct json_doc doc;
    char *text; /* the present line; getline's memory */
    size_t text_cap;
    struct buf configuration; /* empty: the file has none */
    int64_t exported;         /* how many messages the file says it has; -1: it does not say */
    struct import_line *lines;
    size_t line_count, line_cap;
    struct buf schedules;   /* of the file, each with a line break */
    int64_t exported_lines; /* lines that an export wrote */
    struct import_levels levels;
    /* The batch. */
    struct buf batch;
    struct import_line sent[ENQUEUE_BATCH_MAX];
    size_t batch_count;
    int64_t bytes, stored, known, deduplicated, failed;
    struct progress progress;
};

static void import_fail(struct import_run *im, int64_t line, const char *why)
{
    im->failed++;
    progress_wipe(&im->progress);
    cli_complain("line %" PRId64 ": %s", line, why);
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* Looking */

static void line_add(struct import_run *im, uint64_t seq, int64_t offset, int64_t number)
{
    if (im->line_count == im->line_cap) {
        im->line_cap = im->line_cap ? im->line_cap * 2 : 1024;
        im->lines = mem_realloc(im->lines, im->line_cap * sizeof(im->lines[0]));
    }
    im->lines[im->line_count++] = (struct import_line){seq, offset, number};
}

static bool is_head(struct import_run *im, int64_t number)
{
    const struct json_token *t = json_get(&im->doc, 0, TRANSFER_CONFIGURATION);
    if (number != 1 || t == NULL || t->type != JSON_OBJECT)
        return false;
    buf_put(&im->configuration, t->raw, t->raw_len);
    return true;
}

static bool is_foot(struct import_run *im)
{
    const struct json_token *t = json_get(&im->doc, 0, TRANSFER_EXPORTED);
    return t != NULL && im->doc.tokens[0].count == 1 && json_i64(t, &im->exported);
}

static bool is_schedule(struct import_run *im, size_t len)
{
    const struct json_token *t = json_get(&im->doc, 0, TRANSFER_DEFINITION);
    if (t == NULL || t->type != JSON_OBJECT || json_get(&im->doc, 0, TRANSFER_SCHEDULE) == NULL)
        return false;
    buf_put(&im->schedules, im->text, len);
    buf_putc(&im->schedules, '\n');
    return true;
}

/* A line with a message id comes from an export; any other is for the server to judge. */
static void look_at(struct import_run *im, size_t len, int64_t offset, int64_t number)
{
    if (is_blank(im->text, len))
        return;
    if (len > LINE_BYTES_MAX) {
        import_fail(im, number, "it is longer than any message");
        return;
    }
    if (!json_parse(&im->doc, im->text, len, LINE_TOKENS_MAX)) {
        import_fail(im, number, im->doc.error);
        return;
    }
    if (is_head(im, number) || is_foot(im) || is_schedule(im, len))
        return;
    const struct json_token *t = json_get(&im->doc, 0, "message_id");
    struct message_id id = {0};
    if (t != NULL && t->type == JSON_STRING)
        message_id_parse(t->str, t->len, &id);
    line_add(im, t ? id.seq : ENQUEUED_HERE, offset, number);
    im->exported_lines += t != NULL;
    if (t)
        import_levels_note(&im->levels, &im->doc);
}

static int by_arrival(const void *a, const void *b)
{
    const struct import_line *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* The next line without its end; -1 at the end of the file. */
static ssize_t next_line(struct import_run *im)
{
    ssize_t len = getline(&im->text, &im->text_cap, im->file);
    return len > 0 && im->text[len - 1] == '\n' ? len - 1 : len;
}

static int import_look(struct import_run *im)
{
    int64_t number = 0, offset = ftello(im->file);
    for (ssize_t len; (len = next_line(im)) >= 0; offset = ftello(im->file))
        look_at(im, (size_t)len, offset, ++number);
    if (ferror(im->file)) {
        cli_complain("line %" PRId64 ": %s", number + 1, strerror(errno));
        return CLI_USAGE;
    }
    int64_t have = (int64_t)im->line_count + im->failed;
    if (im->configuration.len > 0 && im->exported != have) {
        cli_complain("the export did not come to its end, or lines are missing: it has %" PRId64
                     " message%s; nothing was stored",
                     have, have == 1 ? "" : "s");
        return CLI_USAGE;
    }
    if (im->line_count > 0)
        qsort(im->lines, im->line_count, sizeof(im->lines[0]), by_arrival);
    return CLI_DONE;
}

/* The configuration */

/* Parses the configuration into im->doc; false when the file has none. */
static bool configuration_read(struct import_run *im)
{
    return im->configuration.len > 0 &&
           json_parse(&im->doc, im->configuration.data, im->configuration.len, 4096);
}

static bool same_configuration(struct import_run *im)
{
    static const char *const without[] = {"name", "paused", NULL};
    struct buf here = {0}, there = {0};
    transfer_configuration(&here, &im->call.doc, 0, without);
    transfer_configuration(&there, &im->doc, 0, without);
    bool same = here.len == there.len && memcmp(here.data, there.data, here.len) == 0;
    buf_fini(&here);
    buf_fini(&there);
    return same;
}

/* Gives the queue the file's configuration. Levels that only the queue has are dropped when they
 * hold no message; others stay, because producers may have begun to fill them. */
static int configuration_put(struct import_run *im, bool there)
{
    struct client *c = &im->call;
    struct buf was = {0}; /* the configuration that the queue had */
    bool any = im->doc.tokens[0].count > 0;
    if (there)
        buf_put(&was, c->answer.data, c->answer.len);
    client_begin(c, im->cli);
    client_path(c, "/v1/queues/%s", im->queue);
    buf_puts(&c->body, any ? "{\"drop_levels\":\"empty\"," : "{\"drop_levels\":\"empty\"}");
    if (any)
        buf_put(&c->body, im->configuration.data + 1, im->configuration.len - 1);
    int status = client_run(c, "PUT", TYPE_JSON);
    if (status == CLI_DONE)
        import_levels_tell_stayed(im->queue, &im->doc, &c->doc);
    if (status == CLI_DONE && there)
        import_levels_tell_numbers(im->queue, was.data, was.len, &c->doc);
    buf_fini(&was);
    return status;
}

/* A queue that is missing is made as the file says. One that exists stays as it is, unless
 * --configure was given. After that each level of the file must have its level in the queue;
 * otherwise nothing is stored. */
static int import_configure(struct import_run *im)
{
    struct client *c = &im->call;
    bool has = configuration_read(im);
    int status = CLI_DONE;
    if (!has && im->exported_lines == 0 && im->schedules.len == 0)
        return import_levels_agree(&im->levels, im->queue, NULL, NULL);
    client_begin(c, im->cli);
    client_path(c, "/v1/queues/%s", im->queue);
    client_try(c, "GET", NULL);
    bool there = client_succeeded(c);
    if (client_is(c, "forbidden") && im->exported_lines > 0)
        return CLI_REFUSED; /* import_run() names the role that an import needs */
    if (!there && (!client_is(c, "queue-not-found") || (!has && im->exported_lines > 0)))
        return client_complain(c);
    im->configure |= !there;
    if (has && (!there || (im->configure && !same_configuration(im))))
        status = configuration_put(im, there);
    else if (has && !same_configuration(im))
        cli_complain("queue %s is there with another configuration, which it keeps; --configure "
                     "gives it that of the file",
                     im->queue);
    if (status != CLI_DONE)
        return status;
    return import_levels_agree(&im->levels, im->queue, has ? &im->doc : NULL, &c->doc);
}

/* Sending */

static bool is_true(const struct json_doc *doc, uint32_t at, const char *name)
{
    const struct json_token *t = json_get(doc, at, name);
    return t != NULL && t->type == JSON_BOOL && t->boolean;
}

static void import_result(struct import_run *im, const struct json_doc *doc, uint32_t result,
                          int64_t line)
{
    const struct json_token *error = json_get(doc, result, "error");
    if (error == NULL) {
        bool known = is_true(doc, result, "known"), twice = is_true(doc, result, "deduplicated");
        im->known += known;
        im->deduplicated += twice;
        im->stored += !known && !twice;
        return;
    }
    struct buf text = {0};
    words_put_problem(&text, doc, json_index(doc, error), im->call.http, false, NULL);
    import_fail(im, line, buf_cstr(&text));
    buf_fini(&text);
}

static void tell_stopped(const struct import_run *im)
{
    if (im->sent[0].seq == ENQUEUED_HERE)
        cli_complain("stopped: lines %" PRId64 " to %" PRId64 " may not be stored",
                     im->sent[0].number, im->sent[im->batch_count - 1].number);
    else
        cli_complain("stopped; the same import again goes on from here, as what is stored is "
                     "known by its id");
}

static int import_send(struct import_run *im)
{
    struct client *c = &im->call;
    if (im->batch_count == 0)
        return CLI_DONE;
    client_begin(c, im->cli);
    client_path(c,
                im->sent[0].seq == ENQUEUED_HERE ? "/v1/queues/%s/messages/batch"
                                                 : "/v1/queues/%s/messages/import",
                im->queue);
    if (im->sent[0].seq != ENQUEUED_HERE)
        import_levels_query(&im->levels, c);
    buf_put(&c->body, im->batch.data, im->batch.len);
    int status = client_run(c, "POST", TYPE_NDJSON);
    if (status != CLI_DONE) {
        tell_stopped(im);
        return status;
    }
    uint32_t array = c->is_json ? json_array(&c->doc, 0, "results") : 0;
    if (!array || c->doc.tokens[array].count != im->batch_count) {
        cli_complain("stopped: the server's answer does not match the batch");
        return CLI_REFUSED;
    }
    size_t n = 0;
    for (uint32_t i = json_first(&c->doc, array); i; i = json_next(&c->doc, array, i))
        import_result(im, &c->doc, i, im->sent[n++].number);
    buf_clear(&im->batch);
    im->batch_count = 0;
    return CLI_DONE;
}

static bool batch_full(const struct import_run *im, const struct import_line *next)
{
    bool here = next->seq == ENQUEUED_HERE;
    return im->batch_count == ENQUEUE_BATCH_MAX || im->batch.len > BATCH_BYTES_MAX ||
           (im->batch_count > 0 && here != (im->sent[0].seq == ENQUEUED_HERE));
}

static int import_line(struct import_run *im, const struct import_line *line)
{
    int status = batch_full(im, line) ? import_send(im) : CLI_DONE;
    if (status != CLI_DONE)
        return status;
    bool there = ftello(im->file) == line->offset || fseeko(im->file, line->offset, SEEK_SET) == 0;
    ssize_t len = there ? next_line(im) : -1;
    if (len < 0) {
        cli_complain("line %" PRId64 ": the file changed while it was read", line->number);
        return CLI_USAGE;
    }
    buf_put(&im->batch, im->text, (size_t)len);
    buf_putc(&im->batch, '\n');
    im->sent[im->batch_count++] = *line;
    im->bytes += len + 1;
    progress_update(&im->progress, im->bytes, im->stored + im->known + im->deduplicated);
    return CLI_DONE;
}

/* Sets a schedule. Schedules come last, so that their messages come after the imported ones. */
static int import_schedule(struct import_run *im, const char *line, size_t len)
{
    struct client *c = &im->call;
    struct buf name = {0};
    const struct json_token *t = NULL, *definition = NULL;
    if (json_parse(&im->doc, line, len, LINE_TOKENS_MAX)) {
        t = json_get(&im->doc, 0, TRANSFER_SCHEDULE);
        definition = json_get(&im->doc, 0, TRANSFER_DEFINITION);
    }
    if (t == NULL || definition == NULL)
        return CLI_DONE;
    buf_put(&name, t->str, t->len);
    client_begin(c, im->cli);
    client_path(c, "/v1/queues/%s/schedules/%s", im->queue, buf_cstr(&name));
    buf_put(&c->body, definition->raw, definition->raw_len);
    int status = client_run(c, "PUT", TYPE_JSON);
    buf_fini(&name);
    return status;
}

/* Sets the schedules of the file. A queue that existed before keeps its own, even if it has none,
 * unless --configure was given. */
static int import_schedules(struct import_run *im)
{
    int status = CLI_DONE;
    int64_t left = 0;
    for (size_t at = 0; status == CLI_DONE && at < im->schedules.len;) {
        const char *line = im->schedules.data + at;
        size_t len = (size_t)((const char *)memchr(line, '\n', im->schedules.len - at) - line);
        if (im->configure)
            status = import_schedule(im, line, len);
        else
            left++;
        at += len + 1;
    }
    if (left > 0) {
        progress_wipe(&im->progress);
        cli_complain("%" PRId64 " schedule%s of the file %s not set; --configure sets %s", left,
                     left == 1 ? "" : "s", left == 1 ? "was" : "were", left == 1 ? "it" : "them");
    }
    return status;
}

static int import_file(struct import_run *im)
{
    int status = import_look(im);
    if (status == CLI_DONE)
        status = import_configure(im);
    progress_init(&im->progress, true, (int64_t)ftello(im->file));
    for (size_t i = 0; status == CLI_DONE && i < im->line_count; i++)
        status = import_line(im, &im->lines[i]);
    if (status == CLI_DONE)
        status = import_send(im);
    return status == CLI_DONE ? import_schedules(im) : status;
}

static void import_report(const struct import_run *im)
{
    if (im->cli->json) {
        printf("{\"stored\":%" PRId64 ",\"known\":%" PRId64 ",\"deduplicated\":%" PRId64
               ",\"failed\":%" PRId64 "}\n",
               im->stored, im->known, im->deduplicated, im->failed);
        return;
    }
    printf("stored %" PRId64, im->stored);
    if (im->known)
        printf(", %" PRId64 " were there already", im->known);
    if (im->deduplicated)
        printf(", %" PRId64 " had a dedup key that is in use", im->deduplicated);
    if (im->failed)
        printf(", %" PRId64 " failed", im->failed);
    putchar('\n');
}

static int import_run(const struct cli *cli, const char *queue, bool configure,
                      struct arg_list maps, FILE *file)
{
    struct import_run *im = mem_zalloc(sizeof(*im));
    im->levels.maps = maps;
    im->cli = cli;
    im->queue = queue;
    im->configure = configure;
    im->file = file;
    im->exported = -1;
    client_init(&im->call);
    json_init(&im->doc);
    int status = import_file(im);
    progress_wipe(&im->progress);
    if (status == CLI_REFUSED && client_is(&im->call, "forbidden") && im->exported_lines > 0)
        cli_complain("what an export wrote is imported with the role admin");
    /* Otherwise nothing was sent, and the mistake is told. */
    if (status != CLI_USAGE || im->bytes > 0)
        import_report(im);
    if (status == CLI_DONE && im->failed > 0)
        status = CLI_REFUSED;
    client_fini(&im->call);
    json_fini(&im->doc);
    buf_fini(&im->configuration);
    buf_fini(&im->batch);
    buf_fini(&im->schedules);
    free(im->lines);
    free(im->text);
    free(im);
    return status;
}

/* Keeps what comes through a pipe in a temporary file, because it is read twice. NULL with
 * errno. */
static FILE *seekable(FILE *file)
{
    char bytes[65536];
    size_t len;
    if (fseeko(file, 0, SEEK_CUR) == 0)
        return file;
    FILE *copy = tmpfile();
    while (copy != NULL && (len = fread(bytes, 1, sizeof(bytes), file)) > 0) {
        if (fwrite(bytes, 1, len, copy) == len)
            continue;
        fclose(copy);
        return NULL;
    }
    if (copy != NULL)
        rewind(copy);
    return copy;
}

int cmd_import(int argc, char **argv, const struct cli *cli)
{
    bool configure = false;
    struct arg_list maps = {0};
    const struct arg_option options[] = {
        {"map", 0, ARG_LIST, &maps, "LOW=3",
         "messages of the file's level LOW go to the queue's level 3; may be repeated"},
        {"configure", 0, ARG_FLAG, &configure, NULL,
         "give a queue that is there already the configuration and the schedules of the file; "
         "levels that it has and the file has not go when they are empty"},
        {0},
    };
    const struct arg_spec spec = {
        "import QUEUE FILE.ndjson|- [--map FROM=TO ...] [--configure]",
        "Stores every line of a file, a thousand at a time. Lines that export wrote come back as\n"
        "they were, dead letters included, in their order of arrival; a queue that is missing is\n"
        "made with the configuration and the schedules of the file; one that is there keeps its "
        "own,\n"
        "unless --configure is given. Levels go by their names: where the queue has other ones,\n"
        "nothing is stored until --map or --configure says what is to become of them.\n"
        "Other lines are what enqueue takes in the HTTP API. Lines that are refused are reported\n"
        "by number, the others are stored. An import of an export can be repeated for 7 days:\n"
        "what is there already is not stored again.\n"
        "With tokens, lines of an export need the role admin, other lines the role produce.",
        "  triage import mail mail.ndjson\n"
        "  triage import mail mail.ndjson --map LOW=3 --map BACKGROUND=0\n"
        "  triage export mail | triage --server http://other:7420 import mail -\n",
        options,
        2,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO) {
        free(maps.items);
        return status;
    }
    bool from_stdin = strcmp(ops.items[1], "-") == 0;
    FILE *given = from_stdin ? stdin : fopen(ops.items[1], "re");
    FILE *file = given ? seekable(given) : NULL;
    if (file == NULL) {
        cli_complain("%s: %s", ops.items[1], strerror(errno));
        status = CLI_USAGE;
    } else {
        status = import_run(cli, ops.items[0], configure, maps, file);
    }
    if (file != NULL && file != given)
        fclose(file);
    if (given != NULL && !from_stdin)
        fclose(given);
    free(maps.items);
    return status;
}
