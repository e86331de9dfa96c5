/* What calls with one receipt and calls with many share. Private to src/api. */
#ifndef TRIAGE_API_RECEIPTS_H
#define TRIAGE_API_RECEIPTS_H

#include "api/fields.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

/* The fields of nack, release and extend. */
struct settle_fields {
    const char *receipt; /* borrowed from the body, as is the reason */
    size_t receipt_len;
    const char *reason;
    size_t reason_len;
    int64_t delay_ms; /* -1: not said */
    int64_t lease_ms; /* -1: not said */
    bool dead;        /* a nack: there is no other attempt */
};

/* The target is a struct settle_fields, or begins with one. */
field_take settle_take_delay, settle_take_reason, settle_take_lease, settle_take_dead;

/* False when the lease is missing: the call was refused, and is gone. */
MUST_USE bool settle_has_lease(struct call *c, const struct settle_fields *s);

/* Puts the fields into the call's op; the reason is copied. */
void settle_keep(struct call *c, const struct settle_fields *s);

extern const char receipt_never_valid[]; /* a sentence */

#endif
