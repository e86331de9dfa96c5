/* A configuration as the command line says it: key=value, on top of a file. */
#ifndef TRIAGE_CLI_SETTING_H
#define TRIAGE_CLI_SETTING_H

#include "base/buf.h"
#include "term/args.h"

/* The body that the file (NULL: none) and the operands after the first make, and the method to send
 * it with; NULL after a complaint. Single levels are changed with PATCH: a queue that is missing is
 * not made for that. */
const char *setting_body(const char *file, const struct operands *ops, struct buf *out);

#endif
