/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Common to real devices: writes, appends and reads. */
#include <stdlib.h>
#include <string.h>

#include "hw_priv.h"

#define APPEND UINT64_MAX
/* if an append is done as a report and a write: how often it is retried after another process wrote
 * first */
#define APPEND_TRIES 16

typedef unsigned long long ull;

static int check_transfer(struct hw *h, const char *what, uint32_t zone, uint64_t off, size_t len,
			  struct zns_err *err)
{
	const struct zns_geometry *g = &h->dev.geo;
	int ret = hw_check_zone(h, zone, err);

	if (ret)
		return ret;
	if ((off != APPEND && off % g->block_size) || len % g->block_size)
		return zns_fail(
			err, -EINVAL,
			"%s of zone %u at offset %llu, %zu bytes: not a multiple of the block size of %u",
			what, zone, (ull)(off == APPEND ? 0 : off), len, g->block_size);
	if (off != APPEND && (off >= g->zone_size || len > g->zone_size - off))
		return zns_fail(
			err, -EINVAL,
			"%s of zone %u at offset %llu, %zu bytes: leaves the zone of %llu bytes",
			what, zone, (ull)off, len, (ull)g->zone_size);
	return 0;
}

/* Is a write of @len bytes at @off of this zone allowed now? */
static int check_write(const struct zns_zone *z, uint64_t off, size_t len, struct zns_err *err)
{
	int ret = hw_refuses(z, err);

	if (ret)
		return ret;
	if (off + len > z->capacity)
		return zns_fail(
			err, -ENOSPC,
			"write to zone %u at offset %llu, %zu bytes: beyond its capacity of %llu bytes, use another zone",
			z->index, (ull)off, len, (ull)z->capacity);
	if (off != z->wp)
		return zns_fail(
			err, -EIO,
			"write to zone %u at offset %llu: not at its write pointer %llu: report the zone and write there, or reset it",
			z->index, (ull)off, (ull)z->wp);
	return 0;
}

/* Finds out why the device refused a write. *again: the zone is in order, but the kernel's view of
 * it was outdated, since another process wrote through another node. The report has updated that
 * view, so the write can be repeated. */
static int explain_write(struct hw *h, uint32_t zone, uint64_t off, size_t len,
			 const struct zns_err *why, bool *again, struct zns_err *err)
{
	struct zns_zone z;
	int ret = hw_plain_failure(h, zone, why, err);

	*again = false;
	if (ret)
		return ret;
	if (why->code == -ESTALE) {
		hw_forget(h, zone);
		return zns_fail(
			err, -EIO,
			"write to zone %u at offset %llu: %s: another program writes to this zone; end it, then reset the zone",
			zone, (ull)off, why->msg);
	}
	if (hw_look(h, zone, &z, NULL))
		return zns_fail(
			err, -EIO,
			"write to zone %u at offset %llu: %s; nor can its zones be reported: is %s still there?",
			zone, (ull)off, why->msg, h->dev.path);
	ret = check_write(&z, off, len, err);
	if (ret == -EIO && z.wp > off && z.wp < off + len) /* the write was probably done in part */
		return zns_fail(
			err, ret,
			"write to zone %u at offset %llu, %zu bytes: %s; the write pointer is at %llu now",
			zone, (ull)off, len, why->msg, (ull)z.wp);
	if (ret)
		return ret;
	*again = true;
	return zns_fail(err,
			why->code == -ENOSPC || why->code == -EROFS || why->code == -ENXIO ?
				why->code :
				-EIO,
			"write to zone %u at offset %llu: %s", zone, (ull)off, why->msg);
}

static void *bounce_for(struct hw *h, const void *buf, size_t len)
{
	void *bounce;

	if (posix_memalign(&bounce, zns_max((size_t)h->dev.geo.mem_align, (size_t)HW_PAGE),
			   zns_min(len, (size_t)h->dev.geo.max_io_bytes)))
		return NULL;
	return bounce;
}

/*
 * Writes @len > 0 bytes from @off on, one command at a time. *done counts the written bytes, also
 * after a failure. With @at the device chooses the place if it can; *at is the offset of the first
 * byte.
 */
static int put(struct hw *h, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len,
	       bool durable, uint64_t *at, size_t *done, struct zns_err *err)
{
	int (*write)(struct hw * h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *why) = durable ? h->raw->write_durable : h->raw->write;
	cleanup_free void *bounce = NULL;
	bool append = at && h->raw->append, tried = false, again;

	if ((uintptr_t)buf % h->dev.geo.mem_align && !(bounce = bounce_for(h, buf, len)))
		return zns_fail(err, -ENOMEM, "no memory for an aligned buffer");
	for (*done = 0; *done < len;) {
		const void *src = bounce ? bounce : buf + *done;
		size_t n = hw_piece(h, src, len - *done);
		struct zns_err why = ZNS_ERR_INIT;
		uint64_t place = off + *done;
		int ret;

		if (bounce)
			memcpy(bounce, buf + *done, n);
		if (append && !*done) {
			ret = h->raw->append(h, zone, src, n, &place, &why);
			if (!ret)
				off = place;
		} else {
			ret = write(h, zone, place, src, n, &why);
		}
		if (ret) {
			ret = explain_write(h, zone, place, n, &why, &again, err);
			if (!again || tried || append)
				return ret;
			tried = true;
			continue;
		}
		*done += n;
		tried = false;
		atomic_store(&h->zones[zone].wp, off + *done);
	}
	if (at)
		*at = off;
	return 0;
}

