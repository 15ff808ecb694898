/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replaces and erases wrapped keys in the log. The wrapped key of a checkpoint is nowhere else on
 * the device. So it is erased when the log is a generation without it and all other metadata zones
 * are empty.
 */
#include <string.h>
#include "store_int.h"
#include "zns/pbcopy.h"
#include "zns/crypt.h"

const ZnsPb__Encryption *zns_store_encryption(const struct zns_store *s)
{
	return zns_newest(&s->st.encryption);
}

static bool usable(const struct zns_zone *z)
{
	return z->state != ZNS_ZONE_READ_ONLY && z->state != ZNS_ZONE_OFFLINE;
}

/* Resets all metadata zones except the log's. If one cannot be reset, the others are reset
 * nevertheless, and the error names it. */
static int reset_others(struct zns_store *s, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta, nr = 0, stuck = UINT32_MAX;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	cleanup_free uint32_t *list = calloc(n, sizeof(*list));
	int ret;

	if (!zones || !list)
		return zns_fail(err, -ENOMEM, "no memory for %u metadata zones", n);
	ret = zns_dev_report(s->dev, s->first_meta, n, zones, err);
	for (uint32_t i = 0; i < n && !ret; i++) {
		if (zones[i].conventional || zones[i].index == s->log.zone)
			continue;
		if (!usable(&zones[i]))
			stuck = zones[i].index;
		else if (zones[i].state != ZNS_ZONE_EMPTY)
			list[nr++] = zones[i].index;
	}
	if (!ret && nr)
		ret = zns_dev_reset(s->dev, list, nr, err);
	for (uint32_t i = 0; i < n && !ret; i++)
		if (!zones[i].conventional && usable(&zones[i]))
			ret = zns_dev_scrub(s->dev, zones[i].index, err);
	if (!ret)
		ret = zns_dev_flush(s->dev, err);
	if (!ret && stuck != UINT32_MAX)
		ret = zns_fail(
			err, -EROFS,
			"metadata zone %u can no longer be written, so wrapped keys that it may hold stay; without "
			"the master key they are of no use",
			stuck);
	return ret;
}

int zns_store_erase(struct zns_store *s, struct zns_err *err)
{
	int ret = zns_store_writable(s, err);

	if (!ret)
		ret = zns_store_alone(s, err);
	if (!ret)
		ret = zns_store_claim_now(s, err);
	if (!ret)
		ret = zns_store_roll(s, 0, err);
	if (ret)
		return ret;
	ret = reset_others(s, err);
	zns_store_remember(s);
	return ret;
}

static const ZnsPb__CheckpointKey *line_for(const ZnsPb__Rekey *q, const uint8_t *id)
{
	for (size_t i = 0; i < q->n_lines; i++)
		if (q->lines[i]->checkpoint.len == ZNS_UUID_LEN &&
		    !memcmp(q->lines[i]->checkpoint.data, id, ZNS_UUID_LEN))
			return q->lines[i]->crypt;
	return NULL;
}

static bool has_key(const ZnsPb__Checkpoint *c)
{
	return c->crypt && c->crypt->has_wrapped;
}

static int check_rekey(struct zns_store *s, const ZnsPb__Rekey *q, struct zns_err *err)
{
	const struct zns_list *l = &s->st.checkpoints;
	char id[ZNS_UUID_STR];

	if (q->has_key_id && q->key_id.len != ZNS_KEY_ID_BYTES)
		return zns_fail(err, -EINVAL, "rekey: the fingerprint of a key has %zu bytes",
				q->key_id.len);
	for (size_t i = 0; i < l->nr; i++) {
		const ZnsPb__CheckpointKey *k = line_for(q, l->v[i]->ckpt->id.data);

		if (!has_key(l->v[i]->ckpt))
			continue;
		if (!k)
			return zns_fail(err, -ESTALE,
					"checkpoint %s was written meanwhile: try again",
					zns_uuid_format(l->v[i]->ckpt->id.data, id));
		if (!zns_crypt_record_sane(k) || !k->has_wrapped ||
		    k->wrapped.len != l->v[i]->ckpt->crypt->wrapped.len)
			return zns_fail(err, -EINVAL,
					"rekey: the wrapped key has an impossible length");
	}
	return 0;
}

