/* "Did you mean …?" for a name that is not known: the nearest of those that are. Says nothing when
 * nothing is near. */
#ifndef TRIAGE_BASE_SUGGEST_H
#define TRIAGE_BASE_SUGGEST_H

#include <stddef.h>

struct suggestion {
    const char *asked; /* borrowed, as is the next */
    size_t asked_len;
    const char *best; /* NULL: nothing is near */
    size_t distance;
};

void suggest_begin(struct suggestion *s, const char *asked, size_t len);
void suggest_offer(struct suggestion *s, const char *name);

/* How many characters have to be added, removed, replaced or swapped with their neighbour to make
 * one word of the other. */
size_t suggest_distance(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
