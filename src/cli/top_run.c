/* The loop of `triage top` in a terminal, and its keys. One thread, one poll: the terminal,
 * signals, and calls in a curl multi handle. A frame is drawn when something has happened, and sent
 * in one write. */
#include "base/clock.h"
#include "cli/top.h"
#include "term/tty.h"

#include <signal.h>
#include <string.h>

/* Moving */

static void page_show(struct top *t)
{
    int64_t first = t->first;
    if (t->cursor < t->first)
        t->first = t->cursor;
    if (t->cursor >= t->first + t->page_rows)
        t->first = t->cursor - t->page_rows + 1;
    if (t->first != first)
        top_look_soon(t); /* rows of other queues */
}

static void move_row(struct top *t, int64_t by)
{
    int64_t last = t->page.all.queues > 0 ? t->page.all.queues - 1 : 0;
    int64_t to = t->cursor + by;
    t->cursor = to < 0 ? 0 : to > last ? last : to;
    page_show(t);
}

static void move_level(struct top *t, int64_t by)
{
    int last = t->detail.level_count > 0 ? t->detail.level_count - 1 : 0;
    int64_t to = t->level + by;
    t->level = to < 0 ? 0 : to > last ? last : (int)to;
}

/* False when the key moves nothing. */
static bool key_moves(struct top *t, int key)
{
    int64_t by;
    if (key == KEY_UP || key == 'k')
        by = -1;
    else if (key == KEY_DOWN || key == 'j')
        by = 1;
    else if (key == KEY_PAGE_UP)
        by = -t->page_rows;
    else if (key == KEY_PAGE_DOWN)
        by = t->page_rows;
    else if (key == KEY_HOME || key == 'g')
        by = -COUNT_MAX;
    else if (key == KEY_END || key == 'G')
        by = COUNT_MAX;
    else
        return false;
    if (t->mode == MODE_LIST)
        move_row(t, by);
    else
        move_level(t, by);
    return true;
}

/* Another set or order of rows. */
static void list_anew(struct top *t)
{
    t->first = t->cursor = 0;
    top_look_soon(t);
}

static void order_set(struct top *t, int order)
{
    t->order = (order + TOP_ORDER_COUNT) % TOP_ORDER_COUNT;
    list_anew(t);
}

static void queue_open(struct top *t)
{
    const struct top_row *row = top_row_at(t, t->cursor);
    if (row == NULL)
        return;
    memcpy(t->queue, row->name, sizeof(t->queue));
    t->detail = (struct top_queue){0};
    t->level = 0;
    t->mode = MODE_QUEUE;
    top_look_soon(t);
}

static void queue_leave(struct top *t)
{
    if (t->mode == MODE_QUEUE) {
        t->mode = MODE_LIST;
        top_look_soon(t);
    } else if (t->match[0]) {
        t->match[0] = '\0';
        list_anew(t);
    }
}

static void escalate_begin(struct top *t)
{
    if (t->mode == MODE_LIST) {
        queue_open(t);
        top_notice(t, false, "choose a level with the arrows, then e");
        return;
    }
    if (t->detail.level_count < 2)
        return;
    t->target = t->level > 0 ? t->level - 1 : 1;
    t->prompt = PROMPT_LEVEL;
}

/* Keys */

static void key_plain(struct top *t, int key, struct screen *s)
{
    buf_clear(&t->notice);
    if (key_moves(t, key))
        return;
    if (key >= '1' && key < '1' + TOP_ORDER_COUNT && t->mode == MODE_LIST) {
        order_set(t, key - '1');
        return;
    }
    switch (key) {
    case 'q':
        t->over = true;
        break;
    case KEY_ENTER:
    case KEY_RIGHT:
        if (t->mode == MODE_LIST)
            queue_open(t);
        break;
    case KEY_ESCAPE:
    case KEY_LEFT:
    case KEY_ERASE:
        queue_leave(t);
        break;
    case 'p':
        top_ask_pause(t);
        break;
    case 'r':
        top_ask_redrive(t);
        break;
    case 'e':
        escalate_begin(t);
        break;
    case '<':
    case '>':
        if (t->mode == MODE_LIST)
            order_set(t, t->order + (key == '>' ? 1 : -1));
        break;
    case 'i':
        t->reverse = !t->reverse;
        list_anew(t);
        break;
    case '/':
        t->mode = MODE_LIST;
        t->prompt = PROMPT_SEARCH;
        break;
    case ' ':
        t->frozen = !t->frozen;
        t->look_at_ms = 0;
        break;
    case '?':
    case 'h':
        t->prompt = PROMPT_HELP;
        break;
    case 0x0c: /* Ctrl-L */
        screen_forget(s);
        break;
    default:
        break;
    }
}

static bool is_name_character(int key)
{
    return (key >= 'a' && key <= 'z') || (key >= 'A' && key <= 'Z') || (key >= '0' && key <= '9') ||
           key == '.' || key == '_' || key == '-';
}

/* The list follows every character. */
static void key_search(struct top *t, int key)
{
    size_t len = strlen(t->match);
    if (key == KEY_ENTER) {
        t->prompt = PROMPT_NONE;
        return;
    }
    if (key == KEY_ESCAPE) {
        t->prompt = PROMPT_NONE;
        t->match[0] = '\0';
    } else if (key == KEY_ERASE && len > 0) {
        t->match[len - 1] = '\0';
    } else if (is_name_character(key) && len + 1 < sizeof(t->match)) {
        t->match[len] = (char)key;
        t->match[len + 1] = '\0';
    } else {
        return;
    }
    list_anew(t);
}

