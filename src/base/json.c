#include "base/json.h"

#include "base/json_plain.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A strict reader of RFC 8259, in one pass and without recursion: a stack of token numbers holds
 * the containers that are open. It is our own because libraries accept what we must refuse
 * (overlong UTF-8, half a surrogate pair, a form feed as white space, repeated names), so each text
 * would have to be checked a second time.
 *
 * Most of a request is the inside of one long string. It is searched sixteen bytes at a time for
 * the few bytes that matter. The slow way begins only at such a byte, and checks UTF-8 as it goes.
 * Outside of strings every legal byte is ASCII.
 *
 * Functions that read take the place where they start. They return the place where they stopped, or
 * NULL after they have left an error. */

#define KEYS_QUADRATIC_MAX 16 /* up to here comparing all pairs is the fastest */
#define KEY_SHOWN_MAX      60
#define KEEP_MAX           (1 << 20)   /* after a longer text its memory is given back */
#define TOKENS_KEEP_MAX    (16 * 1024) /* … and after a document with more tokens */

struct json_parser {
    struct json_doc *doc;
    const char *text;
    const char *end;
    const char *at; /* where the next step begins */
    uint32_t tokens_max;
    uint32_t room; /* tokens until parse_grow() is needed: at most tokens_max and doc->cap */
    uint32_t depth;
    uint32_t open[JSON_DEPTH_MAX]; /* tokens of the containers we are in */
    const char *key;               /* of the value that comes next, or NULL */
    size_t key_len;
    const struct json_token **sorted; /* scratch for large objects */
    size_t sorted_cap;
};

__attribute__((cold, format(printf, 3, 4))) static const char *
parse_fail(struct json_parser *p, const char *at, const char *fmt, ...)
{
    char *error = p->doc->error;
    size_t size = sizeof(p->doc->error);
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(error, size, fmt, args);
    va_end(args);
    snprintf(error + used, size - (size_t)used, " at byte %zu", (size_t)(at - p->text));
    return NULL;
}

__attribute__((cold)) static const char *parse_expected(struct json_parser *p, const char *at,
                                                        const char *what)
{
    if (at == p->end)
        return parse_fail(p, at, "expected %s but the text ends", what);
    return parse_fail(p, at, "expected %s", what);
}

/* The byte at this place, or NUL at the end: outside of strings a NUL is never legal. */
static char peek(const struct json_parser *p, const char *at)
{
    return at < p->end ? *at : '\0';
}

static const char *skip_run_of_space(const struct json_parser *p, const char *at)
{
    while (at < p->end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* Inline and short: most texts come from programs that write no spaces. */
static inline const char *skip_space(const struct json_parser *p, const char *at)
{
    if (peek(p, at) > ' ')
        return at;
    return skip_run_of_space(p, at);
}

/* Not inline, so that parse_token() is small enough to be. */
__attribute__((cold)) static bool parse_grow(struct json_parser *p, const char *at)
{
    struct json_doc *doc = p->doc;
    if (doc->count >= p->tokens_max) {
        parse_fail(p, at, "more than %u values", p->tokens_max);
        return false;
    }
    if (doc->count == doc->cap) {
        doc->cap = doc->cap ? doc->cap * 2 : 32;
        doc->tokens = mem_realloc(doc->tokens, doc->cap * sizeof(*doc->tokens));
    }
    p->room = doc->cap < p->tokens_max ? doc->cap : p->tokens_max;
    return true;
}

/* Appends the token of a value that starts here. */
static inline struct json_token *parse_token(struct json_parser *p, enum json_type type,
                                             const char *at)
{
    struct json_doc *doc = p->doc;
    if (doc->count >= p->room && !parse_grow(p, at))
        return NULL;
    if (p->depth > 0)
        doc->tokens[p->open[p->depth - 1]].count++;
    struct json_token *t = &doc->tokens[doc->count++];
    *t = (struct json_token){
        .type = type, .key = p->key, .key_len = p->key_len, .raw = at, .end = doc->count};
    p->key = NULL;
    p->key_len = 0;
    return t;
}

static const char *parse_word(struct json_parser *p, const char *at, const char *word,
                              enum json_type type)
{
    size_t len = strlen(word);
    if ((size_t)(p->end - at) < len || memcmp(at, word, len) != 0)
        return parse_expected(p, at, "a value");
    struct json_token *t = parse_token(p, type, at);
    if (t == NULL)
        return NULL;
    t->boolean = word[0] == 't';
    t->raw_len = len;
    return at + len;
}

static const char *parse_digits(struct json_parser *p, const char *at)
{
    const char *s = at;
    while (s < p->end && *s >= '0' && *s <= '9')
        s++;
    return s > at ? s : parse_expected(p, at, "a digit");
}

/* [ minus ] int [ frac ] [ exp ]. A digit after a leading zero is refused later, as something that
 * cannot follow a value. */
static const char *parse_number(struct json_parser *p, const char *at)
{
    struct json_token *t = parse_token(p, JSON_NUMBER, at);
    if (t == NULL)
        return NULL;
    if (*at == '-')
        at++;
    at = peek(p, at) == '0' ? at + 1 : parse_digits(p, at);
    if (at != NULL && peek(p, at) == '.')
        at = parse_digits(p, at + 1);
    if (at != NULL && (peek(p, at) | 0x20) == 'e') {
        at++;
        at = parse_digits(p, at + (peek(p, at) == '+' || peek(p, at) == '-'));
    }
    if (at == NULL)
        return NULL;
    t->str = t->raw;
    t->len = t->raw_len = (size_t)(at - t->raw);
    return at;
}

static const char *parse_hex4(struct json_parser *p, const char *s, unsigned *unit)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++, s++) {
        unsigned digit = (unsigned)(unsigned char)peek(p, s) - '0';
        unsigned letter = ((unsigned)(unsigned char)peek(p, s) | 0x20) - 'a';
        if (digit > 9 && letter > 5)
            return parse_expected(p, s, "a hexadecimal digit");
        value = value << 4 | (digit <= 9 ? digit : letter + 10);
    }
    *unit = value;
    return s;
}

