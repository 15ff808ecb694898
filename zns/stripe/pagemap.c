/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>
#include "pagemap.h"
#include "zns/pagemap.h"
#include "zns/util.h"
#include "zns/grow.h"

#define MAGIC_COMMON 0x54564319u /* the first magic number, in front of the image's own */

uint64_t pagemap_pages(const ZnsPb__PagemapEntry *e)
{
	return e->has_nr_pages ? e->nr_pages : e->compat_nr_pages;
}

uint32_t pagemap_flags(const ZnsPb__PagemapEntry *e)
{
	if (e->has_in_parent && e->in_parent)
		return ZNS_PE_PARENT;
	return e->has_flags ? e->flags : ZNS_PE_PRESENT;
}

static uint32_t get32(const uint8_t *b)
{
	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Returns the next record and moves *at behind it. NULL: the end of the image; with *bad set, the
 * image ends within a record. */
static const uint8_t *next(const uint8_t *buf, size_t len, size_t *at, uint32_t *size, bool *bad)
{
	const uint8_t *p;

	*bad = false;
	if (*at == len)
		return NULL;
	*bad = len - *at < 4;
	if (*bad)
		return NULL;
	*size = get32(buf + *at);
	*bad = *size > len - *at - 4;
	if (*bad)
		return NULL;
	p = buf + *at + 4;
	*at += 4 + *size;
	return p;
}

static int add(struct pagemap *p, ZnsPb__PagemapEntry *e, uint64_t *off, uint64_t page)
{
	const ZnsPb__PagemapEntry *last = p->nr ? p->e[p->nr - 1] : NULL;
	uint64_t pages = pagemap_pages(e);

	if (pages > (UINT64_MAX - e->vaddr) / page || pages > (UINT64_MAX - *off) / page ||
	    (last && e->vaddr < last->vaddr + pagemap_pages(last) * page))
		return -EBADMSG;
	if (zns_grow(p->e, p->nr, p->max_e) || zns_grow(p->off, p->nr, p->max_off))
		return -ENOMEM;
	p->off[p->nr] = *off;
	p->e[p->nr++] = e;
	if (pagemap_flags(e) & ZNS_PE_PRESENT)
		*off += pages * page;
	return 0;
}

int pagemap_parse(const uint8_t *buf, size_t len, const char *name, struct pagemap *out,
		  struct zns_err *err)
{
	size_t at = len >= 8 && get32(buf) == MAGIC_COMMON ? 8 : 4;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), off = 0;
	ZnsPb__PagemapHead *h = NULL;
	const uint8_t *rec;
	uint32_t size = 0;
	bool bad = true;
	int ret = 0;

	memset(out, 0, sizeof(*out));
	rec = len >= at ? next(buf, len, &at, &size, &bad) : NULL;
	if (rec)
		h = zns_pb__pagemap_head__unpack(NULL, size, rec);
	if (!h)
		return zns_fail(err, -EBADMSG, "image %s is no pagemap", name);
	out->pages_id = h->pages_id;
	out->head = at;
	zns_pb__pagemap_head__free_unpacked(h, NULL);
	while (!ret && (rec = next(buf, len, &at, &size, &bad))) {
		ZnsPb__PagemapEntry *e = zns_pb__pagemap_entry__unpack(NULL, size, rec);

		ret = e ? add(out, e, &off, page) : -EBADMSG;
		if (ret && e)
			zns_pb__pagemap_entry__free_unpacked(e, NULL);
	}
	if (!ret && bad)
		ret = -EBADMSG;
	if (ret)
		pagemap_fini(out);
	return ret ? zns_fail(err, ret,
			      ret == -ENOMEM ? "no memory for image %s" : "image %s is no pagemap",
			      name) :
		     0;
}

void pagemap_fini(struct pagemap *p)
{
	for (size_t i = 0; i < p->nr; i++)
		zns_pb__pagemap_entry__free_unpacked(p->e[i], NULL);
	free(p->e);
	free(p->off);
	memset(p, 0, sizeof(*p));
}

int zns_pagemap_runs(const uint8_t *buf, size_t len, const char *name, struct zns_pagemap_run **out,
		     size_t *nr, uint32_t *pages_id, struct zns_err *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct pagemap p;
	int ret = pagemap_parse(buf, len, name, &p, err);

	if (ret)
		return ret;
	*out = malloc((p.nr + 1) * sizeof(**out));
	*nr = *out ? p.nr : 0;
	*pages_id = p.pages_id;
	for (size_t i = 0; i < *nr; i++)
		(*out)[i] = (struct zns_pagemap_run){ .vaddr = p.e[i]->vaddr,
						      .len = pagemap_pages(p.e[i]) * page,
						      .parent = pagemap_flags(p.e[i]) &
								ZNS_PE_PARENT,
						      .lazy = pagemap_flags(p.e[i]) & ZNS_PE_LAZY };
	pagemap_fini(&p);
	return *out ? 0 : zns_fail(err, -ENOMEM, "no memory for image %s", name);
}

size_t pagemap_pack_entry(const ZnsPb__PagemapEntry *e, uint8_t *buf)
{
	size_t n = zns_pb__pagemap_entry__get_packed_size(e);

	if (buf) {
		for (int i = 0; i < 4; i++)
			buf[i] = (uint8_t)(n >> 8 * i);
		zns_pb__pagemap_entry__pack(e, buf + 4);
	}
	return 4 + n;
}

const ZnsPb__PagemapEntry *pagemap_find(const struct pagemap *p, uint64_t vaddr, size_t *index)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t lo = 0, hi = p->nr;

	while (lo < hi) { /* finds the first entry that ends behind @vaddr */
		size_t mid = lo + (hi - lo) / 2;

		if (p->e[mid]->vaddr + pagemap_pages(p->e[mid]) * page <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == p->nr || p->e[lo]->vaddr > vaddr)
		return NULL;
	*index = lo;
	return p->e[lo];
}
