/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_LAYOUT_H
#define ZNS_CTL_LAYOUT_H
/*
 * The places of a checkpoint's data, and a prediction of the rate at which they are read
 * (zns/scatter.h).
 */
#include "../ctl/lib/ctl.h"
#include "zns/scatter.h"

struct layout {
	struct zns_scatter s;
	struct zns_scatter_unit *units;
	struct zns_scatter_zone *zones;
	uint32_t shorts; /* number of units of less than 64 KiB */
	uint64_t short_bytes;
	/* bytes of the flash pages in which its units lie: a die reads whole pages */
	uint64_t page_bytes;
	uint64_t runs, run_bytes; /* number and bytes of the runs of composed images */
	uint64_t superseded; /* bytes of parts that composed images do not use any more */
	uint64_t read_bytes;
	uint32_t groups; /* number of groups that have data of it */
	/*
	 * predicted rate, divided by the rate that its groups could give with long units: 1 is the
	 * best
	 */
	double rate;
	uint32_t read_mibps; /* MiB/s, read rate of one group */
};
/*
 * Finds the places of a checkpoint's own units, in the order of its manifest, including superseded
 * copies.
 */
int layout_of(const ZnsPb__Manifest *m, const ZnsPb__Profile *p, struct layout *out,
	      struct zns_err *err);
void layout_fini(struct layout *l);
/*
 * The best value of `rate` that moving data can reach. It may be less than 1, since a move does not
 * make short units longer.
 */
double layout_of_best(const struct layout *l);
/* Rates in MiB/s: the predicted one, and what its groups could give. */
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
