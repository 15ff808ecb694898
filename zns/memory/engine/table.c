/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of a process: a struct unit for each 64 KiB of its address space, indexed by address,
 * in a sparse memfd. A page of the table is allocated when a unit in its 8 MiB is first accessed.
 * Behind the units are: the strays (units that mremap() has moved to an address that is no multiple
 * of 64 KiB; they are read back soon), the hashes of all units (stored apart, so that a scan of the
 * units touches little memory), a bit for each unit (unit_set_marked()), and the last moves.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "mem.h"

#define UNITS (1ULL << (47 - 16))
/* Bytes of the units and strays, most of which are never written. */
#define TABLE ((UNITS + STRAYS_MAX) * sizeof(struct unit))
/* Bytes of the hashes behind them. */
#define CHECKS ((UNITS + STRAYS_MAX) * sizeof(struct unit_check))
#define MARKS ((UNITS + STRAYS_MAX) / 8) /* bytes */
#define ALL (TABLE + CHECKS + MARKS + sizeof(struct moves))

uint32_t now_ms(void)
{
	uint32_t ms = (uint32_t)(zns_mono_ns() / 1000000);

	return ms ? ms : 1;
}

struct unit *unit_at(struct proc *p, uint64_t addr)
{
	return &p->u[(addr / UNIT) % UNITS];
}

uint64_t table_next(const struct proc *p, uint64_t addr, uint64_t end)
{
	off_t at = (off_t)(addr / UNIT * sizeof(struct unit));
	off_t data = lseek(p->table, at, SEEK_DATA);

	return data < 0 ? end : (uint64_t)data / sizeof(struct unit) * UNIT;
}

uint64_t table_step(const struct proc *p, uint64_t addr, uint64_t end)
{
	return (addr + UNIT) % MIB(8) ? addr + UNIT : table_next(p, addr + UNIT, end);
}

uint32_t pages_of(uint64_t base, uint64_t start, uint64_t end)
{
	uint64_t from = start > base ? (start - base) / PAGE : 0;
	uint64_t to = end > base ? (end - base + PAGE - 1) / PAGE : 0;

	to = zns_min(to, (uint64_t)UNIT_PAGES);
	return from >= to ? 0 : ((1U << to) - 1) & ~((1U << from) - 1);
}

bool next_run(uint32_t *pages, uint64_t base, struct range *r)
{
	unsigned int from, n = 0;

	if (!*pages)
		return false;
	from = (unsigned int)__builtin_ctz(*pages);
	while (*pages >> (from + n) & 1)
		n++;
	*pages &= ~(((1U << n) - 1) << from);
	*r = (struct range){ base + from * PAGE, base + (from + n) * PAGE };
	return true;
}

struct unit *stray_nr(struct proc *p, uint32_t i)
{
	return &p->u[UNITS + i];
}

struct unit *stray_at(struct proc *p, uint64_t addr)
{
	uint32_t nr = p->nr_strays;

	for (uint32_t i = 0; i < nr; i++) {
		struct unit *s = stray_nr(p, i);
		uint64_t base = s->addr;

		if (ON_ZONE(s->word) && addr >= base && addr < base + UNIT &&
		    s->pages & pages_of(base, addr, addr + PAGE))
			return s;
	}
	return NULL;
}

bool stray_near(struct proc *p, uint64_t start, uint64_t end)
{
	uint32_t nr = p->nr_strays;

	for (uint32_t i = 0; i < nr; i++) {
		struct unit *s = stray_nr(p, i);

		if (ON_ZONE(s->word) && s->addr < end && s->addr + UNIT > start)
			return true;
	}
	return false;
}

/* Only the reader of events calls this. */
struct unit *stray_new(struct proc *p, uint64_t addr)
{
	uint32_t nr = p->nr_strays, i = nr;
	struct unit *s;

	while (i && STATE(stray_nr(p, i - 1)->word) == U_RES)
		i--;
	if (i == STRAYS_MAX)
		return NULL;
	s = stray_nr(p, i);
	s->word = WORD(U_RES, 0);
	s->pages = 0;
	s->addr = addr;
	p->nr_strays = i + 1;
	return s;
}

