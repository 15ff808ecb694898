/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The end of a dump: waits for the last unit, then writes manifest and footer (design.md §3
 * "Order", §4). */
#include <string.h>
#include "zns/frame.h"
#include "zns/pbcopy.h"
#include "zns/store.h"
#include "writer.h"

/* Waits until every unit has a place and is written. Returns the writer's error. */
NEEDS_LOCK static int wait_idle(struct zns_writer *w)
{
	w->ending = true;
	for (struct zns_wimage *i = w->images.first; i && !w->err.code; i = i->next) {
		if (!i->sealed) {
			struct zns_err e;

			zns_fail(&e, -EBUSY, "image %s was never closed: the dump is not complete",
				 i->pb.name);
			writer_set_error(w, &e);
		}
	}
	if (!w->err.code)
		pack_flush(w); /* an error of pack_flush() is also the writer's error */
	while ((w->queue.nr || w->queue.nr_running || w->zones.nr_unrepaired) && !w->err.code)
		feeder_wait(w, false);
	return w->err.code ? w->err.code : audit(w);
}

int zns_writer_check(struct zns_writer *w, struct zns_err *err)
{
	int ret;

	writer_lock(w);
	while (w->zones.nr_bad && !w->err.code &&
	       (w->queue.nr || w->queue.nr_running || w->zones.nr_unrepaired))
		feeder_wait(w, false);
	if (w->zones.nr_bad && !w->err.code)
		audit(w);
	ret = writer_tell(w, w->err.code, err);
	writer_unlock(w);
	return ret;
}

int zns_writer_adopt(struct zns_writer *w, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		     struct zns_err *err)
{
	uint8_t random[ZNS_UUID_LEN];
	uint64_t base;
	int ret = zns_uuid_generate(random);

	if (ret)
		return zns_fail_sys(err, ret, "no random number");
	memcpy(&base, random + ZNS_UUID_LEN - sizeof(base), sizeof(base));
	writer_lock(w);
	w->images.with = c;
	w->images.with_m = m;
	w->images.nr = (uint32_t)m->n_images;
	/* random for each attempt to join, so that no nonce is used twice (format.md, "Units"). The
	 * low 32 bits are left for the numbers of units. Bit 62 is set: no number of a unit of the
	 * first dump is so large. Bit 63 is 0, so that sums do not overflow. */
	if (w->crypt)
		w->images.unit_base = (base & 0x3fffffff00000000ull) | 1ull << 62;
	writer_unlock(w);
	return 0;
}

static void add_group(ZnsPb__Checkpoint *c, uint32_t group)
{
	size_t g = 0;

	while (g < c->n_groups && c->groups[g] != group)
		g++;
	if (g == c->n_groups)
		c->groups[c->n_groups++] = group;
}

/* Lists the zones and groups of the checkpoint. The zone of the manifest is included when the
 * manifest has been placed. */
NEEDS_LOCK static int fill_zones(struct zns_writer *w, ZnsPb__Checkpoint *c)
{
	const ZnsPb__Checkpoint *with = w->images.with;
	size_t more_zones = with ? with->n_zones : 0, more_groups = with ? with->n_groups : 0;

	for (size_t i = 0; i < c->n_zones; i++)
		zns_pb__zone_use__free_unpacked(c->zones[i], NULL);
	free(c->zones);
	free(c->groups);
	c->zones = NULL;
	c->n_zones = c->n_groups = 0;
	c->groups = calloc(w->zones.nr + more_groups + 1, sizeof(*c->groups));
	if (!c->groups)
		return -ENOMEM;
	for (size_t i = 0; i < more_zones; i++)
		if (zns_use_add(c, with->zones[i]->zone, with->zones[i]->start,
				with->zones[i]->len))
			return -ENOMEM;
	for (size_t i = 0; i < w->images.nr_named; i++)
		if (zns_use_add_memory(c, w->images.named[i].zone, w->images.named[i].end,
				       w->images.context))
			return -ENOMEM;
	for (size_t i = 0; i < more_groups; i++)
		add_group(c, with->groups[i]);
	for (struct wzone *z = w->zones.first; z; z = z->next) {
		if (z->pos == z->slot.start)
			continue;
		if (zns_use_add(c, z->slot.zone, z->slot.start, z->pos - z->slot.start))
			return -ENOMEM;
		add_group(c, z->slot.group);
	}
	return 0;
}

static int write_run(struct zns_writer *w, struct wzone *wz, uint64_t off, const uint8_t *buf,
		     size_t len, struct zns_err *err)
{
	int ret = io_write(w, wz->slot.zone, off, buf, len, NULL, err);

	if (!ret)
		wz->written = off + len;
	return ret;
}

/* Places the manifest and writes it. -EAGAIN: its zone has failed. */
static int write_manifest(struct zns_writer *w, ZnsPb__Manifest *m, ZnsPb__ExtentRef *ref,
			  struct zns_err *err)
{
	size_t block = w->block, len = 0, need;
	cleanup_free uint8_t *buf = NULL;
	struct wzone *wz;
	uint64_t off;
	int ret;

