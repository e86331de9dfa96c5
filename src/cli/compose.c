#include "cli/compose.h"

#include "base/file.h"
#include "cli/payload.h"
#include "term/cli.h"
#include "term/member.h"

#include <errno.h>

static bool payload_take(const struct compose *c, const char *operand, struct buf *out)
{
    if (operand != NULL && strcmp(operand, "-") != 0) {
        buf_puts(out, operand);
    } else if (!file_read(c->file, out)) {
        cli_complain("%s: %s", c->file ? c->file : "standard input", strerror(errno));
        return false;
    }
    return !c->json_payload || payload_check_json(out, "the payload is not JSON");
}

bool compose_put(const struct compose *c, const char *operand, struct buf *json)
{
    struct buf payload = {0};
    bool fine = payload_take(c, operand, &payload);
    if (fine && c->json_payload) {
        member_put(json, "payload");
        buf_put(json, payload.data, payload.len);
    } else if (fine) {
        payload_put(json, payload.data, payload.len);
    }
    buf_fini(&payload);
    if (c->priority)
        member_put_priority(json, "priority", c->priority);
    if (c->delay_ms != ARG_UNSET)
        member_put_seconds(json, "delay_seconds", c->delay_ms);
    if (c->dedup)
        member_put_text(json, "dedup_key", c->dedup);
    if (c->ttl_ms != ARG_UNSET)
        member_put_seconds(json, "ttl_seconds", c->ttl_ms);
    return fine && member_put_metadata(json, &c->meta);
}
