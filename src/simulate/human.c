#include "simulate/human.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name;
    int64_t seconds;
} units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};

const char *human_duration(int64_t ms, char out[HUMAN_DURATION_MAX])
{
    int64_t seconds = ms / 1000;
    if (ms < 1000) {
        snprintf(out, HUMAN_DURATION_MAX, "%" PRId64 " ms", ms);
        return out;
    }
    if (ms < 60000) {
        int tenth = (int)(ms % 1000 / 100);
        if (tenth == 0 || seconds >= 20)
            snprintf(out, HUMAN_DURATION_MAX, "%" PRId64 " s", seconds);
        else
            snprintf(out, HUMAN_DURATION_MAX, "%" PRId64 ".%d s", seconds, tenth);
        return out;
    }
    int unit = 0;
    while (seconds < units[unit].seconds)
        unit++;
    int64_t whole = seconds / units[unit].seconds;
    int64_t rest = seconds % units[unit].seconds / units[unit + 1].seconds;
    int at = snprintf(out, HUMAN_DURATION_MAX, "%" PRId64 " %s", whole, units[unit].name);
    if (rest > 0)
        snprintf(out + at, (size_t)(HUMAN_DURATION_MAX - at), " %" PRId64 " %s", rest,
                 units[unit + 1].name);
    return out;
}
