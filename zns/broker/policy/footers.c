/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Footers on a disk. If the log is lost, a rebuild finds each checkpoint by its footer. So the
 * footer of a removed checkpoint is overwritten by its tombstone, and that of an earlier version by
 * zeroes. A new owner of the place may overwrite both. (A tombstone in any other place could get
 * lost, since all space that is not live is reused.) As long as a program reads or writes the zone,
 * its footers are not overwritten. A broker that ends does not wait for that; then a footer may
 * stay in the zone of a dump that continues without the broker, but the log has the tombstone.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/fsck.h"
#include "policy.h"

struct old_footer {
	uint8_t id[ZNS_UUID_LEN];
	ZnsPb__ExtentRef manifest;
	uint8_t *block; /* the block with which the footer is overwritten */
};

static uint64_t place_of(const struct znsd *d, const ZnsPb__ExtentRef *manifest)
{
	return manifest->start + zns_align_up(manifest->len, (uint64_t)d->dev->geo.block_size);
}

/* Is the footer still at its place on the disk? */
static bool stands(const struct znsd *d, const struct old_footer *f)
{
	ZnsPb__Footer *foot;
	bool is;

	if (zns_footer_read(d->dev, f->manifest.zone, place_of(d, &f->manifest), &foot, NULL))
		return false;
	is = !memcmp(foot->checkpoint.data, f->id, ZNS_UUID_LEN) &&
	     foot->manifest_start == f->manifest.start && foot->manifest_hash == f->manifest.hash;
	zns_pb__footer__free_unpacked(foot, NULL);
	return is;
}

static void write_over(struct znsd *d, const struct old_footer *f)
{
	uint64_t at = place_of(d, &f->manifest), len = d->dev->geo.block_size, end, turn;
	uint32_t zone = f->manifest.zone;
	struct zns_err err = ZNS_ERR_INIT;
	int ret = zns_dev_offer(d->dev, zone, &end, &turn, &err);

	if (!ret && at + len > end)
		return; /* a finished zone cannot be written, and reads as zeroes there */
	if (!ret)
		ret = zns_dev_take(d->dev, zone, at, at + len, turn, &err);
	if (!ret)
		ret = zns_dev_write(d->dev, zone, at, f->block, len, &err);
	if (ret)
		znsd_warn("a footer in zone %u cannot be written over: %s", zone, err.msg);
}

/*
 * Overwrites the footer if that is possible now. True: nothing is left to do. @leaves: the broker
 * ends, so it must not wait for readers; they do not read footers.
 */
static bool settled(struct znsd *d, const struct old_footer *f, bool leaves)
{
	const struct zn_zone *z;

	if (f->manifest.zone >= d->nr_zones)
		return true;
	z = &d->zones[f->manifest.zone];
	if (!zone_usable(z) || (!zone_live(d, f->manifest.zone) && !z->writer))
		/* the zone is reset before its next write, and the reset removes the footer */
		return true;
	if (z->writer || z->finishing)
		return false;
	if (!leaves && (z->readers || (z->old && !d->readers_clear)))
		return false;
	if (stands(d, f))
		write_over(d, f);
	return true;
}

void footer_gone(struct znsd *d, const uint8_t *id, const ZnsPb__ExtentRef *manifest,
		 const ZnsPb__Tombstone *t)
{
	size_t block = d->dev->geo.block_size;
	struct old_footer f = { .manifest = *manifest };
	struct policy *p = d->policy;

	memcpy(f.id, id, ZNS_UUID_LEN);
	f.block = aligned_alloc(4096, zns_align_up(block, 4096));
	if (!f.block)
		return;
	memset(f.block, 0, block);
	if ((t && zns_tombstone_block(t, f.block, block)) || settled(d, &f, false)) {
		free(f.block);
		return;
	}
	znsd_grow(p->footers, p->nr_footers, p->max_footers);
	p->footers[p->nr_footers++] = f;
}

void footers_step(struct znsd *d, bool leaves)
{
	struct policy *p = d->policy;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->nr_footers; i++)
		if (settled(d, &p->footers[i], leaves))
			free(p->footers[i].block);
		else
			p->footers[n++] = p->footers[i];
	p->nr_footers = n;
}

void footers_fini(struct znsd *d)
{
	for (uint32_t i = 0; i < d->policy->nr_footers; i++)
		free(d->policy->footers[i].block);
	free(d->policy->footers);
}
