/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/first_pages.h. */
#include <stdlib.h>
#include <string.h>
#include "zns/crypt.h"
#include "zns/first_pages.h"
#include "zns/grow.h"
#include "zns/image_map.h"
#include "zns/store.h"

static const char label[] = "zns-criu first pages 1";

/* An encrypted list begins with its length and is padded with zeros, so that its size reveals
 * little. */
#define LENGTH_BYTES 4
#define SEALED_STEP KIB(4)

/* ---- writing ---- */

/* The index of @image in @map->from, to which it is added if it is new. UINT32_MAX: out of
 * memory. */
static uint32_t source_of(ZnsPb__ImageMap *map, uint32_t image)
{
	for (size_t i = map->n_from; i-- > 0;)
		if (map->from[i] == image)
			return (uint32_t)i;
	if (zns_grow_by_one(map->from, map->n_from))
		return UINT32_MAX;
	map->from[map->n_from] = image;
	return (uint32_t)map->n_from++;
}

/* Builds @map from the first @nr runs. */
static int make_map(const struct zns_first_run *run, size_t nr, ZnsPb__ImageMap *map,
		    struct zns_err *err)
{
	cleanup_free struct zns_image_run *v = calloc(nr, sizeof(*v));
	uint32_t runs;

	map->n_from = 0;
	for (size_t i = 0; v && i < nr; i++) {
		v[i] = (struct zns_image_run){ .len = run[i].len,
					       .source = source_of(map, run[i].image),
					       .at = run[i].off };
		if (v[i].source == UINT32_MAX || map->n_from > ZNS_MAP_FROM_MAX)
			return zns_fail(err, -E2BIG, "first pages of too many images");
		if (!zns_map_run_fits(&v[i], INT64_MAX))
			return zns_fail(err, -EINVAL,
					"first pages: a run does not consist of whole pages");
	}
	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for a list of first pages");
	free(map->runs.data);
	map->runs = (ProtobufCBinaryData){ 0 };
	return zns_map_pack(v, nr, (uint32_t)map->n_from, &map->runs.data, &map->runs.len, &runs,
			    err);
}

static size_t sealed_len(size_t len)
{
	size_t all = LENGTH_BYTES + len + ZNS_NOTE_EXTRA;

	return (all + SEALED_STEP - 1) / SEALED_STEP * SEALED_STEP - ZNS_NOTE_EXTRA;
}

static size_t list_len(const ZnsPb__ImageMap *map, const struct zns_crypt *c)
{
	size_t len = zns_pb__image_map__get_packed_size(map);

	return c ? sealed_len(len) + ZNS_NOTE_EXTRA : len;
}

static int write_list(const ZnsPb__ImageMap *map, const struct zns_crypt *c, uint8_t **out,
		      size_t *len, struct zns_err *err)
{
	size_t plain = zns_pb__image_map__get_packed_size(map);
	uint8_t *p;
	int ret;

	*len = list_len(map, c);
	p = calloc(1, *len);
	if (!p)
		return zns_fail(err, -ENOMEM, "no memory for a list of first pages");
	if (!c) {
		zns_pb__image_map__pack(map, p);
	} else {
		uint8_t *text = zns_crypt_note_text(p);

		for (size_t i = 0; i < LENGTH_BYTES; i++)
			text[i] = (uint8_t)(plain >> 8 * i);
		zns_pb__image_map__pack(map, text + LENGTH_BYTES);
		ret = zns_crypt_seal_note(c, label, p, sealed_len(plain), err);
		if (ret) {
			free(p);
			return ret;
		}
	}
	*out = p;
	return 0;
}

