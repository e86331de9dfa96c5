#include "base/json.h"

#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <yajl/yajl_parse.h>

/* yajl is asked only for tokens. What it is lax about is checked here: its UTF-8 check lets
 * overlong forms and encoded surrogates pass, it turns a lone \ud800 into a question mark, it takes
 * \v and \f for white space, and it knows nothing of repeated names.
 *
 * A handle costs several allocations and yajl has no reset, so it runs in its mode for several
 * values in a row and one handle serves text after text. That mode forgives a second value and an
 * unfinished token after the first, which is why parse_value() and parse_end() look for both. After
 * any failure the handle is in an unknown state and is thrown away. */

#define KEYS_QUADRATIC_MAX 16 /* up to here comparing all pairs is the fastest */
#define KEY_SHOWN_MAX      60
#define KEEP_MAX           (1 << 20)   /* after a text longer than this its memory is given back */
#define TOKENS_KEEP_MAX    (16 * 1024) /* and after a document of more tokens */

struct json_parser {
    yajl_handle handle; /* NULL after a failure */
    struct json_doc *doc;
    const char *text;
    size_t len;
    size_t pos; /* one past the last token seen */
    uint32_t tokens_max;
    uint32_t depth;
    uint32_t open[JSON_DEPTH_MAX]; /* tokens of the containers we are in */
    const char *key;               /* of the value that comes next, or NULL */
    size_t key_len;
    const struct json_token **sorted; /* scratch for large objects */
    size_t sorted_cap;
};

/* The length of the well-formed sequence at s (Unicode 15, table 3-7), or 0. */
static size_t utf8_sequence(const unsigned char *s, size_t left)
{
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
    size_t len;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        len = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        len = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (left < len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* How many bytes from the start are valid. */
static size_t utf8_prefix(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        while (len - i >= sizeof(word)) {
            memcpy(&word, s + i, sizeof(word));
            if (word & 0x8080808080808080u)
                break;
            i += sizeof(word);
        }
        while (i < len && (unsigned char)s[i] < 0x80)
            i++;
        if (i == len)
            return len;
        size_t step = utf8_sequence((const unsigned char *)s + i, len - i);
        if (step == 0)
            return i;
        i += step;
    }
    return len;
}

bool utf8_valid(const char *s, size_t len)
{
    return utf8_prefix(s, len) == len;
}

__attribute__((format(printf, 2, 3))) static int parse_fail(struct json_parser *p, const char *fmt,
                                                            ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->doc->error, sizeof(p->doc->error), fmt, args);
    va_end(args);
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* yajl does not tell where a token starts. Between two tokens that it reports there is nothing but
 * white space, commas and colons in their right places, so the start is found by skipping those. */
static bool parse_skip_to(struct json_parser *p, const char *expected)
{
    size_t at = p->pos;
    while (at < p->len && (is_space(p->text[at]) || p->text[at] == ',' || p->text[at] == ':'))
        at++;
    p->pos = at;
    if (at < p->len && p->text[at] != '\0' && strchr(expected, p->text[at]) != NULL)
        return true;
    parse_fail(p, "a control character stands between values at byte %zu", at);
    return false;
}

/* Appends the token of a value that starts at p->pos. */
static struct json_token *parse_value(struct json_parser *p, enum json_type type)
{
    struct json_doc *doc = p->doc;
    if (p->depth == 0 && doc->count > 0) {
        parse_fail(p, "more text follows the value at byte %zu", p->pos);
        return NULL;
    }
    if (doc->count >= p->tokens_max) {
        parse_fail(p, "more than %u values at byte %zu", p->tokens_max, p->pos);
        return NULL;
    }
    if (doc->count == doc->cap) {
        doc->cap = doc->cap ? doc->cap * 2 : 32;
        doc->tokens = mem_realloc(doc->tokens, doc->cap * sizeof(*doc->tokens));
    }
    if (p->depth > 0)
        doc->tokens[p->open[p->depth - 1]].count++;
    struct json_token *t = &doc->tokens[doc->count++];
    *t = (struct json_token){.type = type,
                             .key = p->key,
                             .key_len = p->key_len,
                             .raw = p->text + p->pos,
                             .end = doc->count};
    p->key = NULL;
    p->key_len = 0;
    return t;
}

static int parse_literal(struct json_parser *p, enum json_type type, const char *word, bool boolean)
{
    if (!parse_skip_to(p, "tfn"))
        return 0;
    struct json_token *t = parse_value(p, type);
    if (t == NULL)
        return 0;
    t->boolean = boolean;
    t->raw_len = strlen(word);
    p->pos += t->raw_len;
    return 1;
}

static int on_null(void *ctx)
{
    return parse_literal(ctx, JSON_NULL, "null", false);
}

static int on_boolean(void *ctx, int value)
{
    return parse_literal(ctx, JSON_BOOL, value ? "true" : "false", value != 0);
}

static int on_number(void *ctx, const char *text, size_t len)
{
    (void)text; /* it may be yajl's copy; the borrowed text has the same bytes */
    struct json_parser *p = ctx;
    if (!parse_skip_to(p, "-0123456789"))
        return 0;
    struct json_token *t = parse_value(p, JSON_NUMBER);
    if (t == NULL)
        return 0;
    t->str = t->raw;
    t->len = t->raw_len = len;
    p->pos += len;
    return 1;
}

/* yajl has checked that four hexadecimal digits are there. */
static unsigned hex4(const char *s)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++)
        value = value << 4 | (unsigned)(s[i] <= '9' ? s[i] - '0' : (s[i] | 0x20) - 'a' + 10);
    return value;
}

