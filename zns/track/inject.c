/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes system calls in a stopped thread, without the thread noticing.
 *
 * The registers are exchanged in the stop that PTRACE_INTERRUPT makes. This stop is where the
 * kernel looks for signals, before it decides whether to restart an interrupted system call. When
 * the old registers are put back in such a stop, the kernel decides as if nothing had happened. In
 * a stop at the exit of a system call it would not decide any more, and the thread would see
 * -ERESTARTSYS.
 *
 * All threads of the process are stopped. But another process that shares its memory may change the
 * code that the thread is about to execute. So the number and arguments of the system call are
 * written again when the thread has entered the kernel, by whatever instruction. The thread's
 * seccomp filter is suspended only from that entry to the exit of this one call: the kernel runs
 * the filter after the entry stop (Linux 4.8).
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include "maps.h"
#include "threads.h"
#include "zns/apart.h"
#include "zns/inject.h"
#include "zns/safeopen.h"
#include "zns/util.h"

#ifdef __x86_64__

#define REQUEST_RSEQ ((enum __ptrace_request)0x420f) /* PTRACE_GET_RSEQ_CONFIGURATION */
#define REQUEST_DISPATCH \
	((enum __ptrace_request)0x4211) /* PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG */
#define REQUEST_GET_MASK ((enum __ptrace_request)0x420a) /* PTRACE_GETSIGMASK */
#define REQUEST_SET_MASK ((enum __ptrace_request)0x420b) /* PTRACE_SETSIGMASK */
#define USER_CS 0x33 /* value of the register CS in 64-bit code */
/*
 * ms; if the thread is frozen and does not enter the call within this time, the call is abandoned
 */
#define CALL_MS 500
#define TRIES 100 /* most attempts to stop the thread outside of a restartable sequence */
#define SEARCH_MAX (4U << 20) /* most bytes of code that are searched for a `syscall` instruction */
#define SEARCH_MS 5000
#define PAGE 4096U
#define PAGE_PRESENT (1ULL << 63) /* bit of an entry of /proc/PID/pagemap */

struct zns_guest {
	struct tracer *t;
	pid_t tid;
	struct user_regs_struct old;
	uint64_t mask, insn; /* insn: address of a `syscall` instruction */
	bool filtered; /* the thread has a seccomp filter */
};

struct job {
	uint64_t insn;
	int (*body)(struct zns_guest *g, void *arg);
	void *arg;
	bool lent; /* the thread was borrowed successfully, so a later failure is one of @body */
};

static bool peek(pid_t tid, uint64_t at, void *buf, size_t len)
{
	struct iovec here = { buf, len }, there = { (void *)(uintptr_t)at, len };

	return process_vm_readv(tid, &here, 1, &there, 1, 0) == (ssize_t)len;
}

/*
 * Are these pages in memory? If a page is not, reading it may block: a FUSE server or the owner of
 * a userfaultfd must deliver it. True also if the kernel does not say.
 */
static bool present(int pagemap, uint64_t at, size_t len)
{
	uint64_t entry, last = (at + len - 1) / PAGE;

	for (uint64_t n = at / PAGE; n <= last; n++)
		if (pread(pagemap, &entry, sizeof(entry), (off_t)(n * sizeof(entry))) ==
			    (ssize_t)sizeof(entry) &&
		    !(entry & PAGE_PRESENT))
			return false;
	return true;
}

static int open_pagemap(pid_t pid)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Finds the bytes 0f 05 in code. They may lie in the middle of another instruction. */
static uint64_t find_in(pid_t pid, int pagemap, const struct area *a)
{
	uint64_t end = a->start + zns_min(a->end - a->start, (uint64_t)SEARCH_MAX);
	uint8_t code[PAGE];

	for (uint64_t at = a->start; at < end; at += PAGE) {
		if ((!a->vdso && !present(pagemap, at, PAGE)) || !peek(pid, at, code, PAGE))
			continue;
		for (size_t i = 0; i + 1 < PAGE; i++)
			if (code[i] == 0x0f && code[i + 1] == 0x05)
				return at + i;
	}
	return 0;
}

