/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Images that consist of units which are on the device already: see zns_writer_named. */
#include <string.h>
#include "writer.h"
#include "zns/crypt_memory.h"

#define UNIT ((uint64_t)ZNS_PIECE_V1)

static int check_units(const struct zns_writer *w, const struct zns_named *u, size_t nr,
		       struct zns_err *err)
{
	const struct zns_geometry *geo = &w->dev->geo;

	for (size_t n = 0; n < nr; n++)
		if (u[n].zone >= geo->nr_zones || u[n].off % UNIT ||
		    u[n].off > geo->zone_capacity || geo->zone_capacity - u[n].off < UNIT ||
		    (n && (u[n].zone < u[n - 1].zone ||
			   (u[n].zone == u[n - 1].zone && u[n].off <= u[n - 1].off))))
			return zns_fail(err, -EINVAL,
					"unit %zu, at byte %llu of zone %u: impossible place", n,
					(unsigned long long)u[n].off, u[n].zone);
	return 0;
}

/* Makes a segment with one extent for each run. */
NEEDS_LOCK static int place(struct zns_wimage *i, const struct zns_named *u, size_t nr)
{
	ZnsPb__Segment *s = NULL;

	for (size_t n = 0; n < nr; n++) {
		if (s && u[n].zone == u[n - 1].zone && u[n].off == u[n - 1].off + UNIT) {
			s->len += UNIT;
			continue;
		}
		s = image_add_segment(i, n * UNIT, 1);
		if (!s)
			return -ENOMEM;
		s->len = UNIT;
		s->extents[0]->zone = u[n].zone;
		s->extents[0]->start = u[n].off;
	}
	return 0;
}

/* Counts each zone as used up to the end of its last named unit. */
NEEDS_LOCK static int use_zones(struct images *im, const struct zns_named *u, size_t nr)
{
	for (size_t n = 0; n < nr; n++) {
		struct named_zone *last = im->nr_named ? &im->named[im->nr_named - 1] : NULL;

		if (!last || last->zone != u[n].zone) {
			if (zns_grow(im->named, im->nr_named, im->max_named))
				return -ENOMEM;
			last = &im->named[im->nr_named++];
			last->zone = u[n].zone;
		}
		last->end = u[n].off + UNIT;
	}
	return 0;
}

/* Stores the key of the units in the image, wrapped with the checkpoint's own key. */
NEEDS_LOCK static int note_keys(struct zns_wimage *i, const struct zns_memory_key *key,
				const struct zns_named *u, size_t nr, struct zns_err *err)
{
	ZnsPb__Image *pb = &i->pb;

	pb->tags.data = malloc(nr * ZNS_TAG_BYTES + 1);
	pb->nonces.data = malloc(nr * ZNS_MEMORY_NONCE + 1);
	pb->memory_key.data = malloc(ZNS_MEMORY_SEALED);
	if (!pb->tags.data || !pb->nonces.data || !pb->memory_key.data)
		return -ENOMEM;
	for (size_t n = 0; n < nr; n++) {
		memcpy(pb->tags.data + n * ZNS_TAG_BYTES, u[n].tag, ZNS_TAG_BYTES);
		memcpy(pb->nonces.data + n * ZNS_MEMORY_NONCE, u[n].nonce, ZNS_MEMORY_NONCE);
	}
	pb->has_memory_key = pb->has_nonces = 1;
	pb->nonces.len = nr * ZNS_MEMORY_NONCE;
	pb->memory_key.len = ZNS_MEMORY_SEALED;
	i->max_tags = nr;
	return zns_memory_key_put(key, i->w->crypt, pb->memory_key.data, err);
}

int zns_writer_named(struct zns_writer *w, const char *name, const uint8_t *context,
		     const struct zns_memory_key *key, const struct zns_named *u, size_t nr,
		     struct zns_wimage **out, struct zns_err *err)
{
	struct zns_wimage *i;
	int ret = check_units(w, u, nr, err);

	if (!ret && !w->crypt != !key)
		ret = zns_fail(err, -EOPNOTSUPP,
			       key ? "the program's memory on zones is encrypted, and this "
				     "checkpoint is not" :
				     "the program's memory on zones is not encrypted, and this "
				     "checkpoint has to be");
	if (!ret)
		ret = zns_writer_image(w, name, true, &i, err);
	if (ret)
		return ret;
	writer_lock(w);
	i->pb.has_part = i->pb.part = 1;
	i->pb.unit = UNIT;
	i->pb.has_piece = i->pb.piece = 0; /* the pager's checksums are of units, not of pieces */
	i->pb.size = nr * UNIT;
	i->pb.csums = malloc((nr + 1) * sizeof(*i->pb.csums));
	if (!i->pb.csums || w->images.nr_named || place(i, u, nr) || use_zones(&w->images, u, nr))
		ret = writer_fail_nomem(w, "for units of a memory context");
	if (!ret && key && note_keys(i, key, u, nr, err))
		ret = writer_fail_nomem(w, "for keys of a memory context");
	for (size_t n = 0; n < nr && !ret; n++)
		i->pb.csums[n] = u[n].hash;
	i->nr_units = nr;
	i->sealed = true;
	memcpy(w->images.context, context, ZNS_UUID_LEN);
	w->images.named_bytes = i->pb.size;
	ret = writer_tell(w, ret, err);
	writer_unlock(w);
	*out = i;
	return ret;
}
