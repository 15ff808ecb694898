/* SPDX-License-Identifier: GPL-2.0-only */
/* Makes sure that only one machine uses the store: checks the mount record against this machine's
 * id, and holds the drive's reservation. */
#include <string.h>
#include "requests.h"

static int reserve(struct znsd *d, const char *machine, const ZnsPb__Mount *have,
		   struct zns_err *err)
{
	struct zns_resv_peer peer = { have ? have->machine : NULL, have ? have->host : NULL };
	int ret = zns_resv_open(d->dev, machine, &d->server->resv, err);

	if (ret)
		return ret;
	if (*d->server->resv.why)
		znsd_warn("%s is not reserved: %s", d->reg.path, d->server->resv.why);
	return zns_resv_take(&d->server->resv, false, &peer, err);
}

int host_claim(struct znsd *d, struct zns_err *err)
{
	const ZnsPb__Mount *have = zns_store_mount(d->store);
	ZnsPb__Mount m = ZNS_PB__MOUNT__INIT;
	struct zns_mount_names names;
	int ret = zns_mount_self(&m, &names, err);

	if (!ret)
		ret = zns_store_mine(d->store, m.machine, err);
	if (!ret)
		ret = reserve(d, m.machine, have, err);
	return ret ? ret : zns_store_claim(d->store, &m, err);
}

void host_release(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (!zns_store_foreign(d->store) && zns_store_unclaim(d->store, &err))
		znsd_warn("%s", err.msg);
}

void host_unreserve(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_resv_leave(&d->server->resv, &err))
		znsd_warn("%s", err.msg);
}

void host_look(struct znsd *d, struct zns_resv_state *now)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_resv_look(&d->server->resv, now, &err))
		znsd_warn("%s", err.msg);
	else if (now->held && !now->ours)
		device_heed(d, &(struct zns_err){ .code = -EBADE });
}
