#include "cli/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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

static void put_base64(struct buf *out, const char *data, size_t len)
{
    buf_reserve(out, (len + 2) / 3 * 4);
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)(unsigned char)data[i] << 16;
        if (left > 1)
            bits |= (uint32_t)(unsigned char)data[i + 1] << 8;
        if (left > 2)
            bits |= (unsigned char)data[i + 2];
        char text[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63],
                        left > 1 ? alphabet[bits >> 6 & 63] : '=',
                        left > 2 ? alphabet[bits & 63] : '='};
        buf_put(out, text, sizeof(text));
    }
}

/* Only what our own server wrote comes here, so whatever is not of the alphabet ends it. */
static void get_base64(struct buf *out, const char *text, size_t len)
{
    uint32_t bits = 0;
    int have = 0;
    for (size_t i = 0; i < len; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (at == NULL)
            return;
        bits = bits << 6 | (uint32_t)(at - alphabet);
        have += 6;
        if (have >= 8) {
            have -= 8;
            buf_putc(out, (char)(bits >> have & 0xff));
        }
    }
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

void payload_put(struct buf *json, const char *data, size_t len)
{
    if (utf8_valid(data, len)) {
        member_put(json, "payload");
        json_put_string(json, data, len);
        return;
    }
    member_put(json, "payload_base64");
    buf_putc(json, '"');
    put_base64(json, data, len);
    buf_putc(json, '"');
}

void payload_get(const struct json_doc *doc, uint32_t message, struct buf *out)
{
    const struct json_token *bytes = json_get(doc, message, "payload_base64");
    const struct json_token *payload = json_get(doc, message, "payload");
    if (bytes != NULL && bytes->type == JSON_STRING)
        get_base64(out, bytes->str, bytes->len);
    else if (payload != NULL && payload->type == JSON_STRING)
        buf_put(out, payload->str, payload->len);
    else if (payload != NULL)
        buf_put(out, payload->raw, payload->raw_len);
}