int zns_first_pack(const struct zns_first_run *run, size_t nr, const struct zns_crypt *c,
		   uint8_t **out, size_t *len, size_t *nr_out, struct zns_err *err)
{
	ZnsPb__ImageMap map = ZNS_PB__IMAGE_MAP__INIT;
	int ret = nr ? 0 : zns_fail(err, -EINVAL, "a list of first pages is empty");

	for (; !ret; nr -= nr / 8 + 1) {
		if (!nr)
			ret = zns_fail(err, -E2BIG, "first pages of too many images");
		else
			ret = make_map(run, nr, &map, err);
		if (ret || list_len(&map, c) <= ZNS_FIRST_MAX)
			break;
	}
	if (!ret)
		ret = write_list(&map, c, out, len, err);
	*nr_out = nr;
	free(map.from);
	free(map.runs.data);
	return ret;
}

/* ---- reading ---- */

static int read_runs(const ZnsPb__ImageMap *map, struct zns_first_run **out, size_t *nr,
		     struct zns_err *err)
{
	struct zns_first_run *v = NULL;
	struct zns_map_reader r;
	struct zns_image_run run;
	size_t n = 0, room = 0;
	int ret = zns_map_open(&r, map, err);

	if (ret)
		return ret;
	while ((ret = zns_map_next(&r, &run)) > 0) {
		if (zns_grow(v, n, room)) {
			ret = -ENOMEM;
			break;
		}
		v[n++] = (struct zns_first_run){ map->from[run.source], run.at, run.len };
	}
	zns_map_close(&r);
	if (!ret) {
		*out = v;
		*nr = n;
		return 0;
	}
	free(v);
	return zns_fail(err, ret, ret == -ENOMEM ? "no memory for it" : "run %zu cannot be decoded",
			n);
}

static int read_list(const uint8_t *p, size_t len, struct zns_first_run **out, size_t *nr,
		     struct zns_err *err)
{
	ZnsPb__ImageMap *map = zns_pb__image_map__unpack(NULL, len, p);
	int ret;

	if (!map)
		return zns_fail(err, -EBADMSG, "it cannot be decoded");
	ret = read_runs(map, out, nr, err);
	zns_pb__image_map__free_unpacked(map, NULL);
	return ret;
}

static int read_sealed(const ZnsPb__FirstPages *f, const struct zns_crypt *c,
		       struct zns_first_run **out, size_t *nr, struct zns_err *err)
{
	cleanup_free uint8_t *note = malloc(f->runs.len);
	size_t room = f->runs.len - ZNS_NOTE_EXTRA, len = 0;
	const uint8_t *text;
	int ret;

	if (!note)
		return zns_fail(err, -ENOMEM, "no memory for it");
	text = zns_crypt_note_text(note);
	memcpy(note, f->runs.data, f->runs.len);
	ret = zns_crypt_open_note(c, label, note, room, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < LENGTH_BYTES; i++)
		len |= (size_t)text[i] << 8 * i;
	if (len > room - LENGTH_BYTES)
		return zns_fail(err, -EBADMSG, "its length is impossible");
	return read_list(text + LENGTH_BYTES, len, out, nr, err);
}

int zns_first_unpack(const ZnsPb__FirstPages *f, const struct zns_crypt *c,
		     struct zns_first_run **out, size_t *nr, struct zns_err *err)
{
	bool sealed = f->has_sealed && f->sealed;

	*out = NULL;
	*nr = 0;
	if (f->runs.len > ZNS_FIRST_MAX)
		return zns_fail(err, -EBADMSG, "it is too long");
	/* An encrypted checkpoint accepts only encrypted lists, since anybody could have written a
	 * plain one; a plain checkpoint has no encrypted list. */
	if (sealed != (c != NULL))
		return zns_fail(err, -EBADMSG,
				sealed ? "it is encrypted, and the checkpoint is not" :
					 "it is not encrypted, and the checkpoint is");
	if (!c)
		return read_list(f->runs.data, f->runs.len, out, nr, err);
	if (f->runs.len < ZNS_NOTE_EXTRA + LENGTH_BYTES)
		return zns_fail(err, -EBADMSG, "it is too short");
	return read_sealed(f, c, out, nr, err);
}
