/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_PROBE_CMD_H
#define ZNS_PROBE_CMD_H
/* znsctl-probe: between what a probe found and the profile on the device. */
#include "../../ctl/ctl.h"
#include "zns/probe.h"

/* As a probe found it. Groups keep the numbers that they have in @old, as far as they are the same.
 */
int probe_to_profile(const struct zns_probe_map *m, const ZnsPb__Profile *old, ZnsPb__Profile **out,
		     struct zns_err *err);
/* What of a profile a probe can be held against: zeroed before, ended with zns_probe_fini. */
int probe_from_profile(const ZnsPb__Profile *p, struct zns_probe_map *m, struct zns_err *err);

#endif