static void swap_keys(const struct zns_list *l, ZnsPb__CheckpointKey **keys)
{
	for (size_t i = 0; i < l->nr; i++)
		if (keys[i]) {
			ZnsPb__CheckpointKey *old = l->v[i]->ckpt->crypt;

			l->v[i]->ckpt->crypt = keys[i];
			keys[i] = old;
		}
}

/* Copies the new wrapped keys, each to the index that its checkpoint has in the list; NULL for
 * checkpoints without a key. */
static int copy_keys(const struct zns_list *l, const ZnsPb__Rekey *q, ZnsPb__CheckpointKey **keys,
		     struct zns_err *err)
{
	for (size_t i = 0; i < l->nr; i++) {
		if (!has_key(l->v[i]->ckpt))
			continue;
		keys[i] = zns_pb_copy(&line_for(q, l->v[i]->ckpt->id.data)->base, err);
		if (!keys[i])
			return -ENOMEM;
	}
	return 0;
}

/* Returns in *out the encryption that the device will require from now on; NULL: it does not
 * change. */
static int new_wish(struct zns_store *s, const ZnsPb__Rekey *q, struct zns_ent **out,
		    struct zns_err *err)
{
	ZnsPb__Encryption want = ZNS_PB__ENCRYPTION__INIT;
	ProtobufCMessage *copy;

	*out = NULL;
	if (!q->has_key_id)
		return 0;
	want.has_key_id = 1;
	want.key_id = q->key_id;
	want.since_ns = zns_now_ns();
	copy = zns_pb_copy(&want.base, err);
	*out = copy ? zns_state_ent(&s->st, copy, NULL, err) : NULL;
	return *out ? 0 : -ENOMEM;
}

/* Replaces all wrapped keys with one roll-over, so that after a crash either all old or all new
 * keys are valid. */
static int roll_with(struct zns_store *s, ZnsPb__CheckpointKey **keys, struct zns_ent *wish,
		     bool *done, struct zns_err *err)
{
	struct zns_ent *before = wish ? zns_list_swap(&s->st.encryption, wish) : NULL;
	int ret;

	swap_keys(&s->st.checkpoints, keys);
	ret = zns_store_roll(s, 0, err);
	if (ret) {
		swap_keys(&s->st.checkpoints, keys);
		zns_ent_free(wish ? zns_list_swap(&s->st.encryption, before) : NULL);
		return ret;
	}
	*done = true;
	zns_ent_free(before);
	ret = reset_others(s, err);
	zns_store_remember(s);
	return ret;
}

int zns_store_rekey(struct zns_store *s, const ZnsPb__Rekey *q, bool *done, struct zns_err *err)
{
	cleanup_free ZnsPb__CheckpointKey **keys = NULL;
	struct zns_ent *wish = NULL;
	size_t nr;
	int ret;

	*done = false;
	ret = zns_store_writable(s, err);
	if (!ret)
		ret = check_rekey(s, q, err);
	if (!ret)
		ret = zns_store_alone(s, err);
	if (!ret)
		ret = zns_store_claim_now(s, err);
	if (ret)
		return ret;
	zns_state_compact(&s->st);
	nr = s->st.checkpoints.nr;
	keys = calloc(nr + 1, sizeof(*keys));
	ret = keys ? copy_keys(&s->st.checkpoints, q, keys, err) :
		     zns_fail(err, -ENOMEM, "no memory for wrapped keys");
	if (!ret)
		ret = new_wish(s, q, &wish, err);
	if (!ret)
		ret = roll_with(s, keys, wish, done, err);
	for (size_t i = 0; keys && i < nr; i++)
		if (keys[i])
			zns_pb__checkpoint_key__free_unpacked(keys[i], NULL);
	return ret;
}
