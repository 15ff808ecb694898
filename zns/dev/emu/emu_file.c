/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks the host's file below the device. Anybody with access may delete, replace or truncate it,
 * and the file system may fill up. A sync only reports a full file system. Without these checks a
 * dump into a lost file would be reported as durable although nobody could restore it.
 */
#include <string.h>
#include <sys/stat.h>

#include "emu_priv.h"
#include "zns/config.h"

static const char *path_of(const struct emu *e)
{
	return zns_spec_path(e->dev.path);
}

void emu_set_zones(struct emu *e, uint32_t nr_zones)
{
	__atomic_store_n(&e->p.nr_zones, nr_zones, __ATOMIC_RELAXED);
	__atomic_store_n(&e->dev.geo.nr_zones, nr_zones, __ATOMIC_RELAXED);
	emu_layout_of(&e->p, &e->lay);
}

/* The number of zones, as announced by the process that resized the store last. */
static uint32_t zones_now(const struct emu *e)
{
	uint32_t nr = emu_load(&e->head->nr_zones);

	return e->p.log_zones && nr > e->p.log_zones && nr <= emu_room(e) ? nr : e->p.nr_zones;
}

static uint64_t total_now(const struct emu *e)
{
	struct zns_emu_params p = e->p;
	struct emu_layout lay;

	p.nr_zones = zones_now(e);
	emu_layout_of(&p, &lay);
	return lay.total;
}

void emu_follow(struct zns_dev *d)
{
	struct emu *e = emu_of(d);

	if (zones_now(e) != e->p.nr_zones)
		emu_set_zones(e, zones_now(e));
}

int emu_file_whole(struct emu *e, struct zns_err *err)
{
	struct stat st;
	uint64_t total;

	if (!e->is_file)
		return 0;
	if (fstat(e->fd, &st))
		return zns_fail_sys(err, -errno, "cannot read the attributes of %s", e->dev.path);
	if (!st.st_nlink)
		return zns_fail(
			err, -ESTALE,
			"%s was deleted while it was in use, and what is on it goes with its last user: "
			"create the device anew",
			e->dev.path);
	total = total_now(e);
	/* repeat the check, since the file may have grown after the first one */
	if ((uint64_t)st.st_size < total && !fstat(e->fd, &st) && (uint64_t)st.st_size < total)
		return zns_fail(
			err, -ESTALE,
			"%s was cut short while it was in use, to %llu bytes of %llu: restore it from a "
			"backup or create it anew",
			e->dev.path, (unsigned long long)st.st_size, (unsigned long long)total);
	return 0;
}

int emu_file_ours(struct emu *e, struct zns_err *err)
{
	struct stat ours, named;
	int ret = emu_file_whole(e, err);

	if (ret || !e->is_file)
		return ret;
	if (fstat(e->fd, &ours))
		return zns_fail_sys(err, -errno, "cannot read the attributes of %s", e->dev.path);
	/* If we have no permission to look up the path, assume that it has not changed. */
	if (stat(path_of(e), &named) ? errno != ENOENT && errno != ENOTDIR :
				       named.st_dev == ours.st_dev && named.st_ino == ours.st_ino)
		return 0;
	return zns_fail(
		err, -ESTALE,
		"%s was moved away or replaced while it was in use: put the file back to where it was",
		e->dev.path);
}

int emu_file_no_room(struct emu *e, struct zns_err *err)
{
	if (e->p.log_zones)
		return zns_fail(
			err, -EDQUOT,
			"no space left on the file system below %s: free some there, or in the store with "
			"`znsctl rm`, which gives its blocks back",
			e->dev.path);
	return zns_fail(
		err, -EDQUOT,
		"no space left on the file system below %s: free some there, or use a device made "
		"without --sparse, which has its space from the start",
		e->dev.path);
}

/* Is the file sparse? A fully allocated file has at least as many blocks as bytes, plus
 * metadata. */
bool emu_file_is_sparse(const struct emu *e)
{
	struct stat st;

	return e->is_file && !emu_stores_nothing(e) && !fstat(e->fd, &st) &&
	       (uint64_t)st.st_blocks * 512 < e->lay.total;
}
