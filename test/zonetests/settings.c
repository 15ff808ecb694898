/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a restore must not lose (guard.py): which CPUs each thread may use, memory that is locked
 * only once it is there, and what prctl() has set for all of a process's memory.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "zt.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

#define LEN ZT_MB(64)
#define USED ZT_MB(1)
#define SEED 79

static uint8_t *area;
static int nr_cpus, mdwe, merge, cpu[2]; /* settings of the main thread, and of the other thread */
static pid_t other;
static int ready[2];

static int one_cpu(int nth)
{
	cpu_set_t all;
	int i;

	ZT_SYS(sched_getaffinity(0, sizeof(all), &all));
	for (i = 0; !CPU_ISSET(i, &all) || nth--; i++)
		;
	return i;
}

static void pin(int to)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(to, &set);
	ZT_SYS(sched_setaffinity(0, sizeof(set), &set));
}

static void *second(void *arg)
{
	(void)arg;
	other = (pid_t)syscall(SYS_gettid);
	pin(cpu[1]);
	zt_write_all(ready[1], "x", 1);
	for (;;)
		pause();
	return NULL;
}

static void check_cpu(pid_t tid, int want, const char *who)
{
	cpu_set_t set;

	ZT_SYS(sched_getaffinity(tid, sizeof(set), &set));
	ZT_CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET(want, &set), "%s has %d CPUs, not only CPU %d",
		 who, CPU_COUNT(&set), want);
}

/* kB of the area that are there, and its flags. */
static unsigned long area_of(char flags[256])
{
	unsigned long start, end, rss = 0;
	bool in = false;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = start <= (uintptr_t)area && (uintptr_t)area < end;
		else if (in && !strncmp(line, "Rss:", 4))
			sscanf(line, "Rss: %lu", &rss);
		else if (in && !strncmp(line, "VmFlags:", 8))
			snprintf(flags, 256, "%.255s", line + 8);
	}
	if (f)
		fclose(f);
	return rss;
}

static void check(void)
{
	char flags[256] = "";
	unsigned long rss = area_of(flags);

	zt_check(area, USED, SEED, "area");
	ZT_CHECK(strstr(flags, " lf") && strstr(flags, " lo"), "the area is not locked on fault:%s",
		 flags);
	ZT_CHECK(rss < LEN / 2048, "%lu kB of the area are there", rss);
	if (nr_cpus > 1) {
		check_cpu(0, cpu[0], "the main thread");
		check_cpu(other, cpu[1], "the other thread");
	}
	ZT_CHECK(prctl(PR_GET_MDWE, 0, 0, 0, 0) == mdwe, "PR_GET_MDWE says %d, not %d",
		 prctl(PR_GET_MDWE, 0, 0, 0, 0), mdwe);
	ZT_CHECK(prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == merge,
		 "PR_GET_MEMORY_MERGE says %d, not %d", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0),
		 merge);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	cpu_set_t all;
	char byte;

	zt_init(argc, argv);
	ZT_SYS(sched_getaffinity(0, sizeof(all), &all));
	nr_cpus = CPU_COUNT(&all);
	ZT_SYS(pipe(ready));
	area = zt_mmap(LEN);
	ZT_SYS(madvise(area, LEN, MADV_NOHUGEPAGE));
	ZT_SYS(mlock2(area, LEN, MLOCK_ONFAULT));
	zt_fill(area, USED, SEED);
	if (nr_cpus > 1) {
		cpu[0] = one_cpu(0);
		cpu[1] = one_cpu(1);
		ZT_CHECK(!pthread_create(&thread, NULL, second, NULL), "no thread");
		zt_read_all(ready[0], &byte, 1, "ready");
		pin(cpu[0]);
	}
	/* Only where this kernel supports it. */
	merge = !prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0);
	mdwe = !prctl(PR_SET_MDWE, 1, 0, 0, 0);
	if (!merge)
		merge = prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0);
	if (!mdwe)
		mdwe = prctl(PR_GET_MDWE, 0, 0, 0, 0);
	zt_ready(check);
	zt_serve(check);
}
