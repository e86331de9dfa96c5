/* Processor time of the processes under measurement. */
#ifndef TRIAGE_LOADGEN_CPU_H
#define TRIAGE_LOADGEN_CPU_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* CPU time of a process with all its threads, living and dead; -1 when there is no such process. */
int64_t loadgen_cpu_of_process(pid_t pid);

/* The sum over processes and their children, living and dead: a database is a family of processes.
 * -1 when one of the processes is not there, or none is named. */
int64_t loadgen_cpu_of_families(const pid_t *pids, size_t count);

#endif
