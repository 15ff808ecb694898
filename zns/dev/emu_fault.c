/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Faults on purpose: failing writes and reads, worn-out zones, power cuts. By call, or for a whole program by
 * ZNS_EMU_FAULT="write-after=N,read-after=N", read when a device is opened. Counters are the process's own.
 */
#include <stdlib.h>
#include <string.h>

#include "emu_priv.h"

/* True for one caller: the one that finds 0. */
bool emu_fault_hits(_Atomic int64_t *after)
{
	int64_t v = atomic_load(after);

	while (v >= 0)
		if (atomic_compare_exchange_weak(after, &v, v - 1))
			return v == 0;
	return false;
}

int emu_fault_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_FAULT");
	char buf[128], *save = NULL;

	if (!env || !*env)
		return 0;
	if (strlen(env) >= sizeof(buf))
		goto bad;
	memcpy(buf, env, strlen(env) + 1);
	for (char *word = strtok_r(buf, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(word, '=');
		uint64_t n;

		/* a bare number: no unit letters here */
		if (!eq || strspn(eq + 1, "0123456789") != strlen(eq + 1) || zns_parse_size(eq + 1, &n) || n > INT64_MAX)
			goto bad;
		*eq = '\0';
		if (!strcmp(word, "write-after"))
			atomic_store(&e->fail_write_after, n);
		else if (!strcmp(word, "read-after"))
			atomic_store(&e->fail_read_after, n);
		else
			goto bad;
	}
	return 0;
bad:
	return zns_fail(err, -EINVAL, "ZNS_EMU_FAULT=\"%.64s\": should be \"write-after=N,read-after=N\"", env);
}

int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f)
{
	struct emu *e = emu_of(dev);

	if (dev->ops != &emu_ops)
		return -EMEDIUMTYPE;
	atomic_store(&e->fail_write_after, f->fail_write_after);
	atomic_store(&e->fail_read_after, f->fail_read_after);
	return 0;
}

static int not_emulated(const struct zns_dev *dev, struct zns_err *err)
{
	return zns_fail(err, -EMEDIUMTYPE, "%s is not an emulated device: this is for emulated devices only", dev->path);
}

/* Wear is the device's own and survives a power cut, unlike what was written: only the flags go to the disk. */
static int set_flags_locked(struct emu *e, uint32_t zone, uint32_t flags, struct zns_err *err)
{
	struct emu_entry *live = &e->live[zone];
	struct emu_change ch = { .zone = zone };
	int rc = emu_durable_lock(e, err);

	if (rc)
		return rc;
	emu_store(&live->flags, (live->flags & EMU_F_FINISHED) | flags);
	emu_store(&live->state, emu_load(&live->wp) ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY);
	ch.to = e->mirror[zone];
	ch.to.flags = (ch.to.flags & EMU_F_FINISHED) | flags;
	rc = emu_durable_commit(e, &ch, 1, err);
	emu_durable_unlock(e);
	return rc;
}

int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	uint32_t flags = 0;
	int rc;

	if (dev->ops != &emu_ops)
		return not_emulated(dev, err);
	switch (s) {
	case ZNS_ZONE_EMPTY:
		break;
	case ZNS_ZONE_READ_ONLY:
		flags = EMU_F_READ_ONLY;
		break;
	case ZNS_ZONE_OFFLINE:
		flags = EMU_F_OFFLINE;
		break;
	default:
		return zns_fail(err, -EINVAL, "zone %u cannot be put into state \"%s\": only read-only, offline or empty (back to normal)",
				zone, zns_zone_state_name(s));
	}
	rc = emu_check_writable(e, err);
	if (!rc)
		rc = emu_check_zone(e, zone, err);
	if (!rc)
		rc = emu_zone_lock(e, zone, err);
	if (rc)
		return rc;
	rc = set_flags_locked(e, zone, flags, err);
	emu_zone_unlock(e, zone);
	return rc;
}

int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc;

	if (dev->ops != &emu_ops)
		return not_emulated(dev, err);
	rc = emu_check_writable(e, err);
	if (!rc)
		rc = emu_lock_init(e->fd, true, err);
	if (rc)
		return rc;
	rc = emu_presence_try_alone(e->fd);
	if (rc) {
		rc = zns_fail(err, rc, "%s is in use by another process: end that before cutting the power", e->dev.path);
	} else {
		rc = emu_table_rebuild(e, err);
		emu_presence_share(e->fd, NULL);
	}
	emu_unlock_init(e->fd);
	return rc;
}
