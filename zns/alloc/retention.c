/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "zns/retention.h"

size_t zns_retention(struct zns_retained *v, size_t nr, uint32_t keep, uint64_t ttl_s, int64_t now_ns)
{
	size_t newer = 0, due = 0;

	for (size_t i = nr; i-- > 0;) {
		v[i].due = false;
		if (v[i].pinned)
			continue;
		if (newer && keep && newer >= keep)
			v[i].due = true;
		if (newer && ttl_s && now_ns > v[i].created_ns && (uint64_t)(now_ns - v[i].created_ns) / 1000000000 >= ttl_s)
			v[i].due = true;
		newer += !v[i].pre_dump;
	}
	/* Children come after their parents: what one of them needs is known when its parent's turn comes. */
	for (size_t i = nr; i-- > 0;) {
		v[i].due &= !v[i].needed;
		due += v[i].due;
		if (!v[i].due && v[i].parent && v[i].parent <= i)
			v[v[i].parent - 1].needed = true;
	}
	return due;
}
