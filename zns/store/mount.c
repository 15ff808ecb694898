/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One machine at a time: the mount record says who writes the store, and refuses the second comer by name. Who goes on
 * beside us all the same is found by alone.c.
 */
#include <string.h>
#include <unistd.h>
#include "store_int.h"
#include "zns/pbcopy.h"

const ZnsPb__Mount *zns_store_mount(const struct zns_store *s)
{
	return s->st.mount;
}

int zns_store_mine(const struct zns_store *s, const char *machine, struct zns_err *err)
{
	const ZnsPb__Mount *have = s->st.mount;
	char when[32];

	/* The same machine after a crash or a reboot goes on by itself. */
	if (!have || have->released || !strcmp(have->machine, machine))
		return 0;
	return zns_fail(err, -EBUSY, "%s is in use by host %s since %s; if that host no longer has it: znsctl register --take-over %s",
			s->dev->path, have->host, zns_format_time(have->since_ns, when, sizeof(when)), s->dev->path);
}

int zns_store_claim(struct zns_store *s, const ZnsPb__Mount *m, struct zns_err *err)
{
	ZnsPb__Mount *copy;
	int rc = zns_check_mount(m, -EINVAL, err);

	if (rc)
		return rc;
	if (s->claim)
		zns_pb__mount__free_unpacked(s->claim, NULL);
	s->claim = NULL;
	if (s->st.mount && !s->st.mount->released && !m->released && !strcmp(s->st.mount->machine, m->machine) &&
	    !strcmp(s->st.mount->boot, m->boot))
		return 0;
	copy = zns_pb_copy(&m->base, err);
	s->claim = copy;
	return copy ? 0 : -ENOMEM;
}

int zns_store_claim_now(struct zns_store *s, struct zns_err *err)
{
	ZnsPb__Mount *m = s->claim;
	int rc;

	if (!m)
		return 0;
	s->claim = NULL;	/* else it would be written twice */
	rc = zns_store_append(s, ZNS_FRAME_MOUNT, &m->base, err);
	if (rc)
		s->claim = m;
	else
		zns_state_set_mount(&s->st, m);
	return rc;
}

int zns_store_unclaim(struct zns_store *s, struct zns_err *err)
{
	ZnsPb__Mount *m;
	int rc;

	if (s->claim) {		/* nothing was changed, so nothing was claimed */
		zns_pb__mount__free_unpacked(s->claim, NULL);
		s->claim = NULL;
		return 0;
	}
	if (!s->st.mount || s->st.mount->released)
		return 0;
	m = zns_pb_copy(&s->st.mount->base, err);
	if (!m)
		return -ENOMEM;
	m->released = true;
	rc = zns_store_append(s, ZNS_FRAME_MOUNT, &m->base, err);
	if (rc)
		zns_pb__mount__free_unpacked(m, NULL);
	else
		zns_state_set_mount(&s->st, m);
	return rc;
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
