/* Levels on their way from one queue to another. A number means one thing in the queue that a
 * message comes from and perhaps another in the queue that it goes to, so levels go by name; where
 * the names differ too, the user says which is which. All of that is decided before the first
 * message is sent. */
#ifndef TRIAGE_CLI_IMPORT_LEVELS_H
#define TRIAGE_CLI_IMPORT_LEVELS_H

#include "base/json.h"
#include "base/limits.h"
#include "cli/client.h"
#include "term/args.h"

#define IMPORT_LEVELS_MAX 64 /* that one file may have */

/* What lines call a level, and where its messages go. */
struct import_level {
    char name[LEVEL_NAME_MAX + 1];
    bool is_number; /* an old line, which has no name: `name` has the number */
    int64_t messages;
    char to[LEVEL_NAME_MAX + 1]; /* the level's name in the queue; empty: not known yet */
};

struct import_levels {
    struct arg_list maps; /* FROM=TO, as they were given */
    struct import_level levels[IMPORT_LEVELS_MAX];
    size_t count;
    bool too_many;
};

/* Takes note of an exported line. */
void import_levels_note(struct import_levels *l, const struct json_doc *line);

/* Finds for each level of the file its level in the queue's configuration. `from` is the
 * configuration of the queue that was exported, at token 0, or NULL when the file has none.
 * CLI_DONE, or complains and returns the exit status. */
int import_levels_agree(struct import_levels *l, const char *queue, const struct json_doc *from,
                        const struct json_doc *to);

/* Tells which levels of a configuration are not among those of another. */
void import_levels_tell_stayed(const char *queue, const struct json_doc *wanted,
                               const struct json_doc *now);

/* Tells which numbers mean other levels than by the configuration `was`, a JSON text. */
void import_levels_tell_numbers(const char *queue, const char *was, size_t len,
                                const struct json_doc *now);

/* Adds the levels that have another name in the queue as map.… parameters of the import. */
void import_levels_query(const struct import_levels *l, struct client *c);

#endif
