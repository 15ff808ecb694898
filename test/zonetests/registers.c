/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread has outside of memory, while it uses it: SSE registers, MXCSR, the x87 control
 * word, a signal stack and a signal mask. The first thread turns in a loop that has values in all
 * registers; another one answers the runner. (livedump.py)
 */
#include <pthread.h>
#include <signal.h>
#include "zt.h"

#define REGS 16
#define STACK ZT_MB(1)

struct state {
	uint8_t xmm[REGS][16];
	uint32_t mxcsr;
	uint16_t cw;
};

static struct state in, out;
static volatile int stop, stopped;
static stack_t stack;
static sigset_t mask;

#ifdef __x86_64__
#define EACH(op)                                                                                 \
	op("0") op("1") op("2") op("3") op("4") op("5") op("6") op("7") op("8") op("9") op("10") \
		op("11") op("12") op("13") op("14") op("15")
#define LOAD(n) "movups 16*" n "(%0), %%xmm" n "\n"
#define STORE(n) "movups %%xmm" n ", 16*" n "(%1)\n"

static void turn(void)
{
	__asm__ volatile("ldmxcsr 256(%0)\n"
			 "fldcw 260(%0)\n" EACH(LOAD) "1: pause\n"
						      "cmpl $0, (%2)\n"
						      "je 1b\n" EACH(STORE) "stmxcsr 256(%1)\n"
									    "fnstcw 260(%1)\n"
			 :
			 : "r"(&in), "r"(&out), "r"(&stop)
			 : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
			   "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
			   "xmm15");
}
#else
static void turn(void)
{
	zt_skip("x86-64 only");
}
#endif

static void check(void)
{
	stop = 1;
	while (!stopped)
		usleep(100);
	ZT_CHECK(!memcmp(&in, &out, sizeof(in)), "registers are not what they were");
	ZT_CHECK(stack.ss_size == STACK && !stack.ss_flags,
		 "the signal stack has %zu bytes, flags %x", stack.ss_size, stack.ss_flags);
	ZT_CHECK(sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGHUP),
		 "the signal mask is not what it was");
	stop = stopped = 0;
	while (!stopped)
		usleep(100);
	stopped = 0;
}

static void *server(void *arg)
{
	(void)arg;
	zt_ready(check);
	zt_serve(check);
}

int main(int argc, char **argv)
{
	stack_t set = { .ss_size = STACK };
	pthread_t thread;

	zt_init(argc, argv);
	memset(&in, 0, sizeof(in));
	zt_fill(in.xmm, sizeof(in.xmm), 1);
	in.mxcsr = 0x7f80; /* rounds to zero */
	in.cw = 0x0c7f; /* the same test for x87 */
	set.ss_sp = zt_mmap(STACK);
	ZT_SYS(sigaltstack(&set, NULL));
	ZT_CHECK(!pthread_create(&thread, NULL, server, NULL), "no thread");
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	ZT_SYS(sigprocmask(SIG_BLOCK, &mask, NULL));
	for (;;) {
		turn();
		ZT_SYS(sigaltstack(NULL, &stack));
		ZT_SYS(sigprocmask(SIG_BLOCK, NULL, &mask));
		stopped = 1;
		while (stop)
			usleep(100);
		stopped = 1;
	}
}
