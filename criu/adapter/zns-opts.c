/* SPDX-License-Identifier: GPL-2.0-only */
/* The zns options, from command line, configuration or RPC request. See include/zns-img.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/compiler.h"
#include "log.h"
#include "zns-extend.h"
#include "zns-img.h"
#include "zns-opts.h"
#include "zns-version.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

struct zw_begin zns_opts;
bool zns_opts_given, zns_opts_timeout, zns_over_rpc, zns_live_durable, zns_record_off, zns_scripts;
unsigned int zns_record_s;
unsigned long long zns_memory;
bool zns_memory_daemon;

bool zns_extends(void)
{
	return zns_memory;
}

/*
 * Makes a device's name absolute: the user's working directory is not that of criu and the helper.
 */
static int absolute_dev(void)
{
	size_t prefix = strspn(zns_opts.dev, "abcdefghijklmnopqrstuvwxyz");
	char cwd[PATH_MAX], out[2 * PATH_MAX];
	const char *path;

	prefix = zns_opts.dev[prefix] == ':' ? prefix + 1 : 0; /* emu:, zonefs: */
	path = zns_opts.dev + prefix;
	/* if there is no such file, the name may be a UUID */
	if (*path == '/' || (!prefix && access(path, F_OK)))
		return 0;
	if (!getcwd(cwd, sizeof(cwd)) ||
	    snprintf(out, sizeof(out), "%.*s%s/%s", (int)prefix, zns_opts.dev, cwd, path) >=
		    sizeof(zns_opts.dev)) {
		pr_err("--zns-dev %s: give an absolute path\n", zns_opts.dev);
		return -1;
	}
	strcpy(zns_opts.dev, out);
	return 0;
}

void zns_print_version(void)
{
	pr_msg("ZNS-CRIU: %s\n", ZNS_VERSION);
}

void zns_timeout_given(void)
{
	zns_opts_timeout = true;
}

void zns_script_given(void)
{
	zns_scripts = true;
}

void zns_use(void)
{
	zns_opts_given = true;
}

static int parse_live(const char *arg)
{
	static const struct {
		const char *name;
		int live;
	} known[] = {
		{ "auto", ZW_LIVE_AUTO },
		{ "yes", ZW_LIVE_ON },
		{ "no", 0 },
		{ "durable", ZW_LIVE_ON },
	};
	int i;

	for (i = 0; arg && i < ARRAY_SIZE(known); i++) {
		if (!strcmp(arg, known[i].name))
			break;
	}
	if (arg && i == ARRAY_SIZE(known)) {
		pr_err("--zns-live=%s: it takes auto, yes, no or durable\n", arg);
		return -1;
	}
	zns_opts.live &= ZW_LIVE_SLOW_FAILS;
	zns_opts.live |= ZW_LIVE_SAID | (arg ? known[i].live : ZW_LIVE_ON);
	zns_live_durable = arg && !strcmp(arg, "durable");
	return 0;
}

static int parse_slow(const char *arg)
{
	bool fail = !strcmp(arg, "fail");

	if (!fail && strcmp(arg, "freeze")) {
		pr_err("--zns-live-slow %s: it takes freeze or fail\n", arg);
		return -1;
	}
	zns_opts.live &= ~ZW_LIVE_SLOW_FAILS;
	if (fail)
		zns_opts.live |= ZW_LIVE_SLOW_FAILS;
	return 0;
}

#define RECORD_S 10 /* default in seconds */
#define RECORD_S_MAX 3600

static int parse_record(const char *arg)
{
	char *end = NULL;
	unsigned long s = arg ? strtoul(arg, &end, 10) : RECORD_S;

	zns_record_off = arg && !strcmp(arg, "off");
	if (!zns_record_off &&
	    (!s || s > RECORD_S_MAX || (arg && (*end || *arg < '0' || *arg > '9')))) {
		pr_err("--zns-record=%s: it takes seconds, 1 to %d, or off\n", arg, RECORD_S_MAX);
		return -1;
	}
	zns_opts.record = !zns_record_off;
	zns_record_s = s;
	return 0;
}

static int parse_memory(const char *arg)
{
	static const char unit[] = "KMGT";
	char *end;
	unsigned long long n = strtoull(arg, &end, 10), more = 1;
	const char *u = *end ? strchr(unit, *end) : NULL;

	if (u && end[1] == 'i' && end[2] == 'B')
		end += 2;
	for (end += u != NULL; u && u >= unit; u--)
		more <<= 10;
	zns_memory_daemon = !strcmp(end, ZNS_MEMORY_DAEMON);
	if (*arg < '0' || *arg > '9' || (*end && !zns_memory_daemon) || n > LLONG_MAX / more ||
	    n * more < 1 << 20) {
		pr_err("--zns-memory %s: it takes a size of 1M at least, as 512M\n", arg);
		return -1;
	}
	zns_memory = n * more;
	return 0;
}

int zns_parse_opt(int code, const char *arg)
{
	static const struct {
		const char *name;
		char *to;
		size_t len;
	} at[] = {
		{ "zns-dev", zns_opts.dev, sizeof(zns_opts.dev) },
		{ "zns-qos", zns_opts.qos, sizeof(zns_opts.qos) },
		{ "zns-container", zns_opts.container, sizeof(zns_opts.container) },
		{ "zns-checkpoint", zns_opts.checkpoint, sizeof(zns_opts.checkpoint) },
		{ "zns-alloc", zns_opts.alloc, sizeof(zns_opts.alloc) },
		{ "zns-admission", zns_opts.admission, sizeof(zns_opts.admission) },
		{ "zns-stripe", zns_opts.stripe, sizeof(zns_opts.stripe) },
		{ "zns-qos-max", zns_opts.qos_max, sizeof(zns_opts.qos_max) },
		{ "zns-parent", zns_opts.parent, sizeof(zns_opts.parent) },
		{ "zns-weight", zns_opts.weight, sizeof(zns_opts.weight) },
		{ "zns-cgroup", zns_opts.cgroup, sizeof(zns_opts.cgroup) },
	};
	int i = code - ZNS_OPT_FIRST;

	zns_opts_given = true;
	if (code == ZNS_OPT_SEPARATE) {
		zns_opts.separate_metadata = 1;
		return 0;
	}
	if (code == ZNS_OPT_LIVE)
		return parse_live(arg);
	if (code == ZNS_OPT_LIVE_SLOW)
		return parse_slow(arg);
	if (code == ZNS_OPT_RECORD)
		return parse_record(arg);
	if (code == ZNS_OPT_MEMORY)
		return parse_memory(arg);
	if (i >= ARRAY_SIZE(at))
		return -1;
	if (!*arg || strlen(arg) >= at[i].len) {
		pr_err("--%s needs a value of 1 to %zu characters\n", at[i].name, at[i].len - 1);
		return -1;
	}
	strcpy(at[i].to, arg);
	return code == ZNS_OPT_FIRST ? absolute_dev() : 0;
}
