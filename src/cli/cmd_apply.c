/* queue apply and queue dump: the configurations of many queues as one document, to be kept in a
 * repository.
 *
 * apply asks the server what each configuration would come to (a dry run of the PUT), shows what
 * differs from what is there, and only then changes anything. */
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/config_diff.h"
#include "term/args.h"
#include "term/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_TOKENS_MAX 2000000
#define QUEUES_MAX      10000

/* A queue of the file. */
struct wish {
    char *name;
    const struct json_token *body; /* what is PUT: an object that has at least a name */
    bool consents; /* has `drop_levels`: it says itself what becomes of levels that it does not name
                    */
    bool is_new;
    bool differs;
    bool drops;
};

struct apply {
    const struct cli *cli;
    const char *path;
    bool dry_run, yes;
    struct json_doc file;
    struct buf text;
    struct wish *wishes;
    size_t count;
    struct client now, next; /* the configuration as it is, and as it would be */
    struct buf report;       /* with --json: the members of its array */
    size_t changed;
};

/* Reading */

static int refuse_file(const struct apply *a, const char *why)
{
    cli_complain("%s: %s", a->path, why);
    return CLI_USAGE;
}

static int wish_add(struct apply *a, uint32_t object)
{
    const struct json_token *t =
        a->file.tokens[object].type == JSON_OBJECT ? json_get(&a->file, object, "name") : NULL;
    if (!t || t->type != JSON_STRING || t->len == 0 || t->len > QUEUE_NAME_MAX)
        return refuse_file(a, "every queue is an object with its `name`");
    for (size_t i = 0; i < a->count; i++) {
        if (strlen(a->wishes[i].name) == t->len && memcmp(a->wishes[i].name, t->str, t->len) == 0)
            return refuse_file(a, "two queues have the same name");
    }
    if (a->count == QUEUES_MAX)
        return refuse_file(a, "it has more than 10000 queues");
    a->wishes = mem_realloc(a->wishes, (a->count + 1) * sizeof(a->wishes[0]));
    struct wish *w = &a->wishes[a->count++];
    *w = (struct wish){.name = mem_dup(t->str, t->len),
                       .body = &a->file.tokens[object],
                       .consents = json_get(&a->file, object, "drop_levels")};
    return CLI_DONE;
}

static int apply_read(struct apply *a)
{
    if (!file_read(strcmp(a->path, "-") == 0 ? NULL : a->path, &a->text))
        return refuse_file(a, strerror(errno));
    if (!json_parse(&a->file, a->text.data, a->text.len, FILE_TOKENS_MAX))
        return refuse_file(a, a->file.error);
    const struct json_token *root = &a->file.tokens[0];
    const struct json_token *list =
        root->type == JSON_OBJECT ? json_get(&a->file, 0, "queues") : NULL;
    int status = CLI_DONE;
    if (root->type != JSON_OBJECT || (list && (list->type != JSON_ARRAY || root->count > 1)))
        return refuse_file(a, "expected {\"queues\": [{\"name\": …, …}, …]}, as `queue dump` "
                              "writes it, or one queue as `queue get --json` does");
    if (!list)
        return wish_add(a, 0);
    uint32_t array = json_index(&a->file, list);
    for (uint32_t i = json_first(&a->file, array); i && status == CLI_DONE;
         i = json_next(&a->file, array, i))
        status = wish_add(a, i);
    return status;
}

/* Looking */

static void body_put(struct buf *out, const struct wish *w, bool drops)
{
    buf_put(out, w->body->raw, w->body->raw_len - 1); /* without the closing brace */
    buf_puts(out, drops ? ",\"drop_levels\":true}" : "}");
}

static int complain_of(const struct wish *w, const struct client *c)
{
    if (c->http > 0)
        cli_complain("%s is refused:", w->name);
    return client_complain(c);
}

static void show(struct apply *a, const struct wish *w, const struct config_diff *d)
{
    const char *what = w->is_new ? "new" : w->differs ? "changes" : "unchanged";
    if (!a->cli->json) {
        printf("%s: %s\n", w->name, what);
        text_write(stdout, d->lines.data, d->lines.len);
        return;
    }
    buf_puts(&a->report, a->report.len ? ",{\"name\":" : "{\"name\":");
    json_put_cstr(&a->report, w->name);
    buf_printf(&a->report, ",\"state\":\"%s\",\"changes\":[", what);
    buf_put(&a->report, d->changes.data, d->changes.len);
    buf_lit(&a->report, "]}");
}

