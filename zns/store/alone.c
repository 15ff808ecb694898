/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks before each change that no other process writes the store. A second writer would move the
 * write pointer of some metadata zone, so all of them are checked. If both wrote to the same zone,
 * the device would refuse one of the writes; a roll-over into another zone would go unnoticed
 * without this check.
 */
#include "store_int.h"

void zns_store_remember(struct zns_store *s)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *z = calloc(n, sizeof(*z));

	if (!s->seen_wp)
		s->seen_wp = calloc(n, sizeof(*s->seen_wp));
	if (!s->seen_wp)
		return;
	for (uint32_t i = 0; i < n; i++)
		s->seen_wp[i] = UINT64_MAX;
	if (!z || zns_dev_report(s->dev, s->first_meta, n, z, NULL))
		return;
	for (uint32_t i = 0; i < n; i++)
		if (zns_meta_usable(&z[i]))
			s->seen_wp[i] = z[i].wp;
}

int zns_store_taken(struct zns_store *s, struct zns_err *err)
{
	s->foreign = true;
	return zns_fail(
		err, -ESTALE,
		"%s: somebody else writes its catalogue (another machine, or a program beside znsd): "
		"nothing was changed; see who with `znsctl status`",
		s->dev->path);
}

int zns_store_alone(struct zns_store *s, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *z = calloc(n, sizeof(*z));
	int ret;

	if (s->foreign)
		return zns_store_taken(s, err);
	/* After a failed write of ours the write pointers are not known. The pending roll-over
	 * records them again. */
	if (!z || !s->seen_wp || s->need_roll)
		return z ? 0 : zns_fail(err, -ENOMEM, "no memory for %u metadata zones", n);
	ret = zns_dev_report(s->dev, s->first_meta, n, z, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t want = z[i].index == s->log.zone ? s->log.off : s->seen_wp[i];

		if (zns_meta_usable(&z[i]) && want != UINT64_MAX && z[i].wp != want)
			return zns_store_taken(s, err);
	}
	return 0;
}

int zns_store_lost(struct zns_store *s, int ret)
{
	s->foreign |= ret == -EBADE;
	return ret;
}

bool zns_store_foreign(const struct zns_store *s)
{
	return s->foreign;
}

uint64_t zns_store_claim_rec(const struct zns_store *s)
{
	return s->claim ? s->claim->rec : 0;
}