static uint64_t find_among(pid_t pid, const struct areas *l, bool vdso)
{
	cleanup_close int pagemap = open_pagemap(pid);
	uint64_t at = 0;

	for (size_t i = 0; i < l->nr && !at; i++)
		if (l->a[i].exec && l->a[i].vdso == vdso)
			at = find_in(pid, pagemap, &l->a[i]);
	return at;
}

struct search {
	pid_t pid;
	const struct areas *l;
};

static int find_other(int fd, void *arg, void *out)
{
	const struct search *s = arg;

	*(uint64_t *)out = find_among(s->pid, s->l, false);
	return 0;
}

/*
 * Searches the vdso first, the kernel's own code, which is always in memory. Other code is searched
 * in a child process: a page may be dropped between the check and the read, and the read then
 * blocks.
 */
static uint64_t find_insn(pid_t pid, const struct areas *l)
{
	uint64_t at = find_among(pid, l, true);

	if (!at &&
	    zns_apart(find_other, -1, &(struct search){ pid, l }, &at, sizeof(at), SEARCH_MS))
		at = 0;
	return at;
}

static int get_regs(pid_t tid, struct user_regs_struct *r)
{
	struct iovec iov = { r, sizeof(*r) };

	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &iov))
		return -errno;
	/* a 32-bit task has fewer registers */
	return iov.iov_len == sizeof(*r) && r->cs == USER_CS ? 0 : -ENOTSUP;
}

static int set_regs(pid_t tid, const struct user_regs_struct *r)
{
	struct iovec iov = { (void *)(uintptr_t)r, sizeof(*r) };

	return ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &iov) ? -errno : 0;
}

struct rseq_conf {
	uint64_t pointer;
	uint32_t size, signature, flags, pad;
};

static struct rseq_conf rseq_of(pid_t tid)
{
	struct rseq_conf conf = { 0 };

	if (ptrace(REQUEST_RSEQ, tid, (void *)sizeof(conf), &conf) < 0)
		conf.pointer = 0;
	return conf;
}

void zns_guest_tick(struct zns_guest *g, void (*tick)(void *arg), void *arg)
{
	g->t->tick_arg = arg;
	g->t->tick = tick;
}

void zns_guest_rseq(const struct zns_guest *g, uint64_t *start, uint64_t *end)
{
	struct rseq_conf conf = rseq_of(g->tid);

	*start = conf.pointer;
	*end = conf.pointer ? conf.pointer + conf.size : 0;
}

/*
 * If our system call interrupted a restartable sequence, the sequence would continue afterwards,
 * perhaps on another CPU: when the thread runs next, the kernel checks the instruction pointer, and
 * finds that of our call.
 */
static bool in_sequence(pid_t tid, const struct user_regs_struct *r)
{
	struct rseq_conf conf = rseq_of(tid);
	struct {
		uint32_t version, flags;
		uint64_t start, len, abort;
	} cs;
	cleanup_close int pagemap = conf.pointer ? open_pagemap(tid) : -1;
	uint64_t at = 0;

	if (!conf.pointer)
		return false;
	if (!present(pagemap, conf.pointer + 8, sizeof(at)))
		return true;
	if (!peek(tid, conf.pointer + 8, &at, sizeof(at)) || !at)
		return false;
	return !present(pagemap, at, sizeof(cs)) || !peek(tid, at, &cs, sizeof(cs)) ||
	       r->rip - cs.start < cs.len;
}

/*
 * With syscall user dispatch, as Wine uses it, a handler of the process would get our system calls
 * and could answer them.
 */
static bool intercepted(pid_t tid)
{
	struct {
		uint64_t mode, selector, offset, len;
	} conf = { 0 };

	return ptrace(REQUEST_DISPATCH, tid, (void *)sizeof(conf), &conf) >= 0 && conf.mode;
}

static bool has_filter(pid_t tid)
{
	char buf[2048], *p;

	if (tracer_proc(tid, "status", buf, sizeof(buf)))
		return true;
	p = strstr(buf, "\nSeccomp:\t");
	return p && p[10] != '0';
}

/*
 * Can the thread's seccomp filter be suspended? That needs CAP_SYS_ADMIN. A filter that is not
 * suspended may kill the thread.
 */
