/* `triaged --check`: whether a server would start with these settings. Looks at the settings and at
 * the files that they name: tokens, certificates, the data directory. Tells of every mistake and
 * not only of the first. Writes nothing, takes no lock and opens no port, so it may run beside a
 * server on the same directory. */
#ifndef TRIAGE_TRIAGED_CHECK_H
#define TRIAGE_TRIAGED_CHECK_H

#include "triaged/settings.h"

int check_settings(const struct settings *s); /* 0: it would; 2: it would not, and was told why */

#endif
