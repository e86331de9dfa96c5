/* docs/openapi.yaml, inside the binary. */
#ifndef TRIAGE_TRIAGED_OPENAPI_H
#define TRIAGE_TRIAGED_OPENAPI_H

#include <stddef.h>

extern const char openapi_text[];
extern const size_t openapi_len;

#endif
