/* SPDX-License-Identifier: GPL-2.0-only */
/* show CONTAINER as text: the container's checkpoints, their images and zones. */
#include <string.h>
#include "show.h"

#define INDENT 6 /* columns by which the lines below an image are indented */

void show_container(const ZnsPb__Checkpoint *const *v, size_t n)
{
	char size[16], name[CTL_NAME];
	struct ctl_fold fold = { 0 };
	uint64_t bytes = 0;
	size_t nr = 0;

	for (size_t i = 0; i < n; i++) {
		if (!v[i] || strcmp(v[i]->container, v[0]->container))
			continue;
		bytes += v[i]->bytes;
		nr++;
	}
	ctl_fold_begin(&fold);
	printf("%s: %zu checkpoint%s, %s\n", ctl_name(v[0]->container, name, sizeof(name)), nr,
	       nr == 1 ? "" : "s", zns_format_size(bytes, size, sizeof(size)));
	ctl_fold_end(&fold, 4);
}

/* Images that are printed in one line, and the zones that they use together. */
struct kind {
	const char *one, *many;
	const char *note; /* a remark; NULL: none */
	uint32_t nr;
	uint64_t bytes;
	uint32_t *zones;
	size_t nr_zones, room;
};

static int cmp_zone(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void count(struct kind *k, const ZnsPb__Image *im)
{
	k->nr++;
	k->bytes += im->size;
	for (size_t s = 0; s < im->n_segments; s++) {
		const ZnsPb__Segment *seg = im->segments[s];
		uint32_t *v = k->zones;

		if (k->nr_zones + seg->n_extents > k->room) {
			k->room = 2 * (k->nr_zones + seg->n_extents);
			v = realloc(v, k->room * sizeof(*v));
			if (!v)
				return;
			k->zones = v;
		}
		for (size_t e = 0; e < seg->n_extents; e++)
			v[k->nr_zones++] = seg->extents[e]->zone;
	}
}

static void print_kind(struct kind *k, bool places)
{
	char size[16], zone[16];
	size_t n = 0;
	int at = 0;

	if (!k->nr)
		return;
	qsort(k->zones, k->nr_zones, sizeof(*k->zones), cmp_zone);
	for (size_t i = 0; i < k->nr_zones; i++)
		if (!i || k->zones[i] != k->zones[i - 1])
			k->zones[n++] = k->zones[i];
	if (k->many)
		printf("    %u %s, %s\n", k->nr, k->nr == 1 ? k->one : k->many,
		       zns_format_size(k->bytes, size, sizeof(size)));
	else
		printf("    %s, %s%s\n", ctl_text(k->one),
		       zns_format_size(k->bytes, size, sizeof(size)), k->note ? k->note : "");
	if (!places)
		n = 0;
	if (n)
		at = printf("%*szones", INDENT, "");
	for (size_t i = 0; i < n; i++) {
		snprintf(zone, sizeof(zone), "%u", k->zones[i]);
		ctl_print_word(zone, INDENT + 5, &at);
	}
	if (n)
		printf("\n");
	free(k->zones);
}

void show_branch(const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m, const ZnsPb__Response *ls,
		 int width, bool verbose, bool places)
{
	struct kind pages = { .one = "image of memory pages", .many = "images of memory pages" };
	struct kind parts = { .one = "part that they are composed of",
			      .many = "parts that they are composed of" };
	struct kind rest = { .one = "other image", .many = "other images" };
	char id[ZNS_UUID_STR], when[32], size[16], marks[80];

	printf("  %.*s  %s  %10s", width, zns_uuid_format(c->id.data, id),
	       zns_format_time(c->created_ns, when, sizeof(when)),
	       zns_format_size(c->bytes, size, sizeof(size)));
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN)
		printf("  on %.*s", width, zns_uuid_format(c->parent.data, id));
	printf("%s\n", ctl_marks(c, ls, marks, sizeof(marks)));
	for (size_t i = 0; i < m->n_images; i++) {
		const ZnsPb__Image *im = m->images[i];

		if (verbose) {
			struct kind one = { .one = im->name,
					    .note = im->map  ? ", composed" :
						    im->part ? ", part of others" :
							       NULL };

			count(&one, im);
			print_kind(&one, places);
		} else {
			count(im->part                       ? &parts :
			      strncmp(im->name, "pages-", 6) ? &rest :
							       &pages,
			      im);
		}
	}
	print_kind(&pages, places);
	print_kind(&parts, places);
	print_kind(&rest, places);
}
