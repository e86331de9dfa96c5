#include "base/tag.h"

#include <stdio.h>
#include <stdlib.h>

/* The letters of a tag. Memory that was overwritten has other bytes than letters. */
static void letters(uint32_t tag, char out[5])
{
    for (int i = 0; i < 4; i++) {
        char c = (char)(tag >> (24 - 8 * i));
        out[i] = c > ' ' && c <= '~' ? c : '?';
    }
    out[4] = '\0';
}

void tag_wrong(uint32_t found, uint32_t expected)
{
    char is[5], wanted[5];
    letters(found, is);
    letters(expected, wanted);
    fprintf(stderr, "triage: memory tagged %s (%08x) where %s was expected\n", is, (unsigned)found,
            wanted);
    abort();
}
