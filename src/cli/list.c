#include "cli/list.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/out.h"
#include "term/args.h"
#include "term/complete.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The list is the document's only array, whatever its name. */
static uint32_t find_array(const struct json_doc *doc)
{
    for (uint32_t i = json_first(doc, 0); i; i = json_next(doc, 0, i))
        if (doc->tokens[i].type == JSON_ARRAY)
            return i;
    return 0;
}

static void request_page(struct client *c, const struct list_options *o, int64_t left,
                         const struct buf *after)
{
    char limit[24];
    snprintf(limit, sizeof(limit), "%" PRId64, left < LIST_MAX ? left : (int64_t)LIST_MAX);
    client_query(c, "limit", limit);
    if (o->prefix)
        client_query(c, "prefix", o->prefix);
    if (after->len > 0)
        client_query(c, "after", after->data);
}

/* The cursor of the next page, terminated; empty when this was the last one. */
static void next_page(const struct client *c, struct buf *after)
{
    const struct json_token *next = json_get(&c->doc, 0, "next");
    buf_clear(after);
    if (next != NULL && next->type == JSON_STRING)
        buf_put(after, next->str, next->len);
    else
        buf_put(after, c->cursor.data, c->cursor.len);
    buf_cstr(after);
}

int list_print(const struct cli *cli, const char *path, const char *queue,
               const struct list_options *o, const char *const *columns)
{
    int64_t left = o->limit == ARG_UNSET ? INT64_MAX : o->limit;
    struct buf after = {0};
    struct client c;
    int status;
    client_init(&c);
    if (o->after)
        buf_puts(&after, o->after);
    buf_cstr(&after);
    do {
        client_begin(&c, cli);
        c.has_options = true;
        client_path(&c, path, queue);
        request_page(&c, o, left, &after);
        status = client_run(&c, "GET", NULL);
        if (status != CLI_DONE || !c.is_json)
            break;
        uint32_t array = find_array(&c.doc);
        uint32_t rows = array ? c.doc.tokens[array].count : 0;
        if (cli->json)
            text_document(&c.answer);
        else if (array)
            out_list(&c.doc, array, columns);
        next_page(&c, &after);
        left -= rows;
        if (rows == 0)
            break;
    } while (after.len > 0 && left > 0);
    client_fini(&c);
    buf_fini(&after);
    return status;
}

int list_whole(const struct cli *cli, const char *path, const char *queue,
               const char *const *columns)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, path, queue);
    int status = client_run(&c, "GET", NULL);
    uint32_t array = status == CLI_DONE && c.is_json ? find_array(&c.doc) : 0;
    if (array && cli->json)
        text_document(&c.answer);
    else if (array)
        out_list(&c.doc, array, columns);
    client_fini(&c);
    return status;
}

#define OFFER_MS_MAX 400 /* nobody waits longer for a word */

void queues_offer(const void *ctx, const char *word)
{
    const struct cli *cli = ctx;
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.limit_ms = OFFER_MS_MAX;
    client_path(&c, "/v1/queues");
    client_query(&c, "limit", "100");
    client_query(&c, "prefix", word);
    client_try(&c, "GET", NULL);
    bool is_list = client_succeeded(&c) && c.is_json;
    uint32_t array = is_list ? json_array(&c.doc, 0, "queues") : 0;
    for (uint32_t i = array ? json_first(&c.doc, array) : 0; i; i = json_next(&c.doc, array, i)) {
        const struct json_token *t = json_get(&c.doc, i, "name");
        if (t == NULL || t->type != JSON_STRING)
            continue;
        char *name = mem_dup(t->str, t->len);
        complete_offer(word, name, "a queue");
        free(name);
    }
    client_fini(&c);
}
