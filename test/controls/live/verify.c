/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ZNS_LIVE_VERIFY=1: is what a live dump will commit what the frozen task has? Every page is hashed
 * when it is copied, and again in the freeze. The pages are those that the task has, whatever the
 * tracker says. This makes the freeze long.
 *
 * Pages are hashed in grains, because one thing may differ: the rseq areas
 * (stripe/write/unsteady.c). The parasite still runs when its thread's page is copied.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "../../../zns/helper/live/live.h"
#include "zns/flat.h"
#include "zns/grow.h"
#include "zns/pagemap.h"

/* bytes; rseq areas are aligned to it */
#define GRAIN 32u

struct live_verify {
	/* for each part, the hash of each of its grains */
	struct {
		uint32_t *hash;
		size_t nr, max;
	} part[LIVE_ROUNDS_MAX + 1];
	uint64_t wrong, missing, superfluous, first;
};

void live_verify_begin(struct live *l)
{
	const char *s = secure_getenv("ZNS_LIVE_VERIFY");

	if (!s || strcmp(s, "1"))
		return;
	l->verify = calloc(1, sizeof(*l->verify));
}

int live_verify_note(struct live *l, const uint8_t *buf, uint64_t len)
{
	struct live_verify *v = l->verify;
	uint32_t n = l->nr_parts - 1;

	for (uint64_t off = 0; v && off < len; off += GRAIN) {
		if (zns_grow(v->part[n].hash, v->part[n].nr, v->part[n].max))
			return -ENOMEM;
		v->part[n].hash[v->part[n].nr++] = (uint32_t)zns_hash(buf + off, GRAIN);
	}
	return 0;
}

void live_verify_anew(struct live *l)
{
	for (uint32_t n = 0; l->verify && n <= LIVE_ROUNDS_MAX; n++)
		l->verify->part[n].nr = 0;
}

static void complain(struct live_verify *v, uint64_t *count, uint64_t vaddr)
{
	if (!v->wrong && !v->missing && !v->superfluous)
		v->first = vaddr;
	++*count;
}

/* These bytes are allowed to differ. */
static bool may_differ(const struct live *l, const struct live_task *t, uint64_t vaddr)
{
	return zns_writer_is_unsteady(l->d->v.w, t->pid, (uintptr_t)vaddr, GRAIN);
}

/* Has the page still the contents that were copied to @k of the part? */
static void compare_page(struct live *l, const struct live_task *t, const struct place *p,
			 uint64_t k, uint64_t vaddr, const uint8_t *buf, uint64_t page)
{
	struct live_verify *v = l->verify;
	uint64_t first = k * page / GRAIN;

	for (uint64_t i = 0; i < page / GRAIN; i++)
		if (first + i >= v->part[p->source].nr ||
		    (v->part[p->source].hash[first + i] !=
			     (uint32_t)zns_hash(buf + i * GRAIN, GRAIN) &&
		     !may_differ(l, t, vaddr + i * GRAIN))) {
			complain(v, &v->wrong, vaddr + i * GRAIN);
			return;
		}
}

static int compare(struct live *l, const struct live_task *t, int mem, uint8_t *buf, uint64_t page,
		   struct zns_err *err)
{
	for (size_t n = 0; n < t->places.nr; n++) {
		const struct place *p = &t->places.p[n];

		for (uint64_t off = 0; off < p->len; off += page) {
			uint64_t va = p->vaddr + off;

			if (pread(mem, buf, page, (off_t)va) != (ssize_t)page)
				return zns_fail_sys(err, -EFAULT,
						    "verification: cannot read task %d at %llx",
						    t->pid, (unsigned long long)va);
			compare_page(l, t, p, (p->at + off) / page, va, buf, page);
		}
	}
	return 0;
}

/* The parent's page against the task's. */
static bool same(struct live *l, const struct live_task *t, uint64_t vaddr, const uint8_t *a,
		 const uint8_t *b, uint64_t page)
{
	for (uint64_t i = 0; i < page; i += GRAIN)
		if (memcmp(a + i, b + i, GRAIN) && !may_differ(l, t, vaddr + i))
			return false;
	return true;
}

static uint32_t image_of(struct zns_flat *f, const char *name)
{
	uint32_t n = 0;

	while (n < zns_flat_images(f) && strcmp(zns_flat_name(f, n), name))
		n++;
	return n;
}

/* Where the parent has the task's pages: runs of its pagemap, with @f's parents resolved. */
static int parents_runs(struct zns_flat *f, const struct live_task *t, struct zns_pagemap_run **run,
			size_t *nr, uint32_t *pages, struct zns_err *err)
{
	uint32_t n = image_of(f, t->parents_pagemap), id;
	cleanup_free uint8_t *buf = NULL;
	char name[ZW_NAME];
	size_t len;
	int ret;

	if (n == zns_flat_images(f))
		return zns_fail(err, -ENOENT, "verification: the parent has no image %s",
				t->parents_pagemap);
	len = zns_flat_size(f, n);
	buf = malloc(len + 1);
	ret = buf ? zns_flat_read(f, n, 0, buf, len, err) : zns_fail(err, -ENOMEM, "no memory");
	if (!ret)
		ret = zns_pagemap_runs(buf, len, t->parents_pagemap, run, nr, &id, err);
	if (ret)
		return ret;
	snprintf(name, sizeof(name), "pages-%u.img", id);
	*pages = image_of(f, name);
	return 0;
}

