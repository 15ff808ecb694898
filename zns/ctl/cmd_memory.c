/* SPDX-License-Identifier: GPL-2.0-only */
/* memory: running programs whose unused memory is on zones (Documentation/memory.md) */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include "memory.h"
#include "zns/daemon.h"
#include "zns/packet.h"
#include "../docker/docker.h"

#define READY_MS 60000 /* a pager may start a broker, which waits for dumps to end */
#define DRAM_MIN MIB(1)

/* ---- attach ---- */

/* Bytes of DRAM that a process and its descendants have; 0: it has ended. */
static uint64_t resident(pid_t pid)
{
	cleanup_file FILE *f = NULL, *c = NULL;
	unsigned long pages = 0, all = 0;
	uint64_t sum = 0;
	char path[64];
	int child;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%lu %lu", &all, &pages) != 2)
		return 0;
	sum = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	c = fopen(path, "re");
	while (c && fscanf(c, "%d", &child) == 1)
		sum += resident(child);
	return sum;
}

/* "512M", or "30%" of what the process and its descendants have now. */
static int parse_dram(const char *text, pid_t pid, uint64_t *dram, struct zns_err *err)
{
	size_t len = strlen(text);
	char digits[8];
	uint64_t percent, now;

	if (!len || text[len - 1] != '%') {
		if (zns_parse_size(text, dram) || *dram < DRAM_MIN)
			return zns_fail(err, -EINVAL,
					"--dram %.40s: a size of 1M at least, or a share like 30%%",
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
	now = resident(pid);
	if (!now)
		return zns_fail(err, -ESRCH, "PID %d has no memory; has it ended?", (int)pid);
	*dram = zns_max(now * percent / 100, (uint64_t)DRAM_MIN);
	return 0;
}

static bool keeps(const char *var, size_t len)
{
	return zns_daemon_keeps(var, len) ||
	       (len == strlen("ZNSD_IDLE_S") && !memcmp(var, "ZNSD_IDLE_S", len));
}

static int start_pager(const char *name, const char *dev, pid_t pid, uint64_t dram,
		       struct zns_err *err)
{
	char prog[PATH_MAX], log[PATH_MAX], pid_arg[16], dram_arg[32], fd_arg[16];
	char *argv[] = { prog,         (char *)"--ready-fd",
			 fd_arg,       (char *)"--name",
			 (char *)name, (char *)"--dram",
			 dram_arg,     pid_arg,
			 NULL,         NULL,
			 NULL };
	const struct zns_daemon d = {
		.name = "zns-mem", .argv = argv, .log = log, .ready_ms = READY_MS, .keeps = keeps
	};
	cleanup_close int dir = zns_run_subdir(MEMORY_DIR, err);
	int ret;

	if (dir < 0)
		return dir;
	ret = zns_find_program("zns-mem", prog, sizeof(prog));
	if (ret)
		return zns_fail(err, ret, "zns-mem, the pager, is not installed beside this one");
	snprintf(pid_arg, sizeof(pid_arg), "%d", (int)pid);
	snprintf(dram_arg, sizeof(dram_arg), "%llu", (unsigned long long)dram);
	snprintf(fd_arg, sizeof(fd_arg), "%d", ZNS_READY_FD);
	if (dev) {
		argv[7] = (char *)"--dev";
		argv[8] = (char *)dev;
		argv[9] = pid_arg;
	}
	if ((size_t)snprintf(log, sizeof(log), "%s/" MEMORY_DIR "/%s.log", zns_run_dir(), name) >=
	    sizeof(log))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s", zns_run_dir());
	return zns_daemon_start(&d, err);
}

/* What is to be extended: a PID, or a container of Docker or Podman. */
static int find_target(const char *what, struct docker_running *r, struct zns_err *err)
{
	uint64_t pid;

	if (zns_parse_number(what, 2, INT32_MAX, &pid))
		return docker_running(what, r, err);
	if (kill((pid_t)pid, 0) < 0)
		return zns_fail_sys(err, -errno, "PID %s", what);
	r->pid = (int)pid;
	snprintf(r->name, sizeof(r->name), "pid-%d", r->pid);
	return 0;
}

static int status_of(const char *name, ZnsPb__MemoryAnswer **out, struct zns_err *err)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	int ret;

	q.op = ZNS_PB__MEMORY_OP__MEMORY_STATUS;
	ret = memory_call(name, &q, out, err);
	if (!ret && !(*out)->status) {
		zns_pb__memory_answer__free_unpacked(*out, NULL);
		ret = zns_fail(err, -EPROTO, "the pager of %s says nothing of itself",
			       ctl_text(name));
	}
	return ret;
}

static int show_one(const struct ctl_cmd *cmd, const char *name, bool json)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__MemoryAnswer *r;

	if (status_of(name, &r, &err))
		return ctl_fail(cmd, &err);
	if (json)
		ctl_print_json(memory_json(r->status));
	else
		memory_print(r->status, true);
	zns_pb__memory_answer__free_unpacked(r, NULL);
	return CTL_OK;
}

