/* Backups. The engine takes long to make one, so it is asked on a thread of its own, for which no
 * loop waits. */
#include "broker/shard.h"

static void work(uv_work_t *work)
{
    struct broker_backup *b = work->data;
    b->status = engine_backup(b->broker->engines[0], &b->backup);
}

static void after(uv_work_t *work, int cancelled)
{
    struct broker_backup *b = work->data;
    (void)cancelled;
    uv_mutex_lock(&b->broker->backups_mutex);
    struct broker_backup **at = &b->broker->backups;
    while (*at != b) {
        assert(*at); /* a backup is in the list until it ends here */
        at = &(*at)->next;
    }
    *at = b->next;
    uv_mutex_unlock(&b->broker->backups_mutex);
    b->done(b);
}

void broker_backup(struct broker_port *port, struct broker_backup *b)
{
    struct broker *broker = port->broker;
    assert(b->done);
    b->broker = broker;
    b->work.data = b;
    b->backup.cancel = &b->cancel;
    uv_mutex_lock(&broker->backups_mutex);
    atomic_init(&b->cancel, broker->backups_end);
    b->next = broker->backups;
    broker->backups = b;
    uv_mutex_unlock(&broker->backups_mutex);
    uv_queue_work(port->loop, &b->work, work, after);
}

void broker_backup_cancel(struct broker_backup *b)
{
    atomic_store(&b->cancel, true);
}

void broker_backups_end(struct broker *broker)
{
    uv_mutex_lock(&broker->backups_mutex);
    broker->backups_end = true;
    for (struct broker_backup *b = broker->backups; b; b = b->next)
        atomic_store(&b->cancel, true);
    uv_mutex_unlock(&broker->backups_mutex);
}

void broker_backup_progress(struct broker *b, struct engine_backup_progress *p)
{
    engine_backup_progress(b->engines[0], p);
}