static bool is_high(unsigned unit)
{
    return (unit & 0xfc00) == 0xd800;
}

static bool is_low(unsigned unit)
{
    return (unit & 0xfc00) == 0xdc00;
}

/* Whether every \u surrogate in the inside of a string stands in a pair. */
static bool surrogates_paired(const char *s, const char *end)
{
    while ((s = memchr(s, '\\', (size_t)(end - s))) != NULL) {
        if (s[1] != 'u') {
            s += 2;
            continue;
        }
        unsigned unit = hex4(s + 2);
        s += 6;
        if (is_low(unit))
            return false;
        if (!is_high(unit))
            continue;
        if (end - s < 6 || s[0] != '\\' || s[1] != 'u' || !is_low(hex4(s + 2)))
            return false;
        s += 6;
    }
    return true;
}

/* The string or name that starts at p->pos, moving past it. Every escape is longer than what it
 * stands for, so equal lengths mean that the text itself can be pointed to. Else the bytes go to
 * the arena, which cannot outgrow the text: reserving that much at the first copy keeps it from
 * moving. */
static bool parse_string(struct json_parser *p, const unsigned char *decoded, size_t len,
                         const char **str)
{
    size_t start = p->pos;
    size_t end = yajl_get_bytes_consumed(p->handle);
    const char *inside = p->text + start + 1;
    p->pos = end;
    if (end - start == len + 2) {
        *str = inside;
        return true;
    }
    if (!surrogates_paired(inside, p->text + end - 1)) {
        parse_fail(p, "half a surrogate pair in the string at byte %zu", start);
        return false;
    }
    struct buf *arena = &p->doc->arena;
    if (arena->len == 0)
        buf_reserve(arena, p->len);
    *str = arena->data + arena->len;
    buf_put(arena, decoded, len);
    return true;
}

static int on_string(void *ctx, const unsigned char *decoded, size_t len)
{
    struct json_parser *p = ctx;
    if (!parse_skip_to(p, "\""))
        return 0;
    struct json_token *t = parse_value(p, JSON_STRING);
    if (t == NULL || !parse_string(p, decoded, len, &t->str))
        return 0;
    t->len = len;
    t->raw_len = (size_t)(p->text + p->pos - t->raw);
    return 1;
}

static int on_key(void *ctx, const unsigned char *decoded, size_t len)
{
    struct json_parser *p = ctx;
    if (!parse_skip_to(p, "\"") || !parse_string(p, decoded, len, &p->key))
        return 0;
    p->key_len = len;
    return 1;
}

static int parse_open(struct json_parser *p, enum json_type type, const char *bracket)
{
    if (!parse_skip_to(p, bracket))
        return 0;
    if (p->depth == JSON_DEPTH_MAX)
        return parse_fail(p, "nested deeper than %d at byte %zu", JSON_DEPTH_MAX, p->pos);
    if (parse_value(p, type) == NULL)
        return 0;
    p->open[p->depth++] = p->doc->count - 1;
    p->pos++;
    return 1;
}

static bool parse_close(struct json_parser *p, const char *bracket)
{
    if (!parse_skip_to(p, bracket))
        return false;
    p->pos++;
    struct json_token *t = &p->doc->tokens[p->open[--p->depth]];
    t->end = p->doc->count;
    t->raw_len = (size_t)(p->text + p->pos - t->raw);
    return true;
}

static bool same_key(const struct json_token *a, const struct json_token *b)
{
    return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

static int key_compare(const void *left, const void *right)
{
    const struct json_token *a = *(const struct json_token *const *)left;
    const struct json_token *b = *(const struct json_token *const *)right;
    if (a->key_len != b->key_len)
        return a->key_len < b->key_len ? -1 : 1;
    return memcmp(a->key, b->key, a->key_len);
}

static const struct json_token *repeated_small(const struct json_doc *doc, uint32_t object)
{
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i))
        for (uint32_t j = json_first(doc, object); j != i; j = doc->tokens[j].end)
            if (same_key(&doc->tokens[i], &doc->tokens[j]))
                return &doc->tokens[i];
    return NULL;
}

