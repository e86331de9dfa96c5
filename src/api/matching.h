/* What is done to all messages that match a filter: the fields of such a call, and its answer. A
 * call either goes on until all is done, or ends after so many (max, look_max) with a cursor to go
 * on. */
#ifndef TRIAGE_API_MATCHING_H
#define TRIAGE_API_MATCHING_H

#include "api/call.h"

/* The call's `extra`, or the head of it; a field's target. */
struct match_call {
    struct call *call;
    bool has_filter;
    struct matching matching;
};

void match_init(struct match_call *m, struct call *c);
void match_fini(struct match_call *m);

field_take match_take_filter, match_take_dry_run, match_take_max, match_take_look_max,
    match_take_after;
field_take match_take_dead_filter; /* which may have a reason */
#define MATCH_FIELDS                                                                               \
    FIELD("dry_run", match_take_dry_run), FIELD("max", match_take_max),                            \
        FIELD("look_max", match_take_look_max), FIELD("after", match_take_after)

/* Without a filter there is nothing to try, to look at, or to go on with. False: one of them was
 * given, and the call was refused. */
MUST_USE bool match_whole(struct call *c, const struct match_call *m);

/* {"matched":…,NAME:…,"looked_at":…,"sample":[…],"next":…} */
void match_answer(struct call *c, const struct match_call *m, const char *changed);

/* Submits it, when it has a filter; else the call is refused. `what` says what {} means. */
void match_submit(struct call *c, struct match_call *m, enum request_kind kind, const char *what,
                  call_finish *finish);

#endif
