/* SPDX-License-Identifier: GPL-2.0-only */
/* Page servers that write to zones or read from zones. See include/zns-img.h. */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "common/list.h"
#include "cr_options.h"
#include "image.h"
#include "log.h"
#include "page.h"
#include "pagemap.h"
#include "xmalloc.h"
#include "zns-img.h"
#include "zns-send.h"
#include "zns-state.h"
#include "zns-wire.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/*
 * bytes; a request of uffd.c may be larger, so it is read and sent in pieces of this size: the
 * helper reads ahead meanwhile
 */
#define SERVE_MAX (1UL << 20)

struct source {
	struct list_head l;
	unsigned long pid;
	struct page_read pr;
};

static LIST_HEAD(sources);

int zns_serve_begin(bool of_dump)
{
	if (of_dump) /* the page server of a dump reads its pages from pipes */
		return 0;
	if (!opts.lazy_pages)
		return zns_receive_begin();
	if (zns_restore_begin())
		return -1;
	zns_session.serves = zns_active();
	return 0;
}

int zns_serve_commit(void (*close)(void))
{
	if (!zns_active())
		return 0;
	close();
	return zns_dump_commit(0) ? -EIO : 0;
}

int zns_serve_word(unsigned long id)
{
	const uint8_t *ids = zns_session.receiving ? (const uint8_t *)&zns_session.ids : NULL;
	unsigned long n = id - ZNS_WHO, bit;
	int word = 0;

	if (!ids || id < ZNS_WHO || n > ZNS_WHO_WORDS)
		return -1;
	if (!n)
		return ZNS_WHO_IS_ZNS;
	for (bit = (n - 1) * ZNS_WHO_BITS; bit < n * ZNS_WHO_BITS; bit++)
		if (bit < 2 * ZW_ID * 8 && ids[bit / 8] >> bit % 8 & 1)
			word |= 1 << bit % ZNS_WHO_BITS;
	return word;
}

static struct source *find_source(unsigned long pid)
{
	struct source *s;

	list_for_each_entry(s, &sources, l)
		if (s->pid == pid)
			return s;
	s = xzalloc(sizeof(*s));
	if (!s)
		return NULL;
	s->pid = pid;
	if (open_page_read(pid, &s->pr, PR_TASK) <= 0) {
		pr_err("There are no pages of process %lu\n", pid);
		xfree(s);
		return NULL;
	}
	list_add(&s->l, &sources);
	return s;
}

void *zns_serve_read(unsigned long pid, unsigned long vaddr, unsigned long *nr_pages)
{
	static void *buf;
	struct source *s = find_source(pid);
	unsigned long nr = min(*nr_pages, SERVE_MAX / PAGE_SIZE), rest;

	if (!s)
		return NULL;
	if (!buf) {
		buf = mmap(NULL, SERVE_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
		if (buf == MAP_FAILED) {
			pr_perror("No memory for pages");
			buf = NULL;
			return NULL;
		}
	}
	s->pr.reset(&s->pr);
	if (!nr || s->pr.seek_pagemap(&s->pr, vaddr) <= 0) {
		pr_err("There is no page at %lx of process %lu\n", vaddr, pid);
		return NULL;
	}
	rest = (s->pr.pe->vaddr + pagemap_len(s->pr.pe) - vaddr) / PAGE_SIZE;
	nr = min(nr, rest);
	if (s->pr.read_pages(&s->pr, vaddr, nr, buf, 0) < 0)
		return NULL;
	*nr_pages = nr;
	return buf;
}
