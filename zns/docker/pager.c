/* SPDX-License-Identifier: GPL-2.0-only */
/* Starts the pager of a memory context (Documentation/inside/memory.md). */
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "docker.h"
#include "zns/config.h"
#include "zns/daemon.h"
#include "zns/packet.h"
#include "zns/process.h"

/* ms; a pager may start a broker, which first waits until dumps have ended */
#define READY_MS 60000
#define DIR_NAME "memory"

uint64_t docker_resident(pid_t pid)
{
	return zns_process_tree(pid, ZNS_PROCESS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool keeps(const char *var, size_t len)
{
	return zns_daemon_keeps(var, len) ||
	       (len == strlen("ZNSD_IDLE_S") && !memcmp(var, "ZNSD_IDLE_S", len));
}

int docker_pager_start(const struct docker_pager *p, struct zns_err *err)
{
	char prog[PATH_MAX], log[PATH_MAX], pid[16], dram[32], idle[32], fd[16], qos[16];
	char total[32], min[32], began[32];
	char *argv[24] = { prog,
			   (char *)"--ready-fd",
			   fd,
			   (char *)"--name",
			   (char *)p->name,
			   (char *)"--dram",
			   dram,
			   (char *)"--idle",
			   idle };
	const struct zns_daemon d = {
		.name = "zns-mem", .argv = argv, .log = log, .ready_ms = READY_MS, .keeps = keeps
	};
	cleanup_close int dir = zns_run_subdir(DIR_NAME, err);
	int n = 9, ret;

	if (dir < 0)
		return dir;
	ret = zns_check_memory(p->name, err);
	if (ret)
		return ret;
	ret = zns_need_program("the pager", "zns-mem", prog, sizeof(prog), err);
	if (ret)
		return ret;
	snprintf(pid, sizeof(pid), "%d", (int)p->pid);
	snprintf(dram, sizeof(dram), "%llu", (unsigned long long)p->dram);
	snprintf(idle, sizeof(idle), "%llu", (unsigned long long)p->idle_s);
	snprintf(total, sizeof(total), "%llu", (unsigned long long)p->total);
	snprintf(min, sizeof(min), "%llu", (unsigned long long)p->min);
	snprintf(fd, sizeof(fd), "%d", ZNS_READY_FD);
	if (p->dev) {
		argv[n++] = (char *)"--dev";
		argv[n++] = (char *)p->dev;
	}
	if (p->qos_mibps) {
		snprintf(qos, sizeof(qos), "%u", p->qos_mibps);
		argv[n++] = (char *)"--qos";
		argv[n++] = qos;
	}
	if (p->no_predict)
		argv[n++] = (char *)"--no-predict";
	if (p->encrypt)
		argv[n++] = (char *)"--encrypt";
	if (p->total) {
		argv[n++] = (char *)"--auto";
		argv[n++] = total;
		argv[n++] = (char *)"--min";
		argv[n++] = min;
	}
	if (p->began) {
		snprintf(began, sizeof(began), "%llu", (unsigned long long)p->began);
		argv[n++] = (char *)"--began";
		argv[n++] = began;
	}
	argv[n] = pid;
	if ((size_t)snprintf(log, sizeof(log), "%s/" DIR_NAME "/%s.log", zns_run_dir(), p->name) >=
	    sizeof(log))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: its name is too long",
				zns_run_dir());
	return zns_daemon_start(&d, err);
}
