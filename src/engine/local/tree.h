/* Folders as a whole, for backups: made durable, removed, and single files copied. Symbolic links
 * are never followed. */
#ifndef TRIAGE_ENGINE_LOCAL_TREE_H
#define TRIAGE_ENGINE_LOCAL_TREE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

bool tree_sync(const char *path);      /* every file and folder in it; false with errno */
bool tree_remove(const char *path);    /* with all that is in it; false with errno */
uint64_t tree_bytes(const char *path); /* of all its files */

/* Called now and then while bytes are copied, with how many; any status but OK ends the copy. */
typedef enum status tree_step(void *ctx, uint64_t bytes, struct buf *error);

/* A new file with the same bytes and mode, synced. */
MUST_USE enum status tree_copy_file(const char *from, const char *to, tree_step *step, void *ctx,
                                    struct buf *error);
/* A new folder with the same files; folders in it are left out. */
MUST_USE enum status tree_copy_files(const char *from, const char *to, tree_step *step, void *ctx,
                                     struct buf *error);

/* "cannot open PATH: No such file …", by errno. */
enum status tree_refuse(struct buf *error, const char *what, const char *path);

#endif
