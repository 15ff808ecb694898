/* SPDX-License-Identifier: GPL-2.0-only */
/* memory attach: starts a pager for a running program. */
#include <signal.h>
#include <string.h>
#include "memory.h"
#include "../../docker/docker.h"

#define DRAM_MIN MIB(1)

/* Parses "512M", or "30%" of the memory that the process and its descendants have now. */
int memory_parse_dram(const char *text, pid_t pid, uint64_t *dram, struct zns_err *err)
{
	size_t len = strlen(text);
	char digits[8];
	uint64_t percent, now;

	if (!len || text[len - 1] != '%') {
		if (zns_parse_size(text, dram) || *dram < DRAM_MIN)
			return zns_fail(
				err, -EINVAL,
				"--dram %.40s: a size of 1M at least, a share like 30%%, or "
				"auto with attach",
				ctl_text(text));
		return 0;
	}
	snprintf(digits, sizeof(digits), "%.*s", (int)zns_min(len - 1, sizeof(digits) - 1), text);
	if (len > 4 || zns_parse_number(digits, 1, 100, &percent))
		return zns_fail(err, -EINVAL, "--dram %.40s: a share is 1%% to 100%%",
				ctl_text(text));
	if (!pid)
		return zns_fail(err, -EINVAL,
				"--dram %.40s: a share is of what the program has when it is "
				"attached; here a size is wanted",
				ctl_text(text));
	now = docker_resident(pid);
	if (!now)
		return zns_fail(err, -ESRCH, "PID %d has no memory; has it ended?", (int)pid);
	*dram = zns_max(now * percent / 100, (uint64_t)DRAM_MIN);
	return 0;
}

/* Finds the process to attach: by PID, or the first process of a container of Docker or Podman. */
static int find_target(const char *what, struct docker_running *r, struct zns_err *err)
{
	uint64_t pid;

	if (zns_parse_number(what, 2, INT32_MAX, &pid))
		return docker_running(what, r, err);
	if (kill((pid_t)pid, 0) < 0)
		return zns_fail_sys(err, -errno, "cannot attach PID %s", what);
	r->pid = (int)pid;
	snprintf(r->name, sizeof(r->name), "pid-%d", r->pid);
	return 0;
}

int memory_attach(const struct memory_wish *w, char *name, size_t len, struct zns_err *err)
{
	struct docker_running t = { 0 };
	struct docker_pager p = { .dev = w->dev,
				  .idle_s = w->idle_s,
				  .qos_mibps = w->qos_mibps,
				  .no_predict = w->no_predict,
				  .encrypt = w->encrypt };
	struct memory_kernel k;
	int ret;

	memory_kernel(&k);
	if (*k.missing)
		return zns_fail(err, -EOPNOTSUPP, "%s", k.missing);
	ret = find_target(w->what, &t, err);
	if (ret)
		return ret;
	if (w->dram && !strcmp(w->dram, "auto")) {
		ret = docker_memory_total(&p.total, err);
		p.min = w->min ? w->min : DOCKER_MEMORY_MIN_BYTES;
		p.dram = zns_max(zns_min(docker_resident(t.pid), p.total), p.min);
	} else if (w->min) {
		ret = zns_fail(err, -EINVAL, "--min needs --dram auto");
	} else if (!w->dram) /* default: the present size plus a reserve */
		p.dram = docker_resident(t.pid) / 8 * 9 + MIB(4);
	else
		ret = memory_parse_dram(w->dram, t.pid, &p.dram, err);
	if (ret)
		return ret;
	p.pid = t.pid;
	p.name = w->name ? w->name : t.name;
	snprintf(name, len, "%s", p.name);
	return docker_pager_start(&p, err);
}

int memory_cmd_attach(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct memory_wish w = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_TEXT("dram", &w.dram),
					CTL_TEXT("name", &w.name),
					CTL_DURATION("idle", &w.idle_s, 1),
					CTL_RATE("qos", &w.qos_mibps),
					CTL_FLAG("no-predict", &w.no_predict),
					CTL_FLAG("encrypt", &w.encrypt),
					CTL_SIZE("min", &w.min, DRAM_MIN),
					CTL_DEV,
					CTL_OPTS_END };
	char name[MEMORY_NAME];

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one PID or container");
	if (!w.dram && !w.idle_s)
		return ctl_usage(cmd, "give --dram: a size, a share like 30%%, or auto");
	w.what = args.argv[0];
	w.dev = args.dev;
	if (memory_attach(&w, name, sizeof(name), &err))
		return ctl_fail(cmd, &err);
	return memory_show(cmd, name, args.json);
}
