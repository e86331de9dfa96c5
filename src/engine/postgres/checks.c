/* What an answer must be before anybody relies on it. Tables can be edited by hand, and functions
 * can be replaced. When the database answers something impossible, the log names it, and the answer
 * counts as none. */
#include "base/log.h"
#include "base/utf8.h"
#include "engine/postgres/impl.h"
#include "engine/postgres/rows.h"

#define TIME_MS_MIN (-TIME_MS_MAX - 1)
#define SEQ_MAX     ((1LL << 48) - 1)
#define SLOT_MAX    (LEVEL_COUNT_MAX - 1)

/* A number that every row must have, unless its status says why not. */
struct expected {
    enum engine_verb verb;
    const char *column;
    int64_t least, most;
};

static const struct expected expected[] = {
    {ENGINE_PUT, "slot", 0, SLOT_MAX},
    {ENGINE_PUT, "ready_ms", TIME_MS_MIN, TIME_MS_MAX},
    {ENGINE_PUT, "seq", 1, SEQ_MAX},
    {ENGINE_PUT, "enqueued_ms", TIME_MS_MIN, TIME_MS_MAX},
    {ENGINE_PUT, "deduplicated", 0, 1},
    {ENGINE_IMPORT, "slot", 0, SLOT_MAX},
    {ENGINE_IMPORT, "ready_ms", TIME_MS_MIN, TIME_MS_MAX},
    {ENGINE_IMPORT, "seq", 1, SEQ_MAX},
    {ENGINE_IMPORT, "deduplicated", 0, 1},
    {ENGINE_ACK, "slot", 0, SLOT_MAX},
    {ENGINE_EXTEND, "slot", 0, SLOT_MAX},
    {ENGINE_EXTEND, "until_ms", TIME_MS_MIN, TIME_MS_MAX},
    {ENGINE_ESCALATE, "changed", 0, 1},
    {ENGINE_ESCALATE, "from_slot", 0, SLOT_MAX},
    {ENGINE_COUNT, "before", 0, INT64_MAX},
    {ENGINE_COUNT, "exact", 0, 1},
};

static bool number_fits(const PGresult *r, int row, int column, int64_t least, int64_t most)
{
    int64_t value = column >= 0 ? cell_int(r, row, column) : 0;
    return column >= 0 && !cell_null(r, row, column) && value >= least && value <= most;
}

/* Whether every row without a status has what `e` expects. If not, *row is the first that has
 * not. */
static bool column_fits(const struct pg_call *c, const struct expected *e, int rows, int *row)
{
    int column = PQfnumber(c->result, e->column), status = PQfnumber(c->result, "status");
    for (*row = 0; *row < rows; ++*row) {
        bool refused = status >= 0 && !cell_null(c->result, *row, status);
        if (!refused && !number_fits(c->result, *row, column, e->least, e->most))
            return false;
    }
    return true;
}

static bool state_fits(const struct pg_call *c, int rows, int *row)
{
    int state = PQfnumber(c->result, "state"), status = PQfnumber(c->result, "status");
    bool tells = c->kind == CALL_SETTLE || c->verb == ENGINE_ESCALATE;
    for (*row = 0; tells && *row < rows; ++*row) {
        bool refused = status >= 0 && !cell_null(c->result, *row, status);
        if (!refused && (state < 0 || cell_state(c->result, *row, state) == MESSAGE_NEW))
            return false;
    }
    return true;
}

/* Rows are in the order of the items, and most rows say which item they are for. */
static bool places_fit(const struct pg_call *c, int rows, int *row)
{
    int place = PQfnumber(c->result, "place");
    for (*row = 0; place >= 0 && *row < rows; ++*row) {
        if (cell_int(c->result, *row, place) != *row + 1)
            return false;
    }
    return true;
}

static bool is_bulk(enum engine_verb verb)
{
    return verb == ENGINE_PURGE || verb == ENGINE_PROMOTE || verb == ENGINE_DEAD_REDRIVE ||
           verb == ENGINE_DEAD_DROP;
}

bool answer_fits(const struct pg_call *c, uint32_t rows)
{
    const char *column = NULL;
    int row = 0, count = (int)rows;
    if (c->op_count > 0 && is_bulk(c->verb) &&
        !number_fits(c->result, 0, 0, 0,
                     c->ops[0]->bulk.id_count ? c->ops[0]->bulk.id_count : c->ops[0]->bulk.max))
        column = "the first";
    for (size_t i = 0; !column && i < sizeof(expected) / sizeof(expected[0]); i++) {
        if (c->op_count > 0 && expected[i].verb == c->verb &&
            !column_fits(c, &expected[i], count, &row))
            column = expected[i].column;
    }
    if (!column && !places_fit(c, count, &row))
        column = "place";
    if (!column && !state_fits(c, count, &row))
        column = "state";
    if (column)
        log_error("postgres: an answer cannot be read", "sql=\"%s\" row=%d column=\"%s\"", c->sql,
                  row, column);
    return !column;
}