/* Decodes a \u to the arena, with both halves of a surrogate pair. `start` is its backslash. */
static const char *parse_unicode(struct json_parser *p, const char *start)
{
    unsigned code, low = 0;
    const char *s = parse_hex4(p, start + 2, &code);
    if (s == NULL)
        return NULL;
    if ((code & 0xfc00) == 0xd800 && peek(p, s) == '\\' && peek(p, s + 1) == 'u') {
        s = parse_hex4(p, s + 2, &low);
        if (s == NULL)
            return NULL;
    }
    if ((code & 0xf800) == 0xd800) {
        if ((code & 0xfc00) != 0xd800 || (low & 0xfc00) != 0xdc00)
            return parse_fail(p, start, "half a surrogate pair");
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    }
    utf8_put(&p->doc->arena, code);
    return s;
}

static const char *parse_escape(struct json_parser *p, const char *at)
{
    static const char escapes[256] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    char c = peek(p, at + 1);
    if (c == 'u')
        return parse_unicode(p, at);
    char decoded = escapes[(unsigned char)c];
    if (decoded == 0)
        return parse_fail(p, at, "a backslash with nothing that it can escape");
    buf_putc(&p->doc->arena, decoded);
    return at + 2;
}

/* Reads one byte at which json_plain() stopped, or a run of characters beyond ASCII. */
static const char *parse_special(struct json_parser *p, const char *s)
{
    if (s == p->end)
        return parse_expected(p, s, "the closing quote of a string");
    if (*s == '\\')
        return parse_escape(p, s);
    if ((unsigned char)*s < 0x20)
        return parse_fail(p, s, "a control character in a string");
    while (s < p->end && (signed char)*s < 0) {
        size_t step = utf8_sequence(s, (size_t)(p->end - s));
        if (step == 0)
            return parse_fail(p, s, "invalid UTF-8");
        s += step;
    }
    return s;
}

/* Reads the string from s on, where it stops being plain. A string without escapes stays in the
 * text. Otherwise its bytes go to the arena. Every escape is longer than what it stands for, so the
 * arena never needs more than the length of the text. That much is reserved before the first copy,
 * and so the arena never moves. */
