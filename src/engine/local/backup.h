/* Backups of the local engine: `BACKUP_DIR/NAME`, a data directory of its own that a server can be
 * started on. While it is made it is called NAME.partial, and no server starts on that; at its end
 * all of it is on the disk before it gets its name. */
#ifndef TRIAGE_ENGINE_LOCAL_BACKUP_H
#define TRIAGE_ENGINE_LOCAL_BACKUP_H

#include "engine/engine.h"
#include "engine/local/store.h"

struct backups;

struct backups *backups_new(struct store *store, const char *backup_dir); /* borrowed, both */
void backups_free(struct backups *b);

/* Any thread; see engine_backup. */
MUST_USE enum status backup_make(struct backups *b, struct engine_backup *backup);
void backup_tell(struct backups *b, struct engine_backup_progress *p);

#endif