static int try_filter(struct zns_guest *g)
{
	g->filtered = has_filter(g->tid);
	if (!g->filtered)
		return 0;
	return tracer_no_seccomp(g->tid, true) || tracer_no_seccomp(g->tid, false) ? -EACCES : 0;
}

/*
 * Prepares a stopped thread for our calls; all others are stopped too. -EAGAIN: it cannot be used
 * at the instruction where it stands.
 */
static int borrow(struct zns_guest *g)
{
	const uint64_t all = ~0ULL;
	int ret = get_regs(g->tid, &g->old);

	if (!ret)
		ret = try_filter(g);
	if (!ret && intercepted(g->tid))
		ret = -ENOTSUP;
	if (!ret && in_sequence(g->tid, &g->old))
		ret = -EAGAIN;
	if (!ret && ptrace(REQUEST_GET_MASK, g->tid, (void *)sizeof(g->mask), &g->mask))
		ret = -errno;
	/* block all signals: they stay queued until the old mask is restored */
	if (!ret && ptrace(REQUEST_SET_MASK, g->tid, (void *)sizeof(all), &all))
		ret = -errno;
	return ret;
}

/*
 * Lets the thread continue to the next entry or exit of a system call. Only SIGSTOP and a group
 * stop can come in between. A frozen thread can be stopped, but never reaches the entry, so only
 * the wait for the entry has a time limit.
 */
static int to_syscall_stop(struct zns_guest *g, bool entry)
{
	int status, ret, sig = 0;
	bool late = false;
	pid_t who;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, g->tid, NULL, (long)sig))
			return -errno;
		do {
			ret = tracer_wait(g->t, g->tid, &who, &status);
			if (ret == -ETIMEDOUT && entry && !late)
				late = !ptrace(PTRACE_INTERRUPT, g->tid, NULL, NULL);
			/* do not leave the thread while it executes our call */
		} while (ret == -EINTR || ret == -ETIMEDOUT);
		if (ret)
			return ret == -ECHILD ? -ESRCH : ret;
		if (!WIFSTOPPED(status))
			return -ESRCH;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			return 0;
		if (late && status >> 16 == PTRACE_EVENT_STOP)
			return -ETIMEDOUT;
		sig = status >> 16 ? 0 : WSTOPSIG(status);
	}
}

static void set_args(struct user_regs_struct *r, const uint64_t arg[6])
{
	r->rdi = arg[0];
	r->rsi = arg[1];
	r->rdx = arg[2];
	r->r10 = arg[3];
	r->r8 = arg[4];
	r->r9 = arg[5];
}

/* At the entry: replaces the number and arguments of the system call by ours. */
static int dictate(struct zns_guest *g, long nr, const uint64_t arg[6])
{
	struct __ptrace_syscall_info info = { 0 };
	struct user_regs_struct r;
	int ret;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, g->tid, (void *)sizeof(info), &info) < 0)
		return -errno;
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.arch != AUDIT_ARCH_X86_64)
		return -ENOTSUP;
	ret = get_regs(g->tid, &r);
	if (ret)
		return ret;
	r.orig_rax = (unsigned long long)nr;
	set_args(&r, arg);
	ret = set_regs(g->tid, &r);
	return !ret && g->filtered ? tracer_no_seccomp(g->tid, true) : ret;
}

int zns_guest_call(struct zns_guest *g, long nr, const uint64_t arg[6], long *result)
{
	struct user_regs_struct r = g->old;
	int ret, refused = 0;

	r.rip = g->insn;
	r.rax = (unsigned long long)nr;
	r.orig_rax = ~0ULL; /* tells the kernel that there is no system call to restart */
	set_args(&r, arg);
	ret = set_regs(g->tid, &r);
	g->t->deadline_ns = zns_mono_ns() + CALL_MS * 1000000ULL;
	if (!ret)
		ret = to_syscall_stop(g, true);
	if (!ret)
		refused = dictate(g, nr, arg);
	if (refused &&
	    ptrace(PTRACE_POKEUSER, g->tid, offsetof(struct user_regs_struct, orig_rax), -1L))
		ret = -errno; /* the thread has died without making the call */
	if (!ret)
		ret = to_syscall_stop(g, false);
	if (!ret && g->filtered)
		ret = tracer_no_seccomp(g->tid, false);
	if (!ret)
		ret = refused ? refused : get_regs(g->tid, &r);
	*result = ret ? ret : (long)r.rax;
	return ret;
}

