/* SPDX-License-Identifier: MIT */
#ifndef __CR_ZNS_SMAPS_H__
#define __CR_ZNS_SMAPS_H__
/* Used by criu, which does not link libzns, and by our programs. */
#include <stdbool.h>
#include <string.h>

/*
 * Bytes of /proc/PID/smaps to read at once. For each area the kernel looks at all of its pages. If
 * a read has room for another area, the kernel begins with that; if its own buffer, 4 KiB, then has
 * none, it throws the result away and does it again in the next read. The text of an area is longer
 * than this, so each read begins one area.
 */
#define ZNS_SMAPS_PIECE 512

/* The line of an area, or its flags: of all lines the only ones that are of use. */
static inline bool zns_smaps_wants(const char *line)
{
	size_t digits = strspn(line, "0123456789abcdef");

	return (digits && line[digits] == '-') || !strncmp(line, "VmFlags:", 8);
}

#endif
