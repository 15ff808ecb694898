/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns-mem: the pager of one memory context. `znsctl memory attach` starts the first one, the keeper
 * starts each successor (zns/memkeep.h). A pager must never wait for memory that it serves itself.
 * So its own memory is locked, and it asks the kernel to kill any other process first.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "../engine/context.h"
#include "pager.h"
#include "zns-version.h"
#include "zns/daemon.h"
#include "zns/process.h"

#define TICK_MS 2000 /* ms between two checks whether any process is left */
#define DRAM_MIN MIB(1)

static volatile sig_atomic_t terminated;

static void on_term(int sig)
{
	terminated = 1;
}

static void settle_down(void)
{
	struct sigaction sa = { .sa_handler = on_term };
	int fd;

	zns_process_raise_limits();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	sigaction(SIGTERM, &sa, NULL);
	/*
	 * The keeper may execute this file by its descriptor, and then the process has no useful
	 * name.
	 */
	prctl(PR_SET_NAME, "zns-mem");
	prctl(PR_SET_DUMPABLE, 0); /* buffers contain memory of other processes */
	zns_cgroup_escape();
	/*
	 * lock pages only when they are touched: locking the sparse tables as a whole would
	 * allocate them
	 */
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		fprintf(stderr, "memory cannot be locked: %s\n", strerror(errno));
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "-1000", 5) < 0)
		fprintf(stderr, "oom_score_adj: %s\n", strerror(errno));
	if (fd >= 0)
		close(fd);
}

/*
 * Keeps only the capabilities that this process needs, or a broker or keeper that it starts.
 * Documentation/user/security.md explains each, and why there is no seccomp filter.
 */
static int few_rights(struct zns_err *err)
{
	static const int keep[] = { CAP_SYS_PTRACE, CAP_SYS_ADMIN,    CAP_KILL,
				    CAP_IPC_LOCK,   CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
				    CAP_SYS_NICE,   CAP_SYS_RESOURCE, CAP_NET_ADMIN };
	return zns_process_keep_caps(keep, ZNS_ARRAY_SIZE(keep), err);
}

struct options {
	const char *name, *dev, *take, *checkpoint;
	uint64_t dram, ready, pid, idle_s, restore, qos;
	uint64_t began; /* --began: start time of the process; 0: not given */
	bool no_predict, encrypt;
	uint64_t total, min; /* --auto, --min */
};

/* Refuses a PID that belongs to another process by now. */
static int check_began(const struct options *o, struct zns_err *err)
{
	if (!o->began || zns_process_began((pid_t)o->pid) == o->began)
		return 0;
	return zns_fail(err, -ESRCH, "process %llu has ended", (unsigned long long)o->pid);
}

/* Called repeatedly, since the limit may change at any time. */
static void tell_limit(struct pager *p)
{
	zns_pages_group_limit(p->pages, zns_mem_group_limit(p->m));
}

static int begin(struct pager *p, const struct options *o, struct zns_err *err)
{
	const struct zns_pages_params params = { .dev = o->dev,
						 .container = p->name,
						 .qos_mibps = (uint32_t)o->qos,
						 .encrypt = o->encrypt };
	struct zns_mem_store st;
	int ret = check_began(o, err);

	if (!ret)
		ret = zns_memkeep_open(p->name, &p->keep, err);
	if (!ret)
		ret = zns_pages_open(&params, &p->pages, err);
	if (ret)
		return ret;
	store_of(p, &st);
	ret = zns_mem_new(p->name, o->dram, &st, &p->m, err);
	if (!ret) {
		zns_mem_predict(p->m, !o->no_predict);
		zns_mem_set_rate(p->m, (uint32_t)o->qos);
	}
	if (!ret && o->idle_s)
		zns_mem_idle(p->m, o->idle_s * 1000);
	if (!ret)
		ret = zns_mem_attach(p->m, (pid_t)o->pid, err);
	/* check again: if the PID still belongs to the right process, that one was attached */
	if (!ret)
		ret = check_began(o, err);
	if (!ret)
		ret = control_open(p, err);
	if (!ret && o->total)
		ret = zns_mem_auto(p->m, p->dir, o->total, o->min, err);
	if (!ret)
		/* from now on the context survives the death of this pager */
		ret = hand_over(p, err);
	if (ret)
		return ret;
	tell_limit(p);
	return zns_mem_start(p->m, err);
}

