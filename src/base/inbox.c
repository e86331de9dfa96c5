#include "base/inbox.h"

#include <stdlib.h>

void inbox_open(struct inbox *in, uv_loop_t *loop, uv_async_cb on_mail, void *data)
{
    in->first = NULL;
    in->last = &in->first;
    if (uv_mutex_init(&in->mutex) != 0 || uv_async_init(loop, &in->async, on_mail) != 0)
        abort();
    in->async.data = data;
}

void inbox_close(struct inbox *in, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&in->async, closed);
}

void inbox_put(struct inbox *in, struct inbox_node *node)
{
    node->next = NULL;
    uv_mutex_lock(&in->mutex);
    *in->last = node;
    in->last = &node->next;
    uv_mutex_unlock(&in->mutex);
    uv_async_send(&in->async);
}

struct inbox_node *inbox_take(struct inbox *in)
{
    uv_mutex_lock(&in->mutex);
    struct inbox_node *list = in->first;
    in->first = NULL;
    in->last = &in->first;
    uv_mutex_unlock(&in->mutex);
    return list;
}

void inbox_wake(struct inbox *in)
{
    uv_async_send(&in->async);
}
