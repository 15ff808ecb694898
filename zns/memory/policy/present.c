/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lists the present pages of a process: by PAGEMAP_SCAN, or before Linux 6.7 by reading
 * /proc/PID/pagemap, which takes some 17 ms per GiB of address space, including holes.
 */
#include <errno.h>

#include "../engine/mem.h"

#define ENTRIES 4096U /* entries that are read at once */

int present_entries(int pagemap, uint64_t addr, uint64_t nr, uint64_t *entry)
{
	return zns_pread_all(pagemap, entry, nr * sizeof(*entry),
			     (off_t)(addr / PAGE * sizeof(*entry)));
}

static int by_reading(const struct proc *p, uint64_t start, uint64_t end, scan_found found,
		      void *arg)
{
	uint64_t entry[ENTRIES], from = 0;
	bool in = false;
	int ret = 0;

	for (uint64_t at = start; at < end && !ret;) {
		uint64_t n = zns_min((end - at) / PAGE, (uint64_t)ENTRIES);

		if (present_entries(p->pagemap, at, n, entry))
			return -ESRCH;
		for (uint64_t i = 0; i < n && !ret; i++, at += PAGE) {
			bool is = entry[i] >> 63;

			if (is && !in)
				from = at;
			if (!is && in)
				ret = found(arg, from, at, IS_PRESENT);
			in = is;
		}
	}
	return in && !ret ? found(arg, from, end, IS_PRESENT) : ret;
}

int present_look(const struct proc *p, int pagemap, const struct unit *u, uint64_t base,
		 struct unit_pages *is)
{
	uint64_t entry[UNIT_PAGES];

	*is = (struct unit_pages){ 0 };
	if (present_entries(pagemap, base, UNIT_PAGES, entry))
		return 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++)
		if (!(u->pages >> i & 1))
			continue;
		else if ((entry[i] & (SWAPPED | PROTECTED)) == SWAPPED)
			is->other |= 1U << i;
		else if (!(entry[i] & (PRESENT | SWAPPED)))
			is->removed |= 1U << i;
	/*
	 * Check the mark after the page table was read: a thread that removes a marker first
	 * removes the unit's mark, or the page from u->pages.
	 */
	if (!unit_is_marked(p, u))
		is->removed = 0;
	return is->removed && mem_uffd_changes(p->uffd) ? -EAGAIN : 0;
}

bool present_is_hole(const struct proc *p, uint64_t addr)
{
	uint64_t entry;

	return !present_entries(p->pagemap, addr, 1, &entry) &&
	       (!(entry >> 62) || (entry & (PRESENT | SWAPPED | PROTECTED)) == MARKER);
}

bool present_is_guard(const struct proc *p, uint64_t addr)
{
	uint64_t entry;

	return !present_entries(p->pagemap, addr, 1, &entry) && entry & GUARD;
}

bool present_is_marked(const struct proc *p, uint64_t base, uint32_t pages)
{
	uint64_t entry[UNIT_PAGES];
	uint32_t marked = 0;

	if (present_entries(p->pagemap, base, UNIT_PAGES, entry))
		return false;
	for (unsigned int i = 0; i < UNIT_PAGES; i++)
		marked |= (entry[i] & (PRESENT | MARKER)) == MARKER ? 1U << i : 0;
	return pages && (marked & pages) == pages;
}

int present_scan(const struct proc *p, uint64_t start, uint64_t end, scan_found found, void *arg)
{
	static const struct scan_query q = { .mask = IS_PRESENT, .returned = IS_PRESENT };
	static _Atomic bool refused;

	if (!refused && !mem_refused(REFUSED_SCAN)) {
		int ret = scan_range(p->pagemap, &q, start, end, found, arg);

		if (ret != -ENOTTY && ret != -EINVAL)
			return ret;
		refused = ret == -ENOTTY;
	}
	return by_reading(p, start, end, found, arg);
}
