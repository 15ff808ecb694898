/* SPDX-License-Identifier: GPL-2.0-only */
/* Passes a request to its handler: looks it up in the table in table.h, and makes the checks that
 * all requests need. */
#include <string.h>
#include "table.h"

static int need_dump(const struct znsd *d, struct call *x, struct zns_err *err)
{
	x->l = lease_of(d, x->conn);
	if (x->l && lease_admitted(x->l))
		return 0;
	return zns_fail(err, -EINVAL, "%s without a dump on this connection", x->name);
}

static int need_compaction(const struct znsd *d, struct call *x, struct zns_err *err)
{
	x->l = lease_of(d, x->conn);
	if (x->l && x->l->kind == LEASE_COMPACT)
		return 0;
	return zns_fail(err, -EINVAL, "no compaction has begun on this connection");
}

static int need_lease(const struct znsd *d, struct call *x, struct zns_err *err)
{
	x->l = lease_last(d, x->conn);
	if (x->l)
		return 0;
	return zns_fail(err, -EINVAL, "%s: no dump or restore has begun on this connection",
			x->name);
}

#define need_nothing NULL
#define KIND(name, needs) { #name, needs, serve_##name },
static const struct request_kind own[] = { REQUESTS(KIND) };
#undef KIND

#define PACKAGES_MAX 4
static struct {
	const struct request_kind *kinds;
	size_t nr;
} packages[PACKAGES_MAX] = { { own, ZNS_ARRAY_SIZE(own) } };
static size_t nr_packages = 1;

void dispatch_register(const struct request_kind *kinds, size_t nr)
{
	if (nr_packages == PACKAGES_MAX)
		abort();
	packages[nr_packages].kinds = kinds;
	packages[nr_packages++].nr = nr;
}

static const struct request_kind *kind_of(const char *name)
{
	for (size_t p = 0; p < nr_packages; p++)
		for (size_t i = 0; i < packages[p].nr; i++)
			if (!strcmp(packages[p].kinds[i].name, name))
				return &packages[p].kinds[i];
	return NULL;
}

/* Does the request have this member: a message or text that is present, or a bool that is true? */
static bool asked(const ZnsPb__Request *q, const ProtobufCFieldDescriptor *f)
{
	const void *at = (const char *)q + f->offset;

	/* the version, what the sender's build can, and which checkpoints `ls` lists */
	if (f->label == PROTOBUF_C_LABEL_REQUIRED ||
	    f->offset == offsetof(ZnsPb__Request, follows) ||
	    f->offset == offsetof(ZnsPb__Request, only))
		return false;
	if (f->type == PROTOBUF_C_TYPE_BOOL)
		return *(const protobuf_c_boolean *)((const char *)q + f->quantifier_offset) &&
		       *(const protobuf_c_boolean *)at;
	return *(void *const *)at != NULL;
}

/* Returns how many members the request has set; *what: the last one. */
static int count_asked(const ZnsPb__Request *q, const char **what)
{
	const ProtobufCMessageDescriptor *m = q->base.descriptor;
	int n = 0;

	for (unsigned i = 0; i < m->n_fields; i++) {
		if (!asked(q, &m->fields[i]))
			continue;
		*what = m->fields[i].name;
		n++;
	}
	return n;
}

int dispatch_check(struct zns_err *err)
{
	for (size_t p = 0; p < nr_packages; p++)
		for (size_t i = 0; i < packages[p].nr; i++)
			if (!protobuf_c_message_descriptor_get_field_by_name(
				    &zns_pb__request__descriptor, packages[p].kinds[i].name))
				return zns_fail(err, -ENOSYS,
						"this build of znsd has no request %s",
						packages[p].kinds[i].name);
	return 0;
}

int dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *q, struct reply *rep)
{
	struct call x = { .conn = c, .q = q };
	int n = count_asked(q, &x.name), ret;
	const struct request_kind *k;

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
	/* do this first, because it may change the store, and answers point into it */
	if (d->freed)
		waiters_run(d);
	if (!n)
		return 0;
	if (n > 1)
		return zns_fail(&rep->err, -EINVAL,
				"a request must have exactly one member set, this one has %d", n);
	k = kind_of(x.name);
	if (!k)
		return zns_fail(&rep->err, -EOPNOTSUPP,
				"%s: the package that serves it is not in this build of znsd",
				x.name);
	ret = k->find ? k->find(d, &x, &rep->err) : 0;
	if (!ret)
		ret = k->serve(d, &x, rep);
	if (d->freed)
		waiters_run(d);
	return ret;
}
