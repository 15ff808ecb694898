/* SPDX-License-Identifier: GPL-2.0-only */
/* The recording device: see trace.h. */
#include <stdlib.h>
#include <string.h>
#include "trace.h"
#include "zns/util.h"

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct step *last(struct trace *t, uint32_t zone)
{
	return &t->h[zone].step[t->h[zone].nr - 1];
}

static struct gen *gen_new(struct trace *t, struct history *h)
{
	struct gen *g = need(calloc(1, sizeof(*g)));

	g->data = need(calloc(1, t->dev.geo.zone_capacity));
	g->next = h->gens;
	h->gens = g;
	return g;
}

static void add_step(struct trace *t, uint32_t zone, struct gen *g, uint64_t wp, bool finished)
{
	struct history *h = &t->h[zone];

	if (h->nr == h->max) {
		h->max = h->max ? 2 * h->max : 64;
		h->step = need(realloc(h->step, h->max * sizeof(*h->step)));
	}
	h->step[h->nr++] = (struct step){ g, wp, finished };
}

static int t_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		    struct zns_err *err)
{
	struct trace *t = (struct trace *)d;

	if (first > d->geo.nr_zones || nr > d->geo.nr_zones - first)
		return zns_fail(err, -EINVAL, "report out of range");
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < nr; i++) {
		const struct step *s = last(t, first + i);

		out[i] = (struct zns_zone){ .index = first + i,
					    .wp = s->wp,
					    .capacity = d->geo.zone_capacity };
		out[i].state = s->finished || s->wp == out[i].capacity ? ZNS_ZONE_FULL :
			       s->wp                                   ? ZNS_ZONE_CLOSED :
									 ZNS_ZONE_EMPTY;
		if (s->finished)
			out[i].wp = out[i].capacity;
	}
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Is there a step for the state in which the first @n blocks of @blocks are written? */
static bool cut_here(const struct trace *t, uint32_t zone, uint64_t n, uint64_t blocks)
{
	return zone < t->nr_meta || n == 1 || n == blocks / 2 || n == blocks;
}

bool place_has(const struct place *p, uint64_t off, size_t len)
{
	return off >= p->start && off <= p->end && len <= p->end - off;
}

static int t_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
		   struct zns_err *err)
{
	struct trace *t = (struct trace *)d;
	struct place *p = &t->h[zone].place;

	pthread_mutex_lock(&t->lock);
	*p = (struct place){ .turn = p->turn + 1 };
	*turn = p->turn;
	*end = last(t, zone)->finished ? last(t, zone)->wp : d->geo.zone_capacity;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static int t_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
		  struct zns_err *err)
{
	struct trace *t = (struct trace *)d;
	struct place *p = &t->h[zone].place;

	pthread_mutex_lock(&t->lock);
	if (p->turn == turn)
		*p = (struct place){ turn, start, end };
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Adds one step for each state in which a cut may leave the zone. */
static void write_anew(struct trace *t, uint32_t zone, uint64_t off, const void *buf, size_t len)
{
	uint64_t block = t->dev.geo.block_size, done = 0;

	for (uint64_t n = 1; n <= len / block; n++) {
		const struct step *s = last(t, zone);
		struct gen *g;

		if (!cut_here(t, zone, n, len / block))
			continue;
		g = gen_new(t, &t->h[zone]);
		memcpy(g->data, s->gen->data, s->wp);
		memcpy(g->data + off + done, (const uint8_t *)buf + done, n * block - done);
		done = n * block;
		add_step(t, zone, g, zns_max(s->wp, off + done), s->finished);
	}
	t->anew++;
}

static int t_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		   struct zns_err *err)
{
	struct trace *t = (struct trace *)d;
	uint64_t block = d->geo.block_size;
	const struct step *s;
	int ret = 0;
	bool anew;

	if (zone >= d->geo.nr_zones || !len || off % block || len % block)
		return zns_fail(err, -EINVAL, "write not aligned or out of range");
	pthread_mutex_lock(&t->lock);
	s = last(t, zone);
	anew = off < s->wp && place_has(&t->h[zone].place, off, len);
	if ((s->finished && !anew) || len > d->geo.zone_capacity - off)
		ret = zns_fail(err, -ENOSPC, "zone %u is full", zone);
	else if (off != s->wp && !anew)
		ret = zns_fail(err, -EIO, "zone %u: write at %llu, the write pointer is at %llu",
			       zone, (unsigned long long)off, (unsigned long long)s->wp);
	if (!ret && anew) {
		write_anew(t, zone, off, buf, len);
		t->ops++;
	} else if (!ret) {
		struct gen *g = s->gen;

		memcpy(g->data + off, buf, len);
		for (uint64_t n = 1; n <= len / block; n++)
			if (cut_here(t, zone, n, len / block))
				add_step(t, zone, g, off + n * block, false);
		t->ops++;
	}
	pthread_mutex_unlock(&t->lock);
	return ret;
}

static int t_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		  struct zns_err *err)
{
	struct trace *t = (struct trace *)d;
	int ret = 0;

	if (zone >= d->geo.nr_zones || off > d->geo.zone_capacity ||
	    len > d->geo.zone_capacity - off)
		return zns_fail(err, -EINVAL, "read out of range");
	pthread_mutex_lock(&t->lock);
	if (!last(t, zone)->finished && off + len > last(t, zone)->wp)
		ret = zns_fail(err, -ENODATA, "read beyond the write pointer of zone %u", zone);
	else
		memcpy(buf, last(t, zone)->gen->data + off, len);
	pthread_mutex_unlock(&t->lock);
	return ret;
}

