/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_ATONCE_PIE_H__
#define __CR_ZNS_ATONCE_PIE_H__
/* The message between zns-atonce.c and the parasite. No libc here. */
#include "infect-pie.h"
#include "parasite.h"

#define ZNS_ATONCE_MAX 8
#define ZNS_ATONCE_SINGLE 4096 /* PARASITE_ARG_SIZE_MIN, which the parasite does not know */

/* The arguments of several commands. They follow those of a single command, which the parasite
 * still reads. */
struct zns_atonce_args {
	char single[ZNS_ATONCE_SINGLE];
	struct {
		unsigned int cmd, at; /* @at: bytes from the beginning to its arguments */
		int ret;
	} of[ZNS_ATONCE_MAX];
	struct parasite_vdso_vma_entry vdso;
	struct parasite_dump_misc misc;
	struct parasite_dump_itimers_args itimers;
	struct parasite_dump_sa_args sigacts;
	char thread[ZNS_ATONCE_SINGLE] __attribute__((aligned(8))); /* parasite_dump_thread */
};

/* A command that fails is noted; the others are still run. */
static inline int zns_do_atonce(void *args)
{
	struct zns_atonce_args *a = args;
	int i;

	for (i = 0; i < ZNS_ATONCE_MAX && a->of[i].cmd; i++)
		a->of[i].ret = parasite_daemon_cmd(a->of[i].cmd, args + a->of[i].at);
	return 0;
}

#endif
