/* Sockets for the load generator. */
#ifndef TRIAGE_LOADGEN_CONNECT_H
#define TRIAGE_LOADGEN_CONNECT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loadgen_config;

/* A connected blocking socket with TCP_NODELAY, or -1 with the reason in error. Waits 5 s at most.
 */
int loadgen_connect(const struct loadgen_config *config, char *error, size_t error_size);

/* Sends request and reads until `complete` (the length of a whole answer, or 0) is satisfied; the
 * answer is left in reply. False when the connection ends, is silent for 10 s or talks garbage. */
typedef size_t loadgen_complete_fn(const char *data, size_t len);
bool loadgen_talk(int fd, const char *request, size_t request_len, loadgen_complete_fn *complete,
                  struct buf *reply);

/* Raises the limit of open files as far as allowed; true when `files` fit. */
bool loadgen_files_reserve(uint32_t files);

#endif
