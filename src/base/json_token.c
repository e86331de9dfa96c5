#include "base/json.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

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

uint32_t json_index(const struct json_doc *doc, const struct json_token *t)
{
    return (uint32_t)(t - doc->tokens);
}

uint32_t json_array(const struct json_doc *doc, uint32_t object, const char *key)
{
    const struct json_token *t = json_get(doc, object, key);
    return t && t->type == JSON_ARRAY ? json_index(doc, t) : 0;
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
