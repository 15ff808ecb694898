/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_LAYOUT_H
#define ZNS_CTL_LAYOUT_H
/*
 * Where the data of a checkpoint are, and a prediction of the rate at which it can be read
 * (zns/scatter.h).
 */
#include "../ctl/lib/ctl.h"
#include "zns/scatter.h"

struct layout {
	struct zns_scatter s;
	struct zns_scatter_unit *units;
	struct zns_scatter_zone *zones;
	uint32_t shorts; /* units of less than 64 KiB */
	uint64_t short_bytes;
	/* bytes of the flash pages that its units touch: a die reads whole pages */
	uint64_t page_bytes;
	uint64_t runs, run_bytes; /* number and bytes of the runs of composed images */
	uint64_t superseded; /* bytes that composed images do not use */
	uint64_t read_bytes;
	uint32_t groups; /* number of groups that hold its data */
	/* predicted rate, as a part of what its groups could give with long units: 1 is the best */
	double rate;
	uint32_t read_mibps; /* read rate of one group */
};
/* The layout of its own units, in the order of its manifest, with superseded copies. */
int layout_of(const ZnsPb__Manifest *m, const ZnsPb__Profile *p, struct layout *out,
	      struct zns_err *err);
void layout_fini(struct layout *l);
/*
 * The best rate after a move, as a part of what its groups could give: a move does not remove short
 * units.
 */
double layout_of_best(const struct layout *l);
/* MiB/s: predicted, and what its groups could give */
double layout_predicted(const struct layout *l);
double layout_best(const struct layout *l);
void layout_print(const struct layout *l, const ZnsPb__Checkpoint *c,
		  const ZnsPb__RestoreStat *last);
/* show_layout.c: show --layout. */
int show_layouts(const char *dev, const struct ctl_pick *p, struct json_object *list,
		 struct zns_err *err);
struct json_object *layout_json(const struct layout *l, const ZnsPb__Checkpoint *c,
				const ZnsPb__RestoreStat *last);

#endif
