#include "engine/local/local.h"
enum status local_open(const struct engine_options *options, uint32_t shard_count,
                       struct engine *shards[], struct buf *error)
{
    (void)options, (void)shard_count, (void)shards;
    buf_lit(error, "not built yet");
    return STATUS_ENGINE_UNAVAILABLE;
}
