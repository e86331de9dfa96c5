/* Files that are there whole or not at all, also after a power loss. */
#ifndef TRIAGE_BASE_FILE_H
#define TRIAGE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;

/* Replaces the file `path` by these bytes: writes PATH.new, then renames it. True: the new file is
 * on the disk. False: errno says why, and an older file is as it was. */
bool file_replace(const char *path, const void *data, size_t len, mode_t mode);

/* Writes all bytes, in as many writes as that takes. False: errno says why. */
bool file_write_all(int fd, const char *data, size_t len);

/* Appends a whole file, or standard input when path is NULL; false with errno. */
bool file_read(const char *path, struct buf *out);

/* Makes names durable: all that are in the folder, or that of `path` in its folder. */
bool folder_sync(const char *folder);
bool file_sync_name(const char *path);

#endif