static int attach(const struct ctl_cmd *cmd, int argc, char **argv)
{
	const char *dram_text = NULL, *name = NULL;
	struct docker_running t = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct memory_kernel k;
	uint64_t dram;
	const struct ctl_opt opts[] = { CTL_TEXT("dram", &dram_text), CTL_TEXT("name", &name),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "one PID or container is wanted");
	if (!dram_text)
		return ctl_usage(cmd, "--dram is wanted: a size, or a share like 30%%");
	memory_kernel(&k);
	if (*k.missing) {
		zns_fail(&err, -EOPNOTSUPP, "%s", k.missing);
		return ctl_fail(cmd, &err);
	}
	if (find_target(args.argv[0], &t, &err) || parse_dram(dram_text, t.pid, &dram, &err) ||
	    start_pager(name ? name : t.name, args.dev, t.pid, dram, &err))
		return ctl_fail(cmd, &err);
	return show_one(cmd, name ? name : t.name, args.json);
}

/* ---- detach, limit, status ---- */

static int tell(const struct ctl_cmd *cmd, const char *what, ZnsPb__MemoryRequest *q, char *name,
		size_t len)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (memory_find(what, name, len, &err) || memory_call(name, q, NULL, &err))
		return ctl_fail(cmd, &err);
	return CTL_OK;
}

static int detach(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_OPTS_END };
	char name[256];
	int code;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "one context is wanted: its name, or a PID");
	q.op = ZNS_PB__MEMORY_OP__MEMORY_DETACH;
	code = tell(cmd, args.argv[0], &q, name, sizeof(name));
	if (code)
		return code;
	if (args.json)
		return ctl_print_list("detached", json_object_new_string(name));
	printf("detached %s: all of its memory is in DRAM\n", ctl_text(name));
	return CTL_OK;
}

static int limit(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	const char *dram_text = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_TEXT("dram", &dram_text), CTL_OPTS_END };
	char name[256];
	int code;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1 || !dram_text)
		return ctl_usage(cmd, "one context and --dram SIZE are wanted");
	if (parse_dram(dram_text, 0, &q.dram, &err))
		return ctl_fail(cmd, &err);
	q.op = ZNS_PB__MEMORY_OP__MEMORY_LIMIT;
	q.has_dram = 1;
	code = tell(cmd, args.argv[0], &q, name, sizeof(name));
	return code ? code : show_one(cmd, name, args.json);
}

static struct json_object *kernel_json(const struct memory_kernel *k)
{
	return ctl_obj(J("mechanism", k->mechanism), J("lost_units", k->lost),
		       J("missing", *k->missing ? k->missing : (const char *)NULL),
		       J("note", *k->note ? k->note : (const char *)NULL));
}

