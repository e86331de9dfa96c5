/* Files that are there whole or not at all, also after a power loss. */
#ifndef TRIAGE_BASE_FILE_H
#define TRIAGE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;

/* Puts these bytes in the place of `path`, under another name first (PATH.new). On the disk when it
 * returns true; else errno says why, and an older file is as it was. */
bool file_replace(const char *path, const void *data, size_t len, mode_t mode);

/* All of it, however many writes that takes; else errno says why. */
bool file_write_all(int fd, const char *data, size_t len);

/* Appends a whole file, or standard input when path is NULL; false with errno. */
bool file_read(const char *path, struct buf *out);

/* Makes names in the folder durable, or the name of `path` in the folder that has it. */
bool folder_sync(const char *folder);
bool file_sync_name(const char *path);

#endif