__attribute__((noinline)) static const char *parse_string_slowly(struct json_parser *p,
                                                                 const char *start, const char *s,
                                                                 const char **str, size_t *len)
{
    struct buf *arena = &p->doc->arena;
    const char *from = start; /* bytes from here on are not yet in the arena */
    size_t arena_from = arena->len;
    for (s = json_plain(s, p->end); peek(p, s) != '"'; s = json_plain(s, p->end)) {
        bool escape = peek(p, s) == '\\';
        if (escape) {
            buf_reserve(arena, (size_t)(p->end - from));
            buf_put(arena, from, (size_t)(s - from));
        }
        s = parse_special(p, s);
        if (s == NULL)
            return NULL;
        if (escape)
            from = s;
    }
    *str = start;
    *len = (size_t)(s - start);
    if (from != start) {
        buf_put(arena, from, (size_t)(s - from));
        *str = arena->data + arena_from;
        *len = arena->len - arena_from;
    }
    return s + 1;
}

/* Reads the string or name whose opening quote is at this place. */
static const char *parse_quoted(struct json_parser *p, const char *at, const char **str,
                                size_t *len)
{
    const char *start = at + 1;
    const char *s = json_plain_vectors(start, p->end);
    if (s == p->end || *s != '"')
        return parse_string_slowly(p, start, s, str, len);
    *str = start;
    *len = (size_t)(s - start);
    return s + 1;
}

static const char *parse_string(struct json_parser *p, const char *at)
{
    struct json_token *t = parse_token(p, JSON_STRING, at);
    if (t == NULL)
        return NULL;
    at = parse_quoted(p, at, &t->str, &t->len);
    if (at != NULL)
        t->raw_len = (size_t)(at - t->raw);
    return at;
}

