#include "term/member.h"

#include "base/json.h"
#include "term/cli.h"

#include <inttypes.h>
#include <string.h>

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
