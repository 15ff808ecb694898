/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/flat.h. */
#include <string.h>
#include "pagemap.h"
#include "zns/flat.h"
#include "zns/util.h"

#define PAGEMAP_MAX GIB(1)	/* of an image in memory: hundreds of GiB of single pages */

/* A run of a pages image: where it comes from. */
struct run {
	uint64_t off, len;	/* in the flat image, bytes */
	struct zns_rimage *from;
	uint64_t at;
};

struct image {
	struct zns_rimage *raw;	/* as it is, unless one of the two below is there */
	uint8_t *bytes;		/* a pagemap written anew */
	struct run *run;	/* a pages image put together */
	size_t nr_runs;
	uint64_t size;
};

struct zns_flat {
	struct zns_chain *c;
	const ZnsPb__Manifest *m;
	struct image *img;
	uint64_t page;
};

/* The same pagemap in all levels; read when it is needed. */
struct stack {
	const char *name;
	struct level {
		bool looked, there;
		struct pagemap map;
		struct zns_rimage *pages;
	} *l;
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

static int add_run(struct image *im, struct zns_rimage *from, uint64_t at, uint64_t len, struct zns_err *err)
{
	struct run *last = im->nr_runs ? &im->run[im->nr_runs - 1] : NULL;

	if (last && last->from == from && last->at + last->len == at) {
		last->len += len;
		im->size += len;
		return 0;
	}
	if (!(im->nr_runs & (im->nr_runs - 1))) {
		void *n = realloc(im->run, (im->nr_runs ? 2 * im->nr_runs : 1) * sizeof(*im->run));

		if (!n)
			return zns_fail(err, -ENOMEM, "no memory for the list of pages");
		im->run = n;
	}
	im->run[im->nr_runs++] = (struct run){ im->size, len, from, at };
	im->size += len;
	return 0;
}

/* Pages from @vaddr, as level @from or one of its parents has them. */
static int find_pages(struct zns_flat *f, struct stack *s, uint32_t from, uint64_t vaddr, uint64_t len, struct image *im,
		      struct zns_err *err)
{
	while (len) {
		uint64_t part = len, off = 0;
		struct zns_rimage *pages = NULL;

		for (uint32_t n = from; n < s->nr && !pages; n++) {
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
				pages = s->l[n].pages;
				off = s->l[n].map.off[i] + (vaddr - e->vaddr);
			}
			if (!(pagemap_flags(e) & ZNS_PE_PARENT))
				break;
		}
		if (!pages)
			return zns_fail(err, -EBADMSG, "%s: no checkpoint of the chain has the page at %llx", s->name,
					(unsigned long long)vaddr);
		if (add_run(im, pages, off, part, err))
			return err->code;
		vaddr += part;
		len -= part;
	}
	return 0;
}

/* The pagemap anew, every page present; and its pages image. */
static int flatten(struct zns_flat *f, struct stack *s, struct image *map, struct image *pages, struct zns_err *err)
{
	struct pagemap *p = &s->l[0].map;
	size_t len = p->head;
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
		len += pagemap_pack_entry(e, NULL);
	}
	map->bytes = ret ? NULL : malloc(len + 1);
	if (!ret && !map->bytes)
		ret = zns_fail(err, -ENOMEM, "no memory for image %s", s->name);
	if (ret)
		return ret;
	ret = zns_rimage_read(map->raw, 0, map->bytes, p->head, err);
	map->size = p->head;
	for (size_t i = 0; i < p->nr; i++)
		map->size += pagemap_pack_entry(p->e[i], map->bytes + map->size);
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
	struct image *pages = NULL;
	int ret;

	s.l = calloc(s.nr, sizeof(*s.l));
	if (!s.l)
		return zns_fail(err, -ENOMEM, "no memory for the chain");
	ret = load(f, &s, 0, err);
	for (uint32_t i = 0; !ret && i < f->m->n_images; i++)
		if (f->img[i].raw == s.l[0].pages)
			pages = &f->img[i];
	if (!ret && refers(&s.l[0].map)) {
		if (pages)
			pages->size = 0;
		ret = pages ? flatten(f, &s, &f->img[n], pages, err) :
			      zns_fail(err, -EBADMSG, "image %s has no pages image", s.name);
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
		f->img[n].raw = zns_chain_find(c, 0, f->m->images[n]->name);
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
		free(f->img[n].run);
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
		bytes += f->img[n].size;
	return bytes;
}

static size_t run_at(const struct image *im, uint64_t off)
{
	size_t lo = 0, hi = im->nr_runs;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (im->run[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

int zns_flat_read(struct zns_flat *f, uint32_t n, uint64_t off, void *buf, size_t len, struct zns_err *err)
{
	const struct image *im = &f->img[n];
	int ret = 0;

	if (off > im->size || len > im->size - off)
		return zns_fail(err, -ENODATA, "image %s ends at %llu", zns_flat_name(f, n), (unsigned long long)im->size);
	if (im->bytes) {
		memcpy(buf, im->bytes + off, len);
		return 0;
	}
	if (!im->run)
		return zns_rimage_read(im->raw, off, buf, len, err);
	for (size_t r = run_at(im, off); len && !ret; r++) {
		uint64_t skip = off - im->run[r].off;
		size_t part = zns_min((uint64_t)len, im->run[r].len - skip);

		ret = zns_rimage_read(im->run[r].from, im->run[r].at + skip, buf, part, err);
		buf = (uint8_t *)buf + part;
		off += part;
		len -= part;
	}
	return ret;
}
