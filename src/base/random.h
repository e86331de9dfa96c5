/* Unpredictable bytes from the kernel, fetched a page at a time. Any thread. */
#ifndef TRIAGE_BASE_RANDOM_H
#define TRIAGE_BASE_RANDOM_H

#include <stddef.h>

void random_bytes(void *out, size_t len);

#endif
