/* SPDX-License-Identifier: GPL-2.0-only */
/* See as_is.h. */
#include <string.h>
#include "../ctl/gc.h"
#include "as_is.h"
#include "zns/chain.h"
#include "zns/pbcopy.h"
#include "zns/sealed.h"

#define ORPHAN_MS 5000 /* ms for gc.d programs; the target is locked meanwhile */

int as_is_open(struct as_is *a, const char *path, const uint8_t *id, struct zns_err *err)
{
	const struct zns_reader_params p = { .sealed = true };
	int ret = ctl_session_open(&a->s, path, ZNS_READS, err);

	if (!ret)
		ret = zns_session_lease(&a->s, id, true, &a->answer, err);
	if (!ret)
		ret = zns_session_chain(&a->s, a->answer, NULL, &p, &a->chain, err);
	if (ret)
		return ret;
	a->c = a->answer->checkpoints[0];
	a->m = zns_chain_manifest(a->chain, 0);
	return 0;
}

void as_is_close(struct as_is *a)
{
	zns_chain_close(a->chain);
	if (a->answer)
		zns_pb__response__free_unpacked(a->answer, NULL);
	zns_session_close(&a->s);
}

/* A copy of the record without places, since the target has other places. */
static ZnsPb__Checkpoint *bare_record(const ZnsPb__Checkpoint *from, struct zns_err *err)
{
	ZnsPb__Checkpoint c = *from;

	c.n_zones = c.n_groups = c.n_metadata_groups = c.n_old_manifests = 0;
	c.manifest = NULL;
	c.crypt = NULL; /* the writer sets it */
	c.has_moved = c.has_moved_ns = c.has_packed = 0;
	c.has_memory_bytes = 0;
	return (ZnsPb__Checkpoint *)zns_pb_copy(&c.base, err);
}

/* The size of all images of @m in the form in which they are stored. */
static uint64_t bytes_of(const ZnsPb__Manifest *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->n_images; i++)
		sum += m->images[i]->map ? 0 : m->images[i]->size;
	return sum;
}

int as_is_write(struct zns_save *v, struct zns_session *to, const char *path,
		const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, bool claimed,
		struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	int ret = zns_sealed_may(m, err);

	if (!ret)
		ret = ctl_session_open(to, path, ZNS_WRITES, err);
	if (ret)
		return ret;
	v->s = to;
	v->sealed = m;
	v->unit = m->checkpoint->stripe_unit;
	v->keeps_record = true;
	v->c = bare_record(c, err);
	if (!v->c)
		return -ENOMEM;
	ask.container = c->container;
	ask.has_expected_bytes = ask.has_least_bytes = 1;
	ask.expected_bytes = c->bytes;
	ask.least_bytes = bytes_of(m);
	ask.has_parent = c->has_parent;
	ask.parent = c->parent;
	ask.has_sealed = 1;
	ask.sealed = c->id;
	if (m->checkpoint->crypt) {
		ask.has_key_id = 1;
		ask.key_id = m->checkpoint->crypt->key_id;
	}
	origin.kind = (char *)"copy";
	origin.has_claimed = origin.claimed = claimed;
	ask.origin = &origin;
	return zns_save_begin(v, &ask, err);
}

int as_is_there(const ZnsPb__Response *target, const char *path, const ZnsPb__Checkpoint *c,
		struct zns_err *err)
{
	const ZnsPb__Checkpoint *t = ctl_listed(target, c->id.data);
	char id[ZNS_UUID_STR];

	if (!t)
		return 0;
	if (t->created_ns == c->created_ns && !strcmp(t->container, c->container))
		return 1;
	return zns_fail(err, -EEXIST, "%s has a different checkpoint with the id %s", path,
			zns_uuid_format(c->id.data, id));
}

bool as_is_goes_on(int ret)
{
	return ret == -EOPNOTSUPP || ret == -ENOENT || ret == -EEXIST || ret == -EBADMSG ||
	       ret == -ENOKEY;
}

bool as_is_orphan(const ZnsPb__Checkpoint *c)
{
	char why[ZNS_ERR_MAX];

	gc_life_within(ORPHAN_MS);
	return gc_swept(c) && gc_life(c, why, sizeof(why)) == GC_GONE;
}

int as_is_pin(struct zns_broker *b, const ProtobufCBinaryData *id, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;
	int ret;

	m.checkpoint = *id;
	m.has_pinned = m.pinned = 1;
	req.mark = &m;
	ret = ctl_tell(b, &req, err);
	return ret == -ENOENT ? 0 : ret;
}
