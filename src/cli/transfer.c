#include "cli/transfer.h"

static bool is_listed(const struct json_token *t, const char *const names[])
{
    for (size_t i = 0; names[i]; i++) {
        if (json_key_is(t, names[i]))
            return true;
    }
    return false;
}

void transfer_configuration(struct buf *out, const struct json_doc *doc, uint32_t at,
                            const char *const without[])
{
    bool first = true;
    buf_putc(out, '{');
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
        const struct json_token *t = &doc->tokens[i];
        if (is_listed(t, without))
            continue;
        if (!first)
            buf_putc(out, ',');
        json_put_string(out, t->key, t->key_len);
        buf_putc(out, ':');
        buf_put(out, t->raw, t->raw_len);
        first = false;
    }
    buf_putc(out, '}');
}

/* The level goes by its name, because its number may mean another level in another queue, or later.
 */
void transfer_schedule(struct buf *out, const struct json_doc *doc, bool with_paused)
{
    static const char *const without[] = {"name",      "next_due_at", "last_due_at", "count",
                                          "waits_for", "next",        "priority",    "level",
                                          "paused",    NULL};
    static const char *const paused_too[] = {"name",     "next_due_at", "last_due_at",
                                             "count",    "waits_for",   "next",
                                             "priority", "level",       NULL};
    const struct json_token *priority = json_get(doc, 0, "priority");
    const struct json_token *level = json_get(doc, 0, "level");
    transfer_configuration(out, doc, 0, with_paused ? paused_too : without);
    if (!priority) /* it has none: the queue's default */
        return;
    if (level && level->type == JSON_STRING) /* servers of earlier versions do not send it */
        priority = level;
    out->len--; /* without the closing brace */
    buf_lit(out, ",\"priority\":");
    buf_put(out, priority->raw, priority->raw_len);
    buf_putc(out, '}');
}
