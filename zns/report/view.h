/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_VIEW_H
#define ZNS_CTL_VIEW_H
/*
 * The state of a device at one moment: the broker's answers, and sums for each group. For metrics,
 * top and report.
 */
#include "../ctl/lib/ctl.h"

enum {
	VIEW_STATUS = 1,
	VIEW_LS = 2,
	VIEW_ZONES = 4, /* also sums for each group; needs VIEW_STATUS and VIEW_PROFILE */
	VIEW_PROFILE = 8,
	VIEW_HISTORY = 16
};

/*
 * Sums for one group. They count data zones only, except for `written_total` and `resets`, which
 * include metadata zones.
 */
struct ctl_group {
	int32_t channel; /* -1: unknown */
	bool unknown; /* this group contains the zones that a probe could not assign */
	uint32_t zones, empty;
	uint64_t capacity, written, live; /* bytes */
	uint32_t leases[4]; /* number of leases that use the group now, by kind */
	uint64_t written_total, resets; /* since the broker was started */
};

struct ctl_view {
	struct zns_registered reg;
	char id[ZNS_UUID_STR];
	struct zns_broker broker;
	struct zns_err away; /* why the broker did not answer; code 0: it did */
	ZnsPb__Response *status, *ls, *zones, *profile, *history;
	struct ctl_group *groups;
	uint32_t nr_groups;
};

extern const char *const ctl_lease_kinds[4];
/* the counters of a history */
#define CTL_COUNTERS                                                                              \
	"dumps dumps_failed dumps_refused restores restores_unfinished dump_bytes restore_bytes " \
	"compact_bytes memory_written memory_read zone_failures"

/* Connects to the broker. A failure is recorded in v->away. */
void ctl_view_open(const struct zns_registered *reg, struct ctl_view *v);
/*
 * Asks the broker for the parts @what. On a failure v->away has the reason, and v has no answers.
 */
void ctl_view_ask(struct ctl_view *v, unsigned what);
void ctl_view_hang_up(struct ctl_view *v); /* disconnects; the answers stay valid */
void ctl_view_close(struct ctl_view *v);
/* Lists all registered devices, or only the one of @spec. The caller frees the list. */
int ctl_view_devices(const char *spec, struct zns_registered **regs, size_t *nr,
		     struct zns_err *err);
static inline bool ctl_view_up(const struct ctl_view *v)
{
	return !v->away.code;
}
/* The sum of the present rates of all leases of a kind, in bytes per second. */
double ctl_view_rate(const struct ctl_view *v, size_t kind);
/* The sum of the rates that running dumps have asked for. */
double ctl_view_asked(const struct ctl_view *v);
struct json_object *ctl_view_group_json(const struct ctl_view *v, uint32_t g);
/* The rate that can be promised to all dumps together, in bytes per second. */
double ctl_view_bandwidth(const struct ctl_view *v);
/* is it a data zone, that is, neither a metadata zone nor a conventional zone? */
bool ctl_zone_data(const ZnsPb__ZoneLine *z);

#endif
