/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chooses the device of a new checkpoint if the user names none and several are registered. */
#include <stdlib.h>
#include "zns/client.h"

/* Is the device named by its path or UUID, by ZNS_DEV, or as the default? */
static bool is_named(const char *spec)
{
	const char *env = secure_getenv("ZNS_DEV");
	char value[4096];

	return spec || (env && *env) ||
	       zns_config_get("default-device", value, sizeof(value), NULL) != -ENOENT;
}

static int ask_free(const struct zns_registered *reg, uint64_t *out, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	struct zns_broker b;
	int ret = zns_broker_connect(reg, &b, err);

	if (ret)
		return ret;
	req.has_status = req.status = 1;
	ret = zns_broker_call(&b, &req, &r, err);
	if (!ret) {
		*out = r->status ? r->status->bytes_free : 0;
		zns_pb__response__free_unpacked(r, NULL);
	}
	zns_broker_close(&b);
	return ret;
}

int zns_device_for_dump(const char *spec, struct zns_registered *out, struct zns_err *err)
{
	cleanup_free struct zns_registered *list = NULL;
	uint64_t most = 0, here = 0;
	struct zns_err e = ZNS_ERR_INIT;
	size_t nr;
	int ret = zns_resolve_device(spec, out, err);

	if (ret != -ENODEV || is_named(spec) || zns_registered_list(&list, &nr, NULL) || nr < 2)
		return ret;
	/* an error of one device, which may be missing, does not stop the search */
	for (size_t i = 0; i < nr; i++) {
		if (ask_free(&list[i], &here, &e) || (ret == 0 && here <= most))
			continue;
		*out = list[i];
		most = here;
		ret = 0;
	}
	if (!ret)
		*err = (struct zns_err)ZNS_ERR_INIT;
	return ret;
}
