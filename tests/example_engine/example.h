/* The engine that docs/writing-an-engine.md explains. The conformance suite runs on it as on any
 * other; no server has it. */
#ifndef TRIAGE_TESTS_EXAMPLE_H
#define TRIAGE_TESTS_EXAMPLE_H

#include "engine/engine.h"

extern const struct engine_kind example_kind;

#endif
