/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_PROBE_CMD_H
#define ZNS_PROBE_CMD_H
/* znsctl-probe: converts between a probe's map and the profile on the device. */
#include "../../../ctl/lib/ctl.h"
#include "zns/probe.h"

/* Makes a profile from a map. Groups keep their numbers in @old as far as they are the same. */
int probe_to_profile(const struct zns_probe_map *m, const ZnsPb__Profile *old, ZnsPb__Profile **out,
		     struct zns_err *err);
/*
 * Reads from a profile what a probe can check. Zero *m before, and call zns_probe_fini()
 * afterwards.
 */
int probe_from_profile(const ZnsPb__Profile *p, struct zns_probe_map *m, struct zns_err *err);

#endif
