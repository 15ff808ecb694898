/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Incremental checkpoints: a parent is kept as long as a checkpoint has it as a parent. A parent is
 * always older than its children, so it comes before them in the order of commits.
 */
#include <string.h>
#include "zns/chain.h"
#include "policy.h"

static bool same(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	return a->len == ZNS_UUID_LEN && b->len == ZNS_UUID_LEN &&
	       !memcmp(a->data, b->data, ZNS_UUID_LEN);
}

static bool among(const ProtobufCBinaryData *id, const ProtobufCBinaryData *ids, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (same(id, &ids[i]))
			return true;
	return false;
}

int checkpoint_absent(const struct znsd *d, const ProtobufCBinaryData *q, const char *what,
		      struct zns_err *err)
{
	const ZnsPb__Tombstone *t = zns_store_find_tombstone(d->store, q->data);
	char id[ZNS_UUID_STR], when[32];

	zns_uuid_format(q->data, id);
	if (t)
		return zns_fail(err, -ESTALE, "%s %s of container %s was deleted at %s by %s", what,
				id, t->container ? t->container : "(unknown)",
				zns_format_time(t->deleted_ns, when, sizeof(when)), t->by);
	return zns_fail(err, -ENOENT, "%s has no %s %s", d->reg.path, what, id);
}

int chain_of(const struct znsd *d, const ZnsPb__Checkpoint *k, struct chain *out,
	     struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	*out = (struct chain){ .v = znsd_alloc(ZNS_CHAIN_MAX * sizeof(*out->v)) };
	while (k) {
		const ZnsPb__Checkpoint *child = k;

		if (out->nr == ZNS_CHAIN_MAX)
			return zns_fail(
				err, -E2BIG,
				"a chain of more than %d checkpoints: dump in full, or shorten it with "
				"`znsctl flatten`",
				ZNS_CHAIN_MAX);
		out->v[out->nr++] = k;
		if (!k->has_parent)
			break;
		k = zns_store_find(d->store, k->parent.data);
		if (k)
			continue;
		checkpoint_absent(d, &child->parent, "checkpoint", err);
		return zns_wrap(err, "checkpoint %s needs its parent",
				zns_uuid_format(child->id.data, id));
	}
	return 0;
}

/* Checks the parent that a dump names. An imported checkpoint whose container nobody on this
 * machine has named is untrusted, and no rule removes it. So its parent could not be removed
 * either. Therefore the parent must not be one to which rules apply. */
int parent_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k;
	char id[ZNS_UUID_STR];
	struct chain chain;
	int ret;

	if (!q->has_parent)
		return 0;
	if (q->parent.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a checkpoint's id must have %d bytes", ZNS_UUID_LEN);
	k = zns_store_find(d->store, q->parent.data);
	if (!k) {
		checkpoint_absent(d, &q->parent, "checkpoint", err);
		return zns_wrap(err, "no such parent, dump without one");
	}
	if (q->origin && q->origin->claimed && !(k->origin && k->origin->claimed))
		return zns_fail(
			err, -EPERM,
			"it is built on checkpoint %s, which no rule could remove any more: an import has to "
			"name the container (--as), a stream has to be --trusted",
			zns_uuid_format(q->parent.data, id));
	ret = chain_of(d, k, &chain, err);
	if (!ret && chain.nr + 1 > ZNS_CHAIN_MAX)
		ret = zns_fail(
			err, -E2BIG,
			"the chain has %zu checkpoints: dump in full, or shorten it with `znsctl flatten`",
			chain.nr);
	free(chain.v);
	return ret;
}

int flatten_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k;
	char id[ZNS_UUID_STR];

	if (!q->has_flatten)
		return 0;
	if (q->flatten.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a checkpoint's id must have %d bytes", ZNS_UUID_LEN);
	k = zns_store_find(d->store, q->flatten.data);
	if (!k)
		return checkpoint_absent(d, &q->flatten, "checkpoint", err);
	/*
	 * A checkpoint k without a parent is not refused, because it may have composed images to be
	 * flattened. Only the client can see that, since only it reads the manifest.
	 */
	if (k->pages_only || q->has_parent || strcmp(k->container, q->container))
		return zns_fail(err, -EINVAL,
				"checkpoint %s has pages only, or is of another container",
				zns_uuid_format(q->flatten.data, id));
	if (parent_in_use(d, q->flatten.data))
		return zns_fail(err, -EBUSY,
				"checkpoint %s is read by a dump that has it as its parent",
				zns_uuid_format(q->flatten.data, id));
	return yielding_allows(d, q->flatten.data, err);
}

const struct lease *parent_of_dump(const struct znsd *d, const uint8_t *id)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l) && l->dump.has_parent &&
		    !memcmp(l->dump.parent, id, ZNS_UUID_LEN))
			return l;
	return NULL;
}

bool parent_in_use(const struct znsd *d, const uint8_t *id)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next) {
		const ZnsPb__Checkpoint *k = lease_admitted(l) && l->dump.has_parent ?
						     zns_store_find(d->store, l->dump.parent) :
						     NULL;
		uint32_t n;

		for (n = 0; k && n < ZNS_CHAIN_MAX; n++) {
			if (!memcmp(k->id.data, id, ZNS_UUID_LEN))
				return true;
			k = k->has_parent ? zns_store_find(d->store, k->parent.data) : NULL;
		}
	}
	return false;
}

int parents_may_go(const struct znsd *d, const ProtobufCBinaryData *ids, size_t nr,
		   struct zns_err *err)
{
	char id[ZNS_UUID_STR], first[ZNS_UUID_STR], more[32] = "";
	const ZnsPb__Checkpoint *child = NULL;
	const struct lease *l;
	size_t n = 0, i;

	for (i = 0; i < zns_store_nr_checkpoints(d->store); i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		if (!c->has_parent ||
		    (child ? !same(&c->parent, &child->parent) : !among(&c->parent, ids, nr)) ||
		    among(&c->id, ids, nr))
			continue;
		if (!n++)
			child = c;
	}
	if (n > 1)
		snprintf(more, sizeof(more), " and %zu more", n - 1);
	if (n)
		return zns_fail(
			err, -EBUSY,
			"checkpoint %s is the parent of %s%s: remove what is built on it too, or make that "
			"self-contained with `znsctl flatten`",
			zns_uuid_format(child->parent.data, id),
			zns_uuid_format(child->id.data, first), more);
	for (i = 0; i < nr; i++) {
		l = parent_of_dump(d, ids[i].data);
		if (l)
			return zns_fail(
				err, -EBUSY,
				"checkpoint %s is the parent of a dump of %s that is running (PID %u)",
				zns_uuid_format(ids[i].data, id), l->container, l->pid);
	}
	return 0;
}

void parents_last(const struct znsd *d, ProtobufCBinaryData *ids, size_t nr)
{
	size_t all = zns_store_nr_checkpoints(d->store), done = 0, i, k;

	for (i = 0; i < all && !zns_store_checkpoint(d->store, i)->has_parent; i++)
		;
	if (i == all)
		return;
	for (i = all; i-- > 0 && done < nr;) {
		for (k = done; k < nr && !same(&ids[k], &zns_store_checkpoint(d->store, i)->id);
		     k++)
			;
		if (k < nr) {
			ProtobufCBinaryData t = ids[done];

			ids[done++] = ids[k];
			ids[k] = t;
		}
	}
}