struct zns_pages_ref unit_ref(struct proc *p, const struct unit *u, uint64_t word)
{
	struct zns_pages_ref ref = { .place = PLACE(word), .hash = u->hash };

	memcpy(ref.piece, p->checks[u - p->u].piece, sizeof(ref.piece));
	return ref;
}

void unit_note(struct proc *p, struct unit *u, const struct zns_pages_ref *ref)
{
	u->hash = ref->hash;
	memcpy(p->checks[u - p->u].piece, ref->piece, sizeof(ref->piece));
}

bool unit_move(struct unit *u, enum unit_state from, enum unit_state to)
{
	uint64_t old = WORD(from, 0);
	bool ok = atomic_compare_exchange_strong(&u->word, &old, WORD(to, 0));

	if (ok)
		mem_reached(to);
	return ok;
}

bool unit_unkeep(struct proc *p, struct unit *u, enum unit_state to)
{
	struct zns_mem_store *st = &p->m->store;
	uint64_t word = u->word;

	do { /* cleaning may change its place meanwhile */
		if (STATE(word) != U_CLEAN)
			return false;
	} while (!atomic_compare_exchange_strong(&u->word, &word, WORD(to, 0)));
	if (!p->uncounted)
		st->drop(st->arg, (struct zns_pages_ref){ .place = PLACE(word) });
	return true;
}

static uint64_t mark_bit(const struct proc *p, const struct unit *u, _Atomic uint64_t **word)
{
	uint64_t nr = (uint64_t)(u - p->u);

	*word = &p->marks[nr / 64];
	return 1ULL << nr % 64;
}

void unit_set_marked(const struct proc *p, const struct unit *u, bool marked)
{
	_Atomic uint64_t *word;
	uint64_t bit = mark_bit(p, u, &word);

	if (marked)
		*word |= bit;
	else if (*word & bit)
		*word &= ~bit;
}

bool unit_is_marked(const struct proc *p, const struct unit *u)
{
	_Atomic uint64_t *word;
	uint64_t bit = mark_bit(p, u, &word);

	return *word & bit;
}

void unit_stamp(struct unit *u)
{
	u->stamp = now_ms();
}

bool unit_came_lately(const struct unit *u, uint32_t ms)
{
	return u->stamp && !ON_ZONE(u->word) && now_ms() - u->stamp < ms;
}

int table_make(int *fd)
{
	*fd = memfd_create("zns-mem table", MFD_CLOEXEC);
	if (*fd < 0)
		return -errno;
	return ftruncate(*fd, (off_t)ALL) ? -errno : 0;
}

int table_map(struct proc *p)
{
	void *at = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->table, 0);

	if (at == MAP_FAILED)
		return -errno;
	madvise(at, ALL, MADV_DONTDUMP);
	p->u = at;
	p->checks = (struct unit_check *)(p->u + UNITS + STRAYS_MAX);
	p->marks = (_Atomic uint64_t *)(p->checks + UNITS + STRAYS_MAX);
	p->moves = (struct moves *)(p->marks + MARKS / sizeof(*p->marks));
	return 0;
}

void table_unmap(struct proc *p)
{
	if (p->u)
		munmap(p->u, ALL);
	p->u = NULL;
}

int table_each(struct proc *p,
	       int (*each)(struct proc *p, struct unit *u, uint64_t base, void *arg), void *arg)
{
	off_t at = 0, end = (off_t)TABLE;
	int ret = 0;

	while (!ret && at < end) {
		off_t data = lseek(p->table, at, SEEK_DATA), hole;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		if (data >= end)
			return 0;
		hole = lseek(p->table, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		hole = zns_min(hole, end);
		for (uint64_t i = (uint64_t)data / sizeof(struct unit);
		     !ret && i < (uint64_t)hole / sizeof(struct unit); i++) {
			struct unit *u = &p->u[i];

			if (u->word)
				ret = each(p, u, i < UNITS ? i * UNIT : u->addr, arg);
		}
		at = hole;
	}
	return ret;
}
