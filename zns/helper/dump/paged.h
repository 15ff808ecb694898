/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_PAGED_H
#define ZNS_HELPER_PAGED_H
/*
 * A dump of tasks whose memory is partly on zones (Documentation/inside/memory.md). The pager says
 * which pages are where. The dump refers to the pages on zones, and copies only those in memory. As
 * in a live dump, the pages image of such a task is composed.
 */
#include <stdbool.h>
#include "zns/image_map.h"
#include "zns/places.h"

struct dump;
struct live_areas;
struct live_task;
struct paged;
struct packet;
struct zns_wimage;

#define LIVE_PAGED 0xffffu /* place.source: a unit of a memory context */

/* ZW_MEM_BEGIN: from here on the pager waits for this dump. */
int paged_begin(struct dump *d, struct packet *p, struct zns_err *err);
int paged_owns(struct dump *d, struct packet *p, struct zns_err *err);
int paged_has(struct dump *d, pid_t pid, bool *has, struct zns_err *err);
/*
 * For a frozen task: fills @rest with the pages that have to be copied, and adds the pages that are
 * on zones to @t's places.
 */
int paged_rest(struct paged *m, struct live_task *t, const struct live_areas *a,
	       struct zns_spans *rest, struct zns_err *err);
/* Called after the last task: makes the image of all units that the tasks have on zones. */
int paged_name(struct dump *d, struct zns_err *err);
struct zns_wimage *paged_image(struct paged *m); /* NULL: none */

struct runs {
	struct zns_image_run *v;
	size_t nr, max;
};
/* adds a run of @len bytes; 0 or -ENOMEM */
int paged_add(struct runs *r, uint64_t len, uint32_t source, uint64_t at);
int paged_runs(const struct paged *m, const struct place *p, uint32_t source, struct runs *r);
/* Lets the pager continue. */
void paged_end(struct dump *d);

#endif
