/* Bugs on purpose, to see that the tests can fail: `meson setup … -Dplant=NAME` builds a program
 * that breaks one promise. Without it each of these is 0 and the compiler drops what it guards.
 * tools/plant builds them one after the other and says which check caught each. */
#ifndef TRIAGE_BASE_PLANT_H
#define TRIAGE_BASE_PLANT_H

#ifndef PLANT
#define PLANT 0
#endif

enum plant {
    PLANT_NOTHING,
    PLANT_SKIP_FSYNC,       /* answers although nothing was synced */
    PLANT_ANSWER_EARLY,     /* answers, then writes */
    PLANT_LOG_RELEASED,     /* the log is let go of before its records are in tables */
    PLANT_BACKUP_EARLY,     /* a backup lacks the last records of the log */
    PLANT_ANY_EPOCH,        /* whatever looks like a frame of the log is one */
    PLANT_LOSE_LEASE,       /* a lease is not written down */
    PLANT_LOSE_ACK,         /* an ack is not written down */
    PLANT_FIRED_APART,      /* the message of a due time is written before the next due time */
    PLANT_SHORT_LEASE,      /* a lease ends at half its time */
    PLANT_OLD_RECEIPT,      /* any receipt of a leased message is good */
    PLANT_FORGET_ATTEMPT,   /* a second delivery is not counted */
    PLANT_WALL_CLOCK,       /* leases run by the wall clock */
    PLANT_LOST_WAKEUP,      /* a message does not wake the last consumer that waits */
    PLANT_FIFO_TIE,         /* of two that came in one millisecond the later goes first */
    PLANT_INVERTED,         /* the most urgent level is passed over */
    PLANT_CANCEL_FORGOTTEN, /* a cancelled message stays */
    PLANT_DEDUP_FORGETS,    /* dedup keys are not written down */
    PLANT_TTL_IGNORED,      /* what has expired is delivered */
    PLANT_DELAY_IGNORED,    /* what is delayed is ready at once */
    PLANT_PRIORITY_LOST,    /* a nack makes a message the least urgent */
    PLANT_QUOTA_OFF_BY_ONE, /* one more than max_depth fits */
    PLANT_SHARE_OFF_BY_ONE, /* each level has one token too many */
    PLANT_ANY_PAGE,         /* pages of other sites are taken for the server's own */
    PLANT_BODY_FIRST,       /* a body is read before it is known whose it is */
    PLANT_UNCOUNTED_BUFFER, /* answers that wait to be sent are not counted */
    PLANT_HANGUP_LOST,      /* a hang-up does not reach the shard of another thread */
    PLANT_TICKET_OUTLIVES,  /* a session is resumed whoever vouches for clients now */
    PLANT_NUMBERS_TORN,     /* numbers lack what claims under way may take */
    PLANT_NAMESAKE_KEPT,    /* postgres: a queue that was deleted elsewhere stays under its name */
    PLANT_LIMIT_BLOCKS,  /* postgres: a second level with max_in_flight holds up those behind it */
    PLANT_OVERDUE_ONE,   /* postgres: of what is overdue a claim takes one first */
    PLANT_AGELESS_START, /* postgres: the first claim on a queue knows no ages */
    PLANT_HEAD_BELIEVED, /* cells: what was seen of a cell is believed for ten seconds */
    PLANT_EPOCH_SKIPPED, /* cells: a cell takes what was sent by an old placement */
    PLANT_GROUP_TWICE,   /* cells: what one cell did not answer is sent to another */
};

#define PLANTED(bug) (PLANT == PLANT_##bug)

#endif