/* Messages */

static const struct {
    enum column column;
    const char *name;
    bool needed;
    int64_t least, most;
} row_numbers[] = {
    {COLUMN_SEQ, "seq", true, 1, SEQ_MAX},
    {COLUMN_SLOT, "slot", true, 0, SLOT_MAX},
    {COLUMN_BORN_SLOT, "born_slot", true, 0, SLOT_MAX},
    {COLUMN_READY, "ready_ms", true, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_BORN, "born_ms", true, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_ENQUEUED, "enqueued_ms", true, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_EXPIRE, "expire_ms", false, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_ATTEMPTS, "attempts", true, 0, INT32_MAX},
    {COLUMN_KIND, "kind", true, PAYLOAD_TEXT, PAYLOAD_BYTES},
    {COLUMN_UNTIL, "until_ms", false, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_LEASE, "lease_ms", false, LEAVING_MS_MIN, LEASE_SECONDS_MAX * 1000LL},
    {COLUMN_ENDED, "ended_ms", false, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_ESCALATED, "escalated_ms", false, TIME_MS_MIN, TIME_MS_MAX},
    {COLUMN_ESCALATED_FROM, "escalated_from", false, 0, SLOT_MAX},
};

static bool is_text(const struct row *row, enum column c)
{
    size_t len;
    const char *bytes = row_bytes(row, c, &len);
    return utf8_valid(bytes, len);
}

/* The name of a column that goes into JSON unchanged, and is not valid there; NULL: all are valid.
 * A column of bytes takes any bytes, and so does text in a database whose encoding is SQL_ASCII. */
static const char *odd_text(const struct row *row)
{
    static const struct {
        enum column column;
        const char *name;
    } texts[] = {
        {COLUMN_METADATA, "metadata"},
        {COLUMN_KEY, "dedup_key"},
        {COLUMN_REASON, "reason"},
        {COLUMN_ESCALATED_BY, "escalated_by"},
        {COLUMN_ESCALATED_WHY, "escalated_why"},
    };
    if (row_int(row, COLUMN_KIND) != PAYLOAD_BYTES && !is_text(row, COLUMN_PAYLOAD))
        return "payload";
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!is_text(row, texts[i].column))
            return texts[i].name;
    }
    return NULL;
}

/* The name of a column with a value that no message can have; NULL: there is none. */
static const char *odd_column(const struct row *row, bool claimed, bool whole)
{
    int state = row->columns->at[COLUMN_STATE];
    for (size_t i = 0; i < sizeof(row_numbers) / sizeof(row_numbers[0]); i++) {
        int column = row->columns->at[row_numbers[i].column];
        bool absent = column < 0 || cell_null(row->result, row->at, column);
        if (absent ? row_numbers[i].needed
                   : !number_fits(row->result, row->at, column, row_numbers[i].least,
                                  row_numbers[i].most))
            return row_numbers[i].name;
    }
    if (state >= 0 && cell_state(row->result, row->at, state) == MESSAGE_NEW)
        return "state";
    if (claimed && row_len(row, COLUMN_RECEIPT) != RECEIPT_BYTES)
        return "receipt";
    if ((whole && !row_has(row, COLUMN_PAYLOAD)) || row_len(row, COLUMN_PAYLOAD) > PAYLOAD_MAX)
        return "payload";
    return row_len(row, COLUMN_METADATA) > METADATA_MAX ? "metadata" : odd_text(row);
}

bool row_fits(const struct pg_queue *q, const struct row *row, bool claimed, bool whole)
{
    const char *column = odd_column(row, claimed, whole);
    if (!column)
        return true;
    int at = row->columns->at[COLUMN_STATE];
    enum message_state state = at >= 0 ? cell_state(row->result, row->at, at) : MESSAGE_LEASED;
    log_error("postgres: a message cannot be read", "table=triage.%s queue=%s seq=%lld column=%s",
              state == MESSAGE_DONE ? "history" : message_state_name(state), q->face.name,
              (long long)row_int(row, COLUMN_SEQ), column);
    return false;
}
