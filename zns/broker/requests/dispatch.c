/* SPDX-License-Identifier: GPL-2.0-only */
/* Hands one request to its handler: the table in table.h, and the checks for all requests. */
#include <stddef.h>
#include "table.h"

struct kind {
	const char *name;
	size_t at; /* offset of its member in the request */
	enum needs needs;
	int (*serve)(struct znsd *d, const struct call *x, struct reply *rep);
};

#define KIND(name, needs) { #name, offsetof(ZnsPb__Request, name), NEEDS_##needs, serve_##name },
static const struct kind kinds[] = { REQUESTS(KIND) };
#define NR_KINDS (sizeof(kinds) / sizeof(*kinds))
#undef KIND

/* Is the message or text there, or the bool there and true? */
static bool asked(const ZnsPb__Request *q, const struct kind *k)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(q->base.descriptor, k->name);
	const void *at = (const char *)q + k->at;

	if (f->type == PROTOBUF_C_TYPE_BOOL)
		return *(const protobuf_c_boolean *)((const char *)q + f->quantifier_offset) &&
		       *(const protobuf_c_boolean *)at;
	return *(void *const *)at != NULL;
}

/* Returns the number of things that the request asks for; *@k: the last of them. */
static int count_kinds(const ZnsPb__Request *q, const struct kind **k)
{
	int n = 0;

	for (size_t i = 0; i < NR_KINDS; i++) {
		if (!asked(q, &kinds[i]))
			continue;
		*k = &kinds[i];
		n++;
	}
	return n;
}

/* Finds the lease that the connection must have for the request. */
static int find_lease(struct znsd *d, const struct kind *k, struct call *x, struct zns_err *err)
{
	switch (k->needs) {
	case NEEDS_NOTHING:
		return 0;
	case NEEDS_DUMP:
		x->l = lease_of(d, x->conn);
		if (x->l && lease_admitted(x->l))
			return 0;
		return zns_fail(err, -EINVAL, "%s without a dump on this connection", k->name);
	case NEEDS_COMPACTION:
		x->l = lease_of(d, x->conn);
		if (x->l && x->l->kind == LEASE_COMPACT)
			return 0;
		return zns_fail(err, -EINVAL, "no compaction has begun on this connection");
	case NEEDS_MEMORY:
		x->l = lease_of(d, x->conn);
		if (x->l && x->l->kind == LEASE_MEMORY)
			return 0;
		return zns_fail(err, -EINVAL, "no memory context on this connection");
	case NEEDS_LEASE:
		x->l = lease_last(d, x->conn);
		if (x->l)
			return 0;
		return zns_fail(err, -EINVAL, "%s: no dump or restore has begun on this connection",
				k->name);
	}
	return -EINVAL;
}

int dispatch_check(struct zns_err *err)
{
	if (NR_KINDS + 1 == zns_pb__request__descriptor.n_fields) /* all kinds, and the version */
		return 0;
	return zns_fail(err, -ENOSYS, "this build of znsd has %zu handlers for %u requests",
			NR_KINDS, zns_pb__request__descriptor.n_fields - 1);
}

int dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *q, struct reply *rep)
{
	struct call x = { .conn = c, .q = q };
	const struct kind *k = NULL;
	int n = count_kinds(q, &k), ret;

	rep->r.has_device = 1;
	rep->r.device.data = d->reg.uuid;
	rep->r.device.len = ZNS_UUID_LEN;
	rep->r.encryption = (ZnsPb__Encryption *)wanted_encryption(d);
	if (q->version != ZNS_BROKER_VERSION) {
		rep->hangup = true;
		return zns_fail(
			&rep->err, -EPROTO,
			"the broker of %s (PID %d) speaks version %d, the client %u: they are of different builds; when no dump or restore runs, `kill %d`, and the next command starts a broker of its own build",
			d->reg.path, (int)getpid(), ZNS_BROKER_VERSION, q->version, (int)getpid());
	}
	if (d->freed) /* first: this may change the store, and answers point into it */
		waiters_run(d);
	if (!n)
		return 0;
	if (n > 1)
		return zns_fail(&rep->err, -EINVAL,
				"a request must have exactly one member set, this one has %d", n);
	ret = find_lease(d, k, &x, &rep->err);
	if (!ret)
		ret = k->serve(d, &x, rep);
	if (d->freed)
		waiters_run(d);
	return ret;
}
