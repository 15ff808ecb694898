/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What records may say; used on what callers give and on what a device gives back. */
#include <string.h>
#include "store_int.h"
#include "zns/crypt.h"

int zns_check_range(const struct zns_limits *l, uint32_t zone, uint64_t start, uint64_t len, int code,
		    struct zns_err *err)
{
	if (zone < l->nr_meta || zone >= l->nr_zones)
		return zns_fail(err, code, "zone %u is not a data zone (%u to %u)", zone, l->nr_meta, l->nr_zones - 1);
	if (!len || start > l->zone_capacity || len > l->zone_capacity - start)
		return zns_fail(err, code, "bytes %llu+%llu leave zone %u (capacity %llu)", (unsigned long long)start,
				(unsigned long long)len, zone, (unsigned long long)l->zone_capacity);
	return 0;
}

int zns_check_name(const char *what, const char *name, int code, struct zns_err *err)
{
	size_t n = name ? strnlen(name, ZNS_NAME_LEN_MAX + 1) : 0;

	if (!n)
		return zns_fail(err, code, "%s is empty", what);
	if (n > ZNS_NAME_LEN_MAX)
		return zns_fail(err, code, "%s is longer than %d bytes", what, ZNS_NAME_LEN_MAX);
	return 0;
}

int zns_check_file_name(const char *name, int code, struct zns_err *err)
{
	if (zns_check_name("file name", name, code, err))
		return code;
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return zns_fail(err, code, "\"%s\" is not a plain file name", name);
	return 0;
}

static int check_id(const char *what, const ProtobufCBinaryData *id, int code, struct zns_err *err)
{
	if (id->len != ZNS_UUID_LEN || !id->data)
		return zns_fail(err, code, "%s has %zu bytes instead of %d", what, id->len, ZNS_UUID_LEN);
	return 0;
}

static int check_groups(const uint32_t *groups, size_t n, const struct zns_limits *l, int code, struct zns_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (groups[i] >= l->nr_groups)
			return zns_fail(err, code, "group %u is not in the profile (%u groups)", groups[i],
					l->nr_groups);
	return 0;
}

/* The manifest must lie in bytes that count as live, or its zone would be reset under it. */
static int check_manifest_ref(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code, struct zns_err *err)
{
	const ZnsPb__ExtentRef *m = c->manifest;

	if (zns_check_range(l, m->zone, m->start, m->len, code, err))
		return code;
	if (m->len <= ZNS_FRAME_HDR)
		return zns_fail(err, code, "manifest of %llu bytes", (unsigned long long)m->len);
	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];

		if (u->zone == m->zone && m->start >= u->start && m->start + m->len <= u->start + u->len)
			return 0;
	}
	return zns_fail(err, code, "the manifest lies outside the checkpoint's zones");
}

int zns_check_checkpoint(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &c->id, code, err) || zns_check_name("container", c->container, code, err) ||
	    (c->has_parent && check_id("parent id", &c->parent, code, err)))
		return code;
	for (size_t i = 0; i < c->n_zones; i++)
		if (zns_check_range(l, c->zones[i]->zone, c->zones[i]->start, c->zones[i]->len, code, err))
			return code;
	if (check_groups(c->groups, c->n_groups, l, code, err))
		return code;
	if (c->crypt && !zns_crypt_record_sane(c->crypt))
		return zns_fail(err, code, "the wrapped key has an impossible length");
	return c->manifest ? check_manifest_ref(c, l, code, err) : 0;
}

int zns_check_reservation(const ZnsPb__Reservation *r, const struct zns_limits *l, int code, struct zns_err *err)
{
	if (zns_check_name("container", r->container, code, err))
		return code;
	return check_groups(r->groups, r->n_groups, l, code, err);
}

int zns_check_profile(const ZnsPb__Profile *p, const struct zns_limits *l, int code, struct zns_err *err)
{
	if (zns_check_name("source of the profile", p->source, code, err))
		return code;
	if (p->n_zone_group != l->nr_zones)
		return zns_fail(err, code, "the profile covers %zu zones, the device has %u", p->n_zone_group,
				l->nr_zones);
	if (!p->n_groups || p->n_groups > l->nr_zones)
		return zns_fail(err, code, "the profile has %zu groups for %u zones", p->n_groups, l->nr_zones);
	for (size_t i = 0; i < p->n_zone_group; i++)
		if (p->zone_group[i] >= p->n_groups)
			return zns_fail(err, code, "the profile puts zone %zu into group %u of %zu", i,
					p->zone_group[i], p->n_groups);
	return 0;
}

int zns_check_retention(const ZnsPb__Retention *r, int code, struct zns_err *err)
{
	return zns_check_name("container", r->container, code, err);
}

int zns_check_mark(const ZnsPb__Mark *m, int code, struct zns_err *err)
{
	return check_id("checkpoint id", &m->checkpoint, code, err);
}

int zns_check_tombstone(const ZnsPb__Tombstone *t, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &t->id, code, err) || zns_check_name("remover", t->by, code, err))
		return code;
	return t->container ? zns_check_name("container", t->container, code, err) : 0;
}

int zns_check_encryption(const ZnsPb__Encryption *e, int code, struct zns_err *err)
{
	if (e->has_key_id && e->key_id.len != ZNS_KEY_ID_BYTES)
		return zns_fail(err, code, "the fingerprint of a key has %zu bytes", e->key_id.len);
	return 0;
}

int zns_check_key(const struct zns_state *st, const ZnsPb__KeyLine *k, int code, struct zns_err *err)
{
	const struct zns_ent *e;

	if (check_id("checkpoint id", &k->checkpoint, code, err))
		return code;
	if (!k->crypt->has_wrapped || !zns_crypt_record_sane(k->crypt))
		return zns_fail(err, code, "the wrapped key has an impossible length");
	e = zns_state_find(st, k->checkpoint.data);
	return e && e->ckpt->crypt ? 0 : zns_fail(err, code, "key of an unknown checkpoint");
}

int zns_check_mount(const ZnsPb__Mount *m, int code, struct zns_err *err)
{
	if (zns_check_name("machine id of the mount record", m->machine, code, err) ||
	    zns_check_name("boot id of the mount record", m->boot, code, err))
		return code;
	return zns_check_name("host of the mount record", m->host, code, err);
}
