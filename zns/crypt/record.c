/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks of an encrypted checkpoint's record that need neither a key nor libcrypto. znsd uses only
 * these. */
#include "zns/crypt.h"

char *zns_key_id_format(const uint8_t id[ZNS_KEY_ID_BYTES], char out[ZNS_KEY_ID_STR])
{
	for (int i = 0; i < ZNS_KEY_ID_BYTES; i++)
		sprintf(out + 2 * i, "%02x", id[i]);
	return out;
}

bool zns_crypt_record_sane(const ZnsPb__CheckpointKey *k)
{
	return (!k->has_key_id || k->key_id.len == ZNS_KEY_ID_BYTES) &&
	       (!k->has_wrapped || k->wrapped.len <= 256) && (!k->has_wrapped || k->has_key_id) &&
	       (k->cipher != ZNS_CIPHER_AES_256_GCM || !k->has_wrapped ||
		k->wrapped.len == ZNS_WRAPPED_BYTES);
}
