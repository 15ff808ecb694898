/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/flat.h. */
#include <string.h>
#include "flat.h"
#include "pagemap.h"
#include "zns/util.h"
#include "zns/grow.h"

/* most bytes of a pagemap, enough for hundreds of GiB even if each page has its own entry */
#define PAGEMAP_MAX GIB(1)

/* The pagemap of the same task in every level of the chain. A level is read when it is first
 * needed. */
struct stack {
	const char *name;
	struct level {
		bool looked, there;
		struct pagemap map;
		struct zns_rimage *pages;
	} * l;
	uint32_t nr;
};

static int load(struct zns_flat *f, struct stack *s, uint32_t level, struct zns_err *err)
{
	struct zns_rimage *i = zns_chain_find(f->c, level, s->name);
	uint64_t size = i ? zns_rimage_size(i) : 0;
	cleanup_free uint8_t *buf = NULL;
	struct level *l = &s->l[level];
	char pages[32];
	int ret;

	if (l->looked)
		return 0;
	l->looked = true;
	if (!i)
		return 0;
	buf = size <= PAGEMAP_MAX ? malloc(size + 1) : NULL;
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for image %s", s->name);
	ret = zns_rimage_read(i, 0, buf, size, err);
	if (!ret)
		ret = pagemap_parse(buf, size, s->name, &l->map, err);
	if (ret)
		return ret;
	l->there = true;
	snprintf(pages, sizeof(pages), "pages-%u.img", l->map.pages_id);
	l->pages = zns_chain_find(f->c, level, pages);
	return 0;
}

/* Finds the pages from @vaddr on, in level @from or in the nearest parent that has them. */
static int find_pages(struct zns_flat *f, struct stack *s, uint32_t from, uint64_t vaddr,
		      uint64_t len, struct flat_image *im, struct zns_err *err)
{
	while (len) {
		uint64_t part = len, off = 0;
		bool found = false;
		uint32_t level = 0;

		for (uint32_t n = from; n < s->nr && !found; n++) {
			const ZnsPb__PagemapEntry *e;
			size_t i;
			int ret = load(f, s, n, err);

			if (ret)
				return ret;
			e = s->l[n].there ? pagemap_find(&s->l[n].map, vaddr, &i) : NULL;
			if (!e)
				break;
			part = zns_min(part, e->vaddr + pagemap_pages(e) * f->page - vaddr);
			if (pagemap_flags(e) & ZNS_PE_PRESENT) {
				found = s->l[n].pages;
				level = n;
				off = s->l[n].map.off[i] + (vaddr - e->vaddr);
			}
			if (!(pagemap_flags(e) & ZNS_PE_PARENT))
				break;
		}
		if (!found)
			return zns_fail(
				err, -EBADMSG,
				"%s: no checkpoint of the chain has the page at %llx: `znsctl verify` says what is damaged",
				s->name, (unsigned long long)vaddr);
		if (runs_add(&im->runs, level, off, part, err))
			return err->code;
		vaddr += part;
		len -= part;
	}
	return 0;
}

static void set_pages(ZnsPb__PagemapEntry *e, uint64_t nr)
{
	if (e->has_nr_pages)
		e->nr_pages = nr;
	else
		e->compat_nr_pages = (uint32_t)nr;
}

/* Merges an entry into the one before it if they touch. */
static bool join(ZnsPb__PagemapEntry *last, const ZnsPb__PagemapEntry *e, uint64_t page)
{
	uint64_t nr = pagemap_pages(last) + pagemap_pages(e);

	if (last->vaddr + pagemap_pages(last) * page != e->vaddr ||
	    pagemap_flags(last) != pagemap_flags(e) || last->has_nr_pages != e->has_nr_pages ||
	    nr > INT32_MAX)
		return false;
	set_pages(last, nr);
	return true;
}

/* Writes a new pagemap in which every page is present, and describes the pages image that goes
 * with it. */
static int flatten(struct zns_flat *f, struct stack *s, struct flat_image *map,
		   struct flat_image *pages, struct zns_err *err)
{
	struct pagemap *p = &s->l[0].map;
	ZnsPb__PagemapEntry *last = NULL;
	size_t len = p->head, nr = 0;
	int ret = 0;

