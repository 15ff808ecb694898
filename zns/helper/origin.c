/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who asked for the dump: the runtime wrapper says so in the environment, which criu passes on. */
#include <string.h>
#include "helper.h"

#define FROZEN_WAIT_S 1		/* design.md §5: a container that is frozen already must not wait for long */

static int text(char **to, const char *name)
{
	const char *v = getenv(name);

	if (!v || !*v)
		return 0;
	*to = strdup(v);
	return *to ? 0 : -ENOMEM;
}

int origin_fill(ZnsPb__Origin *o)
{
	int ret = text(&o->kind, "ZNS_ORIGIN_KIND");

	if (!ret && !o->kind) {
		o->kind = strdup("criu");
		return o->kind ? 0 : -ENOMEM;
	}
	if (!ret)
		ret = text(&o->container_id, "ZNS_ORIGIN_ID");
	if (!ret)
		ret = text(&o->container_name, "ZNS_ORIGIN_NAME");
	if (!ret)
		ret = text(&o->image, "ZNS_ORIGIN_IMAGE");
	if (!ret)
		ret = text(&o->root, "ZNS_ORIGIN_ROOT");
	return ret ? ret : text(&o->checkpoint_name, "ZNS_ORIGIN_CHECKPOINT");
}

bool origin_ticket(uint8_t id[ZNS_UUID_LEN])
{
	const char *v = getenv("ZNS_ORIGIN_TICKET");

	return v && !zns_uuid_parse(v, id);
}

const char *origin_admission(const char *asked)
{
	const char *v = getenv("ZNS_ORIGIN_FROZEN");

	if (!v || strncmp(asked, "wait", 4) || (asked[4] && strtoul(asked + 5, NULL, 10) <= FROZEN_WAIT_S))
		return asked;
	return "wait=1";
}
