/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Power cuts: the device fails for every process, and comes back with what survived. */
#include "control.h"

static struct emu_cut *cut_of(const struct emu *e)
{
	return (struct emu_cut *)e->head->of_tests;
}

int emu_check_power(struct emu *e, struct zns_err *err)
{
	if (emu_load(&cut_of(e)->cut))
		return zns_fail(
			err, -EIO,
			"%s lost its power (injected): close it everywhere and open it anew",
			e->dev.path);
	return 0;
}

void control_cut_power(struct emu *e, enum zns_emu_loss loss, uint64_t seed)
{
	emu_store(&cut_of(e)->loss, loss);
	emu_store(&cut_of(e)->seed, seed);
	emu_store(&cut_of(e)->cut, 1);
}

/*
 * Chooses how much of a zone's unflushed changes reached the medium, from @from (durable) to all of
 * @to. Data arrives in order, and a finish comes last. The seed includes the zone's number, so
 * other zones do not matter.
 */
static void survive(const struct emu *e, struct emu_change *ch, const struct emu_entry *from,
		    enum zns_emu_loss loss, uint64_t seed)
{
	uint64_t state = seed ^ (UINT64_C(0x5bf0363500000001) * (ch->zone + 1)), kind, blocks;

	if (loss == ZNS_EMU_LOSE_NOTHING)
		return;
	kind = loss == ZNS_EMU_LOSE_SEEDED ? emu_random(&state) % 4 : 0;
	if (kind == 1) /* one in four keeps all, one in four loses all */
		return;
	blocks = kind ? emu_random(&state) % ((ch->to.wp - from->wp) / emu_block(e, ch->zone) + 1) :
			0;
	ch->to.wp = from->wp + blocks * emu_block(e, ch->zone);
	if (!(from->flags & EMU_F_FINISHED))
		ch->to.flags &= ~EMU_F_FINISHED;
}

static int settle(struct emu *e, enum zns_emu_loss loss, uint64_t seed, struct zns_err *err)
{
	cleanup_free struct emu_change *ch = NULL;
	size_t nr;
	int rc = emu_table_unflushed(e, &ch, &nr);

	if (rc)
		return zns_fail(err, rc, "out of memory");
	if (!nr || loss == ZNS_EMU_LOSE_ALL)
		return 0;
	for (size_t i = 0; i < nr; i++)
		survive(e, &ch[i], &e->mirror[ch[i].zone], loss, seed);
	/* the survivors are on the medium: a second cut must not take them */
	rc = emu_sync(e, err);
	if (!rc)
		rc = emu_durable_lock(e, err);
	if (rc)
		return rc;
	rc = emu_durable_commit(e, ch, nr, err);
	emu_durable_unlock(e);
	return rc;
}

/* The caller is alone. */
static int power_on(struct emu *e, enum zns_emu_loss loss, uint64_t seed, struct zns_err *err)
{
	int rc = settle(e, loss, seed, err);

	return rc ? rc : emu_table_rebuild(e, err);
}

/* Restores the power for the first opener when nobody else has the device open. */
int emu_power_back(struct emu *e, struct zns_err *err)
{
	int rc;

	if (!emu_load(&cut_of(e)->cut))
		return 0;
	if (e->fd_rdonly)
		return zns_fail(err, -EIO,
				"%s lost its power (injected): open it for writing first",
				e->dev.path);
	rc = emu_presence_wait_alone(e->fd);
	if (rc)
		return zns_fail(
			err, rc,
			"%s lost its power (injected) and another process still has it open: close it there first",
			e->dev.path);
	rc = power_on(e, cut_of(e)->loss, cut_of(e)->seed, err);
	return rc ? rc : emu_presence_share(e->fd, err);
}

int zns_emu_power_cut_losing(struct zns_dev *dev, enum zns_emu_loss loss, uint64_t seed,
			     struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc;

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	if ((unsigned)loss > ZNS_EMU_LOSE_SEEDED)
		return zns_fail(err, -EINVAL, "unknown loss %u", (unsigned)loss);
	rc = emu_check_writable(e, err);
	if (!rc)
		rc = emu_lock_init(e->fd, true, err);
	if (rc)
		return rc;
	rc = emu_presence_wait_alone(e->fd);
	if (rc) {
		rc = zns_fail(err, rc,
			      "%s is in use by another process: end that before cutting the power",
			      e->dev.path);
	} else {
		rc = power_on(e, loss, seed, err);
		emu_presence_share(e->fd, NULL);
	}
	emu_unlock_init(e->fd);
	return rc;
}

int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err)
{
	return zns_emu_power_cut_losing(dev, ZNS_EMU_LOSE_ALL, 0, err);
}
