/* The commands of `triage`. main.c has the table of them. */
#ifndef TRIAGE_CLI_COMMANDS_H
#define TRIAGE_CLI_COMMANDS_H

#include "term/cli.h"

command_run cmd_enqueue, cmd_claim, cmd_ack, cmd_nack, cmd_extend, cmd_release, cmd_show,
    cmd_cancel;
command_run cmd_escalate, cmd_position;
command_run cmd_queues, cmd_queue, cmd_stats;
command_run queue_apply, queue_dump; /* verbs of cmd_queue */
command_run cmd_dead, cmd_dead_edit;
command_run cmd_schedule;
command_run cmd_work;
command_run cmd_top;
command_run cmd_import, cmd_export;
command_run cmd_backup;
command_run cmd_cells;
command_run cmd_move;
command_run cmd_program; /* whatever is a program of its own */

/* A command made of verbs, such as `queue pause`. The table ends with a NULL name. */
struct cli_verb {
    const char *name;
    const char *about;
    command_run *run;
};

int cli_run_verb(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli);

/* Before something that cannot be taken back. CLI_DONE when --yes was given or somebody at the
 * terminal says so; CLI_REFUSED when they do not; CLI_USAGE, after a complaint, when nobody can be
 * asked. */
int cli_confirm(bool yes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
