/* Cron lines: what is taken is due some time, at a time that fits, and the next one is later. What
 * is refused is refused with words. */
#include "base/cron.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cron c;
    char why[CRON_WHY_MAX] = "";
    char *line = exact_copy(data, size);
    bool ok = cron_parse(line, size, &c, why);
    free(line);
    if (!ok) {
        assert(why[0] && memchr(why, '\0', sizeof(why)));
        return 0;
    }
    assert(c.minutes && c.hours && c.days && c.months && c.weekdays);
    int64_t at = 1700000000;
    for (int i = 0; i < 20; i++) {
        int64_t next = cron_next(&c, NULL, at);
        assert(next > at && next != INT64_MAX && next % 60 == 0);
        assert(c.minutes >> next / 60 % 60 & 1);
        assert(c.hours >> next / 3600 % 24 & 1);
        at = next;
    }
    return 0;
}
