#include "cli/show.h"

#include "cli/client.h"
#include "cli/out.h"
#include "cli/payload.h"
#include "term/args.h"
#include "term/text.h"

#include <stdio.h>

/* Prints line breaks as they are. Characters that could change the terminal are spelled out. */
static void print_payload(const struct json_doc *doc, uint32_t message)
{
    const struct json_token *bytes = json_get(doc, message, "payload_base64");
    struct buf payload = {0}, text = {0};
    if (bytes != NULL)
        buf_printf(&text, "base64:%.*s", (int)bytes->len, bytes->str);
    else
        payload_get(doc, message, &payload);
    text_escape(&text, payload.data, payload.len, false);
    if (text.len > 0) {
        printf("\npayload:\n");
        fwrite(text.data, 1, text.len, stdout);
        if (text.data[text.len - 1] != '\n')
            putchar('\n');
    }
    buf_fini(&payload);
    buf_fini(&text);
}

static int print_bytes(const struct json_doc *doc, uint32_t message)
{
    struct buf payload = {0};
    if (!json_get(doc, message, "payload") && !json_get(doc, message, "payload_base64")) {
        cli_complain("the payload is shown with the role read, which this token does not have");
        return CLI_REFUSED;
    }
    payload_get(doc, message, &payload);
    if (payload.len > 0)
        fwrite(payload.data, 1, payload.len, stdout);
    buf_fini(&payload);
    return CLI_DONE;
}

int show_message(const struct cli *cli, const char *path, const struct operands *ops,
                 bool payload_only)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, path, ops->items[0], ops->items[1]);
    int status = client_run(&c, "GET", NULL);
    if (status == CLI_DONE && payload_only && c.is_json) {
        status = print_bytes(&c.doc, 0);
    } else if (status == CLI_DONE) {
        out_answer(&c, cli);
        if (c.is_json && !cli->json)
            print_payload(&c.doc, 0);
    }
    client_fini(&c);
    return status;
}
