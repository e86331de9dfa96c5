#include "engine/postgres/wire.h"

#include "base/limits.h"

#include <assert.h>
#include <string.h>

static void put_be(struct buf *out, uint64_t value, size_t width)
{
    buf_reserve(out, width);
    for (size_t i = width; i-- > 0; value >>= 8)
        out->data[out->len + i] = (char)value;
    out->len += width;
}

static_assert(PARAM_BYTES_MAX <= INT32_MAX, "libpq takes lengths as int");
static_assert(PAYLOAD_MAX + METADATA_MAX + DEDUP_KEY_MAX < PARAM_BYTES_MAX, "a message fits");

static size_t width_of(enum wire_type type)
{
    return type == WIRE_INT2 ? 2 : type == WIRE_INT4 ? 4 : 8;
}

void params_fini(struct params *p)
{
    buf_fini(&p->bytes);
    p->count = 0;
}

void params_clear(struct params *p)
{
    buf_clear(&p->bytes);
    p->count = 0;
    p->too_long = p->in_array = false;
}

static void begin(struct params *p, enum wire_type type)
{
    assert(p->count < PARAMS_MAX);
    assert(!p->in_array); /* it would become an element */
    p->types[p->count] = type;
    p->offsets[p->count] = p->bytes.len;
}

static void end(struct params *p)
{
    size_t len = p->bytes.len - p->offsets[p->count];
    p->too_long = p->too_long || len > PARAM_BYTES_MAX;
    p->lengths[p->count++] = p->too_long ? 0 : (int)len;
}

void param_null(struct params *p, enum wire_type type)
{
    begin(p, type);
    p->lengths[p->count++] = -1;
}

void param_bool(struct params *p, bool value)
{
    begin(p, WIRE_BOOL);
    put_be(&p->bytes, value, 1);
    end(p);
}

void param_int(struct params *p, enum wire_type type, int64_t value)
{
    begin(p, type);
    put_be(&p->bytes, (uint64_t)value, width_of(type));
    end(p);
}

void param_bytes(struct params *p, enum wire_type type, const void *data, size_t len)
{
    begin(p, type);
    buf_put(&p->bytes, data, len);
    end(p);
}

/* PostgreSQL's text cannot hold a NUL, but a text from a client can. */
void param_text(struct params *p, const char *text, size_t len)
{
    begin(p, WIRE_TEXT);
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\0')
            buf_putc(&p->bytes, text[i]);
    }
    end(p);
}

void param_jsonb(struct params *p, const struct buf *text)
{
    begin(p, WIRE_JSONB);
    put_be(&p->bytes, 1, 1); /* the version of the format of jsonb */
    buf_put(&p->bytes, text->data, text->len);
    end(p);
}

static enum wire_type element_of(enum wire_type array)
{
    switch (array) {
    case WIRE_BYTEA_ARRAY:
        return WIRE_BYTEA;
    case WIRE_INT2_ARRAY:
        return WIRE_INT2;
    case WIRE_INT4_ARRAY:
        return WIRE_INT4;
    case WIRE_TEXT_ARRAY:
        return WIRE_TEXT;
    default:
        return WIRE_INT8;
    }
}

/* The head of an array: the number of dimensions, whether there are NULLs, the type; then for its
 * one dimension the length and the first index. */
void param_array(struct params *p, enum wire_type array)
{
    begin(p, array);
    p->in_array = true;
    p->array_at = p->bytes.len;
    p->array_count = 0;
    p->array_nulls = 0;
    put_be(&p->bytes, 1, 4);
    put_be(&p->bytes, 0, 4);
    put_be(&p->bytes, element_of(array), 4);
    put_be(&p->bytes, 0, 4);
    put_be(&p->bytes, 1, 4);
}

void element_int(struct params *p, enum wire_type type, int64_t value)
{
    assert(p->in_array);
    assert(type == element_of(p->types[p->count])); /* the widths would not match */
    put_be(&p->bytes, width_of(type), 4);
    put_be(&p->bytes, (uint64_t)value, width_of(type));
    p->array_count++;
}

