/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The broker's part in encryption. It never has a key. It tells clients whether the device requires
 * encrypted checkpoints, and with which key, and refuses dumps and records that do not comply.
 */
#include <string.h>
#include "policy.h"
#include "zns/crypt.h"

const ZnsPb__Encryption *wanted_encryption(const struct znsd *d)
{
	const ZnsPb__Encryption *e = zns_store_encryption(d->store);

	return e && e->has_key_id ? e : NULL;
}

/*
 * Checks the encryption that a dump announces. The client was told at its first request what the
 * device requires, but it may have ignored that, or it may have changed since.
 */
int encryption_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	const ZnsPb__Encryption *e = wanted_encryption(d);
	char want[ZNS_KEY_ID_STR], have[ZNS_KEY_ID_STR];

	if (q->has_key_id && q->key_id.len != ZNS_KEY_ID_BYTES)
		return zns_fail(err, -EINVAL, "dump: the fingerprint of a key must have %d bytes",
				ZNS_KEY_ID_BYTES);
	if (!e || (q->has_key_id && !memcmp(q->key_id.data, e->key_id.data, ZNS_KEY_ID_BYTES)))
		return 0;
	zns_key_id_format(e->key_id.data, want);
	if (!q->has_key_id)
		return zns_fail(err, -ENOKEY, "%s takes encrypted checkpoints only, with key %s",
				d->reg.path, want);
	return zns_fail(err, -EKEYREJECTED,
			"%s takes encrypted checkpoints only, with key %s, not %s", d->reg.path,
			want, zns_key_id_format(q->key_id.data, have));
}

/*
 * Checks the import of a checkpoint that stays encrypted. It must keep its id, because handles name
 * the id and the encryption of its units depends on it.
 */
int sealed_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	const ZnsPb__Tombstone *t;
	const struct lease *l;

	if (!q->has_sealed)
		return 0;
	if (q->sealed.len != ZNS_UUID_LEN || q->has_join || q->has_flatten)
		return zns_fail(
			err, -EINVAL,
			"dump: an imported checkpoint has an id of %d bytes, and cannot join or flatten another",
			ZNS_UUID_LEN);
	zns_uuid_format(q->sealed.data, id);
	if (zns_store_find(d->store, q->sealed.data))
		return zns_fail(err, -EEXIST, "checkpoint %s is on %s already", id, d->reg.path);
	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_DUMP && !memcmp(l->id, q->sealed.data, ZNS_UUID_LEN))
			return zns_fail(err, -EBUSY, "checkpoint %s is being imported by PID %u",
					id, l->pid);
	t = zns_store_find_tombstone(d->store, q->sealed.data);
	if (t && t->deleted_ns >= INT64_MAX - 1) /* no new version could be later than this time */
		return zns_fail(
			err, -EOPNOTSUPP,
			"checkpoint %s was removed from %s with the last possible time stamp, so no later record of it can be written",
			id, d->reg.path);
	return 0;
}

void encryption_note(struct lease *l, const ZnsPb__DumpBegin *q)
{
	l->dump.encrypted = q->has_key_id;
	if (l->dump.encrypted)
		memcpy(l->dump.key_id, q->key_id.data, sizeof(l->dump.key_id));
}

int encryption_check_record(const struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err)
{
	if (l->dump.encrypted != (k->crypt != NULL) ||
	    (k->crypt && (!k->crypt->has_wrapped || !zns_crypt_record_sane(k->crypt) ||
			  memcmp(k->crypt->key_id.data, l->dump.key_id, sizeof(l->dump.key_id)))))
		return zns_fail(
			err, -EINVAL,
			"commit: the checkpoint is not encrypted as its dump said it would be");
	return 0;
}

/* The memory context whose units a checkpoint refers to; NULL: none. */
static const uint8_t *context_of(const ZnsPb__Checkpoint *k)
{
	for (size_t i = 0; i < k->n_zones; i++)
		if (k->zones[i]->memory.len == ZNS_UUID_LEN)
			return k->zones[i]->memory.data;
	return NULL;
}

static bool named(const ZnsPb__Rm *q, const uint8_t *id)
{
	for (size_t i = 0; i < q->n_checkpoints; i++)
		if (q->checkpoints[i].len == ZNS_UUID_LEN &&
		    !memcmp(q->checkpoints[i].data, id, ZNS_UUID_LEN))
			return true;
	return false;
}

/*
 * Refuses a secure removal if the checkpoint's units are encrypted with the key of a memory
 * context, which other checkpoints may share.
 */
static int shared_key(const struct znsd *d, const ZnsPb__Rm *q, const ZnsPb__Checkpoint *k,
		      struct zns_err *err)
{
	const uint8_t *context = context_of(k), *other;
	char a[ZNS_UUID_STR], b[ZNS_UUID_STR];
	const struct lease *l;

	if (!context)
		return 0;
	l = yielding_find(d, context);
	if (l)
		return zns_fail(
			err, -EBUSY,
			"checkpoint %s has units of memory context %s, which still runs: that context's next checkpoint would contain the same key: `znsctl memory detach` "
			"it first",
			zns_uuid_format(k->id.data, a), l->container);
	for (size_t i = 0; i < zns_store_nr_checkpoints(d->store); i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		other = c == k ? NULL : context_of(c);
		if (other && !memcmp(other, context, ZNS_UUID_LEN) && !named(q, c->id.data))
			return zns_fail(err, -EBUSY,
					"checkpoint %s has units of the same memory context as %s, "
					"under one key: remove both, or `znsctl flatten %s` first",
					zns_uuid_format(k->id.data, a),
					zns_uuid_format(c->id.data, b), b);
	}
	return 0;
}

int secure_check(const struct znsd *d, const ZnsPb__Rm *q, const uint8_t *id, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k = zns_store_find(d->store, id);
	const ZnsPb__Tombstone *t = zns_store_find_tombstone(d->store, id);
	char str[ZNS_UUID_STR];

	if (k ? k->crypt != NULL : t && t->encrypted)
		return k ? shared_key(d, q, k, err) : 0;
	return zns_fail(
		err, -EOPNOTSUPP,
		"checkpoint %s is not encrypted, so there is no key whose erasure would make its data "
		"unreadable: nothing was removed; without --secure it is removed, and its zones are reset when they hold "
		"nothing live",
		zns_uuid_format(id, str));
}
