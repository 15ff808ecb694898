/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table that says which pages of which image make up a unit. It is written before any unit is
 * read, and never changed afterwards.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "origin_int.h"
#include "zns/grow.h"
#include "zns/util.h"

#define MAGIC "ZNSORIG1"
#define PAGE 4096ULL
#define UNIT ((uint64_t)ZNS_PAGES_UNIT)
#define UNIT_RECORDS 16u
#define TABLE (ORIGIN_HEAD + (size_t)ORIGIN_RECORDS * sizeof(struct origin_record))

_Static_assert(sizeof(struct origin_record) == 16, "the same for all pagers");

static int map(struct origin_table *t)
{
	void *at = mmap(NULL, TABLE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, t->fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	madvise(at, TABLE, MADV_DONTDUMP);
	t->head = at;
	t->r = (struct origin_record *)((char *)at + ORIGIN_HEAD);
	return 0;
}

int origin_table_new(struct origin_table *t)
{
	int ret;

	*t = (struct origin_table){ .fd = memfd_create("zns-mem origin", MFD_CLOEXEC) };
	if (t->fd < 0 || ftruncate(t->fd, (off_t)TABLE))
		return -errno;
	ret = map(t);
	if (!ret)
		memcpy(t->head->magic, MAGIC, sizeof(t->head->magic));
	return ret;
}

int origin_table_take(struct origin_table *t, int fd)
{
	struct stat st;
	int ret;

	*t = (struct origin_table){ .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3) };
	if (t->fd < 0 || fstat(t->fd, &st))
		return -errno;
	ret = st.st_size == (off_t)TABLE ? map(t) : -EPROTO;
	if (ret)
		return ret;
	return !memcmp(t->head->magic, MAGIC, sizeof(t->head->magic)) &&
			       t->head->nr <= ORIGIN_RECORDS ?
		       0 :
		       -EPROTO;
}

void origin_table_free(struct origin_table *t)
{
	if (t->head)
		munmap(t->head, TABLE);
	if (t->fd >= 0)
		close(t->fd);
	*t = (struct origin_table){ .fd = -1 };
}

static bool sound(const struct zns_origin_part *v, uint64_t size, uint64_t after)
{
	return !((v->off | v->base | v->len) % PAGE) && v->len && v->off <= size &&
	       v->len <= size - v->off && v->base >= after && v->base < 1ULL << 47 &&
	       v->len <= (1ULL << 47) - v->base;
}

struct making {
	struct origin_table *t;
	struct zns_mem_given *u;
	size_t nr, max;
};

/* Adds one page. Pages must be added in address order. */
static int add_page(struct making *m, uint32_t image, uint64_t page, uint64_t addr)
{
	struct origin_table *t = m->t;
	struct origin_record *last = t->head->nr ? &t->r[t->head->nr - 1] : NULL;
	uint16_t bit = (uint16_t)(1U << addr / PAGE % UNIT_RECORDS);
	bool same = m->nr && m->u[m->nr - 1].addr == addr / UNIT * UNIT;

	if (same && last->first + (unsigned int)__builtin_popcount(last->pages) == page) {
		last->pages |= bit;
		m->u[m->nr - 1].pages |= bit;
		return 0;
	}
	if (t->head->nr == ORIGIN_RECORDS)
		return -ENOSPC;
	if (!same) {
		int ret = zns_grow(m->u, m->nr, m->max);

		if (ret)
			return ret;
		m->u[m->nr++] = (struct zns_mem_given){ .addr = addr / UNIT * UNIT,
							.place = ZNS_MEM_ORIGIN | t->head->nr };
	} else {
		last->more = 1;
	}
	m->u[m->nr - 1].pages |= bit;
	t->r[t->head->nr++] = (struct origin_record){ page, image, bit, 0 };
	return 0;
}

int origin_table_add(struct origin_table *t, uint32_t image, uint64_t size,
		     const struct zns_origin_part *v, size_t nr, struct zns_mem_given **out,
		     size_t *nr_out, struct zns_err *err)
{
	struct making m = { .t = t };
	uint32_t had = t->head->nr;
	uint64_t after = 0;
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		if (!sound(&v[i], size, after))
			ret = -EPROTO;
		for (uint64_t at = 0; !ret && at < v[i].len; at += PAGE)
			ret = add_page(&m, image, (v[i].off + at) / PAGE, v[i].base + at);
		after = v[i].base + v[i].len;
	}
	if (ret) {
		t->head->nr = had;
		free(m.u);
		return ret == -EPROTO ?
			       zns_fail(err, ret, "an impossible list of pages to come") :
			       zns_fail_sys(err, ret, "cannot add a list of pages to come");
	}
	*out = m.u;
	*nr_out = m.nr;
	return 0;
}

uint32_t origin_table_find(const struct origin_table *t, uint64_t place,
			   const struct origin_record **out)
{
	uint64_t n = place & ~ZNS_MEM_ORIGIN;
	uint32_t nr = 1;

	if (!zns_origin_has(place) || n >= t->head->nr)
		return 0;
	*out = &t->r[n];
	while (nr < UNIT_RECORDS && t->r[n + nr - 1].more && n + nr < t->head->nr)
		nr++;
	return nr;
}
