/* A log in a folder of its own, with records that tell their numbers, and hands on its files. */
#ifndef TRIAGE_TESTS_WAL_RIG_H
#define TRIAGE_TESTS_WAL_RIG_H

#include "base/buf.h"
#include "engine/local/frame.h"
#include "engine/local/wal.h"
#include "folder.h"

#define BLOCK   4096
#define SEGMENT (16 * BLOCK)

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* What a log gave back: the records' own numbers. */
struct wal_seen {
    uint32_t *numbers;
    size_t count, cap;
    bool wrong; /* a record that nobody wrote */
};

extern const uint8_t secret[SECRET_BYTES], other_secret[SECRET_BYTES];
extern char dir[FOLDER_PATH_MAX];
extern struct wal *wal;
extern struct buf error;
extern struct wal_seen seen;

int setup(void **state);
int teardown(void **state);
void start_over(void); /* with an empty folder */

/* Opens the log again as after a crash: memory is lost, files are as they are. */
enum status reopen(void);
enum status reopen_as(const uint8_t *with, bool old);
void start(uint64_t floor);
void append(uint32_t number, size_t len);
void put(uint32_t number, size_t len); /* and sync */
void fresh(uint32_t count); /* a new log with records 1 to `count`, each synced before the next */
void shut(void);

void assert_seen(uint32_t from, uint32_t to);
void assert_reopens_with(uint32_t from, uint32_t to);

/* Its files. */
char *path_of(const char *name);
unsigned file_count(void);
void load(const char *name, struct buf *out);
void store(const char *name, const void *data, size_t len);
void overwrite(const char *name, size_t offset, const void *data, size_t len);

size_t next_place(size_t at); /* every byte of a frame, and some of the zeros behind it */

#endif
