/* SPDX-License-Identifier: GPL-2.0-only */
/* See export.h: what all kinds of export do with each level. */
#include <string.h>
#include "export.h"
#include "zns/crypt.h"

uint32_t export_levels(const struct export *x)
{
	return x->flat || x->metadata_only ? 1 : zns_chain_levels(x->chain);
}

const ZnsPb__Manifest *export_level(const struct export *x, uint32_t level)
{
	return zns_chain_manifest(x->chain, level);
}

void export_id(const struct export *x, uint32_t level, char id[ZNS_UUID_STR])
{
	zns_uuid_format(export_level(x, level)->checkpoint->id.data, id);
}

uint64_t export_size(const struct export *x, uint32_t level, uint32_t n)
{
	return x->flat ? zns_flat_size(x->flat, n) : export_level(x, level)->images[n]->size;
}

int export_read(struct export *x, uint32_t level, uint32_t n, uint64_t off, uint8_t *buf,
		size_t len, struct zns_err *err)
{
	if (x->flat)
		return zns_flat_read(x->flat, n, off, buf, len, err);
	return zns_rimage_read(zns_chain_find(x->chain, level,
					      export_level(x, level)->images[n]->name),
			       off, buf, len, err);
}

bool export_leaves_out(const struct export *x, uint32_t level, uint32_t n)
{
	const ZnsPb__Image *i = export_level(x, level)->images[n];

	return i->part || (x->metadata_only && !strncmp(i->name, "pages-", 6));
}

void export_prefix(const struct export *x, uint32_t level, char *out, size_t len)
{
	char id[ZNS_UUID_STR];

	export_id(x, level, id);
	*out = 0;
	if (x->form || level)
		snprintf(out, len, "%s/%s/", x->form ? x->form->folder(x) : EXPORT_PARENTS, id);
}

bool export_link(const struct export *x, uint32_t level, char *out, size_t len)
{
	char id[ZNS_UUID_STR];

	if (level + 1 >= export_levels(x))
		return false;
	export_id(x, level + 1, id);
	snprintf(out, len, "%s/%s", level || x->form ? ".." : EXPORT_PARENTS, id);
	return true;
}

int export_begin(struct export *x, struct zns_err *err)
{
	struct zns_reader_params p = { 0 };
	int ret;

	if (x->h.c->pages_only)
		return zns_fail(
			err, -EOPNOTSUPP,
			"this checkpoint has pages only: join the other images first (znsctl import --join)");
	x->sealed = p.sealed = x->form && x->h.c->crypt && !x->decrypt;
	if (x->sealed && x->flatten)
		return zns_fail(
			err, -EINVAL,
			"an encrypted checkpoint is sent as it is: with --flatten add --decrypt, or `znsctl flatten` it first");
	ret = zns_session_lease(&x->h.s, x->h.c->id.data, true, &x->answer, err);
	if (!ret)
		ret = zns_session_chain(&x->h.s, x->answer, x->h.handle, &p, &x->chain, err);
	if (!ret && x->sealed)
		ret = x->form->sealed(x, err);
	if (!ret && x->flatten)
		ret = zns_flat_new(x->chain, &x->flat, err);
	if (!ret && !x->sealed)
		x->prog.total = x->flat ? zns_flat_bytes(x->flat) : zns_chain_bytes(x->chain);
	return ret;
}

void export_end(struct export *x)
{
	zns_flat_free(x->flat);
	zns_chain_close(x->chain);
	if (x->answer)
		zns_pb__response__free_unpacked(x->answer, NULL);
}
