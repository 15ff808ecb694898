/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists what a failed zone holds, and gets the bytes again: from the zone itself, or from their
 * source. Bytes are only used if they have the checksum that was computed before the first
 * write. */
#include <string.h>
#include "../transfer.h"
#include "writer.h"

/* How many bytes all sources may take together, since a helper may use less than 32 MiB. Further
 * units have no source and can only be read back from their zone. */
#define KEEP_IOV MIB(2)
#define KEEP_DATA MIB(2)

static bool keep(struct zns_wimage *i, uint64_t k, struct source *s)
{
	size_t was = i->max_sources;

	if (zns_grow(i->source, k, i->max_sources))
		return false;
	memset(i->source + was, 0, (i->max_sources - was) * sizeof(*i->source));
	free(i->source[k]);
	i->source[k] = s;
	return true;
}

void rescue_keep_mem(struct zns_writer *w, const struct job *j)
{
	size_t len = sizeof(struct source) + j->nr_iov * sizeof(*j->iov);
	struct source *s = w->kept.iov + len <= KEEP_IOV ? malloc(len) : NULL;

	if (!s)
		return;
	s->ready = false;
	s->pid = j->pid;
	s->nr_iov = j->nr_iov;
	memcpy(s->iov, j->iov, j->nr_iov * sizeof(*j->iov));
	if (keep(j->img, j->k, s))
		w->kept.iov += len;
	else
		free(s);
}

void rescue_keep_data(struct zns_writer *w, struct zns_wimage *i, uint64_t k, const void *buf,
		      size_t len, bool ready)
{
	size_t all = sizeof(struct source) + len;
	struct source *s = w->kept.data + all <= KEEP_DATA ? malloc(all) : NULL;

	if (!s)
		return;
	s->ready = ready;
	s->pid = 0;
	s->nr_iov = 0;
	memcpy(s->iov, buf, len);
	if (keep(i, k, s))
		w->kept.data += all;
	else
		free(s);
}

void rescue_drop(struct zns_wimage *i)
{
	for (size_t k = 0; k < i->max_sources; k++)
		free(i->source[k]);
	free(i->source);
}

/* ---- what a zone holds ---- */

struct list {
	struct piece *v;
	size_t nr, max;
};

static int add(struct list *l, struct piece p)
{
	if (zns_grow(l->v, l->nr, l->max))
		return -ENOMEM;
	l->v[l->nr++] = p;
	return 0;
}

static int add_segment(struct list *l, struct zns_wimage *i, const ZnsPb__Segment *s, uint32_t zone,
		       uint64_t from, uint64_t to)
{
	uint64_t unit = i->pb.unit, units = (s->len + unit - 1) / unit, first = s->off / unit;
	struct zns_seg seg;
	size_t e = 0;
	int ret;

	while (e < s->n_extents && s->extents[e]->zone != zone)
		e++;
	if (e == s->n_extents)
		return 0;
	ret = zns_seg_init(&seg, s, i->pb.unit, NULL);
	for (uint64_t k = 0; k < units && !ret; k++) {
		struct zns_place at;

		zns_seg_place(&seg, k, &at);
		if (at.zone == zone && at.off >= from && at.off < to)
			ret = add(l, (struct piece){ i, first + k, at.off,
						     (uint32_t)zns_min(unit, s->len - k * unit) });
	}
	zns_seg_fini(&seg);
	return ret;
}

static int by_offset(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

int rescue_list(struct zns_writer *w, uint32_t zone, uint64_t from, uint64_t to, struct piece **out,
		size_t *nr)
{
	struct list l = { 0 };
	int ret = 0;

	for (struct zns_wimage *i = w->images.first; i && !ret; i = i->next)
		for (size_t s = 0; s < i->pb.n_segments && !ret; s++)
			ret = add_segment(&l, i, i->pb.segments[s], zone, from, to);
	if (ret) {
		free(l.v);
		return ret;
	}
	if (l.nr)
		qsort(l.v, l.nr, sizeof(*l.v), by_offset);
	*out = l.v;
	*nr = l.nr;
	return 0;
}

size_t rescue_run(const struct zns_writer *w, const struct piece *p, size_t nr, uint64_t *off,
		  uint64_t *len)
{
	uint64_t end = zns_align_up(p->off + p->len, w->block);
	size_t n = 1;

	*off = zns_align_down(p->off, w->block);
	for (; n < nr && p[n].off < end; n++)
		end = zns_align_up(p[n].off + p[n].len, w->block);
	*len = end - *off;
	return n;
}

/* ---- getting the bytes again ---- */

static bool verified(const struct piece *p, const uint8_t *at)
{
	return zns_unit_csum(&p->img->pb, at, p->len) == p->img->pb.csums[p->k];
}

/* Gets a unit from its source again. The same bytes give the same unit. Any other result is not
 * used, because a nonce must not be used for two contents. */
NO_LOCK static bool from_source(struct zns_writer *w, const struct piece *p, uint8_t *at)
{
	uint8_t tag[ZNS_TAG_BYTES];
	const struct source *s = p->k < p->img->max_sources ? p->img->source[p->k] : NULL;

	if (!s)
		return false;
	if (!s->nr_iov)
		memcpy(at, s->iov, p->len);
	else if (io_gather(s->pid, s->iov, s->nr_iov, at, NULL))
		return false;
	if (s->nr_iov)
		unsteady_put_back(w, s->pid, s->iov, s->nr_iov, at);
	if (!s->ready && image_outgoing(p->img, p->k, at, p->len, tag, NULL))
		return false;
	return verified(p, at);
}

int rescue_fetch(struct zns_writer *w, uint32_t zone, const struct piece *p, size_t nr, bool again,
		 uint8_t *buf, struct zns_err *err)
{
	uint64_t off, len;
	bool read;

	rescue_run(w, p, nr, &off, &len);
	read = !transfer_read(w->dev, NULL, false, zone, off, buf, len, NULL);
	if (!read)
		memset(buf, 0, len);
	for (size_t i = 0; i < nr; i++) {
		uint8_t *at = buf + (p[i].off - off);

		if (read && verified(&p[i], at))
			continue;
		if (!again || !from_source(w, &p[i], at))
			return zns_fail(err, -EIO, "zone %u lost unit %llu of image %s%s", zone,
					(unsigned long long)p[i].k, p[i].img->pb.name,
					again ? ", which cannot be had again; run the dump again" :
						"");
	}
	return 0;
}
