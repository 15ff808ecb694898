/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Is a PID's memory still the one that was attached? Memory can outlive its first process, if that
 * process has created others by clone(CLONE_VM). And a process gets new memory when it executes a
 * program. The kernel writes 16 random bytes (AT_RANDOM) into the memory of each program at its
 * start. They are read through the PID and through a file that was opened at the attach, and
 * compared.
 */
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#include "../engine/mem.h"

#define RANDOM_LEN 16

/* Does not allocate memory, since it is called while a thread is stopped. */
bool same_memory(const struct proc *p)
{
	uint64_t auxv[2 * 64], at = 0;
	uint8_t now[RANDOM_LEN], then[RANDOM_LEN];
	struct iovec here = { now, sizeof(now) }, there = { .iov_len = sizeof(now) };
	char path[40];
	cleanup_close int fd = -1;
	ssize_t n;

	if (proc_ended(p))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/auxv", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, auxv, sizeof(auxv));
	for (size_t i = 0; n > 0 && i + 1 < (size_t)n / sizeof(*auxv) && !at; i += 2)
		if (auxv[i] == AT_RANDOM)
			at = auxv[i + 1];
	if (!at)
		/*
		 * there is no vector, although no program removes it: the userfaultfd tells whether
		 * the memory is gone
		 */
		return !mem_uffd_dead(p->uffd);
	there.iov_base = (void *)(uintptr_t)at;
	return process_vm_readv(p->pid, &here, 1, &there, 1, 0) == RANDOM_LEN &&
	       pread(p->mem, then, sizeof(then), (off_t)at) == RANDOM_LEN &&
	       !memcmp(now, then, sizeof(now));
}