static int restored(struct pager *p, const struct options *o, struct zns_err *err)
{
	const struct restoring r = { .sk = (int)o->restore,
				     .device = o->dev,
				     .checkpoint = o->checkpoint,
				     .dram = o->dram };

	/* criu runs within the cgroup limits of its container, which the pager must not */
	zns_process_shed();
	return restore_take(p, &r, err);
}

static int take_over(struct pager *p, struct zns_err *err)
{
	int ret = hand_take(p, err);

	if (!ret)
		ret = control_open(p, err);
	/* without the table of shares the context keeps its last budget */
	if (!ret && zns_mem_is_auto(p->m) && zns_mem_auto(p->m, p->dir, 0, 0, err))
		fprintf(stderr, "%s: %s\n", p->name, err->msg);
	return ret ? ret : hand_over(p, err);
}

/* Pauses eviction until a new keeper has copies of the descriptors. */
static void keeper_gone(struct pager *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	zns_mem_pause(p->m, true);
	ret = zns_memkeep_again(p->keep, &err);
	if (!ret)
		ret = hand_over(p, &err);
	if (ret)
		fprintf(stderr, "%s: %s; nothing is evicted meanwhile\n", p->name, err.msg);
	else
		zns_mem_pause(p->m, false);
}

static void handed_again(struct pager *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t n;

	if (read(zns_mem_changes(p->m), &n, sizeof(n)) == sizeof(n) && hand_over(p, &err))
		fprintf(stderr, "%s: %s\n", p->name, err.msg);
}

static void serve(struct pager *p)
{
	while (!p->end && zns_mem_processes(p->m)) {
		struct zns_err err = ZNS_ERR_INIT;
		struct pollfd f[5] = { { .fd = zns_mem_changes(p->m), .events = POLLIN },
				       { .fd = zns_memkeep_fd(p->keep), .events = POLLIN },
				       { .fd = p->listen, .events = POLLIN },
				       { .fd = p->quiesce_listen, .events = POLLIN },
				       { .fd = p->quiesce, .events = POLLIN } };

		tell_limit(p);
		if (poll(f, 5, TICK_MS) < 0 && errno != EINTR)
			break;
		if (f[0].revents)
			handed_again(p);
		if (f[1].revents || zns_memkeep_fd(p->keep) < 0)
			keeper_gone(p);
		if (f[2].revents)
			control_serve(p);
		if (f[4].revents)
			quiesce_serve(p);
		if (f[3].revents)
			quiesce_accept(p);
		origin_over(p);
		if (terminated && !p->end && p->quiesce < 0) {
			terminated = 0;
			p->end = !zns_mem_detach(p->m, &err);
			if (!p->end)
				fprintf(stderr, "%s: cannot detach, so the pager stays: %s\n",
					p->name, err.msg);
		}
	}
}

/* Ends the context and gives back all its zones. */
static void finish(struct pager *p)
{
	control_close(p);
	zns_mem_leave(p->m);
	zns_pages_close(p->pages, true);
	zns_origin_free(p->origin);
	zns_memkeep_end(p->keep);
}

static int usage(FILE *f)
{
	fprintf(f, "usage: zns-mem --name NAME --dram BYTES [--dev DEV] [--idle SECONDS]\n"
		   "               [--no-predict] [--auto BYTES [--min BYTES]]\n"
		   "               [--qos MIBPS] [--encrypt] [--ready-fd FD] PID\n"
		   "       zns-mem --restore-fd FD --dev UUID --checkpoint UUID --dram BYTES\n"
		   "               [--name NAME]\n"
		   "       zns-mem --take-over NAME\n"
		   "Keeps the memory of a process and its descendants under a budget; the rest is\n"
		   "on zones.\n"
		   "`znsctl memory`, `criu restore` and zns-memkeep start it. See znsctl(8).\n");
	return f == stdout ? 0 : 2;
}

