/* What export writes and import reads: NDJSON. A whole queue begins with its configuration and its
 * schedules, has one line for each message, as the server exports them, and ends with the number of
 * messages:
 *
 *     {"queue":"mail","configuration":{…}}
 *     {"schedule":"digest","definition":{…}}
 *     {"message_id":"msg_…","state":"ready",…}
 *     {"exported":1} */
#ifndef TRIAGE_CLI_TRANSFER_H
#define TRIAGE_CLI_TRANSFER_H

#include "base/buf.h"
#include "base/json.h"

#define TRANSFER_QUEUE         "queue"
#define TRANSFER_CONFIGURATION "configuration"
#define TRANSFER_SCHEDULE      "schedule"
#define TRANSFER_DEFINITION    "definition"
#define TRANSFER_EXPORTED      "exported"

/* A queue's configuration as GET shows it, without the members that are named; the list ends with
 * NULL. */
void transfer_configuration(struct buf *out, const struct json_doc *doc, uint32_t at,
                            const char *const without[]);

/* A schedule as GET shows it, as PUT takes it. */
void transfer_schedule(struct buf *out, const struct json_doc *doc, bool with_paused);

#endif
