/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Exports an encrypted checkpoint to an OCI image as it is on the device: no key is needed (oci.h).
 */
#include <string.h>
#include "export_oci.h"
#include "zns/crypt.h"
#include "zns/sealed.h"

_Static_assert(CTL_OCI_KEY_BYTES == ZNS_KEY_ID_BYTES + ZNS_WRAPPED_BYTES, "fingerprint and key");
_Static_assert(CTL_OCI_SEAL_BYTES == ZNS_TAG_BYTES, "a seal");

static int is_encrypted(const struct export *x, uint32_t level, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	export_id(x, level, id);
	return export_level(x, level)->checkpoint->crypt ?
		       0 :
		       zns_fail(
			       err, -EOPNOTSUPP,
			       "checkpoint %s of the chain is not encrypted, and others are: send all of it "
			       "with --decrypt, or `znsctl flatten` it first",
			       id);
}

int export_is_sealed(struct export *x, struct zns_err *err)
{
	int ret = 0;

	x->prog.total = 0;
	for (uint32_t l = 0; l < export_levels(x) && !ret; l++) {
		ret = is_encrypted(x, l, err);
		if (!ret)
			ret = zns_sealed_may(export_level(x, l), err);
		x->prog.total += export_level(x, l)->checkpoint->bytes;
	}
	return ret;
}

static int pack_record(struct export *x, struct ctl_pack *p, uint32_t level, const char *prefix,
		       struct zns_err *err)
{
	cleanup_free uint8_t *record = NULL;
	char name[256];
	size_t len = 0;
	int ret = zns_sealed_pack(export_level(x, level), &record, &len, err);

	snprintf(name, sizeof(name), "%s" CTL_OCI_RECORD, prefix);
	if (!ret)
		ret = ctl_pack_file(p, name, len, err);
	return ret ? ret : ctl_pack_data(p, record, len, err);
}

static int pack_image(struct export *x, struct ctl_pack *p, uint32_t level, uint32_t n,
		      const char *prefix, uint8_t *buf, struct zns_err *err)
{
	const ZnsPb__Image *pb = export_level(x, level)->images[n];
	uint32_t index = n;
	char name[512];
	int ret;

	for (uint32_t l = 0; l < level; l++)
		index += (uint32_t)export_level(x, l)->n_images;
	snprintf(name, sizeof(name), "%s%s", prefix, pb->name);
	ret = ctl_pack_file(p, name, pb->size, err);
	for (uint64_t off = 0; off < pb->size && !ret; off += EXPORT_CHUNK) {
		size_t len = zns_min(EXPORT_CHUNK, pb->size - off);

		ret = zns_rimage_read(zns_reader_image(zns_chain_reader(x->chain), index), off, buf,
				      len, err);
		if (!ret)
			ret = ctl_caught(err);
		if (!ret)
			ret = ctl_pack_data(p, buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	x->bytes += pb->size;
	return ret;
}

int export_sealed_level(struct export *x, struct ctl_pack *p, uint32_t level, uint8_t *buf,
			struct zns_err *err)
{
	const ZnsPb__Manifest *m = export_level(x, level);
	char prefix[160];
	int ret;

	export_prefix(x, level, prefix, sizeof(prefix));
	ret = pack_record(x, p, level, prefix, err);
	for (uint32_t n = 0; n < m->n_images && !ret; n++) {
		x->done++;
		if (m->images[n]->size && !m->images[n]->map)
			ret = pack_image(x, p, level, n, prefix, buf, err);
	}
	return ret;
}

int export_sealed_end(const struct export *x, struct ctl_oci *o, uint32_t level,
		      struct zns_err *err)
{
	const ZnsPb__Manifest *m = export_level(x, level);
	const ZnsPb__CheckpointKey *k = m->checkpoint->crypt;
	uint8_t key[CTL_OCI_KEY_BYTES];
	char id[ZNS_UUID_STR];

	memcpy(key, k->key_id.data, ZNS_KEY_ID_BYTES);
	memcpy(key + ZNS_KEY_ID_BYTES, k->wrapped.data, ZNS_WRAPPED_BYTES);
	return ctl_oci_layer_end(o, zns_uuid_format(m->checkpoint->id.data, id), key, m->seal.data,
				 err);
}
