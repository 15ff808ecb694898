/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks the contents of records, both those that callers pass and those that are read from a
 * device. */
#include <math.h>
#include <string.h>
#include "store_int.h"
#include "zns/crypt.h"

#define SHA256_BYTES 32
#define TEXT_MAX 4096 /* largest length of other texts: paths, names of images */

int zns_check_range(const struct zns_limits *l, uint32_t zone, uint64_t start, uint64_t len,
		    int code, struct zns_err *err)
{
	if (zone < l->nr_meta || zone >= l->nr_zones)
		return zns_fail(err, code, "zone %u is not a data zone (%u to %u)", zone,
				l->nr_meta, l->nr_zones - 1);
	if (!len || start > l->zone_capacity || len > l->zone_capacity - start)
		return zns_fail(err, code, "bytes %llu+%llu leave zone %u (capacity %llu)",
				(unsigned long long)start, (unsigned long long)len, zone,
				(unsigned long long)l->zone_capacity);
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
	if (zns_check_name("a file's name", name, code, err))
		return code;
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return zns_fail(err, code, "\"%s\" is not a plain file name", name);
	return 0;
}

/* Checks that a use consists of whole blocks, because the scan of a zone relies on that
 * (scan.c). */
static int check_use(const struct zns_limits *l, const ZnsPb__ZoneUse *u, int code,
		     struct zns_err *err)
{
	if (zns_check_range(l, u->zone, u->start, u->len, code, err))
		return code;
	if (u->has_memory && (u->memory.len != ZNS_UUID_LEN || u->start))
		return zns_fail(err, code, "zone %u: impossible memory of a context", u->zone);
	if (u->start % l->block || u->len % l->block)
		return zns_fail(err, code, "bytes %llu+%llu of zone %u are no whole blocks",
				(unsigned long long)u->start, (unsigned long long)u->len, u->zone);
	return 0;
}

/* Checks that uses are in range and that no byte is in two of them. So there cannot be more uses
 * than the device has blocks. */
static int check_uses(const struct zns_limits *l, const ZnsPb__Checkpoint *c, int code,
		      struct zns_err *err)
{
	cleanup_free ZnsPb__ZoneUse **v = malloc((c->n_zones + 1) * sizeof(*v));

	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for %zu zone uses", c->n_zones);
	for (size_t i = 0; i < c->n_zones; i++) {
		v[i] = c->zones[i];
		if (check_use(l, v[i], code, err))
			return code;
	}
	qsort(v, c->n_zones, sizeof(*v), zns_use_cmp);
	for (size_t i = 1; i < c->n_zones; i++)
		if (v[i]->zone == v[i - 1]->zone && v[i]->start < v[i - 1]->start + v[i - 1]->len)
			return zns_fail(err, code, "byte %llu of zone %u is claimed twice",
					(unsigned long long)v[i]->start, v[i]->zone);
	return 0;
}

/* INT64_MAX is excluded, since it means "all times" (zns/fsck.h). */
static int check_time(const char *what, int64_t ns, int code, struct zns_err *err)
{
	return ns >= 0 && ns < INT64_MAX ?
		       0 :
		       zns_fail(err, code, "%s is no time (%lld ns)", what, (long long)ns);
}

static int check_share(const char *what, double v, int code, struct zns_err *err)
{
	return isfinite(v) && v >= 0 ? 0 : zns_fail(err, code, "%s is out of range", what);
}

static int check_text(const char *what, const char *text, int code, struct zns_err *err)
{
	if (text && strnlen(text, TEXT_MAX + 1) > TEXT_MAX)
		return zns_fail(err, code, "%s is longer than %d bytes", what, TEXT_MAX);
	return 0;
}

static int check_origin(const ZnsPb__Origin *o, int code, struct zns_err *err)
{
	const char *const text[] = {
		o->kind,           o->host,  o->image_dir, o->container_id,
		o->container_name, o->image, o->root,      o->checkpoint_name
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(text); i++)
		if (check_text("a text of the origin", text[i], code, err))
			return code;
	if (o->has_layer && o->layer.len != SHA256_BYTES)
		return zns_fail(err, code, "a digest of the origin has %zu bytes", o->layer.len);
	return 0;
}

