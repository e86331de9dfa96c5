/* Rows of an answer as messages. */
#ifndef TRIAGE_ENGINE_POSTGRES_ROWS_H
#define TRIAGE_ENGINE_POSTGRES_ROWS_H

#include "engine/engine.h"

#include <libpq-fe.h>

/* The columns by name: functions may come to give more. */
enum column {
    COLUMN_STATE,
    COLUMN_SEQ,
    COLUMN_SLOT,
    COLUMN_STEP,
    COLUMN_READY,
    COLUMN_BORN_SLOT,
    COLUMN_BORN,
    COLUMN_ENQUEUED,
    COLUMN_EXPIRE,
    COLUMN_ATTEMPTS,
    COLUMN_KIND,
    COLUMN_PAYLOAD,
    COLUMN_METADATA,
    COLUMN_KEY,
    COLUMN_REASON,
    COLUMN_RECEIPT,
    COLUMN_UNTIL,
    COLUMN_LEASE,
    COLUMN_ENDED,
    COLUMN_ESCALATED,
    COLUMN_ESCALATED_FROM,
    COLUMN_ESCALATED_BY,
    COLUMN_ESCALATED_WHY,
    COLUMN_COUNT
};

struct columns {
    int at[COLUMN_COUNT]; /* -1: not there */
};

struct row {
    const PGresult *result;
    const struct columns *columns;
    int at;
};

struct columns columns_of(const PGresult *r);

void row_show(struct engine_op *op, const struct row *row, struct instant now); /* to op->visit */
int64_t row_int(const struct row *row, enum column c);  /* 0 when it is not there */
uint8_t row_slot(const struct row *row, enum column c); /* below LEVEL_COUNT_MAX, come what may */
uint8_t cell_slot(const PGresult *r, int row, int column); /* as above */
bool row_has(const struct row *row, enum column c);        /* it is there, and not NULL */
size_t row_len(const struct row *row, enum column c);
const char *row_bytes(const struct row *row, enum column c, size_t *len); /* the answer's */
enum message_state cell_state(const PGresult *r, int row, int column);

#endif