/* Returns -1 if the program should go on, else its exit code. */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option opt[] = {
		{ "name", 1, NULL, 'n' },       { "dev", 1, NULL, 'd' },
		{ "dram", 1, NULL, 'm' },       { "ready-fd", 1, NULL, 'r' },
		{ "take-over", 1, NULL, 't' },  { "idle", 1, NULL, 'i' },
		{ "auto", 1, NULL, 'a' },       { "min", 1, NULL, 'l' },
		{ "no-predict", 0, NULL, 'p' }, { "help", 0, NULL, 'h' },
		{ "version", 0, NULL, 'V' },    { "checkpoint", 1, NULL, 'c' },
		{ "restore-fd", 1, NULL, 'R' }, { "qos", 1, NULL, 'q' },
		{ "encrypt", 0, NULL, 'e' },    { "began", 1, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "hV", opt, NULL)) >= 0) {
		if (c == 'n')
			o->name = optarg;
		else if (c == 'd')
			o->dev = optarg;
		else if (c == 't')
			o->take = optarg;
		else if (c == 'p')
			o->no_predict = true;
		else if (c == 'e')
			o->encrypt = true;
		else if (c == 'c')
			o->checkpoint = optarg;
		else if (c == 'a' && !zns_parse_size(optarg, &o->total))
			continue;
		else if (c == 'l' && !zns_parse_size(optarg, &o->min))
			continue;
		else if (c == 'm' && !zns_parse_size(optarg, &o->dram))
			continue;
		else if (c == 'i' && !zns_parse_number(optarg, 0, INT32_MAX, &o->idle_s))
			continue;
		else if (c == 'q' && !zns_parse_number(optarg, 0, UINT32_MAX, &o->qos))
			continue;
		else if (c == 'r' && !zns_parse_number(optarg, 0, INT32_MAX, &o->ready))
			continue;
		else if (c == 'R' && !zns_parse_number(optarg, 3, INT32_MAX, &o->restore))
			continue;
		else if (c == 'b' && !zns_parse_number(optarg, 0, UINT64_MAX, &o->began))
			continue;
		else if (c == 'V')
			return printf("zns-mem: ZNS-CRIU %s\nMemory contexts: %d\n", ZNS_VERSION,
				      CONTEXT_VERSION) < 0;
		else
			return usage(c == 'h' ? stdout : stderr);
	}
	if (o->take)
		return argc == optind ? -1 : usage(stderr);
	if (o->restore)
		return o->dev && o->checkpoint && o->dram >= DRAM_MIN && argc == optind ?
			       -1 :
			       usage(stderr);
	if (!o->name || o->dram < DRAM_MIN || argc != optind + 1 ||
	    zns_parse_number(argv[optind], 2, INT32_MAX, &o->pid))
		return usage(stderr);
	return -1;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct pager p = { .dir = -1, .listen = -1, .quiesce_listen = -1, .quiesce = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	if (zns_std_fds())
		return 1;
	ret = parse(argc, argv, &o);
	if (ret >= 0)
		return ret;
	settle_down();
	snprintf(p.name, sizeof(p.name), "%s", o.take ? o.take : o.name ? o.name : "");
	ret = few_rights(&err);
	if (!ret)
		ret = o.take    ? take_over(&p, &err) :
		      o.restore ? restored(&p, &o, &err) :
				  begin(&p, &o, &err);
	if (ret && o.take) {
		fprintf(stderr, "%s: cannot be taken over: %s\n", p.name, err.msg);
		return 1; /* the keeper starts the next pager */
	}
	if (o.ready)
		zns_daemon_ready((int)o.ready, ret ? &err : NULL);
	if (ret) {
		fprintf(stderr, "%s: %s\n", p.name, err.msg);
		finish(&p);
		return 1;
	}
	serve(&p);
	finish(&p);
	return 0;
}
