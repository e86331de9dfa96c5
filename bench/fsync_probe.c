/* How long the disk under a folder takes to make 4 KiB durable: appends and
 * fdatasyncs for up to two seconds, then prints one JSON object. Every number of
 * `make bench` that waits for the disk is to be read beside this one.
 *
 *   fsync_probe DIR [COUNT] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_LEN   4096
#define COUNT_MAX   100000
#define SECONDS_MAX 2.0

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int probe(int fd, int count, double *took_us)
{
    static char block[BLOCK_LEN];
    double start = now_us();
    memset(block, 'x', sizeof(block));
    for (int i = 0; i < count; i++) {
        double before = now_us();
        if (write(fd, block, sizeof(block)) != BLOCK_LEN || fdatasync(fd) != 0) {
            perror("fsync_probe");
            return -1;
        }
        took_us[i] = now_us() - before;
        if (now_us() - start > SECONDS_MAX * 1e6)
            return i + 1;
    }
    return count;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 2000;
    char path[4096];
    if (argc < 2 || count < 1 || count > COUNT_MAX) {
        fprintf(stderr, "usage: fsync_probe DIR [COUNT]\n");
        return 2;
    }
    snprintf(path, sizeof(path), "%s/fsync_probe.XXXXXX", argv[1]);
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    unlink(path);
    double *took_us = malloc((size_t)count * sizeof(*took_us));
    if (!took_us)
        abort();
    int done = probe(fd, count, took_us);
    close(fd);
    if (done > 0) {
        qsort(took_us, (size_t)done, sizeof(*took_us), compare);
        printf("{\"count\":%d,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n", done,
               took_us[done / 2], took_us[(int)(done * 0.99)], took_us[done - 1]);
    }
    free(took_us);
    return done > 0 ? 0 : 1;
}