static int check_id(const char *what, const ProtobufCBinaryData *id, int code, struct zns_err *err)
{
	if (id->len != ZNS_UUID_LEN || !id->data)
		return zns_fail(err, code, "%s has %zu bytes instead of %d", what, id->len,
				ZNS_UUID_LEN);
	return 0;
}

static int check_groups(const uint32_t *groups, size_t n, const struct zns_limits *l, int code,
			struct zns_err *err)
{
	if (n > l->nr_groups)
		return zns_fail(err, code, "%zu groups, the profile has %u", n, l->nr_groups);
	for (size_t i = 0; i < n; i++)
		if (groups[i] >= l->nr_groups)
			return zns_fail(err, code, "group %u is not in the profile (%u groups)",
					groups[i], l->nr_groups);
	return 0;
}

/* The manifest must be in bytes that count as live, because otherwise its zone could be reset. */
static int check_manifest_ref(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code,
			      struct zns_err *err)
{
	const ZnsPb__ExtentRef *m = c->manifest;

	if (zns_check_range(l, m->zone, m->start, m->len, code, err))
		return code;
	if (m->len <= ZNS_FRAME_HDR || m->start % l->block)
		return zns_fail(err, code, "no manifest can have %llu bytes at byte %llu",
				(unsigned long long)m->len, (unsigned long long)m->start);
	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];

		if (u->zone == m->zone && m->start >= u->start &&
		    m->start + m->len <= u->start + u->len)
			return 0;
	}
	return zns_fail(err, code, "the manifest lies outside the checkpoint's zones");
}

static int check_old_manifests(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code,
			       struct zns_err *err)
{
	for (size_t i = 0; i < c->n_old_manifests; i++)
		/* the zone may not exist any more since the disk was made smaller */
		if (!(l->resizable && c->old_manifests[i] >= l->nr_zones) &&
		    zns_check_range(l, c->old_manifests[i], 0, 1, code, err))
			return code;
	return 0;
}

int zns_check_checkpoint(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code,
			 struct zns_err *err)
{
	int ret;

	if (check_id("checkpoint id", &c->id, code, err) ||
	    zns_check_name("the container's name", c->container, code, err) ||
	    (c->has_parent && check_id("parent id", &c->parent, code, err)))
		return code;
	if (c->has_parent && !memcmp(c->parent.data, c->id.data, ZNS_UUID_LEN))
		return zns_fail(err, code, "the checkpoint is its own parent");
	ret = check_uses(l, c, code, err);
	if (ret)
		return ret;
	if (check_groups(c->groups, c->n_groups, l, code, err) ||
	    check_groups(c->metadata_groups, c->n_metadata_groups, l, code, err) ||
	    check_old_manifests(c, l, code, err) ||
	    check_time("the time of the checkpoint", c->created_ns, code, err) ||
	    check_time("the time of its move", c->moved_ns, code, err) ||
	    check_share("the rate of the checkpoint", c->qos_achieved_mibps, code, err) ||
	    (c->origin && check_origin(c->origin, code, err)))
		return code;
	if (c->crypt && !zns_crypt_record_sane(c->crypt))
		return zns_fail(err, code, "the wrapped key has an impossible length");
	return c->manifest ? check_manifest_ref(c, l, code, err) : 0;
}

int zns_check_reservation(const ZnsPb__Reservation *r, const struct zns_limits *l, int code,
			  struct zns_err *err)
{
	if (zns_check_name("the container's name", r->container, code, err))
		return code;
	return check_groups(r->groups, r->n_groups, l, code, err);
}

static int check_profile_figures(const ZnsPb__Profile *p, int code, struct zns_err *err)
{
	if (check_share("the confidence of the profile", p->confidence, code, err) ||
	    check_share("the scaling of the profile", p->scaling, code, err) ||
	    check_share("the load of the profile", p->load, code, err) ||
	    check_text("the method of the profile", p->method, code, err))
		return code;
	if (p->n_group_confidence && p->n_group_confidence != p->n_groups)
		return zns_fail(err, code, "the profile has %zu groups and the confidence of %zu",
				p->n_groups, p->n_group_confidence);
	for (size_t i = 0; i < p->n_group_confidence; i++)
		if (check_share("the confidence of a group", (double)p->group_confidence[i], code,
				err))
			return code;
	if (p->n_group_write_mibps && p->n_group_write_mibps != p->n_groups)
		return zns_fail(err, code, "the profile has %zu groups and the rates of %zu",
				p->n_groups, p->n_group_write_mibps);
	if (p->n_group_read_mibps && p->n_group_read_mibps != p->n_groups)
		return zns_fail(err, code, "the profile has %zu groups and the read rates of %zu",
				p->n_groups, p->n_group_read_mibps);
	return 0;
}