	need = zns_align_up(ZNS_FRAME_HDR + zns_pb__manifest__get_packed_size(m), block) + block;
	writer_lock(w);
	ret = lanes_place_run(w, need, &wz, &off);
	if (ret && err)
		*err = w->err;
	writer_unlock(w);
	if (ret)
		return ret;
	ret = zns_manifest_pack(m, block, wz->slot.zone, off, &buf, &len, ref, err);
	if (ret)
		return ret;
	if (len != need)
		return zns_fail(err, -EFAULT, "manifest of %zu bytes where %zu were set aside", len,
				need);
	ret = write_run(w, wz, off, buf, len, err);
	if (!ret || !zones_is_fault(ret))
		return ret;
	writer_lock(w);
	wz->pos = off;
	zones_failed(w, wz, err);
	ret = w->err.code;
	if (ret)
		*err = w->err;
	writer_unlock(w);
	return ret ? ret : -EAGAIN;
}

/* Lists all images in the order of the manifest. The caller frees the list. NULL: out of memory. */
NEEDS_LOCK static ZnsPb__Image **list_images(struct zns_writer *w, size_t *nr)
{
	const ZnsPb__Manifest *with = w->images.with_m;
	ZnsPb__Image **list;
	size_t n = with ? with->n_images : 0;

	for (struct zns_wimage *i = w->images.first; i; i = i->next)
		n++;
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return NULL;
	n = 0;
	for (size_t i = 0; with && i < with->n_images; i++)
		list[n++] = with->images[i];
	for (struct zns_wimage *i = w->images.first; i; i = i->next) {
		i->pb.n_csums = i->nr_units;
		list[n++] = &i->pb;
	}
	*nr = n;
	return list;
}

/* Waits for the last unit, then fills in the manifest except for its own place. */
static int settle(struct zns_writer *w, ZnsPb__Manifest *m, struct zns_err *err)
{
	ZnsPb__Checkpoint *c = m->checkpoint;
	const ZnsPb__Checkpoint *with;
	int ret;

	writer_lock(w);
	ret = writer_tell(w, wait_idle(w), err);
	if (!ret && w->sealed)
		ret = sealed_whole(w, err);
	if (!ret) {
		m->images = list_images(w, &m->n_images);
		if (!m->images || fill_zones(w, c))
			ret = zns_fail(err, -ENOMEM, "no memory for the manifest");
	}
	with = w->images.with;
	c->has_memory_bytes = w->images.named_bytes > 0;
	c->memory_bytes = w->images.named_bytes;
	c->bytes = w->stats.bytes + c->memory_bytes + (with ? with->bytes : 0);
	c->page_bytes = w->stats.page_bytes + c->memory_bytes + (with ? with->page_bytes : 0);
	writer_unlock(w);
	c->nr_images = (uint32_t)m->n_images;
	c->has_stripe_unit = 1;
	c->stripe_unit = w->unit;
	return ret;
}

/* Lists zones and groups again, after the manifest was placed. */
static int settle_zones(struct zns_writer *w, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	int ret;

	writer_lock(w);
	ret = fill_zones(w, c);
	writer_unlock(w);
	return ret ? zns_fail(err, -ENOMEM, "no memory for the manifest") : 0;
}

static int finish_once(struct zns_writer *w, ZnsPb__Manifest *m, ZnsPb__ExtentRef *ref,
		       struct zns_err *err)
{
	ZnsPb__Checkpoint *c = m->checkpoint;
	ZnsPb__CheckpointKey key = ZNS_PB__CHECKPOINT_KEY__INIT;
	bool sealed = w->sealed && w->sealed->checkpoint->crypt;
	const ZnsPb__Checkpoint *from = sealed ? w->sealed->checkpoint : NULL;
	int ret = settle(w, m, err);

	if (!ret && from) {
		key.cipher = from->crypt->cipher;
		c->crypt = &key;
		m->has_seal = 1;
		m->seal = w->sealed->seal;
	}
	/* the wrapped key is only stored in the log, since the log can be erased */
	if (!ret && w->crypt) {
		key.cipher = ZNS_CIPHER_AES_256_GCM;
		c->crypt = &key;
		ret = transform_seal(w->crypt, m, w->seal, err);
	}
	if (!ret)
		ret = write_manifest(w, m, ref, err);
	free(m->images); /* the images themselves belong to the writer */
	m->images = NULL;
	m->n_images = 0;
	m->has_seal = 0;
	m->seal = (ProtobufCBinaryData){ 0, NULL };
	if (w->crypt || from) {
		c->crypt = ret  ? NULL :
			   from ? zns_pb_copy(&from->crypt->base, err) :
				  zns_crypt_record(w->crypt);
		if (!ret && !c->crypt)
			ret = zns_fail(err, -ENOMEM, "no memory for the record");
	}
	return ret ? ret : settle_zones(w, c, err);
}

const uint8_t *zns_writer_seal(const struct zns_writer *w)
{
	return w->sealed ? w->sealed->seal.data : w->seal;
}

int zns_writer_finish(struct zns_writer *w, ZnsPb__Manifest *m, ZnsPb__ExtentRef *ref,
		      struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	int ret;

	do {
		e = (struct zns_err)ZNS_ERR_INIT;
		ret = finish_once(w, m, ref, &e);
	} while (ret == -EAGAIN); /* with another zone; MAX_BAD limits the number of tries */
	if (ret) {
		writer_lock(w);
		writer_set_error(w, &e);
		writer_unlock(w);
		if (err)
			*err = e;
	}
	return ret;
}