/* Brings the thread into a stop like the first one, and restores its registers and signal mask. */
static int give_back(struct zns_guest *g)
{
	struct tracer *t = g->t;
	int ret;

	if (ptrace(PTRACE_INTERRUPT, g->tid, NULL, NULL) || ptrace(PTRACE_CONT, g->tid, NULL, NULL))
		return -errno;
	do {
		ret = tracer_wait_stop(t, g->tid);
	} while (ret == -ETIMEDOUT);
	if (!ret)
		ret = set_regs(g->tid, &g->old);
	if (ptrace(REQUEST_SET_MASK, g->tid, (void *)sizeof(g->mask), &g->mask) && !ret)
		ret = -errno;
	return ret;
}

static int work(struct tracer *t, pid_t tid, void *arg)
{
	struct job *j = arg;
	struct zns_guest g = { .t = t, .tid = tid, .insn = j->insn };
	int ret = tid ? borrow(&g) : -ESRCH, back;

	if (ret)
		return ret;
	ret = j->body(&g, j->arg);
	j->lent = ret;
	back = give_back(&g);
	return ret ? ret : back;
}

static int explain(int ret, pid_t pid, struct zns_err *err)
{
	if (ret == -EACCES)
		return zns_fail(
			err, ret,
			"process %d has a seccomp filter, and CAP_SYS_ADMIN is missing to suspend it",
			pid);
	if (ret == -ENOTSUP)
		return zns_fail(err, ret, "process %d is a 32-bit task or intercepts system calls",
				pid);
	return tracer_fail(ret, pid, err);
}

static int inject(struct tracer *t, struct job *j, unsigned int limit_ms, struct zns_err *err)
{
	int ret = threads_stopped(t, limit_ms, work, j, err);

	for (int i = 0; i < TRIES && ret == -EAGAIN && !j->lent; i++) {
		/* let the threads run for a moment, so that this one leaves the sequence */
		nanosleep(&(struct timespec){ .tv_nsec = 20000 + i * 5000L }, NULL);
		ret = threads_stopped(t, limit_ms, work, j, err);
	}
	return !ret || j->lent ? ret : explain(ret, t->pid, err);
}

int zns_inject(pid_t pid, int maps, unsigned int limit_ms,
	       int (*body)(struct zns_guest *g, void *arg), void *arg, uint64_t *stop_ns,
	       struct zns_err *err)
{
	struct tracer t = { .pid = pid };
	struct job j = { .body = body, .arg = arg };
	struct areas areas = { 0 };
	int ret = areas_read(maps, &areas, err);

	if (ret)
		return ret;
	j.insn = find_insn(pid, &areas);
	areas_free(&areas);
	if (!j.insn)
		return zns_fail(
			err, -ENOTSUP,
			"process %d has no instruction of a system call in its code, which a tracker needs",
			pid);
	ret = inject(&t, &j, limit_ms, err);
	*stop_ns = t.stop_ns;
	return ret;
}

#else
int zns_guest_call(struct zns_guest *g, long nr, const uint64_t arg[6], long *result)
{
	return -ENOSYS;
}

void zns_guest_tick(struct zns_guest *g, void (*tick)(void *arg), void *arg)
{
}

void zns_guest_rseq(const struct zns_guest *g, uint64_t *start, uint64_t *end)
{
	*start = *end = 0;
}

int zns_inject(pid_t pid, int maps, unsigned int limit_ms,
	       int (*body)(struct zns_guest *g, void *arg), void *arg, uint64_t *stop_ns,
	       struct zns_err *err)
{
	return zns_fail(err, -ENOTSUP,
			"no system call can be made in another process on this architecture");
}
#endif

int zns_fetch_fd(int pidfd, long remote, const char *kind)
{
	char link[64], path[48];
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, (int)remote, 0);

	if (fd < 0)
		return -errno;
	/*
	 * check the descriptor after it was copied: another thread may have replaced the file
	 * meanwhile
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	zns_read_link(AT_FDCWD, path, link, sizeof(link));
	if (!strncmp(link, kind, strlen(kind)))
		return fd;
	close(fd);
	return -EBADF;
}
