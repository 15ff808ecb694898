/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/chain.h. */
#include <string.h>
#include "zns/chain.h"
#include "zns/crypt.h"
#include "zns/image_map.h"
#include "zns/store.h"
#include "zns/util.h"

struct zns_chain {
	ZnsPb__Manifest **m;
	struct zns_crypt **crypt;
	uint32_t nr;
	struct zns_reader *r;
};

static int read_level(struct zns_chain *c, const struct zns_reader_params *p,
		      const struct zns_registered *reg, bool wanted,
		      ZnsPb__Checkpoint *const *records, uint32_t level, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k = records[level], *child = level ? records[level - 1] : NULL;
	char id[ZNS_UUID_STR];
	int ret;

	if (child &&
	    (!child->has_parent || child->parent.len != ZNS_UUID_LEN || k->id.len != ZNS_UUID_LEN ||
	     memcmp(child->parent.data, k->id.data, ZNS_UUID_LEN)))
		return zns_fail(err, -EBADMSG,
				"checkpoint %u of the chain is not the parent of the one before it",
				level);
	ret = zns_manifest_read(p->dev, k, &c->m[level], err);
	if (!ret && memcmp(c->m[level]->device.data, reg->uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -EBADMSG, "the manifest of checkpoint %s is of another device",
			       zns_uuid_format(k->id.data, id));
	if (!ret)
		ret = zns_manifest_agrees(c->m[level], k, err);
	if (!ret && !p->sealed)
		ret = zns_crypt_of(reg, wanted, c->m[level], &c->crypt[level], err);
	if (!ret && c->crypt[level])
		zns_crypt_harden();
	return ret && level ? zns_wrap(err, "parent %s", zns_uuid_format(k->id.data, id)) : ret;
}

static int open_reader(struct zns_chain *c, const struct zns_reader_params *p, struct zns_err *err)
{
	cleanup_free struct zns_reader_level *l = calloc(c->nr, sizeof(*l));

	if (!l)
		return zns_fail(err, -ENOMEM, "no memory for the chain");
	for (uint32_t n = 0; n < c->nr; n++)
		l[n] = (struct zns_reader_level){ c->m[n], c->crypt[n] };
	return zns_reader_new_levels(p, l, c->nr, &c->r, err);
}

int zns_chain_open(const struct zns_reader_params *p, const struct zns_registered *reg, bool wanted,
		   ZnsPb__Checkpoint *const *records, size_t nr, struct zns_chain **out,
		   struct zns_err *err)
{
	struct zns_chain *c;
	int ret = 0;

	if (!nr || nr > ZNS_CHAIN_MAX)
		return zns_fail(err, -EINVAL,
				"a chain has %zu checkpoints, which is no possible number", nr);
	c = calloc(1, sizeof(*c));
	if (c) {
		c->m = calloc(nr, sizeof(*c->m));
		c->crypt = calloc(nr, sizeof(*c->crypt));
	}
	if (!c || !c->m || !c->crypt) {
		zns_chain_close(c);
		return zns_fail(err, -ENOMEM, "no memory for the chain");
	}
	for (c->nr = 0; c->nr < nr && !ret; c->nr++)
		ret = read_level(c, p, reg, wanted, records, c->nr, err);
	if (!ret)
		ret = open_reader(c, p, err);
	if (ret)
		zns_chain_close(c);
	else
		*out = c;
	return ret;
}

void zns_chain_close(struct zns_chain *c)
{
	if (!c)
		return;
	zns_reader_free(c->r);
	for (uint32_t l = 0; l < c->nr; l++) {
		zns_crypt_free(c->crypt[l]);
		if (c->m[l])
			zns_pb__manifest__free_unpacked(c->m[l], NULL);
	}
	free(c->crypt);
	free(c->m);
	free(c);
}

uint32_t zns_chain_levels(const struct zns_chain *c)
{
	return c->nr;
}

const ZnsPb__Manifest *zns_chain_manifest(const struct zns_chain *c, uint32_t level)
{
	return level < c->nr ? c->m[level] : NULL;
}

struct zns_reader *zns_chain_reader(const struct zns_chain *c)
{
	return c->r;
}

const struct zns_crypt *zns_chain_crypt(const struct zns_chain *c, uint32_t level)
{
	return level < c->nr ? c->crypt[level] : NULL;
}

struct zns_rimage *zns_chain_find(const struct zns_chain *c, uint32_t level, const char *name)
{
	return zns_reader_find_at(c->r, level, name);
}

uint64_t zns_chain_bytes(const struct zns_chain *c)
{
	uint64_t bytes = 0;

	for (uint32_t l = 0; l < c->nr; l++)
		bytes += zns_images_bytes(c->m[l]);
	return bytes;
}
