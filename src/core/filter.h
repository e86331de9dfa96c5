/* Which messages of a queue a bulk change is for: scheduled or ready ones for which
 * all conditions hold that are set. */
#ifndef TRIAGE_CORE_FILTER_H
#define TRIAGE_CORE_FILTER_H

#include "base/json.h"
#include "core/message.h"

struct filter {
    struct priority_ref priority; /* PRIORITY_DEFAULT: any */
    int64_t older_than_ms;        /* since it was enqueued; -1: any */
    bool has_metadata;
    /* Private. */
    struct buf text;        /* the metadata that is asked for */
    struct json_doc wanted; /* … parsed */
    struct json_doc found;  /* the metadata of the message that is being compared, parsed */
};

void filter_init(struct filter *f);
void filter_fini(struct filter *f);

/* Sets the condition that every member of this object is in a message's metadata, with the same
 * value. False when the text is not a JSON object. Keeps a copy. */
bool filter_set_metadata(struct filter *f, const char *text, size_t len);

/* `slot` is the level that f->priority means, or -1 for any. The message's body is in memory. */
bool filter_matches(struct filter *f, const struct message *m, int slot, int64_t wall_ms);

#endif
