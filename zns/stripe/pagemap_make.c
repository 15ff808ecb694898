/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/pagemap.h. */
#include <stdlib.h>
#include <unistd.h>
#include "pagemap.h"
#include "zns/pagemap.h"
#include "zns/util.h"

/* most pages in one entry, since criu keeps some counts in an int */
#define PAGES_MAX ((uint64_t)INT32_MAX)
#define ENTRY_MAX 40 /* most bytes of a packed entry: four tags, four numbers and the length */

static size_t put(ZnsPb__PagemapEntry *e, uint8_t *buf, size_t room)
{
	size_t need = pagemap_pack_entry(e, NULL);

	return need <= room ? pagemap_pack_entry(e, buf) : 0;
}

int zns_pagemap_entries(const struct zns_pagemap_run *run, size_t nr, uint8_t **out, size_t *len,
			struct zns_err *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t room = 0;

	*len = 0;
	for (size_t n = 0; n < nr; n++)
		room += (run[n].len / page / PAGES_MAX + 1) * ENTRY_MAX;
	*out = malloc(room + 1);
	if (!*out)
		return zns_fail(err, -ENOMEM, "no memory for a pagemap");
	for (size_t n = 0; n < nr; n++) {
		uint64_t pages = run[n].len / page, vaddr = run[n].vaddr;

		while (pages) {
			ZnsPb__PagemapEntry e = ZNS_PB__PAGEMAP_ENTRY__INIT;

			e.vaddr = vaddr;
			e.has_nr_pages = 1;
			e.nr_pages = zns_min(pages, PAGES_MAX);
			e.compat_nr_pages = (uint32_t)e.nr_pages;
			e.has_flags = 1;
			e.flags = run[n].parent ? ZNS_PE_PARENT : ZNS_PE_PRESENT;
			e.flags |= run[n].lazy ? ZNS_PE_LAZY : 0;
			*len += put(&e, *out + *len, room - *len);
			vaddr += e.nr_pages * page;
			pages -= e.nr_pages;
		}
	}
	return 0;
}
