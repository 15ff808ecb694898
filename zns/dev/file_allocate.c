/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Allocates blocks for zones before they are written. ext4 allocates under a lock that each direct
 * write into a hole holds until it is complete, so such writes run one after the other. Writes into
 * allocated blocks run in parallel.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "emu/emu_priv.h"

/* an allocation takes at most 1/KEPT_FREE of the free space of the file system */
#define KEPT_FREE 8

int file_allocate(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	struct emu *e = emu_of(d);
	uint64_t len = e->lay.stride * nr;
	struct statvfs fs;
	struct stat st;
	int ret;

	if (first < e->p.log_zones || first + (uint64_t)nr > d->geo.nr_zones)
		return -EINVAL;
	if (!emu_file_is_sparse(e))
		return -EOPNOTSUPP;
	if (fstatvfs(e->fd, &fs) || fstat(e->fd, &st))
		return -errno;
	/* also refuse if that could fill up the last holes: a fully allocated file is never given
	 * holes again (emu_give_back) */
	if ((uint64_t)fs.f_bavail * fs.f_frsize / KEPT_FREE < len ||
	    (uint64_t)st.st_blocks * 512 + len >= e->lay.total)
		return -ENOSPC;
	do
		ret = fallocate(e->fd, FALLOC_FL_KEEP_SIZE, (off_t)emu_zone_pos(e, first),
				(off_t)len) ?
			      -errno :
			      0;
	while (ret == -EINTR);
	if (ret) /* the failed call may have allocated some of them */
		file_give_back(d, first, nr);
	return ret;
}

void file_give_back(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	cleanup_free uint32_t *zones = calloc(nr, sizeof(*zones));

	if (!zones || first + (uint64_t)nr > d->geo.nr_zones)
		return;
	for (uint32_t i = 0; i < nr; i++)
		zones[i] = first + i;
	emu_give_back(emu_of(d), zones, nr);
}
