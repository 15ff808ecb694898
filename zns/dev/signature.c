/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds what else a disk contains, as blkid(8) detects it: file systems, partition tables, RAID
 * members. */
#include <blkid/blkid.h>
#include <stdio.h>
#include "file_priv.h"

static blkid_probe begin(int fd)
{
	blkid_probe pr = blkid_new_probe();

	if (!pr)
		return NULL;
	if (!blkid_probe_set_device(pr, fd, 0, 0) && !blkid_probe_enable_superblocks(pr, 1) &&
	    !blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
							   BLKID_SUBLKS_MAGIC |
							   BLKID_SUBLKS_BADCSUM) &&
	    !blkid_probe_enable_partitions(pr, 1) &&
	    !blkid_probe_set_partitions_flags(pr, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT))
		return pr;
	blkid_free_probe(pr);
	return NULL;
}

bool file_foreign(int fd, char *text, size_t len)
{
	blkid_probe pr = begin(fd);
	const char *type = NULL, *label = NULL;
	bool found = pr && !blkid_do_probe(pr);

	if (found && blkid_probe_lookup_value(pr, "TYPE", &type, NULL))
		blkid_probe_lookup_value(pr, "PTTYPE", &type, NULL);
	if (found)
		blkid_probe_lookup_value(pr, "LABEL", &label, NULL);
	if (found)
		snprintf(text, len, "%.40s%s%.60s%s", type ? type : "something unknown",
			 label ? " \"" : "", label ? label : "", label ? "\"" : "");
	blkid_free_probe(pr);
	return found;
}

/* Removes all signatures, also those at the end of the disk, where mdadm for instance would find
 * them although our header is at the start. */
int file_wipe_foreign(int fd)
{
	blkid_probe pr = begin(fd);
	int ret = pr ? 0 : -ENOMEM;

	while (!ret && !blkid_do_probe(pr))
		ret = blkid_do_wipe(pr, 0) ? -EIO : 0;
	blkid_free_probe(pr);
	return ret;
}