/* Asks whether levels may be dropped. Where nobody can be asked, only --yes is a yes. */
static bool agree(const struct apply *a, const struct wish *w, const char *dropped)
{
    bool asks = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && strcmp(a->path, "-") != 0;
    if (a->yes || a->dry_run || w->consents)
        return true;
    if (asks && cli_confirm(false, "Drop the levels %s of %s?", dropped, w->name) == CLI_DONE)
        return true;
    cli_complain("%s would lose levels: %s; --yes drops them", w->name, dropped);
    return false;
}

static int look_at(struct apply *a, struct wish *w)
{
    struct client *now = &a->now, *next = &a->next;
    client_begin(now, a->cli);
    client_path(now, "/v1/queues/%s", w->name);
    client_try(now, "GET", NULL);
    w->is_new = client_is(now, "queue-not-found");
    if (!client_succeeded(now) && !w->is_new)
        return complain_of(w, now);
    client_begin(next, a->cli);
    client_path(next, "/v1/queues/%s", w->name);
    client_query(next, "dry_run", "true");
    body_put(&next->body, w, !w->consents);
    client_try(next, "PUT", TYPE_JSON);
    if (!client_succeeded(next))
        return complain_of(w, next);
    struct config_diff d;
    config_diff_make(&d, w->is_new ? NULL : &now->doc, &next->doc);
    w->differs = d.count > 0;
    w->drops = d.dropped.len > 0;
    show(a, w, &d);
    int status = w->drops && !agree(a, w, buf_cstr(&d.dropped)) ? CLI_REFUSED : CLI_DONE;
    config_diff_fini(&d);
    return status;
}

/* Changing */

/* Makes the change. A level that was added since the change was shown is not dropped. */
static int change(struct apply *a, const struct wish *w)
{
    struct client *c = &a->next;
    client_begin(c, a->cli);
    client_path(c, "/v1/queues/%s", w->name);
    body_put(&c->body, w, w->drops && !w->consents);
    client_try(c, "PUT", TYPE_JSON);
    return client_succeeded(c) ? CLI_DONE : complain_of(w, c);
}

static int apply_run(struct apply *a)
{
    int status = apply_read(a), worst = CLI_DONE;
    size_t differ = 0;
    for (size_t i = 0; status == CLI_DONE && i < a->count; i++) {
        int each = look_at(a, &a->wishes[i]);
        worst = each > worst ? each : worst;
        differ += a->wishes[i].differs;
        if (each == CLI_UNREACHED)
            break;
    }
    if (status == CLI_DONE && worst != CLI_DONE)
        cli_complain("nothing was changed");
    if (status != CLI_DONE || worst != CLI_DONE)
        return status != CLI_DONE ? status : worst;
    if (a->dry_run)
        return differ > 0 ? CLI_DIFFERS : CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && i < a->count; i++) {
        if (!a->wishes[i].differs)
            continue;
        status = change(a, &a->wishes[i]);
        a->changed += status == CLI_DONE;
    }
    if (status != CLI_DONE)
        cli_complain("stopped after %zu of %zu queues; apply again goes on from here", a->changed,
                     differ);
    return status;
}

static void apply_report(const struct apply *a, int status)
{
    if (a->cli->json) {
        printf("{\"queues\":[%.*s],\"changed\":%zu}\n", (int)a->report.len,
               a->report.len ? a->report.data : "", a->changed);
        return;
    }
    if (status == CLI_DIFFERS)
        puts("nothing was changed: a dry run");
    else if (status == CLI_DONE)
        printf("%zu of %zu queues changed\n", a->changed, a->count);
}

