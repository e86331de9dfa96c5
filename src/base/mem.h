/* Allocation that aborts with a clear line instead of returning NULL. The
 * engines are built for restart; half-handled exhaustion is not. */
#ifndef TRIAGE_BASE_MEM_H
#define TRIAGE_BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t size);
void *mem_zalloc(size_t size);
void *mem_realloc(void *old, size_t size);
void *mem_dup(const void *data, size_t len); /* with a NUL after the copy */

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
