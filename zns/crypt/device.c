/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chooses the key, depending on this machine's configuration, on what the device requires and on
 * the checkpoint's record. */
#include <limits.h>
#include <string.h>
#include <openssl/crypto.h>
#include "crypt_priv.h"

int zns_key_spec_of(const struct zns_registered *reg, char *out, size_t len, bool *of_host,
		    struct zns_err *err)
{
	int ret;

	*of_host = false;
	ret = zns_config_get("encrypt-key", out, len, err);
	*of_host = !ret;
	if (ret && ret != -ENOENT)
		return ret;
	ret = zns_registered_key(reg->uuid, out, len, err);
	if (ret == -ENOENT && *of_host)
		return zns_config_get("encrypt-key", out, len, err);
	if (ret == -ENOENT)
		return zns_fail(
			err, -ENOKEY,
			"no key is named for %s: put \"encrypt-key = file:PATH\" (or keyring:DESCRIPTION) into "
			"%s/zns.conf, or run `znsctl key use KEYSPEC DEV`",
			reg->path, zns_config_dir());
	return ret;
}

static int load_for(const struct zns_registered *reg, struct zns_master **out, char *spec,
		    size_t len, bool *of_host, struct zns_err *err)
{
	int ret = zns_key_spec_of(reg, spec, len, of_host, err);

	return ret ? ret : zns_master_load(spec, out, err);
}

int zns_master_for_dump(const struct zns_registered *reg, const uint8_t *want,
			struct zns_master **out, struct zns_err *err)
{
	char spec[PATH_MAX + 16], a[ZNS_KEY_ID_STR], b[ZNS_KEY_ID_STR];
	bool of_host;
	struct zns_err e = ZNS_ERR_INIT;
	int ret;

	*out = NULL;
	if (!want) {
		/*
		 * The device does not require encryption, or an attacker removed that from its
		 * catalogue. A key for the whole machine, or the registry entry, still requires it.
		 */
		ret = zns_key_spec_of(reg, spec, sizeof(spec), &of_host, &e);
		if (!reg->encrypted && (ret == -ENOKEY || (!ret && !of_host)))
			return 0;
		if (!ret)
			ret = zns_master_load(spec, out, &e);
		return ret ? zns_fail(err, ret, "%s", e.msg) : 0;
	}
	ret = load_for(reg, out, spec, sizeof(spec), &of_host, &e);
	if (ret)
		return zns_fail(err, ret, "%s takes encrypted checkpoints only, with key %s: %s",
				reg->path, zns_key_id_format(want, a), e.msg);
	if (memcmp((*out)->id, want, ZNS_KEY_ID_BYTES)) {
		ret = zns_fail(err, -EKEYREJECTED,
			       "%s takes encrypted checkpoints only, with key %s; %s is key %s",
			       reg->path, zns_key_id_format(want, a), spec,
			       zns_key_id_format((*out)->id, b));
		zns_master_free(*out);
		*out = NULL;
	}
	return ret;
}

int zns_encryption_wanted(const struct zns_registered *reg, bool wanted, struct zns_err *err)
{
	char spec[PATH_MAX + 16];
	struct zns_registered now;
	int ret;

	if (wanted || reg->encrypted)
		return 1;
	ret = zns_config_get("encrypt-key", spec, sizeof(spec), err);
	if (ret != -ENOENT)
		return ret ? ret : 1;
	/* the registry entry may have been changed since @reg was read */
	return !zns_registered_by_uuid(reg->uuid, &now, NULL) && now.encrypted;
}

int zns_plain_refused(const struct zns_registered *reg, bool wanted, const uint8_t id[ZNS_UUID_LEN],
		      struct zns_err *err)
{
	char spec[PATH_MAX + 16], str[ZNS_UUID_STR];
	const char *who = reg->encrypted ? "on this machine %s is noted to take" :
			  wanted         ? "%s takes" :
					   NULL;
	char why[PATH_MAX + 64];
	int ret;

	if (reg->plain_ok)
		return 0;
	if (!who) {
		ret = zns_config_get("encrypt-key", spec, sizeof(spec), err);
		if (ret)
			return ret == -ENOENT ? 0 : ret;
		who = "zns.conf has encrypt-key, which lets %s take";
	}
	snprintf(why, sizeof(why), who, reg->path);
	return zns_fail(
		err, -EPERM,
		"checkpoint %s is not encrypted, and %s encrypted ones only: somebody may have put it in another "
		"one's place. If it is yours, from before: znsctl key plain accept",
		zns_uuid_format(id, str), why);
}

static int check_seal(const struct zns_crypt *c, const ZnsPb__Manifest *m, struct zns_err *err)
{
	uint8_t tag[ZNS_TAG_BYTES];
	char str[ZNS_UUID_STR];
	int ret = zns_crypt_seal_manifest(c, m, tag, err);

	if (ret)
		return ret;
	if (m->has_seal && m->seal.len == ZNS_TAG_BYTES &&
	    !CRYPTO_memcmp(tag, m->seal.data, ZNS_TAG_BYTES))
		return 0;
	return zns_fail(
		err, -EBADMSG,
		"the manifest of checkpoint %s is not the one that was encrypted: names, sizes or tags were "
		"changed",
		zns_uuid_format(m->checkpoint->id.data, str));
}

int zns_crypt_of(const struct zns_registered *reg, bool wanted, const ZnsPb__Manifest *m,
		 struct zns_crypt **out, struct zns_err *err)
{
	const ZnsPb__CheckpointKey *k = m->checkpoint->crypt;
	char spec[PATH_MAX + 16], str[ZNS_UUID_STR], id[ZNS_KEY_ID_STR];
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_master *master = NULL;
	bool of_host;
	int ret;

	*out = NULL;
	if (!k)
		return zns_plain_refused(reg, wanted, m->checkpoint->id.data, err);
	zns_uuid_format(m->checkpoint->id.data, str);
	ret = load_for(reg, &master, spec, sizeof(spec), &of_host, &e);
	if (ret && k->has_key_id && k->has_wrapped && k->key_id.len == ZNS_KEY_ID_BYTES)
		return zns_fail(err, ret, "checkpoint %s is encrypted with key %s: %s", str,
				zns_key_id_format(k->key_id.data, id), e.msg);
	if (ret && k->has_wrapped)
		return zns_fail(err, ret, "checkpoint %s is encrypted: %s", str, e.msg);
	if (!ret)
		ret = zns_crypt_open(master, m->checkpoint->id.data, k, out, &e);
	/*
	 * the record of the checkpoint has no wrapped key any more, so a master key would not help
	 */
	else
		ret = zns_fail(
			&e, -ENOKEY,
			"the key of checkpoint %s is gone (the log that held it was lost): its data cannot be "
			"read any more",
			str);
	zns_master_free(master);
	if (!ret)
		ret = check_seal(*out, m, &e);
	if (ret == -EKEYREJECTED)
		zns_wrap(&e, "%s", spec);
	if (ret) {
		zns_crypt_free(*out);
		*out = NULL;
		return zns_fail(err, ret, "%s", e.msg);
	}
	return 0;
}
