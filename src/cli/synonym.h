/* What other programs call a command of this one. */
#ifndef TRIAGE_CLI_SYNONYM_H
#define TRIAGE_CLI_SYNONYM_H

/* What somebody who types `asked` after `triage family` is looking for, as a command line; NULL
 * when no other program has the word. The family of commands themselves is "". */
const char *synonym_find(const char *family, const char *asked);

#endif
