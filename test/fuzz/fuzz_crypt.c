/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What encryption reads from elsewhere: key files, the record of a wrapped key, tags and seal of a
 * manifest, wrapped keys that a client sends, keys of memory contexts. The first byte says which. A
 * record that was not wrapped by our key must never be opened.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../../zns/crypt/crypt_priv.h"
#include "zns/crypt_memory.h"
#include "zns/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct zns_geometry geo = {
	.nr_zones = 64, .block_size = 4096, .zone_size = MIB(64), .zone_capacity = MIB(48)
};
static const uint8_t id[ZNS_UUID_LEN] = "0123456789abcdef";

static struct zns_master *the_master(void)
{
	static const uint8_t raw[ZNS_KEY_BYTES] = { 1, 2, 3 };
	static struct zns_master *m;

	if (!m && master_from_bytes(raw, &m, NULL))
		abort();
	return m;
}

static void key_text(const uint8_t *data, size_t size)
{
	uint8_t raw[ZNS_KEY_BYTES];

	if (!master_decode(data, size, raw) && size != 32 && size != 64 && size != 65)
		abort();
}

static void record(const uint8_t *data, size_t size, bool ours)
{
	ZnsPb__CheckpointKey *k = zns_pb__checkpoint_key__unpack(NULL, size, data);
	struct zns_crypt *c = NULL;
	struct zns_err err = ZNS_ERR_INIT;

	if (!k)
		return;
	/* no fuzzer guesses a fingerprint */
	if (ours && k->has_key_id && k->key_id.len == ZNS_KEY_ID_BYTES)
		memcpy(k->key_id.data, zns_master_id(the_master()), ZNS_KEY_ID_BYTES);
	if (!zns_crypt_open(the_master(), id, k, &c, &err))
		abort();
	zns_pb__checkpoint_key__free_unpacked(k, NULL);
}

static void spec(const uint8_t *data, size_t size)
{
	char text[256], out[300];

	if (size >= sizeof(text))
		return;
	memcpy(text, data, size);
	text[size] = 0;
	if (!zns_key_spec_check(text, out, sizeof(out), NULL) && strncmp(out, "file:/", 6) &&
	    strncmp(out, "keyring:", 8))
		abort();
}

/* One that passes the check gives a reader a tag for every unit, and a seal can be computed of it.
 */
static void manifest(const uint8_t *data, size_t size)
{
	ZnsPb__Manifest *m = zns_pb__manifest__unpack(NULL, size, data);
	uint8_t tag[ZNS_TAG_BYTES];
	struct zns_crypt *c = NULL;

	if (m && !zns_manifest_check(m, &geo, NULL) && m->checkpoint->crypt) {
		for (size_t i = 0; i < m->n_images; i++)
			if (m->images[i]->size &&
			    m->images[i]->tags.len != ZNS_TAG_BYTES * m->images[i]->n_csums)
				abort();
		for (size_t i = 0; i < m->n_images; i++)
			if ((m->images[i]->has_nonces || m->images[i]->has_memory_key) &&
			    (m->images[i]->nonces.len != ZNS_MEMORY_NONCE * m->images[i]->n_csums ||
			     m->images[i]->memory_key.len != ZNS_MEMORY_SEALED))
				abort();
		if (zns_crypt_new(the_master(), id, &c, NULL) ||
		    zns_crypt_seal_manifest(c, m, tag, NULL))
			abort();
		zns_crypt_free(c);
	}
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
}

/* A key in a checkpoint: only the holder of the checkpoint's key can have sealed one. */
static void sealed_key(const uint8_t *data, size_t size)
{
	struct zns_crypt *c;
	struct zns_memory_key *k;
	uint8_t *text = malloc(size ? size : 1); /* no byte behind it may be read */

	if (!text || zns_crypt_new(the_master(), id, &c, NULL))
		abort();
	memcpy(text, data, size);
	if (!zns_memory_key_get(c, text, size, &k, NULL))
		abort();
	zns_crypt_free(c);
	free(text);
}

/* From a keeper of another build, say. */
static void kept_key(const uint8_t *data, size_t size)
{
	int fd = memfd_create("key", MFD_CLOEXEC);
	struct zns_memory_key *k;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size ||
	    (size && size % 2 == 0 && ftruncate(fd, 4096)))
		abort();
	if (!zns_memory_key_take(fd, id, &k, NULL)) {
		if (size < 24 || memcmp(data, "ZNSMKEY1", 8) || memcmp(data + 8, id, ZNS_UUID_LEN))
			abort();
		zns_memory_key_free(k);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] >= 0xfe) {
		(data[0] == 0xff ? kept_key : sealed_key)(data + 1, size - 1);
		return 0;
	}
	switch (data[0] % 5) {
	case 0:
		key_text(data + 1, size - 1);
		break;
	case 1:
		record(data + 1, size - 1, false);
		break;
	case 2:
		record(data + 1, size - 1, true);
		break;
	case 3:
		spec(data + 1, size - 1);
		break;
	default:
		manifest(data + 1, size - 1);
	}
	return 0;
}
