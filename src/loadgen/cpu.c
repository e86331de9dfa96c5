#include "loadgen/cpu.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000LL
#define STAT_LEN      1024

/* The process clock counts nanoseconds; /proc/PID/stat has the same sum in ticks of 10 ms, too
 * coarse for a run of a thousand claims. */
int64_t loadgen_cpu_of_process(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return -1;
    return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

/* What children that have ended left to their parent: cutime and cstime of /proc/PID/stat, counted
 * from the end of the name, which may hold anything. */
static int64_t ended_children_ns(pid_t pid)
{
    char path[64], line[STAT_LEN];
    long long user_ticks = 0, system_ticks = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t len = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[len] = '\0';
    const char *name_end = strrchr(line, ')');
    if (!name_end ||
        sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %lld %lld",
               &user_ticks, &system_ticks) != 2)
        return 0;
    return (user_ticks + system_ticks) * (NS_PER_SECOND / sysconf(_SC_CLK_TCK));
}

static int64_t living_children_ns(pid_t pid)
{
    char path[64];
    int64_t sum = 0;
    int child;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (fscanf(file, "%d", &child) == 1) {
        int64_t ns = loadgen_cpu_of_process(child);
        sum += ns > 0 ? ns : 0; /* it may have ended since */
    }
    fclose(file);
    return sum;
}

int64_t loadgen_cpu_of_families(const pid_t *pids, size_t count)
{
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t own = loadgen_cpu_of_process(pids[i]);
        if (own < 0)
            return -1;
        sum += own + living_children_ns(pids[i]) + ended_children_ns(pids[i]);
    }
    return count > 0 ? sum : -1;
}
