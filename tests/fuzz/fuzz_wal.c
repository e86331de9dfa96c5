/* The log over many lives of its segments, with records of a client who knows how it is laid out:
 * frames that claim anything, copies of what lies in the files, and, worse than any client could,
 * frames that are sealed with the right secret for a life that is over. After each death what was
 * synced comes back exactly, in order, and nothing that was not written does. */
#include "engine/local/frame.h"
#include "engine/local/wal.h"
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define SEGMENT     (4 * WAL_BLOCK)
#define RECORD_MAX  (3 * SEGMENT)
#define RECORDS_MAX 512
#define FILES_MAX   64
#define EPOCHS_MAX  64

static const uint8_t secret[SECRET_BYTES] = "a secret of thirty-two bytes ...";
static const uint64_t far = 1ULL << 62;

struct record {
    uint64_t seq, end; /* of its first frame and its last */
    uint64_t hash;
};

struct file {
    char name[16];
    char bytes[SEGMENT];
};

static struct {
    char dir[64];
    struct wal *wal;
    struct frame_key key;
    struct record records[RECORDS_MAX];
    size_t count;
    uint64_t floor;              /* records before it need not come back */
    uint64_t synced;             /* frames up to it have to */
    size_t live_bytes;           /* of records that have to */
    size_t next;                 /* which record has to come back next */
    bool begun;                  /* one did */
    uint64_t epochs[EPOCHS_MAX]; /* of lives that are over, and of segments that are full */
    size_t epoch_count;
    struct file files[FILES_MAX]; /* as they were when all of it was on the disk */
    size_t file_count;
} t;

/* Files */

static int open_file(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", t.dir, name);
    return open(path, flags | O_CLOEXEC);
}

static void read_into(const char *name, char bytes[SEGMENT])
{
    int fd = open_file(name, O_RDONLY);
    assert(fd >= 0);
    ssize_t got = pread(fd, bytes, SEGMENT, 0);
    assert(got == SEGMENT);
    close(fd);
}

static size_t list_files(struct file *out)
{
    size_t count = 0;
    DIR *dir = opendir(t.dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        assert(count < FILES_MAX && strlen(e->d_name) < sizeof(out->name));
        strcpy(out[count].name, e->d_name);
        read_into(e->d_name, out[count++].bytes);
    }
    closedir(dir);
    return count;
}

static void take_snapshot(void)
{
    t.file_count = list_files(t.files);
}

/* The power goes: of each block that was written since, the disk has the new one or the old. */
static void tear(struct input *in)
{
    static char now[SEGMENT];
    for (size_t i = 0; i < t.file_count; i++) {
        const struct file *f = &t.files[i];
        read_into(f->name, now);
        int fd = open_file(f->name, O_WRONLY);
        assert(fd >= 0);
        for (size_t at = 0; at < SEGMENT; at += WAL_BLOCK) {
            if (memcmp(now + at, f->bytes + at, WAL_BLOCK) != 0 && input_byte(in) % 2 == 0) {
                ssize_t put = pwrite(fd, f->bytes + at, WAL_BLOCK, (off_t)at);
                assert(put == WAL_BLOCK);
            }
        }
        close(fd);
    }
}

static void make_dir(void)
{
    const char *base = getenv("TMPDIR");
    base = base ? base : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(t.dir, sizeof(t.dir), "%s/triage-fuzz-XXXXXX", base);
    char *made = mkdtemp(t.dir);
    assert(made);
}

