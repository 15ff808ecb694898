/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who asked for the dump: the runtime wrapper says so in the environment, which criu passes on. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "helper.h"

#define LOG_MAX KIB(256)		/* of criu's log, the end */
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

/* Docker deletes the directory of criu's log when the dump has succeeded. */
int origin_log(void)
{
	const char *path = getenv("ZNS_ORIGIN_LOG");
	cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
	cleanup_free uint8_t *buf = NULL;
	struct stat st;
	size_t len;
	int out;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size)
		return -1;
	len = (size_t)zns_min((uint64_t)st.st_size, LOG_MAX);
	buf = malloc(len);
	if (!buf || zns_pread_all(fd, buf, len, st.st_size - (off_t)len))
		return -1;
	out = memfd_create("dump.log", MFD_CLOEXEC);
	if (out >= 0 && zns_pwrite_all(out, buf, len, 0)) {
		close(out);
		return -1;
	}
	return out;
}

const char *origin_admission(const char *asked)
{
	const char *v = getenv("ZNS_ORIGIN_FROZEN");

	if (!v || strncmp(asked, "wait", 4) || (asked[4] && strtoul(asked + 5, NULL, 10) <= FROZEN_WAIT_S))
		return asked;
	return "wait=1";
}
