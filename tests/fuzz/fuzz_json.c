/* base/json: whatever parses is a well-formed tree over its text, and survives being written and
 * read again; whatever does not leaves a sentence. */
#include "base/json.h"
#include "fuzz.h"

#define TOKENS_MAX 4096

static bool inside(const char *part, size_t part_len, const char *whole, size_t whole_len)
{
    return part >= whole && part_len <= whole_len && (size_t)(part - whole) <= whole_len - part_len;
}

static void check_numbers(const struct json_token *t)
{
    int64_t whole;
    double real;
    assert_same(t->str, t->len, t->raw, t->raw_len);
    if (!json_i64(t, &whole))
        return;
    assert(json_double(t, &real));
    assert(real == (double)whole);
}

static void check_key(const struct json_doc *doc, uint32_t object, uint32_t child)
{
    const struct json_token *t = &doc->tokens[child];
    assert(utf8_valid(t->key, t->key_len));
    if (t->key_len > 0 && memchr(t->key, '\0', t->key_len))
        return;
    char *name = mem_dup(t->key, t->key_len);
    assert(json_key_is(t, name));
    assert(json_get(doc, object, name) == t);
    free(name);
}

static void check_token(const struct json_doc *doc, uint32_t at)
{
    const struct json_token *t = &doc->tokens[at];
    uint32_t count = 0;
    uint32_t end = at + 1;
    if (t->type == JSON_NUMBER)
        check_numbers(t);
    if (t->type == JSON_STRING)
        assert(utf8_valid(t->str, t->len));
    if (t->type == JSON_OBJECT || t->type == JSON_ARRAY) {
        for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
            const struct json_token *child = &doc->tokens[i];
            assert(i == end);
            assert(inside(child->raw, child->raw_len, t->raw + 1, t->raw_len - 2));
            assert((child->key != NULL) == (t->type == JSON_OBJECT));
            if (child->key)
                check_key(doc, at, i);
            end = child->end;
            count++;
        }
    }
    assert(t->count == count);
    assert(t->end == end);
}

/* The value at `at` as text, from its tokens alone. */
static uint32_t write_value(struct buf *out, const struct json_doc *doc, uint32_t at)
{
    static const char brackets[] = "{}[]";
    const struct json_token *t = &doc->tokens[at];
    const char *pair = brackets + (t->type == JSON_ARRAY ? 2 : 0);
    switch (t->type) {
    case JSON_NULL:
        buf_lit(out, "null");
        break;
    case JSON_BOOL:
        buf_puts(out, t->boolean ? "true" : "false");
        break;
    case JSON_NUMBER:
        buf_put(out, t->str, t->len);
        break;
    case JSON_STRING:
        json_put_string(out, t->str, t->len);
        break;
    case JSON_OBJECT:
    case JSON_ARRAY:
        buf_putc(out, pair[0]);
        for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
            if (i != at + 1)
                buf_putc(out, ',');
            if (doc->tokens[i].key) {
                json_put_string(out, doc->tokens[i].key, doc->tokens[i].key_len);
                buf_putc(out, ':');
            }
            write_value(out, doc, i);
        }
        buf_putc(out, pair[1]);
    }
    return t->end;
}

static void check_same(const struct json_doc *a, const struct json_doc *b)
{
    assert(a->count == b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct json_token *x = &a->tokens[i], *y = &b->tokens[i];
        assert(x->type == y->type);
        assert(x->boolean == y->boolean);
        assert(x->count == y->count);
        assert(x->end == y->end);
        assert(!x->key == !y->key);
        assert_same(x->key, x->key_len, y->key, y->key_len);
        if (x->type == JSON_STRING || x->type == JSON_NUMBER)
            assert_same(x->str, x->len, y->str, y->len);
    }
}

static void check_rewritten(const struct json_doc *doc)
{
    struct buf text = {0};
    struct json_doc again;
    json_init(&again);
    write_value(&text, doc, 0);
    bool ok = json_parse(&again, text.data, text.len, TOKENS_MAX);
    assert(ok);
    check_same(doc, &again);
    json_fini(&again);
    buf_fini(&text);
}

/* A raw span is what a client's own JSON is kept as: it has to stand alone. */
static void check_raw(const struct json_doc *doc, uint32_t at)
{
    const struct json_token *t = &doc->tokens[at];
    struct json_doc alone;
    char *copy = exact_copy(t->raw, t->raw_len);
    json_init(&alone);
    bool ok = json_parse(&alone, copy, t->raw_len, TOKENS_MAX);
    assert(ok);
    assert(alone.count == t->end - at);
    assert(alone.tokens[0].type == t->type);
    assert(alone.tokens[0].raw == copy);
    assert(alone.tokens[0].raw_len == t->raw_len);
    json_fini(&alone);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_doc
        doc; /* kept from one input to the next, as a thread of the server does */
    if (!doc.parser)
        json_init(&doc);
    char *text = exact_copy(data, size);
    if (!json_parse(&doc, text, size, TOKENS_MAX)) {
        assert(doc.count == 0);
        assert(doc.error[0]);
        assert(utf8_valid(doc.error, strlen(doc.error)));
    } else {
        assert(utf8_valid(text, size));
        assert(doc.tokens[0].end == doc.count);
        for (uint32_t i = 0; i < doc.count; i++) {
            assert(inside(doc.tokens[i].raw, doc.tokens[i].raw_len, text, size));
            check_token(&doc, i);
        }
        for (uint32_t i = 0; i < doc.count; i += 1 + doc.count / 8)
            check_raw(&doc, i);
        check_rewritten(&doc);
        uint32_t count = doc.count;
        assert(!json_parse(&doc, text, size, count - 1));
        assert(json_parse(&doc, text, size, count));
    }
    free(text);
    return 0;
}
