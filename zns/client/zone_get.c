// SPDX-License-Identifier: LGPL-2.1-or-later
/* A writer's zones: asking the broker for the next one. */
#include "zns/client.h"

int zns_broker_zone_get(struct zns_broker *b, const struct zns_geometry *geo, const struct zns_zone_wish *wish,
			struct zns_zone_slot *out, struct zns_err *err)
{
	ZnsPb__ZoneGet get = ZNS_PB__ZONE_GET__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	get.group = wish->group;
	get.done_zones = (uint32_t *)wish->done;
	get.n_done_zones = wish->nr_done;
	get.not_zones = (uint32_t *)wish->bad;
	get.n_not_zones = wish->nr_bad;
	req.zone_get = &get;
	ret = zns_broker_call(b, &req, &resp, err);
	if (ret)
		return ret;
	if (!resp->zone) {
		ret = zns_fail(err, -EPROTO, "znsd granted no zone");
	} else {
		out->zone = resp->zone->zone;
		out->group = resp->zone->group;
		out->start = resp->zone->start;
		out->capacity = resp->zone->capacity;
		if (out->zone >= geo->nr_zones || out->start > out->capacity)
			ret = zns_fail(err, -EPROTO, "znsd granted a zone that the device does not have");
	}
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}