	for (size_t i = 0; i < p->nr && !ret; i++) {
		ZnsPb__PagemapEntry *e = p->e[i];
		uint32_t flags = pagemap_flags(e);

		if (flags & (ZNS_PE_PRESENT | ZNS_PE_PARENT))
			ret = find_pages(f, s, 0, e->vaddr, pagemap_pages(e) * f->page, pages, err);
	}
	for (size_t i = 0; i < p->nr; i++) {
		ZnsPb__PagemapEntry *e = p->e[i];

		if (pagemap_flags(e) & ZNS_PE_PARENT) {
			e->flags = (pagemap_flags(e) & ~ZNS_PE_PARENT) | ZNS_PE_PRESENT;
			e->has_flags = 1;
			e->has_in_parent = 0;
		}
		if (last && join(last, e, f->page)) {
			zns_pb__pagemap_entry__free_unpacked(e, NULL);
			continue;
		}
		p->e[nr++] = last = e;
	}
	p->nr = nr;
	for (size_t i = 0; i < p->nr; i++)
		len += pagemap_pack_entry(p->e[i], NULL);
	map->bytes = ret ? NULL : malloc(len + 1);
	if (!ret && !map->bytes)
		ret = zns_fail(err, -ENOMEM, "no memory for image %s", s->name);
	if (ret)
		return ret;
	ret = zns_rimage_read(map->raw, 0, map->bytes, p->head, err);
	map->size = p->head;
	for (size_t i = 0; i < p->nr; i++)
		map->size += pagemap_pack_entry(p->e[i], map->bytes + map->size);
	for (uint32_t l = 0; l < s->nr && !ret; l++)
		pages->runs.from[l] = s->l[l].pages;
	pages->size = pages->runs.size;
	return ret;
}

static bool refers(const struct pagemap *p)
{
	for (size_t i = 0; i < p->nr; i++)
		if (pagemap_flags(p->e[i]) & ZNS_PE_PARENT)
			return true;
	return false;
}

static int one_pagemap(struct zns_flat *f, uint32_t n, struct zns_err *err)
{
	struct stack s = { .name = f->m->images[n]->name, .nr = zns_chain_levels(f->c) };
	struct flat_image *pages = NULL;
	int ret;

	s.l = calloc(s.nr, sizeof(*s.l));
	if (!s.l)
		return zns_fail(err, -ENOMEM, "no memory for the chain");
	ret = load(f, &s, 0, err);
	for (uint32_t i = 0; !ret && i < f->m->n_images; i++)
		if (f->img[i].raw == s.l[0].pages)
			pages = &f->img[i];
	if (!ret && refers(&s.l[0].map)) {
		ret = pages ? runs_init(&pages->runs, zns_rimage_name(pages->raw), s.nr, err) :
			      zns_fail(err, -EBADMSG, "image %s has no pages image", s.name);
		if (!ret)
			ret = flatten(f, &s, &f->img[n], pages, err);
	}
	for (uint32_t i = 0; i < s.nr; i++)
		pagemap_fini(&s.l[i].map);
	free(s.l);
	return ret;
}

int zns_flat_new(struct zns_chain *c, struct zns_flat **out, struct zns_err *err)
{
	struct zns_flat *f = calloc(1, sizeof(*f));
	int ret = 0;

	if (f) {
		f->c = c;
		f->m = zns_chain_manifest(c, 0);
		f->page = (uint64_t)sysconf(_SC_PAGESIZE);
		f->img = calloc(f->m->n_images + 1, sizeof(*f->img));
	}
	if (!f || !f->img) {
		free(f);
		return zns_fail(err, -ENOMEM, "no memory for the list of images");
	}
	for (uint32_t n = 0; n < f->m->n_images; n++) {
		f->img[n].raw = zns_reader_image(zns_chain_reader(c), n);
		f->img[n].size = f->m->images[n]->size;
	}
	for (uint32_t n = 0; n < f->m->n_images && !ret; n++)
		if (!strncmp(f->m->images[n]->name, "pagemap-", 8))
			ret = one_pagemap(f, n, err);
	if (ret)
		zns_flat_free(f);
	else
		*out = f;
	return ret;
}

void zns_flat_free(struct zns_flat *f)
{
	if (!f)
		return;
	for (uint32_t n = 0; n < f->m->n_images; n++) {
		free(f->img[n].bytes);
		runs_fini(&f->img[n].runs);
	}
	free(f->img);
	free(f);
}

uint32_t zns_flat_images(const struct zns_flat *f)
{
	return (uint32_t)f->m->n_images;
}

const char *zns_flat_name(const struct zns_flat *f, uint32_t n)
{
	return f->m->images[n]->name;
}

uint64_t zns_flat_size(const struct zns_flat *f, uint32_t n)
{
	return f->img[n].size;
}

uint64_t zns_flat_bytes(const struct zns_flat *f)
{
	uint64_t bytes = 0;

	for (uint32_t n = 0; n < f->m->n_images; n++)
		bytes += f->m->images[n]->part ? 0 : f->img[n].size;
	return bytes;
}

bool zns_flat_is(const struct zns_flat *f, uint32_t n)
{
	return f->img[n].bytes || f->img[n].runs.from;
}
