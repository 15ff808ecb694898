/* SPDX-License-Identifier: GPL-2.0-only */
/* Prints a layout, for show --layout. */
#include <string.h>
#include "layout.h"

/* The rate of the last restore, if it read this version of the checkpoint; 0: not measured. */
static double measured(const ZnsPb__Checkpoint *c, const ZnsPb__RestoreStat *last)
{
	bool same = last && last->checkpoint.len == c->id.len &&
		    !memcmp(last->checkpoint.data, c->id.data, c->id.len);

	return same && last->has_achieved_mibps ? last->achieved_mibps : 0;
}

double layout_best(const struct layout *l)
{
	return (double)l->s.width * l->read_mibps;
}

double layout_of_best(const struct layout *l)
{
	return l->page_bytes ? l->rate * (double)l->read_bytes / (double)l->page_bytes : l->rate;
}

double layout_predicted(const struct layout *l)
{
	return layout_of_best(l) * layout_best(l);
}

/* Prints the bytes in each group, beginning with the group that has most. */
static void print_groups(const struct layout *l)
{
	cleanup_free uint64_t *in = calloc((size_t)l->s.nr_groups + 1, sizeof(*in));
	int at = printf("            in groups");
	char one[48], size[16];

	for (uint32_t i = 0; in && i < l->s.nr_zones; i++)
		in[l->zones[i].group] += l->zones[i].bytes;
	for (uint32_t n = 0; in && n < l->groups; n++) {
		uint32_t best = 0;

		for (uint32_t g = 1; g < l->s.nr_groups; g++)
			if (in[g] > in[best])
				best = g;
		snprintf(one, sizeof(one), "%u:%s", best,
			 zns_format_size(in[best], size, sizeof(size)));
		ctl_print_word(one, 12, &at);
		in[best] = 0;
	}
	printf("\n");
}

void layout_print(const struct layout *l, const ZnsPb__Checkpoint *c,
		  const ZnsPb__RestoreStat *last)
{
	char size[16];

	printf("layout      %.0f %% of what %u group%s could give: about %.0f MiB/s of %.0f\n",
	       100 * layout_of_best(l), l->s.width, l->s.width == 1 ? "" : "s", layout_predicted(l),
	       layout_best(l));
	if (measured(c, last) > 0)
		printf("            measured at its last restore: %.0f MiB/s\n", measured(c, last));
	print_groups(l);
	if (l->groups < l->s.width)
		printf("            written to %u zones at once, of which some are in the same group\n",
		       l->s.width);
	if (l->shorts)
		printf("            %u units of less than 64 KiB, %s together: pages of flash are read whole, %.0f %% in vain\n",
		       l->shorts, zns_format_size(l->short_bytes, size, sizeof(size)),
		       100 * (1 - (double)l->read_bytes / (double)l->page_bytes));
	if (l->runs)
		printf("            composed of %llu runs of %s: `znsctl flatten` puts them in order\n",
		       (unsigned long long)l->runs,
		       zns_format_size(l->run_bytes / l->runs, size, sizeof(size)));
	if (l->superseded)
		printf("            %s superseded while it was dumped: `znsctl flatten` gives that room back\n",
		       zns_format_size(l->superseded, size, sizeof(size)));
	if (c->has_parent)
		printf("            its own pages only: `znsctl flatten` writes it anew without its parents\n");
	if (l->rate > 0 && l->rate < 0.9)
		printf("            `znsctl compact --defrag` says what would pay\n");
}

struct json_object *layout_json(const struct layout *l, const ZnsPb__Checkpoint *c,
				const ZnsPb__RestoreStat *last)
{
	struct json_object *list = json_object_new_array();
	cleanup_free uint64_t *in = calloc((size_t)l->s.nr_groups + 1, sizeof(*in));
	double was = measured(c, last);

	for (uint32_t i = 0; in && i < l->s.nr_zones; i++)
		in[l->zones[i].group] += l->zones[i].bytes;
	for (uint32_t g = 0; in && g < l->s.nr_groups; g++)
		if (in[g])
			json_object_array_add(list, ctl_obj(J("group", g), J("bytes", in[g])));
	return ctl_obj(J("of_best", layout_of_best(l)), J("predicted_mibps", layout_predicted(l)),
		       J("best_mibps", layout_best(l)), J("width", l->s.width), J("groups", list),
		       J("short_units", l->shorts), J("short_bytes", l->short_bytes),
		       J("page_bytes", l->page_bytes), J("runs", l->runs),
		       J("superseded_bytes", l->superseded), J("read_bytes", l->read_bytes),
		       J("measured_mibps", was > 0 ? json_object_new_double(was) : NULL));
}
