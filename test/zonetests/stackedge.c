/* SPDX-License-Identifier: GPL-2.0-only */
/* Waits with a stack pointer that is a multiple of the page size, beside --size MB of memory. */
#include <signal.h>
#include <sys/syscall.h>
#include "zt.h"

static uint8_t *mem;

static void check(void)
{
	zt_check(mem, zt_size, 3, "memory");
}

static int wait_at_edge(void)
{
	sigset_t set;
	long ret;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	do {
#ifdef __x86_64__
		register long size __asm__("r10") = 8;

		__asm__ volatile("mov %%rsp, %%rbx\n\t"
				 "sub $128, %%rsp\n\t"
				 "and $-4096, %%rsp\n\t"
				 "syscall\n\t"
				 "mov %%rbx, %%rsp"
				 : "=a"(ret)
				 : "a"(SYS_rt_sigtimedwait), "D"(&set), "S"(NULL), "d"(NULL),
				   "r"(size)
				 : "rbx", "rcx", "r11", "memory");
#else
		ret = sigwaitinfo(&set, NULL);
#endif
	} while (ret < 0);
	return (int)ret;
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	if (!zt_size)
		zt_size = ZT_MB(32);
	mem = zt_mmap(zt_size);
	zt_fill(mem, zt_size, 3);
	zt_ready(check);
	while (wait_at_edge() != SIGTERM)
		check();
	zt_finish(check);
}
