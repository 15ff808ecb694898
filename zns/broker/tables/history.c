/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Figures about the device since the machine was booted: counters, samples of the periods in which
 * data were transferred, and rates of each group. They are only shown; no decision depends on them.
 * They are kept in a file in the runtime directory; if the broker is killed, those since the last
 * sample are lost.
 */
#include <string.h>
#include "tables.h"

#define SAMPLE_NS 10000000000ull
#define SAMPLES_MAX 360
#define NAME "history"

/* Makes a copy of a message own nothing: fields that a newer version wrote are freed with the
 * original. */
static void own(ProtobufCMessage *m)
{
	m->n_unknown_fields = 0;
	m->unknown_fields = NULL;
}

/* Returns the @i-th counter. All members of the message are such counters, so they are indexed like
 * an array. */
static uint64_t *count(ZnsPb__LoadCounts *c, unsigned i)
{
	return (uint64_t *)((char *)c + zns_pb__load_counts__descriptor.fields[i].offset);
}

static bool happened(struct load_history *h)
{
	for (unsigned i = 0; i < zns_pb__load_counts__descriptor.n_fields; i++)
		if (*count(&h->all, i) != *count(&h->before, i))
			return true;
	return false;
}

static void begin(struct load_history *h)
{
	h->before = h->all;
	h->began_ns = 0;
}

static void take_groups(struct znsd *d, const ZnsPb__History *h)
{
	for (uint32_t i = 0; i < d->nr_groups; i++) {
		zns_pb__group_load__init(&d->history.groups[i]);
		if (h && i < h->n_groups)
			d->history.groups[i] = *h->groups[i];
		own(&d->history.groups[i].base);
	}
}

void history_load(struct znsd *d)
{
	struct load_history *h = &d->history;
	ZnsPb__History *m = (ZnsPb__History *)keepsake_load(d, NAME, &zns_pb__history__descriptor);

	h->samples = znsd_alloc(SAMPLES_MAX * sizeof(*h->samples));
	h->groups = znsd_alloc(d->nr_groups * sizeof(*h->groups));
	h->since_ns = m ? m->since_ns : zns_now_ns();
	zns_pb__load_counts__init(&h->all);
	if (m)
		h->all = *m->all;
	own(&h->all.base);
	take_groups(d, m);
	for (size_t i = 0; m && i < m->n_samples; i++) {
		if (i + SAMPLES_MAX < m->n_samples)
			continue; /* the oldest sample is dropped */
		h->samples[h->nr_samples++] = m->samples[i];
		m->samples[i] = NULL;
	}
	if (m)
		zns_pb__history__free_unpacked(m, NULL);
	begin(h);
}

void history_free(struct znsd *d)
{
	struct load_history *h = &d->history;

	while (h->nr_samples)
		zns_pb__load_sample__free_unpacked(h->samples[--h->nr_samples], NULL);
	free(h->samples);
	free(h->groups);
	*h = (struct load_history){ 0 };
}

void history_tell(const struct znsd *d, ZnsPb__History *m, ZnsPb__GroupLoad ***groups)
{
	const struct load_history *h = &d->history;

	*groups = znsd_alloc((d->nr_groups + 1) * sizeof(**groups));
	zns_pb__history__init(m);
	m->since_ns = h->since_ns;
	m->all = (ZnsPb__LoadCounts *)&h->all;
	m->samples = h->samples;
	m->n_samples = h->nr_samples;
	m->groups = *groups;
	for (; h->groups && m->n_groups < d->nr_groups; m->n_groups++)
		m->groups[m->n_groups] = &h->groups[m->n_groups];
}

static void keep(struct znsd *d)
{
	cleanup_free ZnsPb__GroupLoad **groups = NULL;
	ZnsPb__History m;

	history_tell(d, &m, &groups);
	keepsake_save(d, NAME, &m.base);
	d->history.changed = false;
}

/* Returns the difference between the present counts and those at @before. */
static ZnsPb__LoadCounts *difference(struct load_history *h)
{
	ZnsPb__LoadCounts *c = znsd_alloc(sizeof(*c));

	zns_pb__load_counts__init(c);
	for (unsigned i = 0; i < zns_pb__load_counts__descriptor.n_fields; i++)
		*count(c, i) = *count(&h->all, i) - *count(&h->before, i);
	return c;
}

static void end_sample(struct znsd *d, uint64_t now)
{
	struct load_history *h = &d->history;
	ZnsPb__LoadSample *s = znsd_alloc(sizeof(*s));

	zns_pb__load_sample__init(s);
	s->end_ns = zns_now_ns();
	s->ms = zns_max((now - h->began_ns) / 1000000, (uint64_t)1);
	s->counts = difference(h);
	if (h->nr_samples == SAMPLES_MAX) {
		zns_pb__load_sample__free_unpacked(h->samples[0], NULL);
		memmove(h->samples, h->samples + 1, --h->nr_samples * sizeof(*h->samples));
	}
	h->samples[h->nr_samples++] = s;
	begin(h);
	keep(d);
}

int history_step(struct znsd *d, bool leave)
{
	struct load_history *h = &d->history;
	uint64_t now = zns_mono_ns();

	if (leave && h->samples && h->changed && !happened(h))
		keep(d);
	if (!h->samples || !happened(h))
		return -1;
	if (!h->began_ns)
		h->began_ns = now;
	if (leave || now - h->began_ns >= SAMPLE_NS) {
		end_sample(d, now);
		return -1;
	}
	return (int)((h->began_ns + SAMPLE_NS - now) / 1000000) + 1;
}

void history_moved(struct znsd *d, const struct lease *l, uint64_t bytes)
{
	ZnsPb__LoadCounts *c = &d->history.all;
	uint64_t more = bytes - zns_min(bytes, l->bytes);

	if (l->kind == LEASE_RESTORE)
		c->restore_bytes += more;
	else if (l->kind == LEASE_YIELDING)
		c->memory_written += more;
	else if (lease_admitted(l))
		c->dump_bytes += more;
	else
		c->compact_bytes += more;
}

void history_zone(struct znsd *d, uint32_t zone, const struct zns_zone *now)
{
	const struct zn_zone *z = &d->zones[zone];

	if (!d->history.groups || now->wp <= z->z.wp)
		return;
	d->history.groups[z->group].written += now->wp - z->z.wp;
	d->history.changed = true;
}

void history_reset(struct znsd *d, uint32_t zone)
{
	if (!d->history.groups)
		return;
	d->history.groups[d->zones[zone].group].resets++;
	d->history.changed = true;
}
