/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Knows which zones can be read or written. Writes units to zones that are to be read, within the
 * limits and the budget, and resets these zones.
 */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define SET_BYTES KIB(768) /* most bytes that a set writes to one zone */
#define FAILED_IN_A_ROW 4u /* if this many zones fail in a row, the zones are not the cause */

static const char mark[16] = "zns-criu probe\n";

struct unit_head {
	char mark[sizeof(mark)];
	uint32_t zone, zero;
};

uint32_t probe_random(struct probe *p, uint32_t below)
{
	uint64_t state[2] = { p->rng++, 0x70726f6265 };

	return zns_hash(state, sizeof(state)) % below;
}

void probe_fill(struct probe *p, uint8_t *unit, uint32_t zone)
{
	struct unit_head h = { .zone = zone };
	uint64_t *w = (uint64_t *)unit, x = zone * UINT64_C(0x9e3779b97f4a7c15) + 1;

	/* random data, which no drive can compress */
	for (uint32_t i = 0; i < p->unit / 8; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		w[i] = x;
	}
	memcpy(h.mark, mark, sizeof(mark));
	memcpy(unit, &h, sizeof(h));
}

/* Did a killed probe leave this zone behind? @buf: room for a block. */
static bool is_leftover(struct zns_dev *d, const struct zns_zone *z, void *buf)
{
	const struct unit_head *h = buf;

	if (!zns_zone_is_active(z->state))
		return false;
	if (!z->wp)
		return true; /* it was opened but never written */
	if (zns_dev_read(d, z->index, 0, buf, d->geo.block_size, NULL))
		return false;
	return !memcmp(h->mark, mark, sizeof(mark)) && h->zone == z->index && !h->zero;
}

int zns_probe_clear(struct zns_dev *d, uint32_t *nr, struct zns_err *err)
{
	uint32_t n = d->geo.nr_zones;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	cleanup_free void *buf = NULL;
	int ret;

	*nr = 0;
	if (!zones || posix_memalign(&buf, zns_max(d->geo.mem_align, 4096u), d->geo.block_size))
		return zns_fail(err, -ENOMEM, "no memory for %u zones", n);
	ret = zns_dev_report(d, 0, n, zones, err);
	for (uint32_t i = 0; !ret && i < n; i++) {
		if (!is_leftover(d, &zones[i], buf))
			continue;
		ret = zns_dev_reset(d, &i, 1, err);
		*nr += !ret;
	}
	return ret;
}

static int look(struct probe *p, struct zns_err *err)
{
	const struct zns_geometry *g = &p->d->geo;
	cleanup_free struct zns_zone *zones = calloc(p->nr, sizeof(*zones));
	uint32_t active = 0, open = 0;
	int ret;

	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	ret = zns_dev_report(p->d, 0, p->nr, zones, err);
	for (uint32_t i = 0; !ret && i < p->nr; i++) {
		struct zns_zone *z = &zones[i];

		if (is_leftover(p->d, z, p->rbuf)) {
			ret = zns_dev_reset(p->d, &i, 1, err);
			z->state = ZNS_ZONE_EMPTY;
			z->wp = 0;
			p->map->resets++;
		}
		active += zns_zone_is_active(z->state);
		open += zns_zone_is_open(z->state);
		p->typical[i] = z->capacity >= g->zone_capacity;
		p->readable[i] = zns_min(zns_align_down(z->wp, g->block_size), p->unit);
		if (z->conventional || z->state == ZNS_ZONE_OFFLINE)
			p->kind[i] = KIND_NO;
		else if (z->state == ZNS_ZONE_EMPTY)
			p->kind[i] = z->capacity >= p->unit ? KIND_EMPTY : KIND_NO;
		else
			p->kind[i] = p->readable[i] ? KIND_DATA : KIND_NO;
	}
	if (ret)
		return ret;
	p->room = g->max_active ? zns_max(g->max_active, active) - active : p->nr;
	p->open_room = g->max_open ? zns_max(g->max_open, open) - open : p->nr;
	if (p->room < 2 || !p->open_room)
		return zns_fail(
			err, -EOVERFLOW,
			"%u zones are active and %u open, the limits are %u and %u: a probe needs two more: remove checkpoints or reset zones first",
			active, open, g->max_active, g->max_open);
	return 0;
}

int probe_set_unit(struct probe *p, uint32_t unit, struct zns_err *err)
{
	uint32_t align = zns_max(p->d->geo.mem_align, 4096u);

	free(p->wbuf);
	free(p->rbuf);
	p->wbuf = p->rbuf = NULL;
	p->unit = p->map->unit = unit;
	p->quickest.units = 0;
	p->set_units = zns_min(zns_max((uint32_t)(SET_BYTES / unit), 2u), PROBE_SET_UNITS);
	if (posix_memalign((void **)&p->wbuf, align, (size_t)PROBE_WRITE_BATCH * unit) ||
	    posix_memalign((void **)&p->rbuf, align,
			   zns_max((size_t)(PROBE_BURST_MAX + PROBE_SET_MAX) * p->small,
				   4 * (size_t)unit)))
		return zns_fail(err, -ENOMEM, "no memory for units of %u bytes", unit);
	return 0;
}