/* Sorting rather than hashing: nobody can choose names that make it slow. */
static const struct json_token *repeated_large(struct json_parser *p, uint32_t object)
{
    const struct json_doc *doc = p->doc;
    size_t n = doc->tokens[object].count;
    if (p->sorted_cap < n) {
        p->sorted_cap = n;
        p->sorted = mem_realloc(p->sorted, n * sizeof(*p->sorted));
    }
    size_t filled = 0;
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i))
        p->sorted[filled++] = &doc->tokens[i];
    qsort(p->sorted, n, sizeof(*p->sorted), key_compare);
    for (size_t i = 1; i < n; i++)
        if (same_key(p->sorted[i - 1], p->sorted[i]))
            return p->sorted[i];
    return NULL;
}

static int on_object_end(void *ctx)
{
    struct json_parser *p = ctx;
    if (!parse_close(p, "}"))
        return 0;
    uint32_t object = p->open[p->depth];
    const struct json_token *twice = p->doc->tokens[object].count <= KEYS_QUADRATIC_MAX
                                         ? repeated_small(p->doc, object)
                                         : repeated_large(p, object);
    if (twice == NULL)
        return 1;
    size_t shown = twice->key_len;
    if (shown > KEY_SHOWN_MAX)
        for (shown = KEY_SHOWN_MAX; shown > 0 && (twice->key[shown] & 0xc0) == 0x80;)
            shown--; /* the error must stay valid UTF-8 */
    return parse_fail(p, "the name \"%.*s\" is repeated at byte %zu", (int)shown, twice->key,
                      (size_t)(twice->raw - p->text));
}

static int on_object_start(void *ctx)
{
    return parse_open(ctx, JSON_OBJECT, "{");
}

static int on_array_start(void *ctx)
{
    return parse_open(ctx, JSON_ARRAY, "[");
}

static int on_array_end(void *ctx)
{
    return parse_close(ctx, "]");
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_object_start,
    .yajl_map_key = on_key,
    .yajl_end_map = on_object_end,
    .yajl_start_array = on_array_start,
    .yajl_end_array = on_array_end,
};

static void handle_open(struct json_parser *p)
{
    p->handle = yajl_alloc(&callbacks, NULL, p);
    if (p->handle == NULL)
        abort();
    yajl_config(p->handle, yajl_allow_multiple_values, 1);
    yajl_config(p->handle, yajl_dont_validate_strings, 1);
}

static void handle_close(struct json_parser *p)
{
    if (p->handle != NULL)
        yajl_free(p->handle);
    p->handle = NULL;
}

static void yajl_complain(struct json_parser *p, size_t at)
{
    unsigned char *text = yajl_get_error(p->handle, 0, NULL, 0);
    int len = (int)strcspn((char *)text, "\n");
    if (len > 0 && text[len - 1] == '.')
        len--;
    parse_fail(p, "%.*s at byte %zu", len, (char *)text, at);
    yajl_free_error(p->handle, text);
}

static bool parse_end(struct json_parser *p)
{
    if (p->doc->count == 0) {
        parse_fail(p, "there is no value before the end at byte %zu", p->len);
        return false;
    }
    while (p->pos < p->len && is_space(p->text[p->pos]))
        p->pos++;
    if (p->pos == p->len)
        return true;
    parse_fail(p, "more text follows the value at byte %zu", p->pos);
    return false;
}

static bool parse_text(struct json_parser *p)
{
    yajl_status status = yajl_parse(p->handle, (const unsigned char *)p->text, p->len);
    size_t at = yajl_get_bytes_consumed(p->handle);
    if (status == yajl_status_ok) {
        at = p->len;
        status = yajl_complete_parse(p->handle);
    }
    if (status == yajl_status_error)
        yajl_complain(p, at);
    return status == yajl_status_ok && parse_end(p);
}

/* A thread that once met a huge document does not keep its memory for ever. */
static void give_back(struct json_parser *p)
{
    struct json_doc *doc = p->doc;
    if (p->len > KEEP_MAX)
        handle_close(p);
    if (doc->arena.cap > KEEP_MAX && p->len <= KEEP_MAX)
        buf_fini(&doc->arena);
    if (doc->cap > TOKENS_KEEP_MAX && p->len <= KEEP_MAX) {
        free(doc->tokens);
        doc->tokens = NULL;
        doc->cap = 0;
    }
    if (p->sorted_cap > TOKENS_KEEP_MAX) {
        free(p->sorted);
        p->sorted = NULL;
        p->sorted_cap = 0;
    }
}

