/* SPDX-License-Identifier: MIT */
#ifndef __CR_ZNS_WINDOW_H__
#define __CR_ZNS_WINDOW_H__
/*
 * How much a page fault of a lazy restore brings. It brings its page alone. Where a task reads on
 * from there, each next fault brings twice as much, up to the end of a piece, as the kernel reads
 * ahead in a file. What nobody asks for soon is left to the background.
 */
#include <stdint.h>

#define ZW_WINDOW_PAGE 4096u
#define ZW_WINDOW_MOST (64u << 10) /* windows end at a multiple of this */
#define ZW_WINDOW_STREAMS 8 /* how many sequential readers can be told apart */

struct zw_windows {
	struct {
		uint64_t end; /* offset in the image up to which it was brought */
		uint32_t len; /* length of the last window; 0: unused */
	} stream[ZW_WINDOW_STREAMS];
	unsigned int next; /* to be replaced */
};

/* Bytes for a fault on the page at @off of the image. */
static inline uint32_t zw_window(struct zw_windows *w, uint64_t off)
{
	uint32_t len = ZW_WINDOW_PAGE, left = ZW_WINDOW_MOST - off % ZW_WINDOW_MOST;
	unsigned int n = 0;

	while (n < ZW_WINDOW_STREAMS &&
	       (off < w->stream[n].end || off - w->stream[n].end >= w->stream[n].len))
		n++;
	if (n < ZW_WINDOW_STREAMS)
		len = 2 * w->stream[n].len;
	else
		n = w->next++ % ZW_WINDOW_STREAMS;
	if (len > left)
		len = left;
	w->stream[n].end = off + len;
	w->stream[n].len = len;
	return len;
}

#endif
