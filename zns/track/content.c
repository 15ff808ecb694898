/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists the pages that a process has. It needs no tracker. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include "scan.h"
#include "zns/track.h"
#include "zns/util.h"

static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return categories & (IS_FILE | IS_GUARD) ? 0 : zns_spans_add(arg, start, end);
}

/* For kernels before Linux 6.7, without PAGEMAP_SCAN: reads pagemap page by page. */
static int read_entries(int pagemap, const struct zns_span *area, struct zns_spans *out)
{
	uint64_t e[512];
	int ret = 0;

	for (uint64_t at = area->start; at < area->end && !ret;) {
		size_t want = zns_min((area->end - at) / TRACK_PAGE, ZNS_ARRAY_SIZE(e));
		ssize_t got = pread(pagemap, e, want * sizeof(*e),
				    (off_t)(at / TRACK_PAGE * sizeof(*e)));

		if (got <= 0)
			return got ? -errno : 0;
		for (size_t n = 0; n < (size_t)got / sizeof(*e) && !ret; n++, at += TRACK_PAGE)
			if (e[n] & PME_SWAP || (e[n] & PME_PRESENT && !(e[n] & PME_FILE)))
				ret = zns_spans_add(out, at, at + TRACK_PAGE);
	}
	return ret;
}

int zns_track_content(pid_t pid, const struct zns_span *area, size_t nr, struct zns_spans *out,
		      struct zns_err *err)
{
	struct scan_query q = { .anyof = IS_PRESENT | IS_SWAPPED,
				.returned = IS_PRESENT | IS_SWAPPED | IS_FILE | IS_GUARD };
	cleanup_close int fd = -1;
	char path[48];
	int ret = 0;

	zns_spans_clear(out);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot look into process %d", pid);
	for (size_t n = 0; n < nr && !ret; n++) {
		ret = scan_range(fd, &q, area[n].start, area[n].end, found, out);
		/* kernels before Linux 6.15 do not know IS_GUARD */
		if (ret == -EINVAL && q.returned & IS_GUARD) {
			q.returned &= ~(uint64_t)IS_GUARD;
			ret = scan_range(fd, &q, area[n].start, area[n].end, found, out);
		}
		if (ret == -ENOTTY)
			ret = read_entries(fd, &area[n], out);
	}
	return ret ? zns_fail_sys(err, ret, "cannot list the pages of process %d", pid) : 0;
}
