/* A tag says what a piece of memory is. Memory that comes back through a `void *`, a handle's data
 * or container_of() has lost its type: the tag is written when the memory is made, checked when it
 * comes back, and overwritten right before the memory is freed. So a pointer to something else, or
 * to what was freed, ends the process at the first look and not at the first damage.
 *
 * Each type has its own four letters, and one accessor that checks them (conn_of, call_of). */
#ifndef TRIAGE_BASE_TAG_H
#define TRIAGE_BASE_TAG_H

#include <stdint.h>

#define TAG(a, b, c, d)                                                                            \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))
#define TAG_GONE TAG('g', 'o', 'n', 'e') /* in memory that was freed */

/* Says which tag was expected and which was found, and aborts. */
_Noreturn void tag_wrong(uint32_t found, uint32_t expected);

static inline void tag_check(uint32_t found, uint32_t expected)
{
    if (__builtin_expect(found != expected, 0))
        tag_wrong(found, expected);
}

/* Before it is freed, or goes back to its pool. The write is volatile: a compiler drops plain
 * writes to memory that is freed next. */
static inline void tag_end(uint32_t *tag, uint32_t expected)
{
    tag_check(*tag, expected);
    *(volatile uint32_t *)tag = TAG_GONE;
}

#endif
