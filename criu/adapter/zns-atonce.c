/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asks the parasite all that criu asks it about every task, with one command. See
 * include/zns-atonce.h.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "infect.h"
#include "kerndat.h"
#include "log.h"
#include "mem.h"
#include "page.h"
#include "parasite-syscall.h"
#include "parasite.h"
#include "util.h"
#include "vma.h"
#include "zns-atonce-pie.h"
#include "zns-img.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define ANSWER(c, member)                                                 \
	{                                                                 \
		.cmd = c, .at = offsetof(struct zns_atonce_args, member), \
		.size = sizeof(((struct zns_atonce_args *)0)->member)     \
	}
static const struct {
	unsigned int cmd, at, size;
} asks[] = {
	ANSWER(PARASITE_CMD_DUMP_MISC, misc),
	ANSWER(PARASITE_CMD_DUMP_ITIMERS, itimers),
	ANSWER(PARASITE_CMD_DUMP_SIGACTS, sigacts),
	ANSWER(PARASITE_CMD_DUMP_THREAD, thread),
	/* must be the last one: it is left out for a task without a vDSO */
	ANSWER(PARASITE_CMD_CHECK_VDSO_MARK, vdso),
};

/*
 * Answers of the parasite that criu has not fetched yet. They are copied, since other processes
 * might change the memory of the task.
 */
static struct zns_atonce_args got;
static struct parasite_ctl *got_of;
static bool asked;
/* the area of the vDSO in the current task; NULL: none that can be read */
static const VmaEntry *vdso;

/*
 * most bytes of the parasite's memory. The kernel charges all of it to the task at once, and for a
 * task that has reserved terabytes criu's lists would need gigabytes.
 */
#define SHARED_MOST (16UL << 20)

/* Does the kernel refuse to overcommit memory? Then it may not give a task this much memory. */
static bool strict_commit(void)
{
	char mode = '2';
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, &mode, 1) != 1)
		mode = '2';
	close_safe(&fd);
	return mode == '2';
}

/*
 * Can /proc/PID/map_files be opened? Then the parasite needs no memfd, which would take two more
 * system calls.
 */
static bool maps_files(void)
{
	static int can = -1;
	char path[64];
	void *p;
	int fd;

	if (can >= 0)
		return can;
	p = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return false;
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (long)p, (long)p + PAGE_SIZE);
	fd = open(path, O_RDWR | O_CLOEXEC);
	/* not under SELinux, which has other rules for anonymous executable memory */
	can = fd >= 0 && access("/sys/fs/selinux/enforce", F_OK) && !strict_commit();
	close_safe(&fd);
	munmap(p, PAGE_SIZE);
	return can;
}

/*
 * Sends all questions with one command. The parasite's daemon is connected, and about to wait for
 * commands.
 */
static int ask(struct parasite_ctl *ctl)
{
	struct zns_atonce_args *a = compel_parasite_args_s(ctl, sizeof(*a));
	struct parasite_dump_thread *thread = (void *)a->thread;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(asks) - !vdso; i++) {
		a->of[i].cmd = asks[i].cmd;
		a->of[i].at = asks[i].at;
	}
	a->misc.has_membarrier_get_registrations = kdat.has_membarrier_get_registrations;
	thread->creds->cap_last_cap = kdat.last_cap;
	thread->rseq.has_rseq = kdat.has_rseq;
	thread->rseq.has_ptrace_get_rseq_conf = kdat.has_ptrace_get_rseq_conf;
	if (vdso) {
		a->vdso.start = vdso->start;
		a->vdso.len = vdso->end - vdso->start;
	}
	asked = true;
	return compel_rpc_call(PARASITE_CMD_ZNS_ATONCE, ctl);
}

static const VmaEntry *vdso_of(const struct vm_area_list *vmas)
{
	const int prot = PROT_READ | PROT_EXEC;
	const struct vma_area *vma;

	list_for_each_entry(vma, &vmas->h, list)
		if (vma_area_is(vma, VMA_AREA_VDSO) && (vma->e->prot & prot) == prot)
			return vma->e;
	return NULL;
}

/*
 * Was the question about the vDSO the same one? If the caller needs more, or means another area, it
 * asks the parasite itself.
 */
static bool same_vdso(const struct parasite_vdso_vma_entry *args)
{
	return vdso && args->start == vdso->start && args->len == vdso->end - vdso->start &&
	       !args->try_fill_symtable;
}

void zns_atonce_prepare(struct infect_ctx *ictx, const struct vm_area_list *vmas)
{
	BUILD_BUG_ON(ZNS_ATONCE_SINGLE != PARASITE_ARG_SIZE_MIN);
	asked = false;
	got_of = NULL;
	if (!zns_active())
		return;
	if (dump_pages_args_size((struct vm_area_list *)vmas) <= SHARED_MOST && maps_files())
		ictx->flags |= INFECT_NO_MEMFD;
	ictx->flags |= INFECT_ZNS_TRAP;
	ictx->zns_early = ask;
	vdso = vdso_of(vmas);
	parasite_ensure_args_size(sizeof(struct zns_atonce_args));
}

int zns_atonce_take(struct parasite_ctl *ctl)
{
	if (!asked)
		return 0;
	if (compel_rpc_sync(PARASITE_CMD_ZNS_ATONCE, ctl))
		return -1;
	memcpy(&got, compel_parasite_args_s(ctl, sizeof(got)), sizeof(got));
	got_of = ctl;
	return 0;
}

int zns_atonce(unsigned int cmd, struct parasite_ctl *ctl)
{
	char *args = compel_parasite_args_p(ctl);
	unsigned int i;

	for (i = 0; got_of == ctl && i < ARRAY_SIZE(asks); i++) {
		if (asks[i].cmd != cmd || got.of[i].cmd != cmd ||
		    (cmd == PARASITE_CMD_CHECK_VDSO_MARK && !same_vdso((void *)args)))
			continue;
		/* an answer is used once: the next request of this kind goes to the parasite */
		got.of[i].cmd = 0;
		memcpy(args, (char *)&got + asks[i].at, asks[i].size);
		if (got.of[i].ret)
			pr_err("Command %u for daemon failed with %d\n", cmd, got.of[i].ret);
		return got.of[i].ret ? -1 : 0;
	}
	if (cmd == PARASITE_CMD_DUMP_POSIX_TIMERS && got_of == ctl &&
	    !((struct parasite_dump_posix_timers_args *)args)->timer_n)
		return 0;
	return compel_rpc_call_sync(cmd, ctl);
}
