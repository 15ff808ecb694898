/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attaching to a device: broker, life lock, the device itself. */
#include <unistd.h>
#include "helper.h"

int helper_attach(struct helper *h, const struct zns_registered *reg, bool writer, struct zns_err *err)
{
	int ret;

	h->reg = *reg;
	ret = zns_broker_connect(reg, &h->broker, err);
	if (ret)
		return ret;
	h->connected = true;
	/* A new broker resets zones only once it has this lock alone: we hold it as long as we can write (or read). */
	ret = zns_broker_lock_shared(reg->uuid, writer ? "writers" : "readers", &h->lock, err);
	if (ret)
		return ret;
	return zns_dev_open(reg->path, writer ? 0 : ZNS_DEV_RDONLY, &h->dev, err);
}

void helper_detach(struct helper *h)
{
	zns_dev_close(h->dev);
	h->dev = NULL;
	if (h->lock >= 0)
		close(h->lock);
	h->lock = -1;
	if (h->connected)
		zns_broker_close(&h->broker);
	h->connected = false;
}
