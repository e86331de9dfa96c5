/* Named values of a request, from a JSON object or from a query string, read by
 * the same tables. A name that is not in the table is refused, so that a typo is
 * never silent; so is a value of the wrong kind, with a sentence that says what
 * is allowed. Everything borrows the text of the request. */
#ifndef TRIAGE_API_FIELDS_H
#define TRIAGE_API_FIELDS_H

#include "api/problem.h"
#include "base/json.h"
#include "core/message.h"

#include <stdbool.h>
#include <stdint.h>

struct field {
    const struct json_token *value; /* of a query: a number when it looks like one, else a string */
    const struct json_doc *doc;     /* NULL when it came in a query */
    uint32_t at;                    /* the value's token in doc */
    const char *base;               /* pointer of the object it stands in: "" or "/retry" */
    struct problem *problem;
};

/* Takes a value into `target`; false with the problem set. */
typedef bool field_take(struct field *f, void *target);

struct field_spec {
    const char *name;
    size_t name_len;
    field_take *take;
    bool refused; /* in the table only so that its refusal says why */
    bool repeats; /* a query may have it several times */
};

#define FIELD(name, take)                                                                          \
    {                                                                                              \
        name, sizeof(name) - 1, take, false, false                                                 \
    }
#define FIELD_REPEATED(name, take)                                                                 \
    {                                                                                              \
        name, sizeof(name) - 1, take, false, true                                                  \
    }
#define FIELD_REFUSED(name, why)                                                                   \
    {                                                                                              \
        name, sizeof(name) - 1, why, true, false                                                   \
    }
#define FIELDS_MAX 32 /* in one table */

struct field_table {
    const struct field_spec *specs;
    uint32_t count;
};

#define FIELD_TABLE(array)                                                                         \
    {                                                                                              \
        (array), sizeof(array) / sizeof((array)[0])                                                \
    }

/* Takes the members of the object at token `object` of doc. */
MUST_USE bool fields_object(const struct json_doc *doc, uint32_t object, const char *base,
                            const struct field_table *table, void *target, struct problem *p);

/* Takes the pairs of a query string. `scratch` gets the decoded text, which the fields borrow. */
MUST_USE bool fields_query(const char *query, size_t len, struct buf *scratch,
                           const struct field_table *table, void *target, struct problem *p);

/* Refuses the field. The detail is the field's name, a blank and the text. Returns false. */
bool field_refuse(struct field *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool field_refuse_as(struct field *f, enum status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool field_null(const struct field *f)
{
    return f->value->type == JSON_NULL;
}

bool field_i64(struct field *f, int64_t min, int64_t max, int64_t *out);
bool field_double(struct field *f, double min, double max, double *out);
bool field_seconds(struct field *f, int64_t min, int64_t max, int64_t *ms); /* fractions allowed */
bool field_bool(struct field *f, bool *out);
bool field_text(struct field *f, size_t min, size_t max, const char **text, size_t *len);
bool field_time(struct field *f, int64_t *wall_ms);
bool field_priority(struct field *f, struct priority_ref *out); /* null: the default */
bool field_choice(struct field *f, const char *const names[], int count, int *out);

/* Whether the text is a number as JSON writes them. */
bool number_looks(const char *text, size_t len);

#endif
