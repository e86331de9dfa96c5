/* One message as people look at it: its members, then its payload. */
#ifndef TRIAGE_CLI_SHOW_H
#define TRIAGE_CLI_SHOW_H

#include <stdbool.h>

struct cli;
struct operands;

/* Asks for the message at `path`, whose two %s are the operands, and prints it. With payload_only
 * the payload goes to standard output byte for byte and nothing else does, to a terminal too: that
 * is what was asked for. Returns an exit status. */
int show_message(const struct cli *cli, const char *path, const struct operands *ops,
                 bool payload_only);

#endif