static void kernel_print(const struct memory_kernel *k)
{
	if (*k->missing)
		printf("this kernel: nothing can be extended: %s\n", k->missing);
	else
		printf("this kernel: pages are dropped by a ring; a unit that cannot be read %s\n",
		       !strcmp(k->lost, "poison") ? "is poisoned (SIGBUS)" : "ends its processes");
	if (*k->note)
		printf("             %s\n", k->note);
}

static int status_all(const struct ctl_cmd *cmd, bool json)
{
	struct json_object *list = json_object_new_array();
	struct zns_err err = ZNS_ERR_INIT;
	struct memory_kernel k;
	int code = CTL_OK;
	char **names;
	size_t nr;

	if (memory_names(&names, &nr, &err))
		return ctl_fail(cmd, &err);
	memory_kernel(&k);
	if (!json)
		kernel_print(&k);
	for (size_t i = 0; i < nr; i++) {
		ZnsPb__MemoryAnswer *r;
		int ret = status_of(names[i], &r, &err);

		if (ret == -ENOENT) /* a dead pager's socket: its keeper is at work, or nobody is */
			continue;
		if (ret) {
			code = ctl_fail(cmd, &err);
			continue;
		}
		if (json)
			json_object_array_add(list, memory_json(r->status));
		else
			memory_print(r->status, false);
		zns_pb__memory_answer__free_unpacked(r, NULL);
	}
	memory_names_free(names, nr);
	if (json)
		ctl_print_json(ctl_obj(J("kernel", kernel_json(&k)), J("contexts", list)));
	else
		json_object_put(list);
	return code;
}

static int status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_OPTS_END };
	char name[256];

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		return ctl_usage(cmd, "at most one context");
	if (!args.argc)
		return status_all(cmd, args.json);
	if (memory_find(args.argv[0], name, sizeof(name), &err))
		return ctl_fail(cmd, &err);
	return show_one(cmd, name, args.json);
}

static const struct ctl_cmd subs[] = {
	{ "memory attach", "PID|CONTAINER --dram SIZE|SHARE%",
	  "keep what a running program does not use on zones",
	  "  --dram SIZE     so much of its memory stays in DRAM: 512M; or 30%, of what it has now\n"
	  "  --name NAME     of the context; else the container's, or pid-PID\n" CTL_DEV_HELP,
	  attach },
	{ "memory detach", "NAME|PID", "read all of it back, and end the context", "", detach },
	{ "memory limit", "NAME|PID --dram SIZE", "give it more or less DRAM",
	  "  --dram SIZE     so much of its memory stays in DRAM\n", limit },
	{ "memory status", "[NAME|PID]",
	  "the contexts here, or all of one; what this kernel allows", "", status },
};

static int cmd_memory(const struct ctl_cmd *cmd, int argc, char **argv)
{
	size_t len = strlen("memory ");

	for (size_t i = 0; argc > 1 && i < ZNS_ARRAY_SIZE(subs); i++) {
		char title[64];

		if (strcmp(argv[1], subs[i].name + len))
			continue;
		snprintf(title, sizeof(title), "znsctl %s", subs[i].name);
		argv[1] = title; /* getopt's own messages then name the command */
		return subs[i].run(&subs[i], argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "--help") && strcmp(argv[1], "-h"))
		return ctl_usage(cmd, "attach, detach, limit or status is wanted, not \"%.40s\"",
				 ctl_text(argv[1]));
	if (argc < 2)
		return ctl_usage(cmd, "attach, detach, limit or status is wanted");
	printf("usage: znsctl memory COMMAND ...\n%s\n\n", cmd->brief);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(subs); i++)
		printf("  %s %s\n      %s\n%s", subs[i].name + len, subs[i].args, subs[i].brief,
		       subs[i].help);
	return CTL_OK;
}

const struct ctl_cmd command_memory = {
	"memory",
	"attach|detach|limit|status ...",
	"running programs whose unused memory is on zones",
	"",
	cmd_memory,
};
