/* What differs between two configurations of a queue, as the server shows them. Levels are compared
 * by name. */
#ifndef TRIAGE_CLI_CONFIG_DIFF_H
#define TRIAGE_CLI_CONFIG_DIFF_H

#include "base/json.h"

struct config_diff {
    struct buf lines;   /* one for each difference, indented, for people */
    struct buf changes; /* the same as members of a JSON array, without its brackets */
    struct buf dropped; /* names of levels that are gone, with commas; empty: none */
    uint32_t count;
};

/* `now` may be NULL, for a queue that is not there. */
void config_diff_make(struct config_diff *d, const struct json_doc *now,
                      const struct json_doc *next);
void config_diff_fini(struct config_diff *d);

#endif
