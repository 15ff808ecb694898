/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Could the device ever give the bandwidth that a container requests? The limit is the sum of its
 * groups. If the broker cannot be asked now, the checkpoint itself makes this check.
 */
#include <string.h>
#include "runc.h"
#include "zns/client.h"
#include "zns/config.h"
#include "zns/store.h"

static ZnsPb__Response *ask_profile(const struct zns_registered *reg)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r = NULL;
	struct zns_broker b;

	if (zns_broker_connect(reg, &b, NULL))
		return NULL;
	req.has_profile = req.profile = 1;
	if (zns_broker_call(&b, &req, &r, NULL))
		r = NULL;
	zns_broker_close(&b);
	return r;
}

int feasible_qos(const struct docker_settings *s, struct zns_err *err)
{
	const char *dev = s->source[DOCKER_DEV] ? s->value[DOCKER_DEV] : NULL;
	struct zns_registered reg;
	ZnsPb__Response *r;
	uint32_t mibps, rate, groups;
	uint64_t most;
	int ret = 0;

	if (!s->source[DOCKER_QOS] || zns_parse_mibps(s->value[DOCKER_QOS], &mibps) ||
	    (dev && !strcmp(dev, "none")) || zns_resolve_device(dev, &reg, NULL) ||
	    zns_spec_on_disk(reg.path)) /* a store on a shared disk promises no bandwidth */
		return 0;
	r = ask_profile(&reg);
	if (r && r->profile) {
		rate = zns_profile_promise(r->profile, &groups);
		most = (uint64_t)groups * rate;
		if (most && mibps > most)
			ret = zns_fail(
				err, -ERANGE,
				"%s zns.qos: %u MiB/s is more than the device has: at most %llu MiB/s "
				"(%u groups x %u MiB/s)",
				s->source[DOCKER_QOS], mibps, (unsigned long long)most, groups,
				rate);
	}
	if (r)
		zns_pb__response__free_unpacked(r, NULL);
	return ret;
}
