/* SipHash-2-4 (Aumasson and Bernstein, 2012): a short tag that nobody can make who does not know
 * the key, whatever else they choose or see. For short inputs: about a cycle a byte. */
#ifndef TRIAGE_BASE_SIPHASH_H
#define TRIAGE_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#define SIPHASH_KEY_BYTES 16

uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *data, size_t len);

/* SipHash-1-3, which takes half the time. Whoever does not see the hashes cannot choose keys that
 * collide. For the places of a map, which are never shown; too weak for a tag. */
uint64_t siphash_map(const uint8_t key[SIPHASH_KEY_BYTES], const void *data, size_t len);

#endif
