/* TZif files: arbitrary bytes are no zone, or one whose spans follow one another without end, and
 * by which a due time is found or not within bounds. */
#include "base/cron.h"
#include "fuzz.h"

static void check_span(const struct zone *z, int64_t at)
{
    struct zone_span s = zone_span(z, at);
    assert(s.from_s <= at && at < s.until_s);
    assert(s.offset >= -ZONE_OFFSET_MAX && s.offset <= ZONE_OFFSET_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t moments[] = {-62135596800, -1, 0, 1700000000, 4102444800, 100000000000};
    struct cron c;
    char why[CRON_WHY_MAX];
    bool ok = cron_parse("30 2 * * *", 10, &c, why);
    assert(ok);
    char *file = exact_copy(data, size);
    struct zone *z = zone_parse(file, size);
    free(file);
    if (!z)
        return 0;
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        int64_t at = moments[i];
        check_span(z, at);
        int64_t next = cron_next(&c, z, at);
        assert(next > at);
    }
    free(z);
    return 0;
}
