/* Which messages of a queue are meant, by somebody who looks at them or changes many at once: those
 * for which all conditions hold that are set. */
#ifndef TRIAGE_CORE_FILTER_H
#define TRIAGE_CORE_FILTER_H

#include "base/json.h"
#include "core/message.h"

struct filter {
    struct priority_ref priority; /* PRIORITY_DEFAULT: any */
    uint32_t states;              /* a set of 1 << enum message_state */
    int64_t older_than_ms;        /* since it was enqueued; -1: any */
    bool has_metadata;
    bool as_text; /* the metadata is asked for as text: "5" is the number 5, too */
    bool has_reason;
    /* Private. */
    struct buf reason;      /* the reason of its last failure, as a whole */
    struct buf part;        /* bytes that are in its payload; empty: any */
    struct buf text;        /* the metadata that is asked for */
    struct json_doc wanted; /* … parsed */
    struct json_doc found;  /* the metadata of the message that is being compared, parsed */
};

void filter_init(struct filter *f); /* every scheduled or ready message */
void filter_fini(struct filter *f);

/* Sets the condition that every member of this object is in a message's metadata, with the same
 * value. False when the text is not a JSON object. Keeps a copy. */
bool filter_set_metadata(struct filter *f, const char *text, size_t len);

/* Set the condition that this text is the reason of the last failure, or is somewhere in the
 * payload. Both keep a copy. */
void filter_set_reason(struct filter *f, const char *text, size_t len);
void filter_set_part(struct filter *f, const char *text, size_t len);

static inline bool filter_needs_payload(const struct filter *f)
{
    return f->part.len > 0;
}

/* How many bytes of the message the filter may have to look through. Whoever asks about many
 * messages ends a turn of the loop by their sum: a byte takes up to 2 ns. */
static inline size_t filter_cost(const struct filter *f, const struct message *m)
{
    return (f->part.len > 0 ? m->payload_len : 0) + (f->has_metadata ? m->metadata_len : 0u);
}

/* `slot` is the level that f->priority means, or -1 for any. The message's body is in memory; its
 * payload may be missing unless filter_needs_payload(). */
bool filter_matches(struct filter *f, const struct message *m, int slot, int64_t wall_ms);

#endif
