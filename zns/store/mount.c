/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Allows only one machine at a time to use a store. The mount record names the machine that writes
 * the store. Another machine is refused, and the message names the first. If another machine writes
 * nevertheless, alone.c notices it. */
#include <string.h>
#include <unistd.h>
#include "store_int.h"
#include "zns/pbcopy.h"

const ZnsPb__Mount *zns_store_mount(const struct zns_store *s)
{
	return zns_newest(&s->st.mount);
}

int zns_store_mine(const struct zns_store *s, const char *machine, struct zns_err *err)
{
	const ZnsPb__Mount *have = zns_newest(&s->st.mount);
	char when[32];

	/* The same machine may continue without a release, as after a crash or a reboot. */
	if (!have || have->released || !strcmp(have->machine, machine))
		return 0;
	return zns_fail(
		err, -EBUSY,
		"%s is in use by host %s since %s; if that host no longer has it: znsctl register --take-over %s",
		s->dev->path, have->host, zns_format_time(have->since_ns, when, sizeof(when)),
		s->dev->path);
}

int zns_store_claim(struct zns_store *s, const ZnsPb__Mount *m, struct zns_err *err)
{
	const ZnsPb__Mount *have = zns_newest(&s->st.mount);
	ProtobufCMessage *copy;
	int ret = zns_check_mount(m, -EINVAL, err);

	if (ret)
		return ret;
	zns_ent_free(s->claim);
	s->claim = NULL;
	if (have && !have->released && !m->released && !strcmp(have->machine, m->machine) &&
	    !strcmp(have->boot, m->boot))
		return 0;
	copy = zns_pb_copy(&m->base, err);
	s->claim = copy ? zns_state_ent(&s->st, copy, NULL, err) : NULL;
	return s->claim ? 0 : -ENOMEM;
}

int zns_mount_self(ZnsPb__Mount *m, struct zns_mount_names *n, struct zns_err *err)
{
	int ret = zns_machine_id(n->machine, err);

	if (!ret)
		ret = zns_boot_id(n->boot, err);
	if (ret)
		return ret;
	if (gethostname(n->host, sizeof(n->host) - 1) < 0 || !*n->host)
		strcpy(n->host, "(no name)");
	zns_pb__mount__init(m);
	m->machine = n->machine;
	m->boot = n->boot;
	m->host = n->host;
	m->since_ns = zns_now_ns();
	return 0;
}
