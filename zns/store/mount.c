/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One machine at a time. The mount record says who writes the store; it refuses the second comer by name. And whoever
 * goes on beside us all the same moves a write pointer of the metadata zones, which is looked at before each change: the
 * device itself keeps a log's two writers apart, a roll-over into another zone it would not.
 */
#include <string.h>
#include <unistd.h>
#include "store_int.h"

static bool comparable(const struct zns_zone *z)
{
	return !z->conventional && z->state != ZNS_ZONE_READ_ONLY && z->state != ZNS_ZONE_OFFLINE;
}

void zns_store_remember(struct zns_store *s)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *z = calloc(n, sizeof(*z));

	if (!s->seen_wp)
		s->seen_wp = calloc(n, sizeof(*s->seen_wp));
	if (!s->seen_wp)
		return;
	for (uint32_t i = 0; i < n; i++)
		s->seen_wp[i] = UINT64_MAX;
	if (!z || zns_dev_report(s->dev, s->first_meta, n, z, NULL))
		return;
	for (uint32_t i = 0; i < n; i++)
		if (comparable(&z[i]))
			s->seen_wp[i] = z[i].wp;
}

static int taken(struct zns_store *s, struct zns_err *err)
{
	s->foreign = true;
	return zns_fail(err, -ESTALE, "%s: somebody else writes its catalogue (another machine, or a program beside znsd): "
			"nothing was changed; see who with `znsctl status`", s->dev->path);
}

int zns_store_alone(struct zns_store *s, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *z = calloc(n, sizeof(*z));
	int rc;

	if (s->foreign)
		return taken(s, err);
	/* After a write of ours that failed half-way nobody knows; the roll that is due settles it. */
	if (!z || !s->seen_wp || s->need_roll)
		return z ? 0 : zns_fail(err, -ENOMEM, "no memory for %u metadata zones", n);
	rc = zns_dev_report(s->dev, s->first_meta, n, z, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t want = z[i].index == s->log.zone ? s->log.off : s->seen_wp[i];

		if (comparable(&z[i]) && want != UINT64_MAX && z[i].wp != want)
			return taken(s, err);
	}
	return 0;
}

int zns_store_lost(struct zns_store *s, int rc)
{
	s->foreign |= rc == -EBADE;
	return rc;
}

bool zns_store_foreign(const struct zns_store *s)
{
	return s->foreign;
}

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

uint64_t zns_store_claim_rec(const struct zns_store *s)
{
	return s->claim ? zns_state_rec(&s->st, &s->claim->base) : 0;
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
	copy = zns_store_copy(&m->base, err);
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
	m = zns_store_copy(&s->st.mount->base, err);
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