int probe_begin(struct probe *p, struct zns_dev *d, const struct zns_probe_params *par,
		struct zns_probe_map *map, struct zns_err *err)
{
	int ret;

	*p = (struct probe){
		.d = d, .par = par, .map = map, .nr = d->geo.nr_zones, .rng = par->seed << 20
	};
	p->unit = zns_probe_unit(&d->geo, par->unit);
	p->load = 1;
	p->budget = par->budget ? par->budget : zns_probe_budget(&d->geo, p->unit);
	p->small = zns_max(PROBE_SMALL, d->geo.block_size);
	p->set_max = PROBE_SET_MAX;
	p->wall0 = p->phase_wall0 = zns_mono_ns();
	p->dev0 = zns_dev_now_ns(d);
	p->kind = calloc(p->nr, sizeof(*p->kind));
	p->have = calloc(p->nr, sizeof(*p->have));
	p->ours = calloc(p->nr, sizeof(*p->ours));
	p->ours_at = calloc(p->nr, sizeof(*p->ours_at));
	p->readable = calloc(p->nr, sizeof(*p->readable));
	p->typical = calloc(p->nr, sizeof(*p->typical));
	p->given_up = calloc(p->nr, sizeof(*p->given_up));
	p->unsure = calloc(p->nr, sizeof(*p->unsure));
	p->last_of_group = calloc(p->nr, sizeof(*p->last_of_group));
	p->group_ns = calloc(p->nr, sizeof(*p->group_ns));
	p->apart = calloc(p->nr, sizeof(*p->apart));
	p->pace = calloc(p->nr, sizeof(*p->pace));
	p->joined = calloc(p->nr, sizeof(*p->joined));
	if (!p->kind || !p->have || !p->ours || !p->ours_at || !p->readable || !p->typical ||
	    !p->given_up || !p->unsure || !p->last_of_group || !p->group_ns || !p->joined ||
	    !p->pace || !p->apart || (!map->zone_group && zns_probe_alloc(map, p->nr)))
		return zns_fail(err, -ENOMEM, "no memory for a probe of %u zones", p->nr);
	ret = probe_set_unit(p, p->unit, err);
	if (!ret)
		ret = look(p, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < p->nr; i++)
		if (p->kind[i] == KIND_EMPTY)
			return 0;
	return zns_fail(err, -ENODATA,
			"%s has no empty zone to work with: remove checkpoints first", d->path);
}

int probe_clean(struct probe *p, int ret, struct zns_err *err)
{
	cleanup_free uint32_t *left = NULL;
	struct zns_err why = ZNS_ERR_INIT;
	uint32_t n = 0;

	if (p->nr_ours)
		left = calloc(p->nr, sizeof(*left));
	for (uint32_t i = 0; left && i < p->nr; i++)
		if (p->have[i])
			left[n++] = i;
	if (n && probe_drop(p, left, n, &why) && !ret)
		ret = zns_fail(err, why.code, "%s", why.msg);
	if (n && zns_dev_flush(p->d, &why) && !ret)
		ret = zns_fail(err, why.code, "%s", why.msg);
	p->map->wall_ns += zns_mono_ns() - p->wall0;
	p->map->device_ns += zns_dev_now_ns(p->d) - p->dev0;
	return ret;
}

void probe_free(struct probe *p)
{
	free(p->kind);
	free(p->have);
	free(p->ours);
	free(p->ours_at);
	free(p->readable);
	free(p->typical);
	free(p->given_up);
	free(p->unsure);
	free(p->last_of_group);
	free(p->group_ns);
	free(p->joined);
	free(p->pace);
	free(p->apart);
	free(p->wbuf);
	free(p->rbuf);
}

void probe_mark(struct probe *p, uint32_t zone, uint32_t units)
{
	if (!p->have[zone]) {
		p->ours_at[zone] = p->nr_ours;
		p->ours[p->nr_ours++] = zone;
	}
	p->have[zone] = units;
	p->readable[zone] = p->unit;
}

void probe_unmark(struct probe *p, uint32_t zone)
{
	uint32_t last = p->ours[--p->nr_ours];

	p->ours[p->ours_at[zone]] = last;
	p->ours_at[last] = p->ours_at[zone];
	p->have[zone] = p->readable[zone] = 0;
}

int probe_spend(struct probe *p, uint64_t bytes, struct zns_err *err)
{
	char a[16], b[16];

	if (p->map->written + bytes > p->budget)
		return zns_fail(
			err, -EDQUOT,
			"%s are written, and the budget of %s does not allow more: give a larger --budget",
			zns_format_size(p->map->written, a, sizeof(a)),
			zns_format_size(p->budget, b, sizeof(b)));
	p->map->written += bytes;
	return 0;
}

/*
 * Writes zones one by one after writing them together failed. A bad zone is left out. Reaching a
 * limit, or many failures in a row, is an error.
 */
