/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the manifest will contain about an image: its segments and the checksums of its units. */
#include <string.h>
#include "writer.h"

ZnsPb__Segment *image_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents)
{
	ZnsPb__Segment *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	zns_pb__segment__init(s);
	s->off = off;
	s->extents = calloc(nr_extents, sizeof(*s->extents));
	if (s->extents && !zns_grow(i->pb.segments, i->pb.n_segments, i->max_segments)) {
		i->pb.segments[i->pb.n_segments++] = s;
		for (uint32_t e = 0; e < nr_extents; e++) {
			s->extents[e] = calloc(1, sizeof(**s->extents));
			if (!s->extents[e])
				/* what was allocated is attached to the image and freed with it */
				return NULL;
			zns_pb__extent__init(s->extents[e]);
			s->n_extents++;
		}
		return s;
	}
	free(s->extents);
	free(s);
	return NULL;
}

void image_cut(struct zns_wimage *i, uint64_t size)
{
	while (i->pb.n_segments) {
		ZnsPb__Segment *s = i->pb.segments[i->pb.n_segments - 1];

		if (s->off < size) {
			s->len = zns_min(s->len, size - s->off);
			return;
		}
		for (size_t e = 0; e < s->n_extents; e++)
			free(s->extents[e]);
		free(s->extents);
		free(s);
		i->pb.n_segments--;
	}
}

int image_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum,
		   const uint8_t tag[ZNS_TAG_BYTES])
{
	size_t was = i->max_csums;

	if (zns_grow(i->pb.csums, k, i->max_csums))
		return -ENOMEM;
	memset(i->pb.csums + was, 0, (i->max_csums - was) * sizeof(*i->pb.csums));
	i->pb.csums[k] = csum;
	return i->w->crypt ? transform_keep(&i->pb, &i->max_tags, k, tag) : 0;
}

/* The largest number of checksums of pieces. They are most of a manifest, which must fit into a
 * zone. */
static uint64_t sums_max(const struct zns_writer *w)
{
	return zns_min((uint64_t)ZNS_SUMS_MAX, w->dev->geo.zone_capacity / 16 / ZNS_SUM_BYTES);
}

/*
 * Stores the checksums of a unit's pieces. When the limit is reached, the rest of the image has
 * none. The stored ones then have no gap, because a later unit of the image never needs less room
 * than this one.
 */
NEEDS_LOCK static int put_sums(struct zns_wimage *i, uint64_t k, const uint8_t *sums, size_t nr)
{
	uint8_t(*all)[ZNS_SUM_BYTES] = (void *)i->pb.piece_sums.data;
	size_t at = k * (i->w->unit / ZNS_PIECE), was = i->pb.piece_sums.len / ZNS_SUM_BYTES,
	       more = at + nr > was ? at + nr - was : 0;

	if (more > sums_max(i->w) - i->w->images.nr_sums)
		return 0;
	if (zns_grow_to(all, at + nr, i->max_sums))
		return -ENOMEM;
	memcpy(all[at], sums, nr * ZNS_SUM_BYTES);
	i->pb.piece_sums.data = all[0];
	i->pb.piece_sums.len += more * ZNS_SUM_BYTES;
	i->pb.has_piece_sums = 1;
	i->w->images.nr_sums += more;
	return 0;
}

int image_csum(struct zns_wimage *i, uint64_t k, const uint8_t *buf, size_t len, uint64_t *csum)
{
	uint8_t sums[ZNS_STRIPE_UNIT_MAX / ZNS_PIECE * ZNS_SUM_BYTES];
	int ret;

	if (!i->pb.has_piece) {
		*csum = zns_hash(buf, len);
		return 0;
	}
	*csum = zns_pieces_csum(buf, len, ZNS_PIECE, sums);
	writer_lock(i->w);
	ret = put_sums(i, k, sums, (len + ZNS_PIECE - 1) / ZNS_PIECE);
	writer_unlock(i->w);
	return ret;
}

int zns_writer_image(struct zns_writer *w, const char *name, bool pages, struct zns_wimage **out,
		     struct zns_err *err)
{
	struct zns_wimage *i,
		**bucket = &w->images.by_name[zns_hash(name, strlen(name)) % NAME_BUCKETS];
	int ret = 0;

	writer_lock(w);
	ret = writer_tell(w, w->err.code, err);
	for (i = *bucket; i && !ret; i = i->next_name)
		if (!strcmp(i->pb.name, name))
			ret = zns_fail(err, -EEXIST, "image %s was written twice", name);
	i = ret ? NULL : calloc(1, sizeof(*i));
	if (i) {
		zns_pb__image__init(&i->pb);
		i->w = w;
		i->pages = pages;
		i->pb.name = strdup(name);
		i->pb.unit = w->unit;
		i->pb.has_piece = pages && !w->crypt && !w->sealed;
		i->pb.piece = i->pb.has_piece ? ZNS_PIECE : 0;
		if (!i->pb.name) {
			free(i);
			i = NULL;
		}
	}
	if (i) {
		i->index = w->images.nr++;
		i->pb.has_unit_base = w->images.unit_base != 0;
		i->pb.unit_base = w->images.unit_base;
		*w->images.tail = i;
		w->images.tail = &i->next;
		i->next_name = *bucket;
		*bucket = i;
		*out = i;
	} else if (!ret) {
		ret = zns_fail(err, -ENOMEM, "no memory for image %s", name);
	}
	writer_unlock(w);
	return ret;
}

void image_free(struct zns_wimage *i)
{
	for (size_t s = 0; s < i->pb.n_segments; s++) {
		for (size_t e = 0; e < i->pb.segments[s]->n_extents; e++)
			free(i->pb.segments[s]->extents[e]);
		free(i->pb.segments[s]->extents);
		free(i->pb.segments[s]);
	}
	free(i->pb.segments);
	free(i->pb.csums);
	free(i->pb.piece_sums.data);
	free(i->pb.tags.data);
	free(i->pb.nonces.data);
	free(i->pb.memory_key.data);
	free(i->map.from);
	free(i->map.runs.data);
	rescue_drop(i);
	free(i->pb.name);
	job_free(i->w, i->open);
	free(i);
}