static void remove_dir(void)
{
    int fd = open(t.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    take_snapshot();
    for (size_t i = 0; i < t.file_count; i++)
        unlinkat(fd, t.files[i].name, 0);
    close(fd);
    rmdir(t.dir);
}

/* What a client sends */

static void put_frame(char *at, size_t room, uint64_t epoch, uint8_t claim)
{
    const uint64_t claims[][3] = {
        {far, far - 1, 0},
        {far, 0, far},
        {t.synced + 1, t.synced, 1},
        {1, 0, 1},
        {t.synced + 2, t.synced + 1, t.synced + 2},
    };
    const uint64_t *c = claims[claim % (sizeof(claims) / sizeof(claims[0]))];
    struct frame f = {.kind = claim & FRAME_SEGMENT ? FRAME_SEGMENT : FRAME_FIRST | FRAME_LAST,
                      .len = 8,
                      .epoch = epoch,
                      .seq = c[0],
                      .synced = c[1],
                      .floor = c[2]};
    if (room < frame_size(f.len))
        return;
    memset(at, 0, frame_size(f.len));
    frame_seal(at, &f, &t.key);
}

/* The same, of the format before. */
static void put_old_frame(char *at, size_t room, uint64_t epoch, uint8_t claim)
{
    if (room < frame_size(8))
        return;
    put_frame(at, room, epoch, claim);
    at[13] = 1;
    frame_put_u64(at, XXH3_64bits(at + 8, 56));
}

static void put_copy(char *at, size_t room, uint8_t which, uint8_t where)
{
    size_t len = room < WAL_BLOCK ? room : WAL_BLOCK;
    if (t.file_count > 0)
        memcpy(at, t.files[which % t.file_count].bytes + where % 3 * WAL_BLOCK, len);
}

static void compose(char *out, size_t len, struct input *in)
{
    for (size_t at = 0; at < len; at += FRAME_ALIGN) {
        uint8_t what = input_byte(in);
        uint64_t epoch = t.epoch_count ? t.epochs[input_byte(in) % t.epoch_count] : 4711;
        switch (what % 5) {
        case 0:
            put_copy(out + at, len - at, what >> 4, input_byte(in));
            at += WAL_BLOCK - FRAME_ALIGN;
            break;
        case 1:
            put_frame(out + at, len - at, epoch, what >> 3);
            break;
        case 2:
            put_old_frame(out + at, len - at, epoch, what >> 3);
            break;
        case 3:
            put_frame(out + at, len - at, 4711, what >> 3);
            if (len - at >= 8)
                out[at] ^= 1;
            break;
        default: /* what was there: zeros */
            break;
        }
    }
}

/* What is done to the log */

static void append(struct input *in)
{
    static char bytes[RECORD_MAX];
    size_t len = 1 + ((size_t)input_byte(in) << 8 | input_byte(in)) % RECORD_MAX;
    struct buf error = {0};
    if (t.count == RECORDS_MAX)
        return;
    memset(bytes, 0, len);
    compose(bytes, len, in);
    struct record *r = &t.records[t.count++];
    r->seq = wal_next(t.wal);
    r->hash = XXH3_64bits(bytes, len);
    struct wal_part part = {bytes, len};
    enum status status = wal_append(t.wal, &part, 1, &error);
    assert(status == STATUS_OK);
    r->end = wal_end(t.wal);
    t.live_bytes += frame_size(len) + WAL_BLOCK;
    t.synced = wal_synced(t.wal);
    take_snapshot();
    buf_fini(&error);
}

static void write_out(void)
{
    struct buf error = {0};
    enum status status = wal_write(t.wal, &error);
    assert(status == STATUS_OK);
    buf_fini(&error);
}

static void sync_all(void)
{
    struct buf error = {0};
    enum status status = wal_sync(t.wal, &error);
    assert(status == STATUS_OK);
    t.synced = wal_synced(t.wal);
    take_snapshot();
    buf_fini(&error);
}

/* All of it is in tables; and the next frame will say so. */
static void let_go(void)
{
    sync_all();
    t.floor = t.synced + 1;
    t.live_bytes = 0;
    wal_recycle(t.wal, t.floor);
    wal_prepare(t.wal, 1);
    take_snapshot();
}

static enum status on_record(void *ctx, uint64_t seq, const char *data, size_t len,
                             struct buf *error)
{
    (void)ctx, (void)error;
    while (!t.begun && t.next < t.count && t.records[t.next].seq != seq) {
        assert(t.records[t.next].seq < t.floor);
        t.next++;
    }
    assert(t.next < t.count);
    const struct record *r = &t.records[t.next++];
    assert(r->seq == seq);
    assert(r->hash == XXH3_64bits(data, len));
    t.begun = true;
    return STATUS_OK;
}

static void remember_epochs(void)
{
    for (size_t i = 0; i < t.file_count; i++)
        t.epochs[t.epoch_count++ % EPOCHS_MAX] = frame_get_u64(t.files[i].bytes + 24);
    t.epoch_count = t.epoch_count < EPOCHS_MAX ? t.epoch_count : EPOCHS_MAX;
}

static void live(void)
{
    struct buf error = {0};
    struct wal_options options = {.dir = t.dir, .segment_bytes = SEGMENT, .secret = secret};
    enum status status = wal_open(&options, &t.wal, &error);
    assert(status == STATUS_OK);
    t.next = 0;
    t.begun = false;
    status = wal_replay(t.wal, on_record, NULL, &error);
    assert(status == STATUS_OK);
    if (!t.begun) /* none had to */
        while (t.next < t.count && t.records[t.next].seq < t.floor)
            t.next++;
    assert(t.next == t.count || t.records[t.next].end > t.synced);
    t.count = t.next; /* what was not synced is gone for good */
    remember_epochs();
    uint64_t floor = t.floor <= wal_end(t.wal) + 1 ? t.floor : wal_end(t.wal) + 1;
    assert(floor == t.floor);
    status = wal_start(t.wal, floor, &error);
    assert(status == STATUS_OK);
    t.live_bytes += SEGMENT; /* each life begins with one of its own */
    t.synced = wal_synced(t.wal);
    take_snapshot();
    buf_fini(&error);
}

static void die(struct input *in)
{
    wal_close(t.wal);
    tear(in);
    take_snapshot();
    live();
}

static void act(struct input *in)
{
    switch (input_byte(in) % 8) {
    case 0:
        sync_all();
        break;
    case 1:
        write_out();
        break;
    case 2:
        let_go();
        break;
    case 3:
        die(in);
        break;
    default:
        append(in);
    }
    if (t.live_bytes > 20 * SEGMENT)
        let_go();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    memset(&t, 0, sizeof(t));
    t.floor = 1;
    frame_key_init(&t.key, secret);
    make_dir();
    live();
    while (in.left > 0)
        act(&in);
    die(&in);
    wal_close(t.wal);
    remove_dir();
    return 0;
}
