/* For a disk that is damaged, while no server runs on it: `triaged check` says what is damaged, and
 * `triaged salvage` writes what is left as exports that `triage import` takes. Neither changes
 * anything in the data directory. */
#ifndef TRIAGE_TRIAGED_RESCUE_H
#define TRIAGE_TRIAGED_RESCUE_H

#include <stdbool.h>
#include <stddef.h>

bool rescue_wanted(int argc, char **argv);
const char *rescue_word(size_t i, const char **help); /* NULL behind the last */
int rescue_main(int argc, char **argv); /* 0 all well, 1 damage was met, 2 it could not be done */

#endif
