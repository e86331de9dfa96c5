/* How far another clock is ahead of ours, learnt from questions and answers.
 *
 *     ours    asked ─────────────────── answered
 *                    \               /
 *     theirs          ──── theirs ───
 *
 * The other clock was read at some moment between the question and the answer. So each exchange
 * says that the offset lies between theirs - answered and theirs - asked, and a short exchange
 * says it well. The estimate is the middle of the shortest exchange of the last OFFSET_SPAN_US to
 * twice that time. An exchange whose range does not hold the estimate proves that a clock was set
 * or drifts: then the estimate moves into that range, and no further. */
#ifndef TRIAGE_BASE_OFFSET_H
#define TRIAGE_BASE_OFFSET_H

#include <stdbool.h>
#include <stdint.h>

#define OFFSET_SPAN_US 10000000

/* A zeroed struct knows nothing, and offset_us() says 0. */
struct clock_offset {
    bool known;
    int64_t since_us; /* asked, of the first exchange of this span */
    struct offset_guess {
        int64_t ahead_us;
        int64_t width_us; /* of the exchange; INT64_MAX: there was none */
    } this_span, last_span;
};

/* One exchange. All times are on wall clocks; one that was answered before it was asked, because
 * our clock was set back meanwhile, says nothing. */
void offset_learn(struct clock_offset *o, int64_t asked_us, int64_t theirs_us, int64_t answered_us);

/* By how much the other clock is ahead of ours; below 0: it is behind. */
int64_t offset_us(const struct clock_offset *o);

#endif
