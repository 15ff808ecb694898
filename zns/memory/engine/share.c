/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A context whose budget is a share of the machine's DRAM. Once a second it publishes its state for
 * the other contexts, and moves its budget a step towards its share (dram.h, lines.h).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "../policy/hiber.h"
#include "../policy/lines.h"

#define TURN_NS 1000000000ULL
/* A turn takes one second longer for each 128 contexts, since each pager reads the lines of all. */
#define TURN_LINES 128U
#define AGES_NS 5000000000ULL /* ns between two checks of ages in a context that evicts nothing */
#define LATELY 8U /* number of turns over which recent reads are forgotten */

struct share {
	struct lines lines;
	/* lately: bytes that were read back recently, weighted by age. */
	uint64_t turned_ns, read_units, stall_ns, lately;
	uint32_t stall_permille;
	unsigned int nr; /* lines of all contexts, as they were read last */
	struct dram_line all[LINES_MAX];
	uint64_t part[LINES_MAX];
};

int zns_mem_auto(struct zns_mem *m, int dir, uint64_t total, uint64_t min, struct zns_err *err)
{
	struct share *s = calloc(1, sizeof(*s));
	int ret = s ? lines_open(&s->lines, dir, err) : zns_fail(err, -ENOMEM, "out of memory");

	if (ret) {
		free(s);
		return ret;
	}
	if (total) { /* if 0, the predecessor's values stay */
		m->sh->auto_total = total;
		m->sh->auto_min = zns_max(min, MIB(1));
	}
	m->share = s;
	hiber_rouse(m);
	return 0;
}

bool zns_mem_is_auto(const struct zns_mem *m)
{
	return m->sh->auto_total;
}

void share_close(struct zns_mem *m)
{
	if (m->share)
		lines_close(&m->share->lines);
	free(m->share);
	m->share = NULL;
}

/*
 * Parses "some avg10=1.23 ...". Returns hundredths of a percent; 0: the kernel does not report it.
 */
static uint32_t pressure(void)
{
	cleanup_free uint8_t *text = NULL;
	unsigned int whole = 0, part = 0;
	size_t len;

	if (zns_read_file(AT_FDCWD, "/proc/pressure/memory", 4096, &text, &len) ||
	    sscanf((char *)text, "some avg10=%u.%2u", &whole, &part) != 2)
		return 0;
	return zns_min(whole, 100U) * 100 + part;
}

static void tell(struct zns_mem *m, struct share *s, uint64_t past)
{
	struct dram_line l = { .min = m->sh->auto_min, .total = m->sh->auto_total };
	uint64_t units = m->sh->read_units, stall = m->stall_ns, goes = 0;
	struct proc *list[PROCS_MAX];
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++)
		l.resident += proc_resident(list[i]);
	if (!hiber_rests(m)) {
		if (zns_mono_ns() - m->heat_ns >= (s->lately ? TURN_NS : AGES_NS))
			look_at_ages(m, list, nr);
		l.heat = m->heat;
	}
	for (unsigned int i = 0; i < nr; i++)
		proc_put(list[i]);
	for (unsigned int b = 0; b < HEAT_BUCKETS; b++)
		goes += l.heat.bytes[b];
	l.stays = l.resident - zns_min(goes, l.resident);
	s->lately += (units - s->read_units) * UNIT;
	/*
	 * also count units that were read back lately: they compete with memory of other contexts
	 * of the same age
	 */
	l.heat.bytes[heat_bucket(m->age_ms)] += zns_min(s->lately, l.resident / 2);
	s->lately -= s->lately / LATELY + zns_min(s->lately, UNIT);
	s->stall_permille = (uint32_t)((s->stall_permille + (stall - s->stall_ns) * 1000 / past) /
				       2);
	l.stall_permille = s->stall_permille;
	s->read_units = units;
	s->stall_ns = stall;
	l.pressure = pressure();
	lines_write(&s->lines, &l);
}

void share_turn(struct zns_mem *m)
{
	struct share *s = m->share;
	uint64_t past = s ? zns_mono_ns() - s->turned_ns : 0, total;
	unsigned int nr, own = LINES_MAX;

	if (!s || past < TURN_NS * (1 + s->nr / TURN_LINES) || !m->sh->auto_total)
		return;
	tell(m, s, past);
	s->turned_ns = zns_mono_ns();
	nr = s->nr = lines_read(&s->lines, s->all, &own);
	if (hiber_rests(m) || own >= nr)
		return;
	total = dram_total(s->all, nr);
	dram_divide(s->all, nr, total, s->part);
	m->sh->dram = zns_max(dram_step(m->sh->dram, s->part[own], s->all, nr, total), MIB(1));
}
