/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks a catalogue that opens: compares each checkpoint with the zones. Reads metadata only, no
 * images.
 */
#include <string.h>
#include "fsck.h"

void fsck_problem(struct fsck *k, const ZnsPb__Checkpoint *c, bool placed, uint32_t zone,
		  uint64_t off, const char *what)
{
	char id[ZNS_UUID_STR] = "";

	if (c)
		zns_uuid_format(c->id.data, id);
	json_object_array_add(k->problems, ctl_obj(J("id", c ? id : NULL),
						   J("container", c ? c->container : NULL),
						   J("zone", placed ? ctl_j_int(zone) : NULL),
						   J("offset", placed ? ctl_j_uint(off) : NULL),
						   J("error", what)));
	if (k->json)
		return;
	printf("PROBLEM  %s%s%s%s", id, c ? " of " : "", c ? ctl_text(c->container) : "",
	       c ? ": " : "");
	if (placed)
		printf("zone %u, offset %llu: ", zone, (unsigned long long)off);
	printf("%s\n", what);
}

static void check_manifest(struct fsck *k, const ZnsPb__Checkpoint *c)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Manifest *m = NULL;

	if (zns_manifest_read(k->dev, c, &m, &err))
		fsck_problem(k, c, true, c->manifest->zone, c->manifest->start, err.msg);
	else if (zns_manifest_agrees(m, c, &err))
		fsck_problem(k, c, true, c->manifest->zone, c->manifest->start, err.msg);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	if (zns_footer_check(k->dev, c, &err))
		fsck_problem(k, c, true, c->manifest->zone,
			     c->manifest->start +
				     zns_align_up(c->manifest->len, k->dev->geo.block_size),
			     err.msg);
}

static void check_zones(struct fsck *k, const ZnsPb__Checkpoint *c, const struct zns_zone *zones)
{
	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];
		const struct zns_zone *z = &zones[u->zone];

		if (z->state == ZNS_ZONE_OFFLINE)
			fsck_problem(k, c, true, u->zone, u->start, "the zone is offline");
		else if (u->start + u->len > z->wp)
			fsck_problem(k, c, true, u->zone, u->start,
				     z->wp ? "the zone ends before the checkpoint's bytes do" :
					     "the zone was reset");
	}
}

struct span {
	uint32_t zone;
	uint64_t start, end;
	const ZnsPb__Checkpoint *c;
	const ZnsPb__ZoneUse *u;
};

static int cmp_span(const void *pa, const void *pb)
{
	const struct span *a = pa, *b = pb;

	if (a->zone != b->zone)
		return a->zone < b->zone ? -1 : 1;
	return a->start < b->start ? -1 : a->start > b->start;
}

static int check_overlaps(struct fsck *k, const struct zns_store *s, struct zns_err *err)
{
	size_t n = 0, nr = zns_store_nr_checkpoints(s);
	cleanup_free struct span *v = NULL;

	for (size_t i = 0; i < nr; i++)
		n += zns_store_checkpoint(s, i)->n_zones;
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for a list of zone uses");
	n = 0;
	for (size_t i = 0; i < nr; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(s, i);

		for (size_t u = 0; u < c->n_zones; u++)
			v[n++] = (struct span){ c->zones[u]->zone, c->zones[u]->start,
						c->zones[u]->start + c->zones[u]->len, c,
						c->zones[u] };
	}
	qsort(v, n, sizeof(*v), cmp_span);
	for (size_t i = 1; i < n; i++)
		if (v[i].zone == v[i - 1].zone && v[i].start < v[i - 1].end &&
		    !zns_use_shares(v[i].u, v[i - 1].u))
			fsck_problem(k, v[i].c, true, v[i].zone, v[i].start,
				     "another checkpoint claims the same bytes");
	return 0;
}

int fsck_check(struct fsck *k, const struct zns_store *s, struct zns_err *err)
{
	cleanup_free struct zns_zone *zones = calloc(k->dev->geo.nr_zones, sizeof(*zones));
	char have[ZNS_UUID_STR], want[ZNS_UUID_STR], line[256];
	int ret;

	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	ret = zns_dev_report(k->dev, 0, k->dev->geo.nr_zones, zones, err);
	if (ret)
		return ret;
	if (memcmp(zns_store_uuid(s), k->reg.uuid, ZNS_UUID_LEN)) {
		snprintf(line, sizeof(line),
			 "it holds store %s, but is registered as %s: run `znsctl register %s`",
			 zns_uuid_format(zns_store_uuid(s), have),
			 zns_uuid_format(k->reg.uuid, want), k->reg.path);
		fsck_problem(k, NULL, false, 0, 0, line);
	}
	k->checkpoints = zns_store_nr_checkpoints(s);
	k->generation = zns_store_generation(s);
	k->torn = zns_store_torn(s);
	for (size_t i = 0; i < k->checkpoints; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(s, i);
		const ZnsPb__Mark *m = zns_store_find_mark(s, c->id.data);

		if (k->lost && m && m->pinned)
			json_object_array_add(k->pinned,
					      json_object_new_string(
						      zns_uuid_format(c->id.data, have)));
		check_zones(k, c, zones);
		check_manifest(k, c);
	}
	return check_overlaps(k, s, err);
}
