/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Saves the state of a run as bytes, and loads it to continue the run later on the same machine. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define STATE_MAGIC UINT64_C(0x3130454254534e5a)
#define STATE_VERSION 1

struct head {
	uint64_t magic;
	uint32_t version, nr_zones, nr_groups, phase, unit, write_mibps, read_mibps, zero;
	double scaling;
	uint64_t written, resets, reads, read_bytes, device_ns, wall_ns;
	uint64_t hash; /* hash of the whole state, computed with 0 in this field */
};

struct entry {
	uint32_t group, tested;
	float confidence;
	uint32_t pivot; /* pivot of the group whose number is the index of this entry */
};

int zns_probe_save(const struct zns_probe_map *m, void **out, size_t *out_len)
{
	size_t len = sizeof(struct head) + m->nr_zones * sizeof(struct entry);
	struct head *h = calloc(1, len);
	struct entry *e;

	if (!h)
		return -ENOMEM;
	e = (struct entry *)(h + 1);
	*h = (struct head){
		.magic = STATE_MAGIC,
		.version = STATE_VERSION,
		.nr_zones = m->nr_zones,
		.nr_groups = m->nr_groups,
		.phase = m->phase,
		.unit = m->unit,
		.write_mibps = m->zone_write_mibps,
		.read_mibps = m->zone_read_mibps,
		.scaling = m->scaling,
		.written = m->written,
		.resets = m->resets,
		.reads = m->reads,
		.read_bytes = m->read_bytes,
		.device_ns = m->device_ns,
		.wall_ns = m->wall_ns,
	};
	for (uint32_t z = 0; z < m->nr_zones; z++)
		e[z] = (struct entry){ .group = m->zone_group[z],
				       .tested = m->tested[z],
				       .confidence = m->zone_confidence[z],
				       .pivot = m->pivot[z] };
	h->hash = zns_hash(h, len);
	*out = h;
	*out_len = len;
	return 0;
}

static bool sane(const struct head *h, const struct entry *e)
{
	if (h->phase > ZNS_PROBE_CHECK || h->nr_groups > h->nr_zones)
		return false;
	for (uint32_t z = 0; z < h->nr_zones; z++) {
		if (e[z].group != ZNS_PROBE_NONE && e[z].group >= h->nr_groups)
			return false;
		if (e[z].tested > h->nr_groups || (z < h->nr_groups && e[z].pivot >= h->nr_zones))
			return false;
		if (z < h->nr_groups && e[e[z].pivot].group != z)
			return false;
	}
	return true;
}

int zns_probe_load(const void *state, size_t len, uint32_t nr_zones, struct zns_probe_map *m,
		   struct zns_err *err)
{
	cleanup_free struct head *h = malloc(zns_max(len, sizeof(*h)));
	const struct entry *e;
	uint64_t hash;

	if (!h)
		return zns_fail(err, -ENOMEM, "no memory for the state of a probe");
	memcpy(h, state, len);
	e = (const struct entry *)(h + 1);
	if (len < sizeof(*h) || h->magic != STATE_MAGIC || h->version != STATE_VERSION ||
	    h->nr_zones != nr_zones || len != sizeof(*h) + (uint64_t)nr_zones * sizeof(*e))
		return zns_fail(err, -EBADMSG,
				"this is no state of a probe of a device with %u zones", nr_zones);
	hash = h->hash;
	h->hash = 0;
	if (zns_hash(h, len) != hash || !sane(h, e))
		return zns_fail(err, -EBADMSG, "the state of the interrupted probe is damaged");
	if (zns_probe_alloc(m, nr_zones))
		return zns_fail(err, -ENOMEM, "no memory for a probe of %u zones", nr_zones);
	m->nr_groups = h->nr_groups;
	/* later phases are quick, and are repeated from their start */
	m->phase = zns_min(h->phase, (uint32_t)ZNS_PROBE_CHANNELS);
	m->unit = h->unit;
	m->zone_write_mibps = h->write_mibps;
	m->zone_read_mibps = h->read_mibps;
	m->scaling = h->scaling;
	m->written = h->written;
	m->resets = h->resets;
	m->reads = h->reads;
	m->read_bytes = h->read_bytes;
	m->device_ns = h->device_ns;
	m->wall_ns = h->wall_ns;
	for (uint32_t z = 0; z < nr_zones; z++) {
		m->zone_group[z] = e[z].group;
		m->tested[z] = e[z].tested;
		m->zone_confidence[z] = e[z].confidence;
		m->pivot[z] = e[z].pivot;
	}
	return 0;
}
