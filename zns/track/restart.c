/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See restart.h. */
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "restart.h"

#ifdef __x86_64__
/*
 * A system call that returns this value inside the kernel is restarted, unless a signal handler
 * runs first. Then it fails with EINTR.
 */
#define ERESTARTNOHAND 514

/* Did the system call wait without a timeout and without side effects? Then it may be restarted. */
static bool waits_for_ever(const struct user_regs_struct *r)
{
	switch (r->orig_rax) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)r->r10 < 0;
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
#endif
	case SYS_semtimedop:
		return !r->r10;
	case SYS_semop:
		return true;
	case SYS_rt_sigtimedwait:
		return !r->rdx;
	}
	return false;
}

void restart_mend(pid_t tid)
{
	struct user_regs_struct r;
	struct iovec iov = { &r, sizeof(r) };

	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &iov) || iov.iov_len != sizeof(r))
		return;
	if ((long)r.rax != -EINTR || !waits_for_ever(&r))
		return;
	r.rax = (unsigned long long)-ERESTARTNOHAND;
	ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &iov);
}
#else
void restart_mend(pid_t tid)
{
}
#endif
