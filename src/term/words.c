#include "term/words.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Looked through from the top: what is longer comes first. A phrase that `names` is followed by the
 * name of a queue, which takes the place of the %, and by `end`, if there is one. */
static const struct phrase {
    const char *server;
    const char *ours;
    bool names;
    const char *end;
} phrases[] = {
    {"GET /v1/queues/", "`triage schedule list %`", true, "/schedules"},
    {"PUT /v1/queues/", "`triage queue create %`", true, NULL},
    {"GET /v1/queues/", "`triage queue get %`", true, NULL},
    {"GET /v1/queues ", "`triage queues` ", false, NULL},
    {"add ?force=true", "give --force", false, NULL},
    {"delete it with ?force=true", "give --force", false, NULL},
    {"?force=true", "--force", false, NULL},
    {"Send Authorization: Bearer and a token this server knows.",
     "Put a token that this server knows into $TRIAGE_TOKEN.", false, NULL},
    {"Try again after Retry-After", "Try again in a moment", false, NULL},
    {"try again after Retry-After", "try again in a moment", false, NULL},
    {"or again after Retry-After", "or again in a moment", false, NULL},
    {"Claim without wait_seconds", "Claim without --wait", false, NULL},
    {"GET /readyz says", "/readyz of the server says", false, NULL},
    {"; GET it to see its state", "; `triage show` tells its state", false, NULL},
    {"send the receipt_handle of the claim as it came", "give the one that claim printed", false,
     NULL},
    {"Send the receipt_handle that the claim gave", "Give the one that claim printed", false, NULL},
    {"add \"drop_levels\": true", "give drop_levels=true", false, NULL},
    {"add \"drop_levels\": \"empty\"", "give drop_levels=empty", false, NULL},
    {"with \"levels\": {\"NAME\": {…}}", "with level.NAME.FIELD=VALUE", false, NULL},
};

static const struct option_word {
    const char *field, *option;
} options[] = {
    {"/delay_seconds", "--delay"},
    {"/delay_until", "--at"},
    {"/dequeue_at", "--dequeue-at"},
    {"/dedup_key", "--dedup"},
    {"/ttl_seconds", "--ttl"},
    {"/metadata", "--meta"},
    {"/priority", "--priority"},
    {"/min_priority", "--min-priority"},
    {"/max", "--max"},
    {"/wait_seconds", "--wait"},
    {"/visibility_timeout_seconds", "--visibility"},
    {"/reason", "--reason"},
    {"/actor", "--actor"},
    {"/per_second", "--per-second"},
    {"/filter/priority", "--from"},
    {"/filter/older_than_seconds", "--older-than"},
    {"/filter/metadata", "--meta"},
    {"/queues", "QUEUE"},
    {"/limit", "--limit"},
    {"/after", "--after"},
    {"/prefix", "--prefix"},
    {"/cron", "--cron"},
    {"/every_seconds", "--every"},
    {"/time_zone", "--time-zone"},
    {"/missed", "--missed"},
    {"/grace_seconds", "--grace"},
};

const char *words_option(const char *field, size_t len)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (strlen(options[i].field) == len && memcmp(options[i].field, field, len) == 0)
            return options[i].option;
    return NULL;
}

/* A name goes on to the end of its characters; a full stop at the end is the sentence's. */
static size_t name_len(const char *text, size_t len)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-{}";
    size_t n = 0;
    while (n < len && text[n] != '\0' && strchr(set, text[n]) != NULL)
        n++;
    return n > 0 && text[n - 1] == '.' ? n - 1 : n;
}

static void put_named(struct buf *out, const char *ours, const char *name, size_t len)
{
    const char *percent = strchr(ours, '%');
    bool placeholder = len > 0 && name[0] == '{';
    buf_put(out, ours, (size_t)(percent - ours));
    buf_put(out, placeholder ? "QUEUE" : name, placeholder ? 5 : len);
    buf_puts(out, percent + 1);
}

/* Appends the words for a phrase of the table with which the text begins. Returns how many bytes of
 * the text it stands for; 0: there is none. */
static size_t put_phrase(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
        const struct phrase *p = &phrases[i];
        size_t n = strlen(p->server);
        if (n > len || memcmp(p->server, text, n) != 0)
            continue;
        if (!p->names) {
            buf_puts(out, p->ours);
            return n;
        }
        size_t name = name_len(text + n, len - n);
        size_t end = p->end ? strlen(p->end) : 0;
        if (end > len - n - name || (end && memcmp(p->end, text + n + name, end) != 0))
            continue;
        put_named(out, p->ours, text + n, name);
        return n + name + end;
    }
    return 0;
}

