/* Draws the waits of a simulation over time as an SVG picture: for each level a
 * line for the median of what was claimed and a paler one for the longest wait.
 * It names no font, and its colours suit light and dark viewers. */
#ifndef TRIAGE_SIMULATE_PLOT_H
#define TRIAGE_SIMULATE_PLOT_H

#include "base/buf.h"
#include "simulate/simulate.h"

void plot_waits(struct buf *svg, const struct workload *w, const struct simulation *sim,
                const char *title);

#endif
