/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A conventional drive: pages of 4 KiB, dealt to the dies in order of arrival. Its times are booked
 * with the calendars and costs of the emulator's model.
 *
 * A write goes over the channel into the buffer; it is done when the buffer has it. Each die
 * programs its share in order, and collects garbage when few of its blocks are free. With
 * idle-blocks=N it collects before, in the time in which it has nothing to do, until so many are
 * free; it puts that off at once when a request comes.
 *
 * A read occupies the die that has the page, then the channel; what was never written costs the
 * command alone. A flush ends when all that was accepted is programmed. Discarded pages are free at
 * once.
 *
 * Two requests at the same pages in flight are not ordered, as with NVMe.
 */
#include <errno.h>
#include <stdlib.h>

#include "../../zns/dev/emu/emu_priv.h"
#include "drive.h"
#include "ftl.h"

#define GC_MAX 64 /* blocks collected for one write */

struct lane {
	struct emu_cal cal;
	uint64_t *slot; /* for each place of the buffer: when its page will be programmed */
	uint64_t slots; /* slots used so far */
	uint64_t seen_ns; /* the die's idle time is counted up to this time */
	/* idle time that was not spent on garbage yet; below 0: spent in advance */
	int64_t idle_ns;
};

struct conventional {
	struct drive d;
	struct ftl ftl;
	struct lane *die;
	struct emu_cal *channel;
	uint64_t program_ns, sense_ns, move_ns, erase_ns, command_ns;
	uint64_t programmed_ns; /* when the last of all programs is on the medium */
	uint64_t gc_ns, idle_gc_ns; /* time of dies: while requests waited, and while none did */
};

/* Copies stay on the die: they cost a sense and a program each, and no channel. */
static uint64_t copies_ns(const struct conventional *c, uint32_t moved)
{
	return moved * (c->sense_ns + c->program_ns) + c->erase_ns;
}

static void collect_idle(struct conventional *c, uint32_t die, uint64_t at)
{
	struct lane *l = &c->die[die];
	uint64_t from = zns_max(emu_cal_idle_from(&l->cal), l->seen_ns);
	uint32_t moved;

	if (at > from)
		l->idle_ns += (int64_t)(at - from);
	l->seen_ns = zns_max(at, l->seen_ns);
	while (l->idle_ns > 0 && c->ftl.die[die].nr_free < c->d.p.idle_blocks &&
	       ftl_collect(&c->ftl, die, &moved)) {
		l->idle_ns -= (int64_t)copies_ns(c, moved);
		c->idle_gc_ns += copies_ns(c, moved);
	}
	/* idle time that is not used is lost */
	l->idle_ns = zns_min(l->idle_ns, (int64_t)0);
}

static void collect(struct conventional *c, uint32_t die, uint64_t at)
{
	struct emu_cal *cal = &c->die[die].cal;
	uint32_t moved;

	for (int i = 0; i < GC_MAX && ftl_wants_gc(&c->ftl, die); i++) {
		uint64_t ns;

		if (!ftl_collect(&c->ftl, die, &moved))
			break;
		ns = copies_ns(c, moved);
		emu_cal_book(cal, zns_max(at, emu_cal_idle_from(cal)), ns);
		c->gc_ns += ns;
	}
}

/* One page; returns when the buffer has it. */
static uint64_t write_page(struct conventional *c, uint32_t page, uint64_t at)
{
	uint32_t die = ftl_turn(&c->ftl);
	struct lane *l = &c->die[die];
	uint64_t *slot = &l->slot[l->slots++ % c->d.p.buffer_pages];
	uint64_t accept = zns_max(at, *slot), ready;
	struct emu_cal *channel = &c->channel[die % c->d.p.emu.channels];

	ready = emu_cal_book(channel, accept, c->move_ns) + c->move_ns;
	collect_idle(c, die, ready);
	collect(c, die, ready);
	if (!ftl_program(&c->ftl, die, page)) {
		fprintf(stderr, "drive: die %u has no room\n", die);
		abort();
	}
	/* in order, since a die has one open block */
	*slot = emu_cal_book(&l->cal, zns_max(ready, emu_cal_idle_from(&l->cal)), c->program_ns) +
		c->program_ns;
	c->programmed_ns = zns_max(c->programmed_ns, *slot);
	return ready;
}

static uint64_t read_page(struct conventional *c, uint32_t page, uint64_t at)
{
	uint32_t die = ftl_die_of(&c->ftl, page);
	uint64_t ready;

	if (die == FTL_NONE)
		return at;
	ready = emu_cal_book(&c->die[die].cal, at, c->sense_ns) + c->sense_ns;
	return emu_cal_book(&c->channel[die % c->d.p.emu.channels], ready, c->move_ns) + c->move_ns;
}

static uint64_t conv_write(struct drive *d, uint64_t off, uint32_t len, uint64_t now)
{
	struct conventional *c = (struct conventional *)d;
	uint64_t at = now + c->command_ns, done = at;
	uint32_t first = (uint32_t)(off / DRIVE_PAGE),
		 last = (uint32_t)((off + len - 1) / DRIVE_PAGE);

	for (uint32_t page = first; page <= last; page++) {
		uint64_t start = page * (uint64_t)DRIVE_PAGE, ready = at, end;

		/* the rest of a page comes from the medium */
		if (start < off || start + DRIVE_PAGE > off + len)
			ready = read_page(c, page, at);
		end = write_page(c, page, ready);
		done = zns_max(done, end);
	}
	return done;
}

static uint64_t conv_read(struct drive *d, uint64_t off, uint32_t len, uint64_t now)
{
	struct conventional *c = (struct conventional *)d;
	uint64_t at = now + c->command_ns, done = at;

	for (uint64_t page = off / DRIVE_PAGE; page * DRIVE_PAGE < off + len; page++) {
		uint64_t end = read_page(c, (uint32_t)page, at);

		done = zns_max(done, end);
	}
	return done;
}