static int write_each(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t in_a_row = 0;

	for (uint32_t i = 0; i < nr; i++) {
		struct zns_err why = ZNS_ERR_INIT;
		uint32_t z = zones[i];
		struct zns_zone now;
		int ret = zns_dev_report(p->d, z, 1, &now, err);

		if (ret)
			return ret;
		if (now.wp >= p->unit)
			continue;
		/* a first write that failed may still have opened the zone */
		if (now.wp || now.state != ZNS_ZONE_EMPTY)
			zns_dev_reset(p->d, &z, 1, NULL);
		ret = zns_dev_write(p->d, z, 0, p->wbuf + (size_t)i * p->unit, p->unit, &why);
		if (ret == -EOVERFLOW || ret == -ETOOMANYREFS || ret == -ENOMEM || ret == -EBADF)
			return zns_fail(err, ret, "%s", why.msg);
		if (!ret) {
			in_a_row = 0;
			continue;
		}
		if (++in_a_row == FAILED_IN_A_ROW)
			return zns_fail(err, ret, "%u zones in a row cannot be written: %s",
					in_a_row, why.msg);
		if (!p->map->nr_failed++)
			snprintf(p->map->failure, sizeof(p->map->failure), "%s", why.msg);
		p->given_up[z] = true;
		zns_dev_reset(p->d, &z, 1, NULL);
		p->kind[z] = KIND_NO;
		probe_unmark(p, z);
	}
	return 0;
}

static int write_batch(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct zns_race r[PROBE_WRITE_BATCH] = { 0 };
	uint64_t done[PROBE_WRITE_BATCH];
	int ret = nr ? probe_spend(p, (uint64_t)nr * p->unit, err) : 0;

	if (ret || !nr)
		return ret;
	probe_write_race(p, r, zones, nr, 1, done);
	if (zns_dev_race(p->d, r, nr, NULL))
		ret = write_each(p, zones, nr, err);
	/* there is an open limit: close each zone, so that others can be opened */
	for (uint32_t i = 0; !ret && i < nr && p->d->geo.max_open; i++)
		if (p->have[zones[i]])
			ret = zns_dev_close_zone(p->d, zones[i], err);
	return ret;
}

int probe_need(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t batch[PROBE_WRITE_BATCH], n = 0, max = zns_min(PROBE_WRITE_BATCH, p->open_room);
	bool wrote = false;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		if (p->kind[zones[i]] == KIND_EMPTY && !p->have[zones[i]])
			batch[n++] = zones[i];
		if (n == max || (n && i + 1 == nr)) {
			ret = write_batch(p, batch, n, err);
			wrote = true;
			n = 0;
		}
	}
	if (!ret && n)
		ret = write_batch(p, batch, n, err);
	/* flush, since a die that is still programming would look like one that is being read */
	return ret || (!wrote && !n) ? ret : zns_dev_flush(p->d, err);
}

int probe_drop(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	cleanup_free uint32_t *list = calloc(nr ? nr : 1, sizeof(*list));
	uint32_t n = 0;
	int ret;

	if (!list)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	for (uint32_t i = 0; i < nr; i++)
		if (p->have[zones[i]] && p->kind[zones[i]] == KIND_EMPTY)
			list[n++] = zones[i];
	ret = n ? zns_dev_reset(p->d, list, n, err) : 0;
	for (uint32_t i = 0; !ret && i < n; i++) {
		probe_unmark(p, list[i]);
		p->map->resets++;
	}
	return ret;
}

int probe_need_pair(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err)
{
	const uint32_t zones[2] = { a, b };
	uint32_t n = p->nr_ours, more = (p->kind[a] == KIND_EMPTY && !p->have[a]) +
					(p->kind[b] == KIND_EMPTY && !p->have[b]);
	cleanup_free uint32_t *all = NULL;
	int ret = 0;

	if (more && n + more > p->room) {
		all = malloc(n * sizeof(*all));
		if (!all)
			return zns_fail(err, -ENOMEM, "no memory for %u zones", n);
		memcpy(all, p->ours, n * sizeof(*all));
		ret = probe_drop(p, all, n, err);
	}
	return ret ? ret : probe_need(p, zones, 2, err);
}

uint32_t probe_pick_empty(struct probe *p, uint32_t *out, uint32_t n)
{
	uint32_t got = 0, from = probe_random(p, p->nr);

	/* try random zones first; if hardly any is empty, take the others in order */
	for (uint32_t tries = 0; got < n && tries < 8 * n + 64; tries++) {
		uint32_t z = probe_random(p, p->nr), i;

		for (i = 0; i < got && out[i] != z; i++)
			;
		if (i == got && p->kind[z] == KIND_EMPTY && p->typical[z] && !p->have[z])
			out[got++] = z;
	}
	for (uint32_t k = 0; got < n && k < p->nr; k++) {
		uint32_t z = (from + k) % p->nr, i;

		for (i = 0; i < got && out[i] != z; i++)
			;
		if (i == got && p->kind[z] == KIND_EMPTY && p->typical[z] && !p->have[z])
			out[got++] = z;
	}
	return got;
}
