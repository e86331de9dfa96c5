/* Text in the user's own editor, $VISUAL or $EDITOR, else vi. */
#ifndef TRIAGE_CLI_EDITOR_H
#define TRIAGE_CLI_EDITOR_H

#include "base/buf.h"

#include <stdbool.h>

#define EDITOR_PATH_MAX 512

/* Lets the user change `text`, in a file that nobody else can read; `suffix` tells editors what it
 * is. Returns when the editor has ended. True with the new text, and `path` has the file, which the
 * caller removes when the text is safe elsewhere; false after a complaint, with the old text. A
 * newline that the editor put at the end, where none was, is taken off. */
bool editor_run(struct buf *text, const char *suffix, char path[EDITOR_PATH_MAX]);

#endif
