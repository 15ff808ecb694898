/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "zns/config.h"
#include "zns/retention.h"
#include "zns/util.h"

size_t zns_retention(struct zns_retained *v, size_t nr, uint32_t keep, uint64_t ttl_s,
		     int64_t now_ns)
{
	size_t newer = 0, due = 0;

	for (size_t i = nr; i-- > 0;) {
		v[i].due = false;
		if (v[i].pinned)
			continue;
		if (newer && keep && newer >= keep)
			v[i].due = true;
		if (newer && ttl_s && now_ns > v[i].created_ns &&
		    (uint64_t)(now_ns - v[i].created_ns) / 1000000000 >= ttl_s)
			v[i].due = true;
		newer += !v[i].pre_dump;
	}
	/* Children come after their parents, so the loop goes backwards: when it comes to a parent,
	 * it has decided on the children. */
	for (size_t i = nr; i-- > 0;) {
		v[i].held = v[i].due && v[i].needed;
		v[i].due &= !v[i].needed;
		due += v[i].due;
		if (!v[i].due && v[i].parent && v[i].parent <= i)
			v[v[i].parent - 1].needed = true;
	}
	return due;
}

/* Does the rule apply to the checkpoint? Not if it has only pages, since it then belongs to a
 * migration that is under way. And not if only an imported image names its container: such
 * checkpoints would displace those of the container itself. */
static bool ruled(const ZnsPb__Retention *rule, const ZnsPb__Checkpoint *c)
{
	return !c->pages_only && !(c->origin && c->origin->claimed) &&
	       !strcmp(c->container, rule->container);
}

/* 1 + the position of @c's parent among the first @nr of @at; searched backwards, since it is
 * usually the last one. 0: it has none. */
static size_t parent_place(const struct zns_ruled *v, const size_t *at, size_t nr,
			   const ZnsPb__Checkpoint *c)
{
	while (c->has_parent && nr &&
	       memcmp(v[at[nr - 1]].c->id.data, c->parent.data, ZNS_UUID_LEN))
		nr--;
	return c->has_parent ? nr : 0;
}

ssize_t zns_retention_rule(const ZnsPb__Retention *rule, struct zns_ruled *v, size_t nr,
			   int64_t now_ns)
{
	cleanup_free struct zns_retained *r = calloc(nr + 1, sizeof(*r));
	cleanup_free size_t *at = calloc(nr + 1, sizeof(*at));
	size_t n = 0, due;

	if (!r || !at)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const ZnsPb__Checkpoint *c = v[i].c;
		size_t parent = parent_place(v, at, n, c);

		v[i].due = v[i].held = false;
		if (ruled(rule, c)) {
			r[n] = (struct zns_retained){ .created_ns = c->created_ns,
						      .pinned = v[i].pinned,
						      .pre_dump = c->pre_dump,
						      .parent = parent,
						      .needed = v[i].in_use };
			at[n++] = i;
		} else if (parent) {
			r[parent - 1].needed = true;
		}
	}
	due = zns_retention(r, n, rule->keep, rule->ttl_s, now_ns);
	for (size_t i = 0; i < n; i++) {
		v[at[i]].due = r[i].due;
		v[at[i]].held = r[i].held;
	}
	return (ssize_t)due;
}
