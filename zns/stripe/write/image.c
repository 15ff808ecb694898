/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the manifest says of an image: its segments and checksums. */
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
				return NULL; /* reachable from the image, freed with it */
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

bool image_in_pieces(const struct zns_wimage *i, uint64_t k)
{
	uint32_t unit = i->w->unit;

	return i->pages && !i->w->crypt && !(i->like && i->like->has_tags) && unit > ZNS_PIECE &&
	       !(unit % ZNS_PIECE) && (k + 1) * (unit / ZNS_PIECE) <= ZNS_PIECES_MAX;
}

int image_put_pieces(const struct job *j)
{
	struct zns_wimage *i = j->img;
	size_t per = i->w->unit / ZNS_PIECE, nr = (j->len + ZNS_PIECE - 1) / ZNS_PIECE,
	       end = j->k * per + nr;

	if (!image_in_pieces(i, j->k))
		return 0;
	if (zns_grow_to(i->pb.piece_csums, end, i->max_pieces))
		return -ENOMEM;
	memcpy(i->pb.piece_csums + j->k * per, j->piece, nr * sizeof(j->piece[0]));
	i->pb.n_piece_csums = zns_max(i->pb.n_piece_csums, end);
	return 0;
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
	free(i->pb.piece_csums);
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
