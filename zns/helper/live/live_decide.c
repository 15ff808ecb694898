/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides whether a dump is live. Without an option it is live if its tasks keep running afterwards
 * and live.md lists no reason against it.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include "live.h"
#include "zns/config.h"

static bool file_says(const char *dir, const char *cgroup, const char *name, const char *word)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX];
	size_t len;

	return (size_t)snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/%s", dir, cgroup, name) <
		       sizeof(path) &&
	       !zns_read_file(AT_FDCWD, path, 4096, &text, &len) && strstr((char *)text, word);
}

/*
 * Is the task in a frozen cgroup? In a frozen cgroup of version 1, threads do not stop for a
 * tracker. And a live dump of frozen tasks has no advantage.
 */
static bool is_frozen(pid_t pid)
{
	cleanup_free uint8_t *text = NULL;
	char path[48], *line, *save, *cgroup, *controller;
	bool frozen = false;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	if (zns_read_file(AT_FDCWD, path, 65536, &text, &len))
		return false;
	for (line = strtok_r((char *)text, "\n", &save); line && !frozen;
	     line = strtok_r(NULL, "\n", &save)) {
		cgroup = strchr(line, '/');
		controller = strstr(line, "freezer");
		if (cgroup && controller && controller < cgroup)
			frozen = file_says("/freezer", cgroup, "freezer.state", "FR");
		else if (cgroup && !strncmp(line, "0::", 3))
			frozen = file_says("", cgroup, "cgroup.events", "frozen 1") ||
				 file_says("/unified", cgroup, "cgroup.events", "frozen 1");
	}
	return frozen;
}

/* Are the conditions of live.md for "auto" met? */
static bool fits(const struct zw_begin *b)
{
	struct zns_track_kernel k;

	return b->live & ZW_LIVE_RUNS_ON && b->pid > 0 && strcmp(b->cgroup, "container") &&
	       !secure_getenv("ZNS_ORIGIN_FROZEN") && !is_frozen(b->pid) &&
	       !zns_track_kernel(&k, NULL) && k.tracker == ZNS_TRACKER_UFFD;
}

static int read_conf(bool *automatic, bool *on, bool *durable, struct zns_err *err)
{
	char value[16] = "auto";
	int ret = zns_config_get("live", value, sizeof(value), err);

	if (ret && ret != -ENOENT)
		return ret;
	*automatic = !strcmp(value, "auto");
	*durable = !strcmp(value, "durable");
	*on = *durable || !strcmp(value, "yes");
	if (!*automatic && !*on && strcmp(value, "no"))
		return zns_fail(err, -EINVAL, "live in zns.conf: auto, yes, no or durable");
	return err->code = 0;
}

int live_decide(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	bool automatic = b->live & ZW_LIVE_AUTO, on = b->live & ZW_LIVE_ON, durable = false;
	int ret = 0;

	if (!(b->live & ZW_LIVE_SAID))
		ret = read_conf(&automatic, &on, &durable, err);
	if (ret || !(b->live & ZW_LIVE_CAN) || !(on || (automatic && fits(b))))
		return ret;
	ret = live_new(d, err);
	if (ret)
		return ret;
	d->live->durable = durable;
	d->live->slow_fails = b->live & ZW_LIVE_SLOW_FAILS;
	return 0;
}