void element_bytes(struct params *p, const void *data, size_t len)
{
    assert(p->in_array);
    put_be(&p->bytes, len, 4);
    buf_put(&p->bytes, data, len);
    p->array_count++;
}

void element_text(struct params *p, const char *text, size_t len)
{
    assert(p->in_array);
    size_t kept = len;
    for (size_t i = 0; i < len; i++)
        kept -= text[i] == '\0';
    put_be(&p->bytes, kept, 4);
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\0')
            buf_putc(&p->bytes, text[i]);
    }
    p->array_count++;
}

void element_null(struct params *p)
{
    assert(p->in_array);
    put_be(&p->bytes, UINT32_MAX, 4);
    p->array_count++;
    p->array_nulls++;
}

void element_int_unless(struct params *p, enum wire_type type, int64_t null, int64_t value)
{
    if (value != null)
        element_int(p, type, value);
    else
        element_null(p);
}

void element_bytes_or_null(struct params *p, const void *data, size_t len)
{
    if (len > 0)
        element_bytes(p, data, len);
    else
        element_null(p);
}

static void set_be(struct buf *out, size_t at, uint32_t value)
{
    for (size_t i = 4; i-- > 0; value >>= 8)
        out->data[at + i] = (char)value;
}

void param_array_end(struct params *p)
{
    assert(p->in_array);
    assert(p->array_nulls <= p->array_count);
    p->in_array = false;
    if (p->array_count > 0 && p->array_nulls == p->array_count) {
        p->bytes.len = p->offsets[p->count];
        p->lengths[p->count++] = -1;
        return;
    }
    set_be(&p->bytes, p->array_at + 4, p->array_nulls > 0);
    set_be(&p->bytes, p->array_at + 12, p->array_count);
    end(p);
}

bool params_send(PGconn *conn, const char *name, const char *sql, const struct params *p)
{
    assert(!p->too_long);
    assert(!p->in_array);
    const char *values[PARAMS_MAX];
    int formats[PARAMS_MAX];
    static const char empty[] = "";
    for (int i = 0; i < p->count; i++) {
        const char *at = p->bytes.data ? p->bytes.data + p->offsets[i] : empty;
        values[i] = p->lengths[i] < 0 ? NULL : at;
        formats[i] = 1;
    }
    return name ? PQsendQueryPrepared(conn, name, p->count, values, p->lengths, formats, 1)
                : PQsendQueryParams(conn, sql, p->count, p->types, values, p->lengths, formats, 1);
}

bool params_prepare(PGconn *conn, const char *name, const char *sql, const struct params *p)
{
    return PQsendPrepare(conn, name, sql, p->count, p->types);
}

/* Cells */

bool cell_null(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column);
}

int64_t cell_int(const PGresult *r, int row, int column)
{
    const unsigned char *at = (const unsigned char *)PQgetvalue(r, row, column);
    int len = PQgetlength(r, row, column);
    if (len == 0 || len > 8)
        return 0;
    uint64_t value = at[0] & 0x80 && len > 1 ? UINT64_MAX : 0;
    for (int i = 0; i < len; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

uint64_t cell_count(const PGresult *r, int row, int column)
{
    int64_t value = cell_int(r, row, column);
    return value > 0 ? (uint64_t)value : 0;
}

int64_t cell_time(const PGresult *r, int row, int column)
{
    int64_t ms = cell_int(r, row, column);
    return ms > TIME_MS_MAX ? TIME_MS_MAX : ms < -TIME_MS_MAX ? -TIME_MS_MAX : ms;
}

const char *cell_bytes(const PGresult *r, int row, int column, size_t *len)
{
    const char *bytes = PQgetvalue(r, row, column);
    *len = (size_t)PQgetlength(r, row, column);
    return bytes ? bytes : "";
}

const char *cell_json(const PGresult *r, int row, int column, size_t *len)
{
    const char *text = cell_bytes(r, row, column, len);
    if (*len == 0)
        return text;
    --*len;
    return text + 1;
}

bool cell_is(const PGresult *r, int row, int column, const char *text)
{
    size_t len;
    const char *cell = cell_bytes(r, row, column, &len);
    return len == strlen(text) && memcmp(cell, text, len) == 0;
}
