/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules of tracking that are switched off: see controls.h. */
#include <fcntl.h>
#include <stdio.h>

#include "../../zns/track/maps.h"
#include "../../zns/track/scan.h"
#include "control.h"
#include "zns/track_control.h"

#define HUGE (2 * MIB(1))

static int seen(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return 1;
}

/*
 * What kernels without the mend of July 2026 do: memory whose page table is gone is not reported as
 * written, whether its area is new or its pages were discarded.
 */
bool track_hides(int pagemap, uint64_t start, uint64_t end)
{
	static const struct scan_query q = { .anyof = IS_PRESENT | IS_SWAPPED,
					     .returned = IS_PRESENT };

	return control_track_word("kernel-holes") && start % HUGE == 0 && end % HUGE == 0 &&
	       !scan_range(pagemap, &q, start, end, seen, NULL);
}

int track_more_areas(pid_t pid, struct zns_spans *all)
{
	cleanup_close int fd = -1;
	struct areas l = { 0 };
	char path[48];
	int ret;

	if (!track_breaks(TRACK_SHARED))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = fd < 0 ? -errno : areas_read(fd, &l, NULL);
	for (size_t i = 0; i < l.nr && !ret; i++)
		if (l.a[i].may)
			ret = zns_spans_add(all, l.a[i].start, l.a[i].end);
	areas_free(&l);
	return ret;
}
