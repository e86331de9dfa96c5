#include "cli/payload.h"

#include "base/codec.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#define TOKENS_MAX 100000 /* of a JSON payload */

bool payload_read(const char *path, struct buf *out)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0)
        return false;
    ssize_t n;
    do {
        buf_reserve(out, 65536);
        n = read(fd, out->data + out->len, 65536);
        if (n > 0)
            out->len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int error = errno;
    if (path)
        close(fd);
    errno = error;
    return n == 0;
}

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

void member_put(struct buf *json, const char *name)
{
    if (json->len > 0 && json->data[json->len - 1] != '{')
        buf_putc(json, ',');
    json_put_cstr(json, name);
    buf_putc(json, ':');
}

void member_put_text(struct buf *json, const char *name, const char *value)
{
    member_put(json, name);
    json_put_cstr(json, value);
}

void member_put_seconds(struct buf *json, const char *name, int64_t ms)
{
    member_put(json, name);
    buf_put_i64(json, ms / 1000);
    if (ms % 1000)
        buf_printf(json, ".%03" PRId64, ms % 1000);
}

void member_put_priority(struct buf *json, const char *name, const char *value)
{
    const char *digits = value + (value[0] == '-');
    bool number = digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0' &&
                  (digits[0] != '0' || digits[1] == '\0');
    member_put(json, name);
    if (number)
        buf_puts(json, value);
    else
        json_put_cstr(json, value);
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

static bool repeats(const struct arg_list *meta, size_t at)
{
    size_t len = strcspn(meta->items[at], "=") + 1;
    for (size_t i = 0; i < at; i++)
        if (strncmp(meta->items[i], meta->items[at], len) == 0)
            return true;
    return false;
}

bool member_put_metadata(struct buf *json, const struct arg_list *meta)
{
    if (meta->count == 0)
        return true;
    member_put(json, "metadata");
    buf_putc(json, '{');
    for (size_t i = 0; i < meta->count; i++) {
        const char *equals = strchr(meta->items[i], '=');
        if (equals == NULL || equals == meta->items[i]) {
            cli_complain("--meta %s: expected key=value", meta->items[i]);
            return false;
        }
        if (repeats(meta, i)) {
            cli_complain("--meta %s: the key was given before", meta->items[i]);
            return false;
        }
        if (!utf8_valid(meta->items[i], strlen(meta->items[i]))) {
            cli_complain("--meta: not valid UTF-8");
            return false;
        }
        if (i > 0)
            buf_putc(json, ',');
        json_put_string(json, meta->items[i], (size_t)(equals - meta->items[i]));
        buf_putc(json, ':');
        json_put_cstr(json, equals + 1);
    }
    buf_putc(json, '}');
    return true;
}
