/* Backups of the local engine. A backup is a data directory of its own, `BACKUP_DIR/NAME`, on which
 * a server can be started. While it is made it is called NAME.partial, and no server starts on
 * that. It gets its name when all of it is on the disk. */
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
