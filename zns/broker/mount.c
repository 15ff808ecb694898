// SPDX-License-Identifier: GPL-2.0-only
/* One machine at a time: the store's mount record against this machine's id. */
#include <string.h>
#include "znsd.h"

int mount_claim(struct znsd *d, struct zns_err *err)
{
	const ZnsPb__Mount *have = zns_store_mount(d->store);
	ZnsPb__Mount m = ZNS_PB__MOUNT__INIT;
	struct zns_mount_names names;
	char when[32];
	int ret = zns_mount_self(&m, &names, err);

	if (ret)
		return ret;
	/* The same machine after a crash or a reboot goes on by itself. */
	if (have && !have->released && strcmp(have->machine, m.machine))
		return zns_fail(err, -EBUSY, "%s is in use by host %s since %s; if that host no longer has it: znsctl register --take-over %s",
				d->reg.path, have->host, zns_format_time(have->since_ns, when, sizeof(when)), d->reg.path);
	return zns_store_claim(d->store, &m, err);
}

void mount_release(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (!zns_store_foreign(d->store) && zns_store_unclaim(d->store, &err))
		znsd_log("%s", err.msg);
}
