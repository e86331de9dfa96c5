#include "base/suggest.h"

#include <stdint.h>
#include <string.h>

#define NAME_MAX_LEN 32 /* longer names are not compared; all of ours are shorter */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: three rows of the table are enough to see a swap. */
size_t suggest_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][NAME_MAX_LEN + 1];
    if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
        return SIZE_MAX;
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_len; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] =
                smaller(above[j - 1] + (a[i - 1] != b[j - 1]), smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b_len];
}

void suggest_begin(struct suggestion *s, const char *asked, size_t len)
{
    *s = (struct suggestion){.asked = asked, .asked_len = len, .distance = 2 + len / 5};
}

/* A name that begins with the text is near, however much is missing. */
void suggest_offer(struct suggestion *s, const char *name)
{
    size_t len = strlen(name);
    size_t distance = suggest_distance(s->asked, s->asked_len, name, len);
    if (s->asked_len >= 3 && len > s->asked_len && memcmp(s->asked, name, s->asked_len) == 0)
        distance = smaller(distance, 1);
    if (distance >= s->distance || distance >= s->asked_len)
        return;
    s->distance = distance;
    s->best = name;
}
