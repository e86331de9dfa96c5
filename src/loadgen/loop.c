#include "loadgen/loop.h"

#include "base/clock.h"
#include "base/mem.h"
#include "loadgen/connect.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX  512
#define SCRATCH_LEN (256 * 1024)

static bool conn_open(struct loadgen_loop *loop, struct loadgen_conn *conn)
{
    const struct loadgen_driver *driver = loop->config->driver;
    conn->fd = loadgen_connect(loop->config, loop->error, sizeof(loop->error));
    if (conn->fd < 0)
        return false;
    if (driver->greet && !driver->greet(loop->state, conn->fd, conn->queue, loop->error))
        return false;
    fcntl(conn->fd, F_SETFL, fcntl(conn->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0) {
        snprintf(loop->error, sizeof(loop->error), "epoll: %s", strerror(errno));
        return false;
    }
    return true;
}

static void conn_init(struct loadgen_loop *loop, struct loadgen_conn *conn, uint32_t index)
{
    const struct loadgen_config *config = loop->config;
    conn->fd = -1;
    conn->queue = index % config->queue_count;
    conn->slots = mem_zalloc(config->pipeline * sizeof(*conn->slots));
    conn->ring = mem_zalloc(config->pipeline * sizeof(struct loadgen_slot *));
    for (uint32_t i = 0; i < config->pipeline; i++) {
        size_t first = ((size_t)index * config->pipeline + i) * config->batch;
        conn->slots[i] = (struct loadgen_slot){
            .conn = conn,
            .queue = conn->queue,
            .leases = loop->leases + first,
        };
    }
}

bool loadgen_loop_open(struct loadgen_loop *loop, const struct loadgen_config *config, void *state,
                       uint32_t conn_count)
{
    loop->config = config;
    loop->state = state;
    loop->scratch = mem_alloc(SCRATCH_LEN);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert(loop->epoll_fd >= 0);
    loop->conns = mem_zalloc(conn_count * sizeof(*loop->conns));
    size_t leases = (size_t)conn_count * config->pipeline * config->batch;
    loop->leases = mem_zalloc(leases * sizeof(*loop->leases));
    loop->conn_count = conn_count;
    for (uint32_t i = 0; i < conn_count; i++)
        conn_init(loop, &loop->conns[i], i);
    for (uint32_t i = 0; i < conn_count; i++) {
        if (!conn_open(loop, &loop->conns[i]))
            return false;
    }
    return true;
}

void loadgen_loop_close(struct loadgen_loop *loop)
{
    for (uint32_t i = 0; i < loop->conn_count; i++) {
        struct loadgen_conn *conn = &loop->conns[i];
        if (conn->fd >= 0)
            close(conn->fd);
        free(conn->slots);
        free(conn->ring);
        buf_fini(&conn->in);
        buf_fini(&conn->out);
    }
    if (loop->scratch)
        close(loop->epoll_fd);
    free(loop->conns);
    free(loop->leases);
    free(loop->scratch);
    loop->conn_count = 0;
}

void loadgen_loop_submit(struct loadgen_loop *loop, struct loadgen_slot *slot, enum loadgen_op op,
                         uint64_t sent_us)
{
    struct loadgen_conn *conn = slot->conn;
    const uint32_t size = loop->config->pipeline;
    assert(conn->ring_count < size);
    slot->op = op;
    slot->sent_us = sent_us;
    uint32_t at = conn->ring_first + conn->ring_count;
    conn->ring[at < size ? at : at - size] = slot;
    conn->ring_count++;
    loop->busy++;
    loop->config->driver->encode(loop->state, slot, &conn->out);
}

static struct loadgen_slot *ring_shift(struct loadgen_loop *loop, struct loadgen_conn *conn)
{
    assert(conn->ring_count > 0);
    struct loadgen_slot *slot = conn->ring[conn->ring_first];
    if (++conn->ring_first == loop->config->pipeline)
        conn->ring_first = 0;
    conn->ring_count--;
    loop->busy--;
    return slot;
}

static void want_write(struct loadgen_loop *loop, struct loadgen_conn *conn, bool wanted)
{
    if (conn->wants_write == wanted)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0u), .data.ptr = conn};
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
    conn->wants_write = wanted;
}