int zns_check_profile(const ZnsPb__Profile *p, const struct zns_limits *l, int code,
		      struct zns_err *err)
{
	if (zns_check_name("the source of the profile", p->source, code, err))
		return code;
	if (p->n_zone_group != l->nr_zones && !(l->resizable && code == -EBADMSG))
		return zns_fail(err, code, "the profile covers %zu zones, the device has %u",
				p->n_zone_group, l->nr_zones);
	if (!p->n_groups || p->n_groups > l->nr_zones)
		return zns_fail(err, code, "the profile has %zu groups for %u zones", p->n_groups,
				l->nr_zones);
	for (size_t i = 0; i < p->n_zone_group; i++)
		if (p->zone_group[i] >= p->n_groups)
			return zns_fail(err, code, "the profile puts zone %zu into group %u of %zu",
					i, p->zone_group[i], p->n_groups);
	/* Channels are used as indices of tables, so their values are limited too. */
	for (size_t i = 0; i < p->n_groups; i++)
		if (p->groups[i]->has_channel && p->groups[i]->channel >= l->nr_zones)
			return zns_fail(err, code, "the profile puts group %zu on channel %u", i,
					p->groups[i]->channel);
	if (p->has_unknown_group && p->unknown_group >= p->n_groups)
		return zns_fail(err, code, "the profile's unknown group is %u of %zu",
				p->unknown_group, p->n_groups);
	return check_profile_figures(p, code, err);
}

int zns_check_retention(const ZnsPb__Retention *r, int code, struct zns_err *err)
{
	return zns_check_name("the container's name", r->container, code, err);
}

int zns_check_mark(const ZnsPb__Mark *m, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &m->checkpoint, code, err))
		return code;
	if (check_time("the time of the mark", m->gone_ns, code, err))
		return code;
	return check_time("the time of the damage", m->damaged_ns, code, err);
}

int zns_check_first(const ZnsPb__FirstPages *f, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &f->checkpoint, code, err))
		return code;
	if (f->runs.len > ZNS_FIRST_MAX)
		return zns_fail(err, code, "first pages: a list of %zu bytes is longer than %zu",
				f->runs.len, (size_t)ZNS_FIRST_MAX);
	return check_time("the time of the first pages", f->recorded_ns, code, err);
}

int zns_check_tombstone(const ZnsPb__Tombstone *t, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &t->id, code, err) ||
	    zns_check_name("the remover's name", t->by, code, err) ||
	    check_time("the time of the removal", t->deleted_ns, code, err))
		return code;
	return t->container ? zns_check_name("the container's name", t->container, code, err) : 0;
}

int zns_check_encryption(const ZnsPb__Encryption *e, int code, struct zns_err *err)
{
	if (e->has_key_id && e->key_id.len != ZNS_KEY_ID_BYTES)
		return zns_fail(err, code, "the fingerprint of a key has %zu bytes", e->key_id.len);
	return 0;
}

int zns_check_key(const ZnsPb__KeyLine *k, int code, struct zns_err *err)
{
	if (check_id("checkpoint id", &k->checkpoint, code, err))
		return code;
	if (!k->crypt->has_wrapped || !zns_crypt_record_sane(k->crypt))
		return zns_fail(err, code, "the wrapped key has an impossible length");
	return 0;
}

int zns_check_mount(const ZnsPb__Mount *m, int code, struct zns_err *err)
{
	if (zns_check_name("machine id of the mount record", m->machine, code, err) ||
	    zns_check_name("boot id of the mount record", m->boot, code, err) ||
	    check_time("the time of the mount record", m->since_ns, code, err))
		return code;
	return zns_check_name("host of the mount record", m->host, code, err);
}