bool json_parse(struct json_doc *doc, const char *text, size_t len, uint32_t tokens_max)
{
    struct json_parser *p = doc->parser;
    p->doc = doc;
    p->text = text;
    p->len = len;
    p->pos = 0;
    p->tokens_max = tokens_max;
    p->depth = 0;
    p->key = NULL;
    p->key_len = 0;
    give_back(p);
    buf_clear(&doc->arena);
    doc->count = 0;
    doc->error[0] = '\0';
    size_t valid = utf8_prefix(text, len);
    if (valid < len) {
        parse_fail(p, "invalid UTF-8 at byte %zu", valid);
        return false;
    }
    if (p->handle == NULL)
        handle_open(p);
    if (parse_text(p))
        return true;
    handle_close(p);
    doc->count = 0;
    return false;
}

void json_init(struct json_doc *doc)
{
    *doc = (struct json_doc){.parser = mem_zalloc(sizeof(struct json_parser))};
}

void json_fini(struct json_doc *doc)
{
    struct json_parser *p = doc->parser;
    if (p != NULL) {
        handle_close(p);
        free(p->sorted);
        free(p);
    }
    free(doc->tokens);
    buf_fini(&doc->arena);
    *doc = (struct json_doc){0};
}

uint32_t json_first(const struct json_doc *doc, uint32_t container)
{
    return doc->tokens[container].count > 0 ? container + 1 : 0;
}

uint32_t json_next(const struct json_doc *doc, uint32_t container, uint32_t child)
{
    uint32_t next = doc->tokens[child].end;
    return next < doc->tokens[container].end ? next : 0;
}

const struct json_token *json_get(const struct json_doc *doc, uint32_t object, const char *key)
{
    if (object >= doc->count || doc->tokens[object].type != JSON_OBJECT)
        return NULL;
    size_t len = strlen(key);
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i)) {
        const struct json_token *t = &doc->tokens[i];
        if (t->key_len == len && memcmp(t->key, key, len) == 0)
            return t;
    }
    return NULL;
}

bool json_is(const struct json_token *t, const char *string)
{
    return t != NULL && t->type == JSON_STRING && t->len == strlen(string) &&
           memcmp(t->str, string, t->len) == 0;
}

bool json_key_is(const struct json_token *t, const char *key)
{
    return t->key != NULL && t->key_len == strlen(key) && memcmp(t->key, key, t->key_len) == 0;
}

/* 5.0 and 5e0 are the integer 5, as JSON Schema has it; beyond 2^53 only plain digits are exact. */
static bool i64_from_double(const struct json_token *t, int64_t *out)
{
    double value;
    if (!json_double(t, &value) || fabs(value) > 9007199254740992.0 || value != trunc(value))
        return false;
    *out = (int64_t)value;
    return true;
}

bool json_i64(const struct json_token *t, int64_t *out)
{
    if (t == NULL || t->type != JSON_NUMBER)
        return false;
    bool negative = t->str[0] == '-';
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    uint64_t value = 0;
    for (size_t i = negative; i < t->len; i++) {
        if (t->str[i] < '0' || t->str[i] > '9')
            return i64_from_double(t, out);
        uint64_t digit = (uint64_t)(t->str[i] - '0');
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool json_double(const struct json_token *t, double *out)
{
    char small[64];
    if (t == NULL || t->type != JSON_NUMBER)
        return false;
    char *copy = t->len < sizeof(small) ? small : mem_alloc(t->len + 1);
    memcpy(copy, t->str, t->len);
    copy[t->len] = '\0';
    double value = strtod(copy, NULL);
    if (copy != small)
        free(copy);
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}

/* What follows the backslash: 'u' for the long form, 0 when the byte needs none. */
static char escape_of(unsigned char c)
{
    static const char controls[] = "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu"; /* 0x00 to 0x1f */
    if (c < 0x20)
        return controls[c];
    return c == '"' || c == '\\' ? (char)c : 0;
}

void json_put_string(struct buf *out, const char *s, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    buf_reserve(out, len + 2);
    buf_putc(out, '"');
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        char escape = escape_of(c);
        if (escape == 0)
            continue;
        buf_put(out, s + from, i - from);
        from = i + 1;
        char text[6] = {'\\', escape, '0', '0', digits[c >> 4], digits[c & 15]};
        buf_put(out, text, escape == 'u' ? 6 : 2);
    }
    buf_put(out, s + from, len - from);
    buf_putc(out, '"');
}

void json_put_cstr(struct buf *out, const char *s)
{
    json_put_string(out, s, strlen(s));
}
