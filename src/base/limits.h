/* Everything has a limit, and all of them are here. A size that comes from
 * outside is compared with one of these before anything is allocated for it. */
#ifndef TRIAGE_BASE_LIMITS_H
#define TRIAGE_BASE_LIMITS_H

/* Names and messages. */
#define QUEUE_NAME_MAX    100 /* [A-Za-z0-9._-] */
#define LEVEL_COUNT_MAX   16
#define LEVEL_NAME_MAX    64
#define PAUSES_MAX        16           /* of a queue, remembered one by one */
#define PAYLOAD_MAX       (256 * 1024) /* bytes after decoding */
#define METADATA_MAX      4096         /* bytes of JSON text */
#define METADATA_KEYS_MAX 64
#define DEDUP_KEY_MAX     256
#define REASON_MAX        1024
#define ACTOR_MAX         128

/* Requests. */
#define ENQUEUE_BATCH_MAX 1000
#define ACK_BATCH_MAX     1000
#define CLAIM_MAX         100
#define WAIT_SECONDS_MAX  60
#define LEASE_SECONDS_MAX 43200
#define LIST_MAX          1000
#define DELAY_SECONDS_MAX (10LL * 366 * 86400)
#define TTL_SECONDS_MAX   (10LL * 366 * 86400)
#define TIME_MS_MAX       ((1LL << 47) - 1) /* ready times fit six bytes with a sign */

/* HTTP. */
#define HTTP_HEAD_MAX        (16 * 1024)
#define HTTP_HEADERS_MAX     64
#define HTTP_PATH_MAX        2048
#define HTTP_BODY_MAX        (64 * 1024 * 1024) /* a batch of large payloads */
#define HTTP_PIPELINE_MAX    64    /* requests of a connection under way, and of a turn */
#define HTTP_HEAD_MS_MAX     10000 /* whole head, from its first byte */
#define HTTP_BODY_RATE_MIN   1024  /* bytes a second, after a grace of HTTP_HEAD_MS_MAX */
#define HTTP_IDLE_MS_MAX     75000 /* keep-alive between requests */
#define HTTP_WRITE_MS_MAX    30000 /* a reader that does not read */
#define HTTP_OUTPUT_MAX      (32 * 1024 * 1024) /* unsent bytes of one connection */
#define HTTP_ACCEPTS_MAX     2                  /* connections taken in one turn of the loop */
#define HTTP_CONNECTIONS_MAX 16000 /* default; a setting, and never above the fd limit */

#endif
