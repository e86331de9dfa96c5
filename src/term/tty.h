/* The terminal of a program that takes its whole screen: its modes, its keys, the signals that are
 * about it. Once tty_open() has returned, however the program ends (but for SIGKILL), the terminal
 * is as it was before: at exit(), at a signal, at a failed assertion. There is one at a time.
 *
 * The caller polls tty_input() and tty_wake() for reading, beside whatever else it waits for. */
#ifndef TRIAGE_TERM_TTY_H
#define TRIAGE_TERM_TTY_H

#include "base/buf.h"

#include <stdbool.h>

/* What tty_key() gives beside characters. */
enum tty_key {
    KEY_NONE = 0,
    KEY_ENTER = '\n',
    KEY_ESCAPE = 0x1b,
    KEY_ERASE = 0x7f,
    KEY_UP = 0x200,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_OTHER, /* a key that has no name here */
};

#define TTY_ESCAPE_MS 50 /* so long after an escape the rest of a key's sequence may come */

/* NULL; or why it cannot be done, and nothing has changed then. */
const char *tty_open(void);
void tty_close(void); /* nothing when it is not open */

int tty_input(void);
int tty_wake(void);

/* The next signal that came, in no order and each once: SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT,
 * SIGWINCH; 0 when there is no more. */
int tty_signal(void);
void tty_suspend(void); /* for SIGTSTP: gives the terminal back and stops; returns when continued */
void tty_resume(void);  /* for SIGCONT: sets the modes again */
void tty_size(int *rows, int *cols); /* of the terminal now; 24 by 80 when it does not tell */

/* Reads what has come; false when the terminal is gone. */
bool tty_read(void);

/* The next key of what was read, KEY_NONE when there is none. The beginning of a sequence waits for
 * its rest, which tty_waits() tells, until `over`: then it is an escape. */
int tty_key(bool over);
bool tty_waits(void);

bool tty_write(const struct buf *bytes); /* all of it; false when the terminal is gone */

#endif