static int t_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct trace *t = (struct trace *)d;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < nr; i++) {
		add_step(t, zones[i], gen_new(t, &t->h[zones[i]]), 0, false);
		t->h[zones[i]].place = (struct place){ t->h[zones[i]].place.turn + 1, 0, 0 };
	}
	t->ops++;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static int t_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct trace *t = (struct trace *)d;

	pthread_mutex_lock(&t->lock);
	add_step(t, zone, last(t, zone)->gen, last(t, zone)->wp, true);
	t->ops++;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static int t_state(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return 0; /* states open and closed do not survive a cut, and no limit is enforced here */
}

static bool among(uint32_t zone, const uint32_t *zones, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (zones[i] == zone)
			return true;
	return !zones;
}

/* Makes these zones, or all (NULL), durable as they are, and begins a new epoch. */
static void close_epoch(struct trace *t, const uint32_t *zones, uint32_t nr_zones)
{
	uint32_t nr = t->dev.geo.nr_zones;
	struct epoch *e;

	if (t->nr_epochs == t->max_epochs) {
		t->max_epochs = t->max_epochs ? 2 * t->max_epochs : 64;
		t->epoch = need(realloc(t->epoch, t->max_epochs * sizeof(*t->epoch)));
	}
	e = &t->epoch[t->nr_epochs++];
	e->low = need(calloc(2 * nr, sizeof(*e->low)));
	e->high = e->low + nr;
	for (uint32_t z = 0; z < nr; z++) {
		e->low[z] = t->h[z].durable;
		e->high[z] = t->h[z].nr - 1;
		if (among(z, zones, nr_zones))
			t->h[z].durable = t->h[z].nr - 1;
	}
}

/* A flush's purpose follows from what it finds: a commit's first flush has only data before it. */
static bool omitted(const struct trace *t)
{
	bool meta = false, data = false;

	for (uint32_t z = 0; z < t->dev.geo.nr_zones; z++)
		if (t->h[z].durable + 1 < t->h[z].nr)
			*(z < t->nr_meta ? &meta : &data) = true;
	if (t->moving)
		return t->omit == OMIT_MOVE || t->omit == OMIT_DATA;
	return (t->omit == OMIT_DATA && data && !meta) || (t->omit == OMIT_LOG && meta);
}

static int t_flush(struct zns_dev *d, struct zns_err *err)
{
	struct trace *t = (struct trace *)d;

	pthread_mutex_lock(&t->lock);
	if (t->recording && omitted(t))
		t->omitted++;
	else
		close_epoch(t, NULL, 0);
	t->ops++;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Only this write is certainly durable: other zones may lose everything since their last flush. */
static int t_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf,
			   size_t len, struct zns_err *err)
{
	struct trace *t = (struct trace *)d;
	int ret = t_write(d, zone, off, buf, len, err);

	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	if (t->recording && t->omit == (zone < t->nr_meta ? OMIT_LOG : OMIT_DATA))
		t->omitted++;
	else
		close_epoch(t, &zone, 1);
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Flushes only these zones; others may lose data. */
static int t_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct trace *t = (struct trace *)d;

	pthread_mutex_lock(&t->lock);
	if (t->recording && t->omit == (t->moving ? OMIT_MOVE : OMIT_DATA))
		t->omitted++;
	else
		close_epoch(t, zones, nr);
	t->ops++;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static void t_close(struct zns_dev *d)
{
}

#define TRACE_OPS                                                                                \
	.name = "trace", .report = t_report, .write = t_write, .read = t_read, .reset = t_reset, \
	.open_zone = t_state, .close_zone = t_state, .finish = t_finish, .flush = t_flush,       \
	.write_durable = t_write_durable, .flush_zones = t_flush_zones, .close = t_close

static const struct zns_dev_ops trace_ops = { TRACE_OPS };
static const struct zns_dev_ops disk_ops = { TRACE_OPS, .offer = t_offer, .take = t_take };

struct trace *trace_new(uint32_t nr_zones, uint64_t capacity, uint32_t max_active, uint32_t nr_meta,
			bool disk)
{
	struct trace *t = need(calloc(1, sizeof(*t)));

	t->dev.ops = disk ? &disk_ops : &trace_ops;
	t->dev.geo = (struct zns_geometry){ .nr_zones = nr_zones,
					    .block_size = 4096,
					    .zone_size = 2 * capacity,
					    .zone_capacity = capacity,
					    .max_active = max_active,
					    .max_io_bytes = (uint32_t)KIB(64),
					    .mem_align = 512,
					    .log_zones = disk ? nr_meta : 0 };
	strcpy(t->dev.path, "trace:");
	t->nr_meta = nr_meta;
	pthread_mutex_init(&t->lock, NULL);
	t->h = need(calloc(nr_zones, sizeof(*t->h)));
	for (uint32_t z = 0; z < nr_zones; z++)
		add_step(t, z, gen_new(t, &t->h[z]), 0, false);
	return t;
}

static void forget_epochs(struct trace *t)
{
	for (uint32_t e = 0; e < t->nr_epochs; e++)
		free(t->epoch[e].low);
	t->nr_epochs = 0;
}

void trace_begin(struct trace *t)
{
	for (uint32_t z = 0; z < t->dev.geo.nr_zones; z++)
		t->h[z].durable = t->h[z].nr - 1;
	forget_epochs(t);
	t->recording = true;
}

uint32_t trace_now(const struct trace *t)
{
	return t->nr_epochs;
}

void trace_end(struct trace *t)
{
	close_epoch(t, NULL, 0);
	t->recording = false;
}

void trace_free(struct trace *t)
{
	forget_epochs(t);
	for (uint32_t z = 0; z < t->dev.geo.nr_zones; z++) {
		struct gen *g;

		while ((g = t->h[z].gens)) {
			t->h[z].gens = g->next;
			free(g->data);
			free(g);
		}
		free(t->h[z].step);
	}
	free(t->epoch);
	free(t->h);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