/* Sentences about a field begin with its name. */
static size_t put_subject(struct buf *out, const char *text, size_t len, const char *field)
{
    size_t word = 0;
    while (word < len && text[word] != ' ')
        word++;
    for (size_t i = 0; field != NULL && i < sizeof(options) / sizeof(options[0]); i++) {
        const char *name = strrchr(options[i].field, '/') + 1;
        if (strcmp(options[i].option, field) == 0 && strlen(name) == word &&
            memcmp(name, text, word) == 0) {
            buf_puts(out, field);
            return word;
        }
    }
    return 0;
}

void words_put(struct buf *out, const char *text, size_t len, const char *field)
{
    size_t at = put_subject(out, text, len, field);
    while (at < len) {
        size_t taken = put_phrase(out, text + at, len - at);
        if (taken == 0)
            buf_putc(out, text[at]);
        at += taken ? taken : 1;
    }
}

/* /receipts/3/message_id is the ID of the fourth pair on the command line. */
static bool put_pair(struct buf *out, const char *field, size_t len)
{
    static const char start[] = "/receipts/";
    size_t at = sizeof(start) - 1;
    int64_t pair = 0;
    if (len <= at || memcmp(field, start, at) != 0)
        return false;
    for (; at < len && field[at] >= '0' && field[at] <= '9' && pair < 1000000; at++)
        pair = pair * 10 + (field[at] - '0');
    bool is_id = len > at && len - at == strlen("/message_id");
    buf_printf(out, " (%s %" PRId64 ")", is_id ? "the ID of pair" : "the RECEIPT of pair",
               pair + 1);
    return true;
}

/* /levels/LOW/weight is written level.LOW.weight; a place in a whole list stays as it is. */
static bool put_level_setting(struct buf *out, const char *field, size_t len)
{
    static const char start[] = "/levels/";
    size_t at = sizeof(start) - 1;
    if (len <= at || memcmp(field, start, at) != 0)
        return false;
    bool listed = true;
    for (size_t i = at; i < len && field[i] != '/'; i++)
        listed = listed && field[i] >= '0' && field[i] <= '9';
    if (listed)
        return false;
    buf_puts(out, " (level.");
    for (; at < len; at++) /* ~1 and ~0 are a slash and a tilde of the name */
        if (field[at] == '~' && at + 1 < len)
            buf_putc(out, field[++at] == '1' ? '/' : '~');
        else
            buf_putc(out, field[at] == '/' ? '.' : field[at]);
    buf_putc(out, ')');
    return true;
}

void words_put_place(struct buf *out, const char *field, size_t len, const char *option)
{
    if (option != NULL)
        buf_printf(out, " (%s)", option);
    else if (len > 0 && !put_pair(out, field, len) && !put_level_setting(out, field, len))
        buf_printf(out, " (field %.*s)", (int)len, field);
}

static const struct json_token *get_string(const struct json_doc *doc, uint32_t at, const char *key)
{
    const struct json_token *t = json_get(doc, at, key);
    return t != NULL && t->type == JSON_STRING ? t : NULL;
}

void words_put_problem(struct buf *out, const struct json_doc *doc, uint32_t at, long http,
                       bool has_options, const char *priority_word)
{
    static const char urn[] = "urn:triage:";
    int64_t status;
    if (json_i64(json_get(doc, at, "status"), &status))
        http = (long)status;
    buf_printf(out, "%ld", http);
    const struct json_token *type = get_string(doc, at, "type");
    if (type != NULL) {
        size_t skip = 0;
        if (type->len > strlen(urn) && memcmp(type->str, urn, strlen(urn)) == 0)
            skip = strlen(urn);
        buf_putc(out, ' ');
        buf_put(out, type->str + skip, type->len - skip);
    }
    const struct json_token *field = get_string(doc, at, "field");
    const char *option = field && has_options ? words_option(field->str, field->len) : NULL;
    if (option && priority_word && json_is(field, "/priority"))
        option = priority_word;
    static const char *const parts[] = {"title", "detail"};
    for (size_t i = 0; i < 2; i++) {
        const struct json_token *text = get_string(doc, at, parts[i]);
        if (text == NULL || text->len == 0)
            continue;
        buf_puts(out, ": ");
        words_put(out, text->str, text->len, option);
    }
    if (field != NULL)
        words_put_place(out, field->str, field->len, option);
}
