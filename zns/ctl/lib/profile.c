/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes the profile for `format`: from the vendor's map, from a given map, or with all zones in one
 * group.
 */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include "ctl.h"
#include "zns/emu.h"

#define MAP_FILE_MAX MIB(4)
#define GROUPS_MAX 65536

/* Parses "i % N", with or without blanks. */
static bool parse_modulo(const char *s, uint32_t *n)
{
	int end = 0;

	return sscanf(s, " i %% %u %n", n, &end) == 1 && end && !s[end] && *n && *n <= GROUPS_MAX;
}

static int read_map(const char *path, uint32_t nr, uint32_t *group, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;
	uint32_t n = 0;
	char *p, *end;
	int ret;

	ret = zns_read_file(AT_FDCWD, path, MAP_FILE_MAX, &text, &len);
	if (ret)
		return zns_fail_sys(err, ret, "cannot read map %s", path);
	for (p = (char *)text; *p;) {
		unsigned long v;

		if (*p == '#') {
			p += strcspn(p, "\n");
			continue;
		}
		if (isspace((unsigned char)*p)) {
			p++;
			continue;
		}
		errno = 0;
		v = strtoul(p, &end, 10);
		if (!isdigit((unsigned char)*p) || errno || v >= GROUPS_MAX ||
		    (*end && !isspace((unsigned char)*end)))
			return zns_fail(err, -EINVAL, "map %s: \"%.10s\" is no group number", path,
					p);
		if (n == nr)
			return zns_fail(err, -EINVAL,
					"map %s names more than the device's %u zones", path, nr);
		group[n++] = v;
		p = end;
	}
	if (n < nr)
		return zns_fail(err, -EINVAL, "map %s names %u zones, the device has %u", path, n,
				nr);
	return 0;
}

/* Counts the groups, which must be numbered without gaps. */
static uint32_t count_groups(const uint32_t *group, uint32_t nr, struct zns_err *err)
{
	cleanup_free bool *seen = calloc(GROUPS_MAX, sizeof(*seen));
	uint32_t i, n = 0;

	if (!seen) {
		zns_fail(err, -ENOMEM, "no memory for the map");
		return 0;
	}
	for (i = 0; i < nr; i++) {
		seen[group[i]] = true;
		n = zns_max(n, group[i] + 1);
	}
	for (i = 0; i < n; i++)
		if (!seen[i]) {
			zns_fail(err, -EINVAL, "the map has %u groups but no zone in group %u", n,
				 i);
			return 0;
		}
	return n;
}

/*
 * With fewer zones than dies, some dies have no zone, and form no group. Numbers the other dies
 * without gaps, and returns their number. @channel_of is indexed by die before, and by group
 * afterwards.
 */
static uint32_t close_gaps(uint32_t *group, uint32_t nr, uint32_t *channel_of, uint32_t dies)
{
	cleanup_free uint32_t *number = calloc(dies, sizeof(*number));
	uint32_t i, n = 0;

	if (!number)
		return 0;
	for (i = 0; i < nr; i++)
		number[group[i]] = 1;
	for (i = 0; i < dies; i++) {
		if (!number[i])
			continue;
		channel_of[n] = channel_of[i];
		number[i] = n++;
	}
	for (i = 0; i < nr; i++)
		group[i] = number[group[i]];
	return n;
}