static const char *parse_name(struct json_parser *p, const char *at)
{
    at = skip_space(p, at);
    if (peek(p, at) != '"')
        return parse_expected(p, at, "a name in quotes");
    at = parse_quoted(p, at, &p->key, &p->key_len);
    if (at == NULL)
        return NULL;
    at = skip_space(p, at);
    return peek(p, at) == ':' ? at + 1 : parse_expected(p, at, "the colon after a name");
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

static const struct json_token *repeated_small(const struct json_token *tokens, uint32_t object)
{
    const struct json_token *first = &tokens[object + 1], *end = &tokens[tokens[object].end];
    for (const struct json_token *t = &tokens[first->end]; t < end; t = &tokens[t->end])
        for (const struct json_token *u = first; u < t; u = &tokens[u->end])
            if (same_key(t, u))
                return t;
    return NULL;
}

/* Sorts the names instead of hashing them: no client can choose names that make sorting slow. */
static const struct json_token *repeated_large(struct json_parser *p, uint32_t object)
{
    const struct json_token *tokens = p->doc->tokens;
    size_t n = tokens[object].count;
    if (p->sorted_cap < n) {
        p->sorted_cap = n;
        p->sorted = mem_realloc(p->sorted, n * sizeof(*p->sorted));
    }
    size_t filled = 0;
    for (uint32_t i = object + 1; i < tokens[object].end; i = tokens[i].end)
        p->sorted[filled++] = &tokens[i];
    qsort(p->sorted, n, sizeof(*p->sorted), key_compare);
    for (size_t i = 1; i < n; i++)
        if (same_key(p->sorted[i - 1], p->sorted[i]))
            return p->sorted[i];
    return NULL;
}

static const char *check_names(struct json_parser *p, uint32_t object, const char *at)
{
    const struct json_token *twice = p->doc->tokens[object].count <= KEYS_QUADRATIC_MAX
                                         ? repeated_small(p->doc->tokens, object)
                                         : repeated_large(p, object);
    if (twice == NULL)
        return at;
    size_t shown = twice->key_len;
    if (shown > KEY_SHOWN_MAX)
        for (shown = KEY_SHOWN_MAX; shown > 0 && (twice->key[shown] & 0xc0) == 0x80;)
            shown--; /* the error must stay valid UTF-8 */
    return parse_fail(p, twice->raw, "the name \"%.*s\" is repeated", (int)shown, twice->key);
}

static const char *parse_open(struct json_parser *p, enum json_type type, const char *at)
{
    if (p->depth == JSON_DEPTH_MAX)
        return parse_fail(p, at, "nested deeper than %d", JSON_DEPTH_MAX);
    if (parse_token(p, type, at) == NULL)
        return NULL;
    p->open[p->depth++] = p->doc->count - 1;
    return at + 1;
}

static const char *parse_close(struct json_parser *p, const char *at)
{
    uint32_t container = p->open[--p->depth];
    struct json_token *t = &p->doc->tokens[container];
    at++;
    t->end = p->doc->count;
    t->raw_len = (size_t)(at - t->raw);
    return t->type == JSON_OBJECT && t->count > 1 ? check_names(p, container, at) : at;
}

/* A scalar, or the opening bracket of a container. */
static const char *parse_value(struct json_parser *p, const char *at)
{
    at = skip_space(p, at);
    char c = peek(p, at);
    switch (c) {
    case '"':
        return parse_string(p, at);
    case '{':
        return parse_open(p, JSON_OBJECT, at);
    case '[':
        return parse_open(p, JSON_ARRAY, at);
    case 't':
        return parse_word(p, at, "true", JSON_BOOL);
    case 'f':
        return parse_word(p, at, "false", JSON_BOOL);
    case 'n':
        return parse_word(p, at, "null", JSON_NULL);
    default:
        if (c == '-' || (c >= '0' && c <= '9'))
            return parse_number(p, at);
        return parse_expected(p, at, "a value");
    }
}

/* From the end of a value to the start of the next: closing brackets, the comma and the name. If
 * the container has no members yet, it was just opened. */
static const char *parse_between(struct json_parser *p, const char *at)
{
    while (at != NULL && p->depth > 0) {
        const struct json_token *t = &p->doc->tokens[p->open[p->depth - 1]];
        bool object = t->type == JSON_OBJECT;
        at = skip_space(p, at);
        if (peek(p, at) == (object ? '}' : ']')) {
            at = parse_close(p, at);
            continue;
        }
        if (t->count > 0 && peek(p, at) != ',')
            return parse_expected(p, at, object ? "a comma or }" : "a comma or ]");
        if (t->count > 0)
            at++;
        return object ? parse_name(p, at) : at;
    }
    return at;
}

/* A step ends between two values, at or after `stop`. */
static enum json_step parse_step(struct json_parser *p, const char *stop)
{
    const char *at = p->at;
    do {
        at = parse_value(p, at);
        at = parse_between(p, at);
    } while (at != NULL && p->depth > 0 && (at < stop || stop == p->end));
    if (at == NULL)
        return JSON_REFUSED;
    p->at = at;
    if (p->depth > 0)
        return JSON_MORE;
    at = skip_space(p, at);
    if (at < p->end)
        parse_fail(p, at, "more text follows the value");
    return at == p->end ? JSON_READ : JSON_REFUSED;
}

/* Gives memory back after a huge document, so that the thread does not keep it for ever. */
static void give_back(struct json_parser *p, size_t len)
{
    struct json_doc *doc = p->doc;
    if (doc->arena.cap > KEEP_MAX && len <= KEEP_MAX)
        buf_fini(&doc->arena);
    if (doc->cap > TOKENS_KEEP_MAX && len <= KEEP_MAX) {
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

void json_begin(struct json_doc *doc, const char *text, size_t len, uint32_t tokens_max)
{
    struct json_parser *p = doc->parser;
    p->doc = doc;
    p->text = p->at = len > 0 ? text : "";
    p->end = p->text + len;
    p->tokens_max = tokens_max;
    p->depth = 0;
    p->key = NULL;
    p->key_len = 0;
    give_back(p, len);
    p->room = doc->cap < tokens_max ? doc->cap : tokens_max;
    buf_clear(&doc->arena);
    doc->count = 0;
    doc->error[0] = '\0';
}

enum json_step json_go_on(struct json_doc *doc, size_t bytes)
{
    struct json_parser *p = doc->parser;
    size_t left = (size_t)(p->end - p->at);
    enum json_step step = parse_step(p, bytes < left ? p->at + bytes : p->end);
    if (step == JSON_REFUSED)
        doc->count = 0;
    return step;
}

bool json_parse(struct json_doc *doc, const char *text, size_t len, uint32_t tokens_max)
{
    json_begin(doc, text, len, tokens_max);
    return json_go_on(doc, SIZE_MAX) == JSON_READ;
}

void json_init(struct json_doc *doc)
{
    *doc = (struct json_doc){.parser = mem_zalloc(sizeof(struct json_parser))};
}

void json_fini(struct json_doc *doc)
{
    struct json_parser *p = doc->parser;
    if (p != NULL)
        free(p->sorted);
    free(p);
    free(doc->tokens);
    buf_fini(&doc->arena);
    *doc = (struct json_doc){0};
}
