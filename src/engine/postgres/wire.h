/* Values to and from PostgreSQL in its binary format: parameters of a call, arrays
 * included, and the cells of an answer. */
#ifndef TRIAGE_ENGINE_POSTGRES_WIRE_H
#define TRIAGE_ENGINE_POSTGRES_WIRE_H

#include "base/buf.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#define PARAMS_MAX      24
#define PARAM_BYTES_MAX 0x3fffffff /* of a value in PostgreSQL, arrays included */

enum wire_type {
    WIRE_BOOL = 16,
    WIRE_BYTEA = 17,
    WIRE_INT8 = 20,
    WIRE_INT2 = 21,
    WIRE_INT4 = 23,
    WIRE_TEXT = 25,
    WIRE_UUID = 2950,
    WIRE_JSONB = 3802,
    WIRE_BYTEA_ARRAY = 1001,
    WIRE_INT2_ARRAY = 1005,
    WIRE_INT4_ARRAY = 1007,
    WIRE_TEXT_ARRAY = 1009,
    WIRE_INT8_ARRAY = 1016,
};

/* The parameters of one call, one after the other in `bytes`. Zeroed: none. */
struct params {
    int count;
    unsigned types[PARAMS_MAX];
    size_t offsets[PARAMS_MAX];
    int lengths[PARAMS_MAX]; /* -1: NULL */
    bool too_long;           /* some value is longer than PARAM_BYTES_MAX: not to be sent */
    struct buf bytes;
    bool in_array;   /* between param_array() and its end */
    size_t array_at; /* of the array being written: where its number of elements goes */
    uint32_t array_count;
    uint32_t array_nulls;
};

void params_fini(struct params *p);
void params_clear(struct params *p);

void param_null(struct params *p, enum wire_type type);
void param_bool(struct params *p, bool value);
void param_int(struct params *p, enum wire_type type, int64_t value); /* INT2, INT4, INT8 */
void param_bytes(struct params *p, enum wire_type type, const void *data, size_t len);
void param_text(struct params *p, const char *text, size_t len); /* without its NULs */
void param_jsonb(struct params *p, const struct buf *text);

/* An array: begin, then its elements, then end. The elements are of the type given. */
void param_array(struct params *p, enum wire_type array);
void element_int(struct params *p, enum wire_type type, int64_t value);
void element_bytes(struct params *p, const void *data, size_t len);
void element_text(struct params *p, const char *text, size_t len); /* without its NULs */
void element_null(struct params *p);
/* NULL when the value is this one. */
void element_int_unless(struct params *p, enum wire_type type, int64_t null, int64_t value);
void element_bytes_or_null(struct params *p, const void *data, size_t len); /* of no length: NULL */
void param_array_end(struct params *p); /* of NULLs alone: the array itself is NULL */

/* Asks for binary. `name`: of a statement that was prepared from the same text, or NULL. */
bool params_send(PGconn *conn, const char *name, const char *sql, const struct params *p);
bool params_prepare(PGconn *conn, const char *name, const char *sql, const struct params *p);

/* Cells. NULL reads as 0 or as nothing. */
bool cell_null(const PGresult *r, int row, int column);
int64_t cell_int(const PGresult *r, int row, int column); /* of whichever integer type, or bool */
uint64_t cell_count(const PGresult *r, int row, int column); /* what is below 0 is 0 */
int64_t cell_time(const PGresult *r, int row, int column);   /* within ±TIME_MS_MAX */
const char *cell_bytes(const PGresult *r, int row, int column, size_t *len);
const char *cell_json(const PGresult *r, int row, int column, size_t *len);
bool cell_is(const PGresult *r, int row, int column, const char *text);

#endif
