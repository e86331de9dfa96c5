#define _GNU_SOURCE /* pipe2 */
#include "term/tty.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* The alternate screen, without a cursor and without wrapping; and back. */
#define ENTER "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
#define LEAVE "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};
static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGQUIT};

#define TOLD_COUNT  (sizeof(told) / sizeof(told[0]))
#define FATAL_COUNT (sizeof(fatal) / sizeof(fatal[0]))

static struct {
    volatile sig_atomic_t taken; /* the terminal is in our modes */
    struct termios before, ours;
    struct sigaction told_before[TOLD_COUNT], fatal_before[FATAL_COUNT];
    volatile sig_atomic_t came[TOLD_COUNT];
    int pipe[2];
    char input[256]; /* what was read and is no key yet */
    size_t input_len;
} tty = {.pipe = {-1, -1}};

/* What a signal handler may call. A terminal that is gone needs nothing. */
static void give_back(void)
{
    if (!tty.taken)
        return;
    tty.taken = 0;
    ssize_t ignored = write(STDOUT_FILENO, LEAVE, sizeof(LEAVE) - 1);
    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &tty.before);
}

static void take(void)
{
    ssize_t ignored = write(STDOUT_FILENO, ENTER, sizeof(ENTER) - 1);
    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &tty.ours);
    tty.taken = 1;
}

static void on_told(int signal)
{
    int saved = errno;
    for (size_t i = 0; i < TOLD_COUNT; i++)
        if (told[i] == signal)
            tty.came[i] = 1;
    ssize_t ignored = write(tty.pipe[1], "", 1);
    (void)ignored;
    errno = saved;
}

/* What would have happened without us happens when this returns. */
static void on_fatal(int signal)
{
    give_back();
    for (size_t i = 0; i < FATAL_COUNT; i++)
        if (fatal[i] == signal)
            sigaction(signal, &tty.fatal_before[i], NULL);
    raise(signal);
}

