/* The trace context of a message (W3C Trace Context): what a producer sends as the header
 * traceparent is kept as the member "traceparent" of the message's metadata, so every engine and
 * SQL have it, and is given back with the claim. Private to src/api. */
#ifndef TRIAGE_API_TRACE_CONTEXT_H
#define TRIAGE_API_TRACE_CONTEXT_H

#include "core/message.h"

#include <stdbool.h>
#include <stddef.h>

#define TRACEPARENT_LEN 55 /* 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 */

/* Whether the text is a context, of this version of the standard or a later one. */
bool trace_context_valid(const char *text, size_t len);

/* Puts the context into the draft's metadata; the draft has its body. Nothing is done when the text
 * is no valid context, when the metadata has a member of that name, or when there is no room in it:
 * a message is never refused for its context. */
void trace_context_put(struct draft *d, const char *text, size_t len);

/* The context in metadata, TRACEPARENT_LEN bytes of it; NULL when there is none, or no valid one.
 */
const char *trace_context_find(const char *metadata, size_t len);

#endif
