/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads units, verifies them, and caches them for a while. */
#include <string.h>
#include "reader.h"
#include "transfer.h"

int unit_locate(const struct zns_rimage *i, uint64_t k, struct zns_place *p)
{
	uint64_t off = k * i->pb->unit;
	size_t lo = 0, hi = i->pb->n_segments;

	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;

		if (i->seg[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	if (lo >= i->pb->n_segments || off < i->seg[lo].off ||
	    off - i->seg[lo].off >= i->seg[lo].len)
		return -EBADMSG;
	zns_seg_place(&i->seg[lo], (off - i->seg[lo].off) / i->pb->unit, p);
	return 0;
}

struct span {
	uint32_t zone;
	uint64_t from, to; /* the range in the zone to read: the blocks around the wanted bytes */
};

static int read_span(struct zns_reader *r, const struct cached *c, const struct span *s,
		     uint64_t at, struct zns_err *err)
{
	return transfer_read(r->dev, r->bucket, c->urgent, s->zone, s->from, c->buf + at,
			     s->to - s->from, err);
}

/* Reports why a unit is wrong. If the tag of an encrypted unit does not match, its checksum, which
 * covers the bytes on the device, tells damage (it does not match either) from a deliberate
 * change. */
static int bad_unit(struct zns_reader *r, struct cached *c, const struct span *s,
		    struct zns_err *err)
{
	const struct zns_rimage *i = c->img;
	uint32_t len = unit_len(i, c->k);
	unsigned long long start = c->k * i->pb->unit;

	if (i->crypt && i->pb->has_tags && !read_span(r, c, s, 0, err) &&
	    zns_unit_csum(i->pb, c->buf + c->skip, len) == i->pb->csums[c->k])
		return zns_fail(
			err, -EBADMSG,
			"image %s is not authentic: bytes %llu to %llu (zone %u) are intact, but not what was "
			"encrypted there",
			i->pb->name, start, start + len, s->zone);
	return zns_fail(
		err, -EBADMSG,
		"image %s is damaged: checksum of bytes %llu to %llu (zone %u) does not match",
		i->pb->name, start, start + len, s->zone);
}

/* Reads one unit from the device and verifies it. No lock held. */
static int fetch(struct zns_reader *r, struct cached *c, struct zns_err *err)
{
	const struct zns_rimage *i = c->img;
	uint32_t len = unit_len(i, c->k), block = r->dev->geo.block_size;
	struct zns_place p;
	struct span s;
	int ret = unit_locate(i, c->k, &p);

	if (ret)
		return zns_fail(err, ret, "image %s: no place for unit %llu", i->pb->name,
				(unsigned long long)c->k);
	s = (struct span){ p.zone, zns_align_down(p.off, block), zns_align_up(p.off + len, block) };
	c->skip = p.off - s.from;
	if (s.to - s.from > r->buf_len)
		return zns_fail(err, -EBADMSG,
				"image %s: unit %llu is larger than the reader's buffer",
				i->pb->name, (unsigned long long)c->k);
	ret = r->hot ? hot_unit(r, c, &p, s.from, s.to, err) : -EAGAIN;
	if (ret == -EBADMSG)
		return bad_unit(r, c, &s, err);
	if (ret != -EAGAIN)
		return ret ? zns_wrap(err, "image %s", i->pb->name) : 0;
	ret = read_span(r, c, &s, 0, err);
	if (ret)
		return zns_wrap(err, "image %s", i->pb->name);
	ret = transform_in(i->crypt, i->memory, i->pb, i->place, c->k, c->buf + c->skip, len, err);
	return ret == -EBADMSG ? bad_unit(r, c, &s, err) : ret;
}

/* ---- pieces ---- */

static uint32_t piece_size(const ZnsPb__Image *pb)
{
	return pb->has_piece ? pb->piece : ZNS_PIECE_V1;
}

static uint64_t nr_sums(const ZnsPb__Image *pb)
{
	return pb->has_piece ? pb->piece_sums.len / ZNS_SUM_BYTES : pb->n_piece_csums;
}

/* Does the checksum of piece @n of the image match @buf? */
static bool is_right(const ZnsPb__Image *pb, uint64_t n, const uint8_t *buf, size_t len)
{
	uint8_t sum[ZNS_SUM_BYTES];

	if (!pb->has_piece)
		return zns_hash(buf, len) == pb->piece_csums[n];
	zns_piece_sum(buf, len, sum);
	return !memcmp(sum, pb->piece_sums.data + n * ZNS_SUM_BYTES, sizeof(sum));
}

/* Reads pieces @first to @last of a unit to the same offsets of the buffer as if the whole unit
 * were read. No lock held. */
static int fetch_pieces(struct zns_reader *r, struct cached *c, const struct zns_rimage *i,
			const struct zns_place *p, uint32_t first, uint32_t last,
			struct zns_err *err)
{
	const struct zns_geometry *geo = &r->dev->geo;
	/* the number of the first piece, counted from the start of the image */
	uint64_t piece = piece_size(i->pb), number = c->k * (i->pb->unit / piece),
		 from = zns_align_down(first * piece, zns_max(geo->block_size, geo->mem_align)),
		 to = zns_min((last + 1) * piece, (uint64_t)unit_len(i, c->k));
	struct span s = { p->zone, p->off + from, zns_align_up(p->off + to, geo->block_size) };
	int ret = read_span(r, c, &s, from, err);

	c->skip = 0;
	if (ret)
		return zns_wrap(err, "image %s", i->pb->name);
	for (uint32_t n = first; n <= last; n++) {
		uint64_t at = n * piece, len = zns_min(piece, to - at);
		/* for the message: the bytes of the piece, as offsets in the image */
		uint64_t begin = c->k * i->pb->unit + at, end = begin + len;

		if (!is_right(i->pb, number + n, c->buf + at, len))
			return zns_fail(
				err, -EBADMSG,
				"image %s is damaged: checksum of bytes %llu to %llu (zone %u) does not match",
				i->pb->name, (unsigned long long)begin, (unsigned long long)end,
				p->zone);
	}
	return 0;
}

/* Does the manifest have checksums of the pieces of unit @k up to @to? */
static bool has_pieces(const struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
		       uint32_t to, struct zns_place *p)
{
	uint64_t piece = piece_size(i->pb),
		 end = k * (i->pb->unit / piece) + (to + piece - 1) / piece;

	return end <= nr_sums(i->pb) && !i->pb->has_tags && !unit_locate(i, k, p) &&
	       !(p->off % r->dev->geo.block_size);
}

/* Was the unit read ahead and not requested yet? Such a unit may be replaced, since a buffer must
 * not be occupied for ever because of a wrong guess. */
static bool awaited(const struct zns_reader *r, const struct cached *c)
{
	return c->fresh && r->nr_loads - c->load < 4 * r->nr_cache;
}

/*
 * Returns the unit if it is in the cache or being read. Otherwise returns NULL, and *old is the
 * buffer to reuse: the least recently used one. Units that were read ahead are only reused with
 * @any, and if there is no other. *old NULL: every buffer is in use.
 */
static struct cached *look_up(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			      bool any, struct cached **old)
{
	struct cached *spare = NULL;

	*old = NULL;
	for (uint32_t n = 0; n < r->nr_cache; n++) {
		struct cached *e = &r->cache[n], **best = awaited(r, e) ? &spare : old;

		if (e->state != UNIT_IDLE && e->img == i && e->k == k)
			return e;
		if (!e->users && (!*best || e->stamp < (*best)->stamp))
			*best = e;
	}
	if (!*old && any)
		*old = spare;
	return NULL;
}

/* Reads a unit into the buffer @c and returns it with a reference. Called with the lock held; drops
 * it while reading. */
static int load(struct zns_reader *r, struct cached *c, const struct zns_rimage *i, uint64_t k,
		bool urgent, struct zns_err *err)
{
	int ret;

	c->img = i;
	c->k = k;
	c->state = UNIT_LOADING;
	c->users = 1;
	c->stamp = ++r->clock;
	c->load = ++r->nr_loads;
	c->fresh = false;
	c->urgent = urgent;
	pthread_mutex_unlock(&r->lock);
	ret = fetch(r, c, err);
	pthread_mutex_lock(&r->lock);
	c->state = ret ? UNIT_IDLE : UNIT_READY;
	if (ret) {
		c->users = 0;
		c->stamp = 0;
	}
	pthread_cond_broadcast(&r->change);
	return ret;
}

struct cached *unit_get(struct zns_reader *r, const struct zns_rimage *i, uint64_t k, bool urgent,
			struct zns_err *err)
{
	for (;;) {
		struct cached *old, *c = look_up(r, i, k, true, &old);

		if (c && c->state == UNIT_READY) {
			c->users++;
			c->fresh = false;
			c->stamp = ++r->clock;
			return c;
		}
		if (!c && old)
			return load(r, old, i, k, urgent, err) ? NULL : old;
		/* another thread is reading the unit, or every buffer is in use */
		pthread_cond_wait(&r->change, &r->lock);
	}
}

struct cached *unit_get_part(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			     uint32_t from, uint32_t to, bool urgent, struct zns_err *err)
{
	uint32_t piece = piece_size(i->pb), first = from / piece, last = (to - 1) / piece;
	struct cached *old, *c = look_up(r, i, k, true, &old);
	struct zns_place p;
	int ret;

	/* If another thread is reading the unit, does not wait for it but reads its own pieces. But
	 * if most of the unit is wanted, it reads the whole unit, because the rest will probably be
	 * wanted too. */
	if (c ? c->state == UNIT_READY : !old)
		return unit_get(r, i, k, urgent, err);
	if (c)
		/* reads nothing: only finds a free buffer */
		look_up(r, NULL, UINT64_MAX, true, &old);
	if (!old || (last - first + 1) * 2 * piece > unit_len(i, k) || !has_pieces(r, i, k, to, &p))
		return unit_get(r, i, k, urgent, err);
	old->img = NULL;
	old->k = k;
	old->state = UNIT_LOADING;
	old->users = 1;
	old->fresh = false;
	old->urgent = urgent;
	pthread_mutex_unlock(&r->lock);
	ret = fetch_pieces(r, old, i, &p, first, last, err);
	pthread_mutex_lock(&r->lock);
	old->state = UNIT_IDLE;
	old->stamp = 0;
	if (!ret)
		return old;
	old->users = 0;
	pthread_cond_broadcast(&r->change);
	return NULL;
}

void unit_ahead(struct zns_reader *r, const struct zns_rimage *i, uint64_t k)
{
	struct cached *old, *c = look_up(r, i, k, false, &old);
	struct zns_err err;

	if (c || !old || load(r, old, i, k, false, &err))
		return;
	old->fresh = true;
	old->users--;
	pthread_cond_broadcast(&r->change); /* another thread may be waiting for a buffer */
}