static uint64_t conv_flush(struct drive *d, uint64_t now)
{
	struct conventional *c = (struct conventional *)d;

	return zns_max(now + c->command_ns, c->programmed_ns);
}

static uint64_t conv_discard(struct drive *d, uint64_t off, uint64_t len, uint64_t now)
{
	struct conventional *c = (struct conventional *)d;

	for (uint64_t at = zns_align_up(off, DRIVE_PAGE); at + DRIVE_PAGE <= off + len;
	     at += DRIVE_PAGE)
		ftl_unmap(&c->ftl, (uint32_t)(at / DRIVE_PAGE));
	return now + c->command_ns;
}

static void conv_stats(struct drive *d, FILE *f)
{
	struct conventional *c = (struct conventional *)d;
	uint64_t programmed = 0, copied = 0, erased = 0;

	for (uint32_t i = 0; i < c->ftl.nr_dies; i++) {
		programmed += c->ftl.die[i].programmed;
		copied += c->ftl.die[i].copied;
		erased += c->ftl.die[i].erased;
	}
	fprintf(f, "\"programmed\": %llu, \"copied\": %llu, \"erased_blocks\": %llu, ",
		(unsigned long long)programmed * DRIVE_PAGE,
		(unsigned long long)copied * DRIVE_PAGE, (unsigned long long)erased);
	fprintf(f,
		"\"gc_busy_ns\": %llu, \"gc_idle_ns\": %llu, \"write_amplification\": %.4f, \"dies\": [",
		(unsigned long long)c->gc_ns, (unsigned long long)c->idle_gc_ns,
		programmed ? (double)(programmed + copied) / (double)programmed : 0.0);
	for (uint32_t i = 0; i < c->ftl.nr_dies; i++)
		fprintf(f, "%s{\"busy_ns\": %llu}", i ? ", " : "",
			(unsigned long long)c->die[i].cal.busy_ns);
	fprintf(f, "], ");
}

static void conv_close(struct drive *d)
{
	struct conventional *c = (struct conventional *)d;

	for (uint32_t i = 0; c->die && i < d->p.emu.channels * d->p.emu.ways; i++)
		free(c->die[i].slot);
	free(c->die);
	free(c->channel);
	ftl_map_free(&c->ftl);
	free(c);
}

static const struct drive_ops conv_ops = {
	.write = conv_write,
	.read = conv_read,
	.flush = conv_flush,
	.discard = conv_discard,
	.stats = conv_stats,
	.close = conv_close,
};

/* Fills the drive as if the host had written to it before. Takes no time, and is not counted. */
static int fill(struct conventional *c, struct zns_err *err)
{
	uint64_t seed = c->d.p.emu.map_seed + 1, writes = c->ftl.nr_pages;
	uint32_t moved;

	if (c->d.p.filled == DRIVE_EMPTY)
		return 0;
	if (c->d.p.filled == DRIVE_RANDOM)
		writes += 3ull * c->ftl.nr_pages;
	for (uint64_t i = 0; i < writes; i++) {
		uint32_t die = ftl_turn(&c->ftl);
		uint32_t page = i < c->ftl.nr_pages ?
					(uint32_t)i :
					(uint32_t)(emu_random(&seed) % c->ftl.nr_pages);

		while (ftl_wants_gc(&c->ftl, die) && ftl_collect(&c->ftl, die, &moved))
			;
		if (!ftl_program(&c->ftl, die, page))
			return zns_fail(err, -ENOSPC, "too little over-provisioning");
	}
	for (uint32_t i = 0; i < c->ftl.nr_dies; i++)
		c->ftl.die[i].programmed = c->ftl.die[i].copied = c->ftl.die[i].erased = 0;
	return 0;
}

static int make_lanes(struct conventional *c, uint32_t dies)
{
	c->die = calloc(dies, sizeof(*c->die));
	c->channel = calloc(c->d.p.emu.channels, sizeof(*c->channel));
	if (!c->die || !c->channel)
		return -ENOMEM;
	for (uint32_t i = 0; i < dies; i++) {
		c->die[i].slot = calloc(c->d.p.buffer_pages, sizeof(*c->die[i].slot));
		if (!c->die[i].slot)
			return -ENOMEM;
	}
	return 0;
}

int drive_ftl_open(const struct drive_params *p, struct drive **out, struct zns_err *err)
{
	struct conventional *c = calloc(1, sizeof(*c));
	uint32_t dies = p->emu.channels * p->emu.ways;
	int ret;

	if (!c)
		return zns_fail(err, -ENOMEM, "no memory");
	c->d.ops = &conv_ops;
	c->d.p = *p;
	c->program_ns = emu_cost_ns(DRIVE_PAGE, p->emu.die_write_mibps);
	c->sense_ns = emu_cost_ns(DRIVE_PAGE, p->emu.die_read_mibps);
	c->move_ns = emu_cost_ns(DRIVE_PAGE, p->emu.channel_mibps);
	c->erase_ns = p->erase_us * UINT64_C(1000);
	c->command_ns = p->emu.command_us * UINT64_C(1000);
	ret = make_lanes(c, dies);
	if (ret)
		zns_fail(err, ret, "no memory");
	if (!ret)
		ret = ftl_map_new(&c->ftl, (uint32_t)(p->size / DRIVE_PAGE), dies, p->block_pages,
				  p->spare_pct, err);
	if (!ret)
		ret = fill(c, err);
	if (ret)
		conv_close(&c->d);
	else
		*out = &c->d;
	return ret;
}