/* @channel_of: the channel of each group; NULL: unknown. */
static int build(ZnsPb__Profile **out, const char *source, uint32_t groups,
		 const uint32_t *channel_of, const uint32_t *group, uint32_t nr_zones,
		 uint32_t write, uint32_t read)
{
	ZnsPb__Profile *p = calloc(1, sizeof(*p));
	uint32_t i;

	if (!p)
		return -ENOMEM;
	zns_pb__profile__init(p);
	*out = p;
	p->source = strdup(source);
	p->zone_write_mibps = write;
	p->zone_read_mibps = read;
	p->confidence = 1;
	p->has_created_ns = 1;
	p->created_ns = zns_now_ns();
	p->groups = calloc(groups, sizeof(*p->groups));
	p->zone_group = calloc(nr_zones, sizeof(*p->zone_group));
	if (!p->source || !p->groups || !p->zone_group)
		return -ENOMEM;
	for (i = 0; i < groups; i++) {
		ZnsPb__DieGroup *g = calloc(1, sizeof(*g));

		if (!g)
			return -ENOMEM;
		zns_pb__die_group__init(g);
		g->id = i;
		g->has_channel = channel_of != NULL;
		g->channel = channel_of ? channel_of[i] : 0;
		p->groups[p->n_groups++] = g;
	}
	memcpy(p->zone_group, group, nr_zones * sizeof(*group));
	p->n_zone_group = nr_zones;
	return 0;
}

/* The bandwidth of one zone, computed from the emulator's parameters. */
static void emu_bandwidth(const struct zns_emu_params *e, uint32_t *write, uint32_t *read)
{
	bool wide = e->map == ZNS_EMU_MAP_SHARED;
	uint64_t dies = wide         ? (uint64_t)e->channels * e->ways :
			e->zone_dies ? e->zone_dies :
				       1,
		 chan = e->channel_mibps * zns_min(dies, (uint64_t)e->channels);

	if (e->controller_mibps)
		chan = zns_min(chan, (uint64_t)e->controller_mibps);
	*write = zns_min(dies * e->die_write_mibps, chan);
	*read = zns_min(dies * e->die_read_mibps, chan);
}

int ctl_make_profile(struct zns_dev *dev, const struct ctl_map *map, ZnsPb__Profile **out,
		     struct zns_err *err)
{
	uint32_t nr = dev->geo.nr_zones, groups = 1, write = 0, read = 0;
	cleanup_free uint32_t *channel_of = NULL;
	cleanup_free uint32_t *group = calloc(nr ? nr : 1, sizeof(*group));
	uint8_t uuid[ZNS_UUID_LEN];
	const char *source = "one-domain";
	struct zns_emu_params e;
	bool emu;
	uint32_t i;
	int ret;

	*out = NULL;
	if (!group)
		return zns_fail(err, -ENOMEM, "no memory for the profile");
	emu = !zns_emu_info(dev, &e, uuid);
	if (emu)
		emu_bandwidth(&e, &write, &read);
	if (map->zone_write_mibps)
		write = map->zone_write_mibps;
	if (map->zone_read_mibps)
		read = map->zone_read_mibps;
	if (!write)
		return zns_fail(err, -EINVAL,
				"%s does not say how fast a zone is: give --zone-write-bw",
				dev->path);
	if (!read)
		read = write;
	if (map->spec) {
		uint32_t n;

		source = "vendor";
		if (parse_modulo(map->spec, &n)) {
			for (i = 0; i < nr; i++)
				group[i] = i % n;
		} else {
			ret = read_map(map->spec, nr, group, err);
			if (ret)
				return ret;
		}
		groups = count_groups(group, nr, err);
		if (!groups)
			return -EINVAL;
	} else if (emu && e.map != ZNS_EMU_MAP_SHARED && !zns_emu_zones_overlap(&e)) {
		source = "vendor";
		ret = zns_emu_zone_map(dev, group, err);
		if (ret)
			return ret;
		channel_of = calloc((size_t)e.channels * e.ways, sizeof(*channel_of));
		if (!channel_of)
			return zns_fail(err, -ENOMEM, "no memory for the profile");
		for (i = 0; i < e.channels * e.ways; i++)
			channel_of[i] = i % e.channels;
		groups = close_gaps(group, nr, channel_of, e.channels * e.ways);
		if (!groups)
			return zns_fail(err, -ENOMEM, "no memory for the profile");
	}
	ret = build(out, source, groups, channel_of, group, nr, write, read);
	if (ret) {
		if (*out)
			zns_pb__profile__free_unpacked(*out, NULL);
		*out = NULL;
		return zns_fail_sys(err, ret, "cannot make the profile");
	}
	return 0;
}
