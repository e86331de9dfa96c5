/* Import. If the queue does not have the level of every message, nothing is imported: half of an
 * import, with the urgent messages missing, would be worse than none. */
#include "broker/shard.h"

#include <stdio.h>
#include <string.h>

/* The first item whose level the queue does not have; NULL: it has all of them. */
static const struct import_item *stranger(const struct dispatcher *d, const struct request *r)
{
    for (uint32_t i = 0; i < r->op.import.count; i++) {
        const struct import_item *item = &r->op.import.items[i];
        if (levels_resolve(&d->queue->config, &item->draft.priority) < 0)
            return item;
    }
    return NULL;
}

static void refuse(struct dispatcher *d, struct request *r, const struct priority_ref *level)
{
    char name[LEVEL_NAME_MAX + 1], detail[sizeof(r->detail)];
    if (level->kind == PRIORITY_NUMBER)
        snprintf(name, sizeof(name), "%lld", (long long)level->number);
    else
        memcpy(name, level->name, sizeof(name));
    snprintf(detail, sizeof(detail),
             "Nothing was stored: the queue has no level \"%s\". Say where its messages go with "
             "?map.%s=LEVEL, or give the queue that level.",
             name, name);
    request_refuse(d->shard, r, STATUS_UNKNOWN_PRIORITY, "/level", detail);
}

static void check_again(struct dispatcher *d, struct request *r)
{
    const struct import_item *item = stranger(d, r);
    if (item)
        refuse(d, r, &item->draft.priority);
    else
        store_items(d, r);
}

/* A level that is missing may have been added by another process just now, so the view is refreshed
 * before a refusal. */
void import_check(struct dispatcher *d, struct request *r)
{
    if (stranger(d, r))
        view_refresh(d, r, check_again);
    else
        store_items(d, r);
}
