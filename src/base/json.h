/* JSON in and out, by the letter of RFC 8259: what it does not allow is refused.
 *
 * Reading gives a flat array of tokens in document order, the way a reader of
 * the text meets them; a container's token knows where its subtree ends. The
 * document borrows the text it was parsed from. A doc can be reused for the
 * next text: its arrays stay allocated. One thread at a time. */
#ifndef TRIAGE_BASE_JSON_H
#define TRIAGE_BASE_JSON_H

#include "base/buf.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_OBJECT,
    JSON_ARRAY,
};

struct json_token {
    enum json_type type;
    bool boolean;    /* JSON_BOOL */
    const char *str; /* JSON_STRING: decoded bytes, not terminated; JSON_NUMBER: its text */
    size_t len;
    const char *key; /* decoded name when the parent is an object, else NULL */
    size_t key_len;
    const char *raw; /* the value as it stands in the text */
    size_t raw_len;
    uint32_t count; /* members of a container */
    uint32_t end;   /* index one past the last token of this subtree */
};

struct json_doc {
    struct json_token *tokens; /* tokens[0] is the root */
    uint32_t count;
    char error[160]; /* after a failed parse: a sentence with the byte offset */
    /* The rest is private to json.c. */
    uint32_t cap;
    struct buf arena; /* decoded strings that are not verbatim in the text */
    void *parser;
};

#define JSON_DEPTH_MAX 64

void json_init(struct json_doc *doc);
void json_fini(struct json_doc *doc);

/* False when the text is not exactly one JSON value, is deeper than JSON_DEPTH_MAX, has more than
 * `tokens_max` values, has invalid UTF-8, or an object repeats a key. doc->error says which. */
bool json_parse(struct json_doc *doc, const char *text, size_t len, uint32_t tokens_max);

/* json_parse() in steps, for a long text: each step reads at least `bytes`, or what is left. */
enum json_step { JSON_MORE, JSON_READ, JSON_REFUSED };
void json_begin(struct json_doc *doc, const char *text, size_t len, uint32_t tokens_max);
enum json_step json_go_on(struct json_doc *doc, size_t bytes);

/* Walk a container:  for (i = json_first(doc, at); i; i = json_next(doc, at, i)) …  (0 ends it). */
uint32_t json_first(const struct json_doc *doc, uint32_t container);
uint32_t json_next(const struct json_doc *doc, uint32_t container, uint32_t child);

/* The member's token, or NULL when `object` is not an object or has no such member. */
const struct json_token *json_get(const struct json_doc *doc, uint32_t object, const char *key);

/* The number of the token of an array that is a member of `object`, for json_first(); 0 when there
 * is none, since token 0 is the root. json_index() gives the number of any token. */
uint32_t json_array(const struct json_doc *doc, uint32_t object, const char *key);
uint32_t json_index(const struct json_doc *doc, const struct json_token *t);

bool json_is(const struct json_token *t, const char *string); /* a string equal to this one */
bool json_key_is(const struct json_token *t, const char *key);
bool json_i64(const struct json_token *t, int64_t *out); /* an integer without fraction, in range */
bool json_double(const struct json_token *t, double *out); /* any finite number */

/* Writing: text appended to a buf. Strings must be valid UTF-8 or are checked by the caller with
 * utf8_valid(); quotes, backslashes and control characters are escaped. */
void json_put_string(struct buf *out, const char *s, size_t len); /* with its quotes */
void json_put_cstr(struct buf *out, const char *s);

#endif
