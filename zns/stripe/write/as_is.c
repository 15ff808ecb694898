/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Images of a checkpoint from elsewhere whose units are written without decryption: see
 * zns_writer_sealed. */
#include <string.h>
#include "writer.h"

/* Verifies a unit by decrypting a copy of it; the encrypted unit itself is written. */
static int prove(const struct zns_wimage *i, uint64_t k, const uint8_t *buf, size_t len,
		 struct zns_err *err)
{
	const ZnsPb__Image *like = i->like;
	cleanup_free uint8_t *copy = malloc(len + 1);
	int ret;

	if (!copy)
		return zns_fail(err, -ENOMEM, "no memory for a unit of image %s", like->name);
	memcpy(copy, buf, len);
	ret = zns_crypt_open_unit(i->w->proof, i->index, like->name, like->unit_base + k, copy, len,
				  like->tags.data + k * ZNS_TAG_BYTES, err);
	explicit_bzero(copy, len);
	return ret;
}

int image_outgoing(const struct zns_wimage *i, uint64_t k, uint8_t *buf, size_t len,
		   uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	const ZnsPb__Image *like = i->like;

	if (!like)
		return transform_out(i->w->crypt, i->index, i->pb.name, i->pb.unit_base + k, buf,
				     len, tag, err);
	if (k >= like->n_csums || zns_unit_csum(like, buf, len) != like->csums[k])
		return zns_fail(err, -EBADMSG,
				"image %s: unit %llu does not match the checkpoint's record",
				like->name, (unsigned long long)k);
	return i->w->proof ? prove(i, k, buf, len, err) : 0;
}

static int copy_bytes(ProtobufCBinaryData *to, const ProtobufCBinaryData *from)
{
	to->data = malloc(from->len + 1);
	if (!to->data)
		return -ENOMEM;
	memcpy(to->data, from->data, from->len);
	to->len = from->len;
	return 0;
}

/* Copies all fields that the seal covers, unchanged. */
static int take_over(struct zns_wimage *i, const ZnsPb__Image *like)
{
	const ZnsPb__ImageMap *map = like->map;

	i->pb.has_beside = like->has_beside;
	i->pb.beside = like->beside;
	i->pb.has_part = like->has_part;
	i->pb.part = like->part;
	i->pb.has_unit_base = like->has_unit_base;
	i->pb.unit_base = like->unit_base;
	i->pb.unit = like->unit;
	i->pb.has_tags = like->has_tags;
	if (like->has_tags && copy_bytes(&i->pb.tags, &like->tags))
		return -ENOMEM;
	if (!map)
		return 0;
	zns_pb__image_map__init(&i->map);
	i->map.from = malloc(map->n_from * sizeof(*map->from) + 1);
	if (!i->map.from || copy_bytes(&i->map.runs, &map->runs))
		return -ENOMEM;
	memcpy(i->map.from, map->from, map->n_from * sizeof(*map->from));
	i->map.n_from = map->n_from;
	i->pb.map = &i->map;
	i->pb.size = like->size;
	i->sealed = true; /* the image is complete and accepts no more bytes */
	return 0;
}

int zns_writer_sealed(struct zns_writer *w, struct zns_wimage **out, struct zns_err *err)
{
	const ZnsPb__Image *like;
	struct zns_wimage *i;
	uint32_t n;
	int ret;

	writer_lock(w);
	n = w->images.nr;
	writer_unlock(w);
	if (!w->sealed || n >= w->sealed->n_images)
		return zns_fail(err, -EINVAL, "the layer has more images than its record says");
	like = w->sealed->images[n];
	if (like->has_memory_key || (!like->map && like->unit != w->unit))
		return zns_fail(err, -EOPNOTSUPP,
				"image %s has units of %u bytes, not the stripe unit of the dump",
				like->name, like->unit);
	ret = zns_writer_image(w, like->name, like->part || !strncmp(like->name, "pages-", 6), &i,
			       err);
	if (ret)
		return ret;
	writer_lock(w);
	i->like = like;
	ret = take_over(i, like);
	if (ret)
		writer_fail_nomem(w, "for an image");
	ret = writer_tell(w, ret, err);
	writer_unlock(w);
	*out = like->map ? NULL : i;
	return ret;
}

int sealed_whole(const struct zns_writer *w, struct zns_err *err)
{
	const struct zns_wimage *i = w->images.first;

	for (; i; i = i->next)
		if (i->pb.size != i->like->size || (!i->pb.map && i->nr_units != i->like->n_csums))
			return zns_fail(err, -EBADMSG, "image %s has %llu bytes instead of %llu",
					i->pb.name, (unsigned long long)i->pb.size,
					(unsigned long long)i->like->size);
	return w->images.nr == w->sealed->n_images ?
		       0 :
		       zns_fail(err, -EBADMSG, "the layer has %u images, its record says %zu",
				w->images.nr, w->sealed->n_images);
}
