/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes a checkpoint old: moves what it has in some zones to other groups, as compaction does where
 * a group is full. For experiments with fragmentation.
 *
 *   scatter DEVICE CHECKPOINT ZONE:GROUP ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "zns/move.h"

#define MOST 256

static int fail(const struct zns_err *err)
{
	fprintf(stderr, "scatter: %s\n", err->msg);
	return 1;
}

int main(int argc, char **argv)
{
	struct zns_session s = ZNS_SESSION_INIT;
	uint32_t zones[MOST], groups[MOST];
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r = NULL;
	struct zns_registered reg;
	struct zns_dev *dev = NULL;
	uint8_t id[ZNS_UUID_LEN];
	struct zns_move m;
	int ret, nr = 0;

	for (int i = 3; i < argc && nr < MOST; i++, nr++)
		if (sscanf(argv[i], "%u:%u", &zones[nr], &groups[nr]) != 2)
			argc = 0;
	if (argc < 4) {
		fprintf(stderr, "usage: scatter DEVICE CHECKPOINT ZONE:GROUP ...\n");
		return 2;
	}
	ret = zns_resolve_device(argv[1], &reg, &err);
	if (!ret)
		ret = zns_session_open(&s, &reg, ZNS_WRITES, &err);
	if (!ret)
		ret = zns_dev_open(reg.path, ZNS_DEV_SERVED, &dev, &err);
	if (!ret)
		ret = zns_broker_resolve_id(&s.broker, argv[2], id, &err);
	req.has_profile = req.profile = 1;
	if (!ret)
		ret = zns_broker_call(&s.broker, &req, &r, &err);
	if (ret)
		return fail(&err);
	m = (struct zns_move){ .s = &s,
			       .dev = dev,
			       .victims = zones,
			       .nr_victims = (uint32_t)nr,
			       .to_group = groups,
			       .zone_group = r->profile->zone_group,
			       .rude = true };
	ret = zns_move_copy(&m, id, &err);
	if (!ret)
		ret = zns_move_durable(&m, &err);
	if (!ret)
		ret = zns_move_commit(&m, &err);
	zns_move_end(&m);
	zns_pb__response__free_unpacked(r, NULL);
	zns_dev_close(dev);
	zns_session_close(&s);
	return ret ? fail(&err) : 0;
}