/* Are the pages that are left to the parent equal to the parent's? */
static int compare_parent(struct live *l, const struct live_task *t, int mem, uint8_t *buf,
			  uint64_t page, struct zns_err *err)
{
	struct zns_pagemap_run *run = NULL;
	cleanup_free uint8_t *there = malloc(page);
	struct zns_flat *f = NULL;
	uint64_t at = 0, seen = 0;
	size_t nr = 0;
	uint32_t pages = 0;
	int ret;

	if (!t->parent.nr)
		return 0;
	ret = zns_flat_new(l->d->h->chain, &f, err);
	if (!ret)
		ret = parents_runs(f, t, &run, &nr, &pages, err);
	for (size_t n = 0; n < nr && !ret; at += run[n++].len)
		for (uint64_t off = 0; off < run[n].len && !ret; off += page) {
			uint64_t va = run[n].vaddr + off;

			if (!zns_spans_has(&t->parent, va))
				continue;
			seen += page;
			ret = zns_flat_read(f, pages, at + off, there, page, err);
			if (!ret && (pread(mem, buf, page, (off_t)va) != (ssize_t)page ||
				     !same(l, t, va, buf, there, page)))
				complain(l->verify, &l->verify->wrong, va);
		}
	if (!ret && seen != zns_spans_bytes(&t->parent))
		complain(l->verify, &l->verify->missing, t->parent.s[0].start);
	zns_flat_free(f);
	free(run);
	return ret;
}

/* A page of zeroes that is not mapped is restored like one that is. */
static bool is_zero(int mem, uint8_t *buf, uint64_t vaddr, uint64_t page)
{
	return pread(mem, buf, page, (off_t)vaddr) == (ssize_t)page && !*buf &&
	       !memcmp(buf, buf + 1, page - 1);
}

/* Are the pages that have a copy those that the task has? */
static int compare_lists(struct live_verify *v, const struct live_task *t,
			 const struct zns_spans *all, const struct zns_spans *whole, int mem,
			 uint8_t *buf, uint64_t page, struct zns_err *err)
{
	struct zns_spans has = { 0 }, copied = { 0 }, a = { 0 }, b = { 0 }, c = { 0 };
	int ret = zns_track_content(t->pid, all->s, all->nr, &has, err);

	for (size_t n = 0; n < t->places.nr && !ret; n++)
		ret = zns_spans_add(&copied, t->places.p[n].vaddr,
				    t->places.p[n].vaddr + t->places.p[n].len);
	if (!ret)
		ret = zns_spans_join(&copied, &t->parent);
	if (!ret)
		ret = zns_spans_without(&has, &copied, &a);
	if (!ret)
		ret = zns_spans_without(&copied, &has, &b);
	if (!ret)
		ret = zns_spans_without(&b, whole, &c);
	for (size_t n = 0; n < a.nr && !ret; n++)
		for (uint64_t va = a.s[n].start; va < a.s[n].end; va += page)
			if (!is_zero(mem, buf, va, page) && !zns_spans_has(whole, va))
				complain(v, &v->missing, va);
	for (size_t n = 0; n < c.nr && !ret; n++)
		for (uint64_t va = c.s[n].start; va < c.s[n].end; va += page)
			complain(v, &v->superfluous, va);
	/* the vdso: criu wants each of its pages, and no pagemap lists them */
	zns_spans_free(&a);
	if (!ret)
		ret = zns_spans_without(whole, &copied, &a);
	for (size_t n = 0; n < a.nr && !ret; n++)
		for (uint64_t va = a.s[n].start; va < a.s[n].end; va += page)
			complain(v, &v->missing, va);
	zns_spans_free(&has);
	zns_spans_free(&copied);
	zns_spans_free(&a);
	zns_spans_free(&b);
	zns_spans_free(&c);
	return ret && !err->code ? zns_fail(err, ret, "no memory to verify") : ret;
}

int live_verify(struct live *l, const struct live_task *t, const struct zns_spans *all,
		const struct zns_spans *whole, struct zns_err *err)
{
	uint64_t page = (uint64_t)getpagesize();
	cleanup_free uint8_t *buf = NULL;
	struct live_verify *v = l->verify;
	cleanup_close int mem = -1;
	char path[64];
	int ret;

	if (!v)
		return 0;
	v->wrong = v->missing = v->superfluous = 0;
	snprintf(path, sizeof(path), "/proc/%d/mem", t->pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	buf = malloc(page);
	if (mem < 0 || !buf)
		return zns_fail(err, -EIO, "verification: cannot look at task %d", t->pid);
	ret = compare(l, t, mem, buf, page, err);
	if (!ret)
		ret = compare_parent(l, t, mem, buf, page, err);
	if (!ret)
		ret = compare_lists(v, t, all, whole, mem, buf, page, err);
	if (!ret && (v->wrong || v->missing || v->superfluous))
		ret = zns_fail(
			err, -EBADMSG,
			"verification of task %d: %llu pages wrong, %llu missing, %llu superfluous; the first at %llx",
			t->pid, (unsigned long long)v->wrong, (unsigned long long)v->missing,
			(unsigned long long)v->superfluous, (unsigned long long)v->first);
	return ret;
}

void live_verify_end(struct live *l)
{
	for (uint32_t n = 0; l->verify && n <= LIVE_ROUNDS_MAX; n++)
		free(l->verify->part[n].hash);
	free(l->verify);
	l->verify = NULL;
}
