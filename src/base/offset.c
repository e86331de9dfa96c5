#include "base/offset.h"

int64_t offset_us(const struct clock_offset *o)
{
    const struct offset_guess *a = &o->this_span, *b = &o->last_span;
    return !o->known ? 0 : a->width_us <= b->width_us ? a->ahead_us : b->ahead_us;
}

/* A span is over: its shortest exchange counts for one more. */
static void turn_over(struct clock_offset *o, int64_t now_us)
{
    static const struct offset_guess none = {.width_us = INT64_MAX};
    int64_t age_us = now_us - o->since_us;
    if (o->known && age_us >= 0 && age_us < OFFSET_SPAN_US)
        return;
    o->last_span = o->known ? o->this_span : none;
    o->this_span = none;
    o->since_us = now_us;
}

/* Moves what is known into the range of an exchange that contradicts it. */
static void give_way(struct clock_offset *o, int64_t least_us, int64_t most_us)
{
    int64_t at_us = offset_us(o), by_us = 0;
    if (at_us < least_us)
        by_us = least_us - at_us;
    else if (at_us > most_us)
        by_us = most_us - at_us;
    o->this_span.ahead_us += by_us;
    o->last_span.ahead_us += by_us;
}

void offset_learn(struct clock_offset *o, int64_t asked_us, int64_t theirs_us, int64_t answered_us)
{
    int64_t width_us = answered_us - asked_us;
    if (width_us < 0)
        return;
    turn_over(o, asked_us);
    if (o->known)
        give_way(o, theirs_us - answered_us, theirs_us - asked_us);
    if (width_us <= o->this_span.width_us)
        o->this_span = (struct offset_guess){theirs_us - answered_us + width_us / 2, width_us};
    o->known = true;
}