/* A send that fails for good needs no handling here: the next read tells the same. */
void loadgen_loop_flush(struct loadgen_loop *loop, struct loadgen_conn *conn)
{
    if (conn->out.len == 0)
        return;
    ssize_t n = send(conn->fd, conn->out.data, conn->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)conn->out.len) {
        buf_clear(&conn->out);
        want_write(loop, conn, false);
        return;
    }
    if (n > 0)
        buf_consume(&conn->out, (size_t)n);
    want_write(loop, conn, true);
}

/* The connection was lost. What became of its requests is not known. A server that closes a
 * connection between requests is treated the same way: no slot was waiting then. */
static void conn_lost(struct loadgen_loop *loop, struct loadgen_conn *conn)
{
    loop->lost++;
    close(conn->fd);
    conn->wants_write = false;
    buf_clear(&conn->in);
    buf_clear(&conn->out);
    if (!conn_open(loop, conn)) {
        loop->failed = true;
        return;
    }
    for (uint32_t n = conn->ring_count; n > 0; n--) {
        struct loadgen_slot *slot = ring_shift(loop, conn);
        loop->on_answer(loop, slot, NULL);
    }
    loadgen_loop_flush(loop, conn);
}

/* Answers the oldest requests of the connection with the bytes; returns how many were used up. */
static size_t answers_take(struct loadgen_loop *loop, struct loadgen_conn *conn, const char *data,
                           size_t len)
{
    const struct loadgen_driver *driver = loop->config->driver;
    size_t used = 0;
    while (used < len && conn->ring_count > 0) {
        struct loadgen_answer answer = {0};
        struct loadgen_slot *slot = conn->ring[conn->ring_first];
        size_t n = driver->decode(loop->state, slot, data + used, len - used, &answer);
        if (n == LOADGEN_MORE)
            return used;
        if (n == LOADGEN_GARBAGE) {
            snprintf(loop->error, sizeof(loop->error), "the answer to %s is not %s: %.60s",
                     loadgen_op_names[slot->op], driver->scheme, data + used);
            loop->failed = true;
            return len;
        }
        used += n;
        ring_shift(loop, conn);
        loop->on_answer(loop, slot, &answer);
    }
    return conn->ring_count > 0 ? used : len;
}

/* Straight from the scratch buffer when the answer came whole, which is nearly always. One byte of
 * the buffer is kept for a terminator, so that garbage can be printed. */
static void conn_read(struct loadgen_loop *loop, struct loadgen_conn *conn)
{
    ssize_t n = recv(conn->fd, loop->scratch, SCRATCH_LEN - 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        conn_lost(loop, conn);
        return;
    }
    loop->now_us = clock_mono_us();
    loop->scratch[n] = '\0';
    if (conn->in.len == 0) {
        size_t used = answers_take(loop, conn, loop->scratch, (size_t)n);
        buf_put(&conn->in, loop->scratch + used, (size_t)n - used);
    } else {
        buf_put(&conn->in, loop->scratch, (size_t)n + 1);
        conn->in.len--;
        buf_consume(&conn->in, answers_take(loop, conn, conn->in.data, conn->in.len));
    }
    loadgen_loop_flush(loop, conn);
}

void loadgen_loop_wait(struct loadgen_loop *loop, uint64_t deadline_us)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now_us = clock_mono_us();
    uint64_t wait_us = deadline_us > now_us ? deadline_us - now_us : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_us / 1000000),
                            .tv_nsec = (long)(wait_us % 1000000) * 1000};
    int n = epoll_pwait2(loop->epoll_fd, events, EVENTS_MAX, &wait, NULL);
    for (int i = 0; i < n && !loop->failed; i++) {
        struct loadgen_conn *conn = events[i].data.ptr;
        if (events[i].events & EPOLLOUT)
            loadgen_loop_flush(loop, conn);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            conn_read(loop, conn);
    }
    loop->now_us = clock_mono_us();
}
