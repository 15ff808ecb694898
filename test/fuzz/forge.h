/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FORGE_H
#define FORGE_H
/*
 * Pieces of a forged device, and a mutator of them. A piece: kind, zone, type, 8 bytes generation,
 * 8 bytes seq, 2 bytes length, payload. Checksums are not part of it: who lays the pieces out
 * computes them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FORGE_ZONES 8
#define FORGE_CAP (128u << 10)
#define FORGE_BLOCK 4096
#define FORGE_HEAD 21
#define FORGE_MAX 64 /* pieces */

enum forge_kind {
	FORGE_RECORD,
	FORGE_MANIFEST,
	FORGE_COMMITTED,
	FORGE_FRAME,
	FORGE_FILL,
	FORGE_KINDS
};

struct forge_piece {
	uint8_t kind, zone, type;
	uint64_t generation, seq; /* of FORGE_FRAME */
	uint32_t len;
	const uint8_t *payload;
};

static inline bool forge_next(const uint8_t **data, size_t *size, struct forge_piece *p)
{
	const uint8_t *d = *data;

	if (*size < FORGE_HEAD)
		return false;
	p->kind = d[0];
	p->zone = d[1];
	p->type = d[2];
	memcpy(&p->generation, d + 3, 8);
	memcpy(&p->seq, d + 11, 8);
	p->len = (uint32_t)(d[19] | d[20] << 8);
	if (p->len > *size - FORGE_HEAD)
		p->len = (uint32_t)(*size - FORGE_HEAD);
	p->payload = d + FORGE_HEAD;
	*data += FORGE_HEAD + p->len;
	*size -= FORGE_HEAD + p->len;
	return true;
}

#endif
