/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads a unit through the cache that restores share (zns/hot.h): takes it from there if another
 * restore has read it; otherwise reads it from the device and stores it. In both cases this reader
 * verifies the bytes in a buffer of its own. The cache has the bytes of the device, so an encrypted
 * unit is decrypted afterwards.
 */
#include <stdatomic.h>
#include "reader.h"
#include "transfer.h"

struct hot_read {
	struct zns_reader *r;
	struct cached *c;
	struct zns_hot_unit u;
	struct zns_hot_place at;
	uint8_t *bytes; /* buffer for the bytes of the unit */
};

/* Takes the bytes from the bucket in small steps, like other reads, because a page fault must not
 * wait for the tokens of a whole unit. */
static void pay(struct zns_bucket *b, const struct cached *c, size_t len,
		void (*take)(struct zns_bucket *b, size_t bytes, bool urgent))
{
	for (size_t n; len; len -= n) {
		n = zns_min(len, zns_bucket_slice(b));
		take(b, n, c->urgent);
	}
}

static int verify(const struct hot_read *h, struct zns_err *err)
{
	const struct zns_rimage *i = h->c->img;

	return transform_in(i->crypt, i->memory, i->pb, i->place, h->c->k, h->bytes, h->u.len, err);
}

/* Uses a unit that another restore has read. False: there is none, or its checksum is wrong. */
static bool had(struct hot_read *h, enum zns_hot_got got)
{
	struct zns_err why = ZNS_ERR_INIT;

	if (got != ZNS_HOT_HAVE)
		return false;
	if (verify(h, &why)) {
		zns_hot_wrong(h->r->hot, &h->at);
		return false;
	}
	atomic_fetch_add(&h->r->shared, h->u.len);
	return true;
}

static int bring(struct hot_read *h, bool others, uint64_t from, uint64_t to, struct zns_err *err)
{
	int ret = transfer_read(h->r->dev, NULL, false, h->u.zone, from, h->c->buf, to - from, err);

	if (others)
		zns_hot_put(h->r->hot, &h->u, &h->at, ret ? NULL : h->bytes);
	return ret ? ret : verify(h, err);
}

int hot_unit(struct zns_reader *r, struct cached *c, const struct zns_place *p, uint64_t from,
	     uint64_t to, struct zns_err *err)
{
	const ZnsPb__Image *pb = c->img->pb;
	struct hot_read h = { .r = r, .c = c, .bytes = c->buf + c->skip };
	enum zns_hot_got got;

	if (c->k >= pb->n_csums || !zns_hot_wanted(r->hot, p->zone))
		return -EAGAIN;
	h.u = (struct zns_hot_unit){ .zone = p->zone,
				     .off = p->off,
				     .len = unit_len(c->img, c->k),
				     .sum = pb->csums[c->k] };
	if (had(&h, zns_hot_get(r->hot, &h.u, h.bytes, false, &h.at))) {
		pay(r->bucket, c, h.u.len, zns_bucket_take_shared);
		return 0;
	}
	/* Take the tokens before other restores begin to wait for this read, so that this reader's
	 * rate limit does not delay them. */
	pay(r->bucket, c, to - from, zns_bucket_take);
	got = zns_hot_get(r->hot, &h.u, h.bytes, true, &h.at);
	if (had(&h, got))
		return 0;
	return bring(&h, got == ZNS_HOT_FILL, from, to, err);
}
