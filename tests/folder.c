#define _GNU_SOURCE /* nftw */
#include "folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void folder_make(char path[FOLDER_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, FOLDER_PATH_MAX, "%s/triage-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(path)) {
        perror(path);
        abort();
    }
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void folder_remove(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
