/* Everything has a limit, and all of them are here. A size that comes from
 * outside is compared with one of these before anything is allocated for it.
 * tools/embed-sql puts the same numbers into the SQL functions: so a value is made
 * of numbers and operators alone. */
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
#define PLACE_MAP_MAX     61440 /* bytes of the map in a queue's place */

/* Schedules. */
#define SCHEDULES_MAX              1000 /* of a queue */
#define SCHEDULE_CRON_MAX          200  /* bytes of a cron line */
#define SCHEDULE_EVERY_SECONDS_MAX (366LL * 86400)
#define SCHEDULE_GRACE_SECONDS_MAX 86400
#define SCHEDULE_PAYLOAD_MAX       (32 * 1024)
#define SCHEDULE_METADATA_MAX      3840 /* leaves room in METADATA_MAX for what the server adds */
#define SCHEDULE_METADATA_KEYS_MAX 62
#define SCHEDULE_MADE_UP_MAX       10000 /* missed due times in a row with missed = all */
#define SCHEDULE_NEXT_MAX          100   /* due times to come, in one answer */

/* Requests. */
#define ENQUEUE_BATCH_MAX  1000
#define ACK_BATCH_MAX      1000
#define CLAIM_MAX          100
#define CLAIM_QUEUES_MAX   32   /* of one claim */
#define EVENT_QUEUES_MAX   32   /* that a stream of events names */
#define HISTORY_POINTS_MAX 1000 /* of each series in an answer */
#define POSITION_EXACT     1000 /* messages ahead: up to so many are counted one by one */
#define WAIT_SECONDS_MAX   60
#define LEASE_SECONDS_MAX  43200
#define LIST_MAX           1000
#define PART_MAX           256           /* bytes that are looked for in payloads */
#define ANSWER_FULL        (1024 * 1024) /* bytes of messages: an answer with so many gets no more */
#define DELAY_SECONDS_MAX  (10LL * 366 * 86400)
#define TTL_SECONDS_MAX    (10LL * 366 * 86400)
#define TIME_MS_MAX        ((1LL << 47) - 1) /* ready times fit six bytes with a sign */

/* Configuration. */
#define ATTEMPTS_MAX        10000
#define COUNT_MAX           1000000000000000LL /* messages or bytes of a queue */
#define IN_FLIGHT_MAX       1000000000
#define HISTORY_SECONDS_MAX (366LL * 86400)
#define LEVEL_NUMBER_MAX    1000000000 /* its negative is the least */
#define WEIGHT_UNIT         0.001
#define WEIGHT_MAX          1000000.0
#define WEBHOOK_MAX         511 /* bytes of a URL */
#define FORWARD_URL_MAX     255 /* bytes of the URL of a server that a queue moves to */
#define FORWARD_TOKEN_MAX   255 /* and of the token for it */

/* HTTP. */
#define HTTP_HEAD_MAX        (16 * 1024)
#define HTTP_HEADERS_MAX     64
#define HTTP_PATH_MAX        2048
#define HTTP_BODY_MAX        (64 * 1024 * 1024) /* a batch of large payloads */
#define HTTP_PIPELINE_MAX    64    /* requests of a connection under way, and of a turn */
#define HTTP_HEAD_MS_MAX     10000 /* whole head, from its first byte */
#define HTTP_BODY_RATE_MIN   1024  /* bytes a second, in each window of HTTP_BODY_MS */
#define HTTP_BODY_MS         10000
#define HTTP_HOLD_MS_MAX     900000 /* a large body or answer has to be through within this time */
#define HTTP_IDLE_MS_MAX     75000  /* keep-alive between requests */
#define HTTP_WRITE_MS_MAX    30000  /* a reader that does not read */
#define HTTP_OUTPUT_MAX      (32 * 1024 * 1024) /* unsent bytes of one connection */
#define HTTP_ACCEPTS_MAX     2                  /* connections taken in one turn of the loop */
#define HTTP_HANDSHAKES_MAX  4                  /* steps of TLS handshakes in one turn */
#define HTTP_HANDSHAKES_US   5000               /* no further step begins in a turn after so long */
#define HTTP_CONNECTIONS_MAX 16000 /* default; a setting, and never above the fd limit */
#define HTTP_BUFFERS_MAX     (512 * 1024 * 1024) /* default; a setting */
#define HTTP_BUFFERS_MIN     (128 * 1024 * 1024) /* room for the largest body, and some */

#endif