static void signals_take(void)
{
    struct sigaction action = {.sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_told;
    for (size_t i = 0; i < TOLD_COUNT; i++)
        sigaction(told[i], &action, &tty.told_before[i]);
    action.sa_handler = on_fatal;
    for (size_t i = 0; i < FATAL_COUNT; i++)
        sigaction(fatal[i], &action, &tty.fatal_before[i]);
    signal(SIGPIPE, SIG_IGN);
}

static void signals_give_back(void)
{
    for (size_t i = 0; i < TOLD_COUNT; i++)
        sigaction(told[i], &tty.told_before[i], NULL);
    for (size_t i = 0; i < FATAL_COUNT; i++)
        sigaction(fatal[i], &tty.fatal_before[i], NULL);
}

const char *tty_open(void)
{
    const char *term = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return "this is no terminal";
    if (term == NULL || strcmp(term, "dumb") == 0 || term[0] == '\0')
        return "this terminal cannot place text (TERM)";
    if (tcgetattr(STDIN_FILENO, &tty.before) != 0 || pipe2(tty.pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return strerror(errno);
    tty.ours = tty.before;
    tty.ours.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    tty.ours.c_cc[VMIN] = 1;
    tty.ours.c_cc[VTIME] = 0;
    signals_take();
    atexit(give_back);
    take();
    return NULL;
}

void tty_close(void)
{
    if (tty.pipe[0] < 0)
        return;
    give_back();
    signals_give_back();
    close(tty.pipe[0]);
    close(tty.pipe[1]);
    tty.pipe[0] = tty.pipe[1] = -1;
}

int tty_input(void)
{
    return STDIN_FILENO;
}

int tty_wake(void)
{
    return tty.pipe[0];
}

int tty_signal(void)
{
    char bytes[64];
    while (read(tty.pipe[0], bytes, sizeof(bytes)) > 0)
        ;
    for (size_t i = 0; i < TOLD_COUNT; i++) {
        if (tty.came[i]) {
            tty.came[i] = 0;
            return told[i];
        }
    }
    return 0;
}

void tty_suspend(void)
{
    struct sigaction stop = {.sa_handler = SIG_DFL}, ours;
    give_back();
    sigemptyset(&stop.sa_mask);
    sigaction(SIGTSTP, &stop, &ours);
    raise(SIGTSTP); /* stops here */
    sigaction(SIGTSTP, &ours, NULL);
    for (size_t i = 0; i < TOLD_COUNT; i++)
        if (told[i] == SIGCONT)
            tty.came[i] = 0; /* this is what it asks for */
    take();
}

void tty_resume(void)
{
    take();
}

void tty_size(int *rows, int *cols)
{
    struct winsize size = {0};
    bool told_us = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    *rows = told_us ? size.ws_row : 24;
    *cols = told_us ? size.ws_col : 80;
}

bool tty_read(void)
{
    if (tty.input_len == sizeof(tty.input))
        return true; /* keys are taken first */
    ssize_t n = read(STDIN_FILENO, tty.input + tty.input_len, sizeof(tty.input) - tty.input_len);
    if (n > 0)
        tty.input_len += (size_t)n;
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Keys */

static const struct {
    const char *rest; /* behind the escape */
    int key;
} sequences[] = {{"[A", KEY_UP},       {"[B", KEY_DOWN},      {"[C", KEY_RIGHT}, {"[D", KEY_LEFT},
                 {"[H", KEY_HOME},     {"[F", KEY_END},       {"OA", KEY_UP},    {"OB", KEY_DOWN},
                 {"OC", KEY_RIGHT},    {"OD", KEY_LEFT},      {"OH", KEY_HOME},  {"OF", KEY_END},
                 {"[1~", KEY_HOME},    {"[4~", KEY_END},      {"[7~", KEY_HOME}, {"[8~", KEY_END},
                 {"[5~", KEY_PAGE_UP}, {"[6~", KEY_PAGE_DOWN}};

/* The length of the sequence that begins with the escape at the start of the input; 0 when its end
 * has not come. */
static size_t sequence_len(void)
{
    if (tty.input_len < 2)
        return 0;
    if (tty.input[1] == 'O')
        return tty.input_len < 3 ? 0 : 3;
    if (tty.input[1] != '[')
        return 1; /* an escape, and then another key */
    for (size_t i = 2; i < tty.input_len; i++)
        if (tty.input[i] >= 0x40 && tty.input[i] <= 0x7e)
            return i + 1;
    return tty.input_len == sizeof(tty.input) ? tty.input_len : 0;
}

static int sequence_key(size_t len)
{
    if (len == 1)
        return KEY_ESCAPE;
    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
        if (strlen(sequences[i].rest) == len - 1 &&
            memcmp(sequences[i].rest, tty.input + 1, len - 1) == 0)
            return sequences[i].key;
    return KEY_OTHER;
}

static void input_consume(size_t n)
{
    assert(n <= tty.input_len);
    memmove(tty.input, tty.input + n, tty.input_len - n);
    tty.input_len -= n;
}

int tty_key(bool over)
{
    if (tty.input_len == 0)
        return KEY_NONE;
    unsigned char first = (unsigned char)tty.input[0];
    if (first != KEY_ESCAPE) {
        input_consume(1);
        return first == '\r' ? KEY_ENTER : first == '\b' ? KEY_ERASE : first;
    }
    size_t len = sequence_len();
    if (len == 0 && !over)
        return KEY_NONE;
    int key = len == 0 && tty.input_len > 1 ? KEY_OTHER : sequence_key(len ? len : 1);
    input_consume(len ? len : tty.input_len);
    return key;
}

bool tty_waits(void)
{
    return tty.input_len > 0 && tty.input[0] == KEY_ESCAPE && sequence_len() == 0;
}

bool tty_write(const struct buf *bytes)
{
    for (size_t at = 0; at < bytes->len;) {
        ssize_t n = write(STDOUT_FILENO, bytes->data + at, bytes->len - at);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return false;
        struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};
        poll(&room, 1, -1);
    }
    return true;
}