int queue_apply(int argc, char **argv, const struct cli *cli)
{
    struct apply a = {.cli = cli};
    const struct arg_option options[] = {
        {"dry-run", 'n', ARG_FLAG, &a.dry_run, NULL, "show what would change, and change nothing"},
        {"yes", 'y', ARG_FLAG, &a.yes, NULL, "drop levels that the file does not name, unasked"},
        {0},
    };
    const struct arg_spec spec = {
        "queue apply FILE.json|- [--dry-run] [--yes]",
        "Gives queues the configurations of a file: {\"queues\": [{\"name\": …, …}, …]} as `queue\n"
        "dump` writes it, or one queue as `queue get --json` does. Each is the body of a PUT: "
        "what\n"
        "it does not name stays as it is. What differs is shown first, and nothing is changed "
        "when\n"
        "any of them is refused. Queues that the file does not name are left alone; the same file\n"
        "again changes nothing. Levels that a queue has and the file has not are dropped after a\n"
        "yes; without a terminal only with --yes.\n\n"
        "Exit status: 0 done or nothing to do, 1 refused, 2 usage or a bad file, 3 server not\n"
        "reached, 5 with --dry-run: something would change.",
        "  triage queue dump > queues.json\n"
        "  triage queue apply queues.json --dry-run\n"
        "  triage queue apply queues.json --yes\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    a.path = ops.items[0];
    json_init(&a.file);
    client_init(&a.now);
    client_init(&a.next);
    status = apply_run(&a);
    if (a.count > 0)
        apply_report(&a, status);
    for (size_t i = 0; i < a.count; i++)
        free(a.wishes[i].name);
    free(a.wishes);
    client_fini(&a.now);
    client_fini(&a.next);
    json_fini(&a.file);
    buf_fini(&a.text);
    buf_fini(&a.report);
    return status;
}

/* Dump */

/* Writes one member a line and one level a line, so that a diff shows each change by itself. */
static void dump_queue(struct buf *out, const struct json_doc *doc)
{
    const char *comma = "";
    buf_lit(out, "    {");
    for (uint32_t i = json_first(doc, 0); i; i = json_next(doc, 0, i)) {
        const struct json_token *t = &doc->tokens[i];
        const char *between = "\n        ";
        if (json_key_is(t, "paused")) /* a pause is of today, and not kept */
            continue;
        buf_printf(out, "%s\n      ", comma);
        json_put_string(out, t->key, t->key_len);
        buf_lit(out, ": ");
        comma = ",";
        if (t->type != JSON_ARRAY) {
            buf_put(out, t->raw, t->raw_len);
            continue;
        }
        buf_putc(out, '[');
        for (uint32_t j = json_first(doc, i); j;
             j = json_next(doc, i, j), between = ",\n        ") {
            buf_puts(out, between);
            buf_put(out, doc->tokens[j].raw, doc->tokens[j].raw_len);
        }
        buf_lit(out, "\n      ]");
    }
    buf_lit(out, "\n    }");
}

struct dump {
    const struct cli *cli;
    struct client list, one;
    struct buf out;
    struct buf after; /* the last name of the page before; empty: the first page */
};

static int dump_page(struct dump *d, const char *prefix, bool *more)
{
    struct client *c = &d->list;
    client_begin(c, d->cli);
    client_path(c, "/v1/queues");
    client_query(c, "limit", "1000");
    if (prefix)
        client_query(c, "prefix", prefix);
    if (d->after.len > 0)
        client_query(c, "after", d->after.data);
    int status = client_run(c, "GET", NULL);
    uint32_t array = status == CLI_DONE ? json_array(&c->doc, 0, "queues") : 0;
    for (uint32_t i = array ? json_first(&c->doc, array) : 0; i && status == CLI_DONE;
         i = json_next(&c->doc, array, i)) {
        const struct json_token *name = json_get(&c->doc, i, "name");
        buf_clear(&d->after);
        buf_put(&d->after, name->str, name->len);
        client_begin(&d->one, d->cli);
        client_path(&d->one, "/v1/queues/%s", buf_cstr(&d->after));
        client_try(&d->one, "GET", NULL);
        if (client_is(&d->one, "queue-not-found")) /* deleted just now */
            continue;
        if (!client_succeeded(&d->one))
            return client_complain(&d->one);
        buf_puts(&d->out, d->out.len > 0 ? ",\n" : "");
        dump_queue(&d->out, &d->one.doc);
    }
    const struct json_token *next = status == CLI_DONE ? json_get(&c->doc, 0, "next") : NULL;
    *more = next && next->type == JSON_STRING;
    return status;
}

int queue_dump(int argc, char **argv, const struct cli *cli)
{
    const char *prefix = NULL;
    const struct arg_option options[] = {
        {"prefix", 0, ARG_TEXT, &prefix, "P", "only queues whose names start so"},
        {0},
    };
    const struct arg_spec spec = {
        "queue dump [--prefix P]",
        "Writes the configurations of all queues as one JSON document, for `queue apply` and for "
        "a\n"
        "repository: a line for each field and level. Whether a queue is paused is left out.",
        "  triage queue dump > queues.json\n"
        "  triage queue dump --prefix mail. > mail.json\n",
        options,
        0,
        0};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    struct dump d = {.cli = cli};
    bool more = true;
    client_init(&d.list);
    client_init(&d.one);
    for (status = CLI_DONE; status == CLI_DONE && more;)
        status = dump_page(&d, prefix, &more);
    if (status == CLI_DONE)
        printf("{\n  \"queues\": [%s%s\n  ]\n}\n", d.out.len ? "\n" : "",
               d.out.len ? buf_cstr(&d.out) : "");
    client_fini(&d.list);
    client_fini(&d.one);
    buf_fini(&d.out);
    buf_fini(&d.after);
    return status;
}
