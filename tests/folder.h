/* A temporary folder of a test's own, under TMPDIR or /tmp. */
#ifndef TRIAGE_TESTS_FOLDER_H
#define TRIAGE_TESTS_FOLDER_H

#define FOLDER_PATH_MAX 64

void folder_make(char path[FOLDER_PATH_MAX]); /* aborts when it cannot */
void folder_remove(const char *path);         /* and all that is in it; a file is fine too */

#endif
