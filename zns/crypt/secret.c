/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Allocates memory for keys, and protects a process that holds keys. */
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include "crypt_priv.h"

static size_t pages(size_t len)
{
	return zns_align_up(len, (size_t)sysconf(_SC_PAGESIZE));
}

void *secret_alloc(size_t len, struct zns_err *err)
{
	void *p = mmap(NULL, pages(len), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED) {
		zns_fail_sys(err, -errno, "no memory for a key");
		return NULL;
	}
	if (mlock(p, pages(len))) {
		zns_fail_sys(err, -errno, "cannot lock memory for a key (ulimit -l)");
		munmap(p, pages(len));
		return NULL;
	}
	madvise(p, pages(len), MADV_DONTDUMP);
	madvise(p, pages(len), MADV_DONTFORK);
	return p;
}

void secret_free(void *p, size_t len)
{
	if (!p)
		return;
	explicit_bzero(p, len);
	munmap(p, pages(len));
}

void zns_crypt_harden(void)
{
	struct rlimit none = { 0, 0 }, all = { RLIM_INFINITY, RLIM_INFINITY };

	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &none);
	/*
	 * libcrypto keeps expanded keys in memory of its own, and buffers hold plaintext, so lock
	 * all memory. But only if the limit can be removed: with a limit, later mappings would
	 * fail.
	 */
	if (!setrlimit(RLIMIT_MEMLOCK, &all))
		mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}