static int do_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		    bool durable, struct zns_err *err)
{
	struct hw *h = hw_of(d);
	struct hw_turn turn;
	struct zns_zone z;
	size_t done;
	int ret = hw_check_writable(h, err);

	if (off == APPEND) /* APPEND is an internal marker that a caller must not pass */
		off--;
	if (!ret)
		ret = check_transfer(h, "write", zone, off, len, err);
	if (ret)
		return ret;
	hw_turn_begin(h, &turn, zone);
	if (!hw_cached(h, zone, &z) || check_write(&z, off, len, NULL)) {
		ret = hw_look(h, zone, &z, err);
		if (!ret)
			ret = check_write(&z, off, len, err);
	}
	if (!ret && len)
		ret = put(h, zone, off, buf, len, durable, NULL, &done, err);
	hw_turn_end(h, &turn);
	return ret;
}

int hw_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
	     struct zns_err *err)
{
	return do_write(d, zone, off, buf, len, false, err);
}

int hw_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *err)
{
	bool durable = hw_of(d)->raw->write_durable;
	int ret = do_write(d, zone, off, buf, len, durable, err);

	return ret || durable ? ret : zns_dev_flush(d, err);
}

int hw_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
	      struct zns_err *err)
{
	struct hw *h = hw_of(d);
	struct hw_turn turn;
	struct zns_zone z;
	size_t done = 0;
	int ret = hw_check_writable(h, err);

	if (!ret)
		ret = check_transfer(h, "append", zone, APPEND, len, err);
	if (ret)
		return ret;
	hw_turn_begin(h, &turn, zone);
	for (int tries = 0; tries < APPEND_TRIES; tries++) {
		ret = hw_look(h, zone, &z, err);
		if (!ret)
			ret = check_write(&z, z.wp, len, err);
		if (ret)
			break;
		*off = z.wp;
		if (len)
			ret = put(h, zone, z.wp, buf, len, false, off, &done, err);
		/* Another process has written first, but none of our data are written yet: try
		 * again. */
		if (ret != -EIO || done || !hw_cached(h, zone, &z) || z.wp == *off)
			break;
	}
	hw_turn_end(h, &turn);
	return ret;
}

/* Up to where the zone can be read, as the device reports it. */
static uint64_t readable(const struct zns_zone *z)
{
	return z->state == ZNS_ZONE_FULL || z->state == ZNS_ZONE_READ_ONLY ? z->capacity : z->wp;
}

static int check_read(const struct zns_zone *z, uint64_t off, size_t len, struct zns_err *err)
{
	if (z->conventional)
		return hw_refuses(z, err);
	if (z->state == ZNS_ZONE_OFFLINE)
		return zns_fail(
			err, -ENXIO,
			"read of zone %u at offset %llu: the zone is offline, its data is lost",
			z->index, (ull)off);
	if (off + len > readable(z))
		return zns_fail(
			err, -ENODATA,
			"read of zone %u at offset %llu, %zu bytes: beyond its write pointer %llu",
			z->index, (ull)off, len, (ull)readable(z));
	return 0;
}

static int explain_read(struct hw *h, uint32_t zone, uint64_t off, size_t len,
			const struct zns_err *why, struct zns_err *err)
{
	struct zns_zone z;
	int ret;

	if (why->code == -ENOMEM)
		return zns_fail(err, -ENOMEM, "read of zone %u: %s", zone, why->msg);
	if (why->code == -EBADE)
		return hw_plain_failure(h, zone, why, err);
	if (hw_look(h, zone, &z, NULL))
		return zns_fail(
			err, -EIO,
			"read of zone %u at offset %llu: %s; nor can its zones be reported: is %s still there?",
			zone, (ull)off, why->msg, h->dev.path);
	ret = check_read(&z, off, len, err);
	return ret ? ret :
		     zns_fail(err, -EIO, "read of zone %u at offset %llu: %s", zone, (ull)off,
			      why->msg);
}

int hw_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
	    struct zns_err *err)
{
	struct hw *h = hw_of(d);
	cleanup_free void *bounce = NULL;
	struct zns_zone z;
	int ret = check_transfer(h, "read", zone, off == APPEND ? off - 1 : off, len, err);

	if (ret)
		return ret;
	if (!hw_cached(h, zone, &z) || check_read(&z, off, len, NULL)) {
		ret = hw_look(h, zone, &z, err);
		if (!ret)
			ret = check_read(&z, off, len, err);
		if (ret)
			return ret;
	}
	if (len && (uintptr_t)buf % d->geo.mem_align && !(bounce = bounce_for(h, buf, len)))
		return zns_fail(err, -ENOMEM, "no memory for an aligned buffer");
	for (size_t done = 0; done < len;) {
		struct zns_err why = ZNS_ERR_INIT;
		uint8_t *to = (uint8_t *)buf + done;
		size_t n = hw_piece(h, bounce ? bounce : to, len - done);

		if (h->raw->read(h, zone, off + done, bounce ? bounce : to, n, &why))
			return explain_read(h, zone, off + done, n, &why, err);
		if (bounce)
			memcpy(to, bounce, n);
		done += n;
	}
	return 0;
}
