#include "cli/payload.h"

#include "base/codec.h"
#include "term/cli.h"
#include "term/member.h"

#define TOKENS_MAX 100000 /* of a JSON payload */

bool payload_check_json(const struct buf *payload, const char *complaint)
{
    struct json_doc doc;
    json_init(&doc);
    bool valid = json_parse(&doc, payload->data, payload->len, TOKENS_MAX);
    if (!valid)
        cli_complain("%s: %s", complaint, doc.error);
    json_fini(&doc);
    return valid;
}

void payload_put_bytes(struct buf *json, const char *data, size_t len)
{
    member_put(json, "payload_base64");
    buf_putc(json, '"');
    base64_put(json, data, len);
    buf_putc(json, '"');
}

void payload_put(struct buf *json, const char *data, size_t len)
{
    if (!utf8_valid(data, len)) {
        payload_put_bytes(json, data, len);
        return;
    }
    member_put(json, "payload");
    json_put_string(json, data, len);
}

static void put_decoded(struct buf *out, const struct json_token *base64)
{
    size_t len;
    buf_reserve(out, base64_room(base64->len));
    if (base64_decode(base64->str, base64->len, out->data + out->len, &len))
        out->len += len;
}

void payload_get(const struct json_doc *doc, uint32_t message, struct buf *out)
{
    const struct json_token *bytes = json_get(doc, message, "payload_base64");
    const struct json_token *payload = json_get(doc, message, "payload");
    if (bytes != NULL && bytes->type == JSON_STRING)
        put_decoded(out, bytes);
    else if (payload != NULL && payload->type == JSON_STRING)
        buf_put(out, payload->str, payload->len);
    else if (payload != NULL)
        buf_put(out, payload->raw, payload->raw_len);
}