/* Over the levels but the one that messages leave. */
static void target_move(struct top *t, int by)
{
    int to = t->target + by;
    if (to == t->level)
        to += by;
    if (to >= 0 && to < t->detail.level_count)
        t->target = to;
}

static void key_level(struct top *t, int key)
{
    if (key == KEY_UP || key == KEY_LEFT || key == 'k') {
        target_move(t, -1);
    } else if (key == KEY_DOWN || key == KEY_RIGHT || key == 'j') {
        target_move(t, 1);
    } else {
        t->prompt = PROMPT_NONE;
        if (key == KEY_ENTER)
            top_ask_escalate(t);
    }
}

static void key_take(struct top *t, int key, struct screen *s)
{
    enum top_prompt prompt = t->prompt;
    if (prompt == PROMPT_NONE) {
        key_plain(t, key, s);
    } else if (prompt == PROMPT_SEARCH) {
        key_search(t, key);
    } else if (prompt == PROMPT_LEVEL) {
        key_level(t, key);
    } else {
        t->prompt = PROMPT_NONE;
        if (prompt == PROMPT_CONFIRM && (key == 'y' || key == 'Y'))
            top_act_go(t);
        else if (prompt == PROMPT_CONFIRM)
            top_notice(t, false, "nothing was done");
    }
}

/* The loop */

static void size_take(struct top *t, struct screen *s)
{
    int rows, cols;
    tty_size(&rows, &cols);
    screen_resize(s, rows, cols);
    int room = s->rows - top_list_head_rows() - 1;
    if (room != t->page_rows)
        top_look_soon(t);
    t->page_rows = room > 0 ? room : 1;
    page_show(t);
}

/* Returns the signal that ends the program, or 0. */
static int signals_take(struct top *t, struct screen *s)
{
    for (int signal; (signal = tty_signal()) != 0;) {
        if (signal == SIGTSTP) {
            tty_suspend();
            size_take(t, s);
            t->look_at_ms = 0;
        } else if (signal == SIGCONT) {
            tty_resume();
            size_take(t, s);
        } else if (signal == SIGWINCH) {
            size_take(t, s);
        } else {
            t->over = true;
            return signal;
        }
    }
    return 0;
}

static void collect_answers(struct top *t)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(t->multi, &left)) != NULL) {
        struct client *c = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        client_finish(c, result);
        if (c == &t->look)
            top_look_answered(t, clock_now().mono_ms);
        else
            top_act_answered(t);
    }
}

static void calls_go_on(struct top *t)
{
    int running;
    int64_t now_ms = clock_now().mono_ms;
    bool wanted = !t->frozen || t->look_at_ms == 0; /* frozen rows move by keys alone */
    if (t->looking == LOOK_NONE && wanted && now_ms >= t->look_at_ms)
        top_look_start(t, now_ms);
    curl_multi_perform(t->multi, &running);
    collect_answers(t);
}

static bool frame_show(struct top *t, struct screen *s)
{
    struct buf out = {0};
    top_draw(t, s);
    screen_frame(s, &out);
    bool shown = out.len == 0 || tty_write(&out);
    buf_fini(&out);
    return shown;
}

static int wait_ms(const struct top *t)
{
    if (tty_waits())
        return TTY_ESCAPE_MS;
    if (t->looking != LOOK_NONE || (t->frozen && t->look_at_ms > 0))
        return 1000; /* the clock in the corner */
    int64_t left = t->look_at_ms - clock_now().mono_ms;
    return left < 0 ? 0 : left > 1000 ? 1000 : (int)left;
}

/* The beginning of a key's sequence waits for its rest, whatever else happens meanwhile. */
static void keys_take(struct top *t, struct screen *s, bool came)
{
    int64_t now_ms = clock_now().mono_ms;
    if (came && !tty_read()) {
        t->over = t->lost = true;
        return;
    }
    if (came)
        t->key_at_ms = now_ms;
    bool over = now_ms - t->key_at_ms >= TTY_ESCAPE_MS;
    for (int key; !t->over && (key = tty_key(over)) != KEY_NONE;)
        key_take(t, key, s);
}

static int loop(struct top *t, struct screen *s)
{
    size_take(t, s);
    for (;;) {
        struct curl_waitfd fds[] = {{.fd = tty_input(), .events = CURL_WAIT_POLLIN},
                                    {.fd = tty_wake(), .events = CURL_WAIT_POLLIN}};
        int ready = 0, signal = signals_take(t, s);
        if (t->over)
            return signal;
        calls_go_on(t);
        if (!frame_show(t, s)) {
            t->over = t->lost = true;
            continue;
        }
        curl_multi_poll(t->multi, fds, 2, wait_ms(t), &ready);
        keys_take(t, s, fds[0].revents != 0);
    }
}

int top_run(struct top *t)
{
    struct screen s;
    const char *why = tty_open();
    if (why != NULL) {
        cli_complain("%s; --once prints one look, --json a line for each", why);
        return CLI_USAGE;
    }
    screen_init(&s, 1, 1);
    int ended_by = loop(t, &s);
    screen_fini(&s);
    tty_close();
    if (ended_by != 0 && ended_by != SIGINT)
        raise(ended_by);
    return t->lost ? CLI_REFUSED : CLI_DONE;
}
