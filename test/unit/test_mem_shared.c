/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Why shared memory is not evicted: what the kernel does if a page of a shared object was taken out
 * behind a userfaultfd. Memory is lost without a message as soon as a process reaches the object in
 * another way than through the registered mapping. If one of these tests begins to fail, the
 * decision can be reconsidered.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include "mem_fixture.h"

#define LEN (16 * PAGE)

struct object {
	uint8_t *mem; /* registered */
	int uffd;
};

static bool registered(struct object *o)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range = { (uintptr_t)o->mem, LEN },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };

	memset(o->mem, 7, LEN);
	o->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return o->uffd >= 0 && !ioctl(o->uffd, UFFDIO_API, &api) &&
	       !ioctl(o->uffd, UFFDIO_REGISTER, &r);
}

static bool punched(const struct object *o)
{
	return !madvise(o->mem, LEN, MADV_REMOVE);
}

static bool nobody_is_told(const struct object *o)
{
	struct pollfd p = { .fd = o->uffd, .events = POLLIN };

	return poll(&p, 1, 50) == 0;
}

/* Only the registered mapping gets the bytes of a page that was taken out. */
static void by_descriptor(void **state)
{
	struct object o;
	uint8_t byte = 1;
	int fd = memfd_create("object", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, LEN), 0);
	o.mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(registered(&o) && punched(&o));
	assert_int_equal(pread(fd, &byte, 1, 0), 1); /* also write(), sendfile(), splice() */
	assert_int_equal(byte, 0);
	assert_true(nobody_is_told(&o));
	/* with a write it is worse: the page exists now, and the mapping never faults */
	byte = 9;
	assert_int_equal(pwrite(fd, &byte, 1, 1), 1);
	assert_int_equal(o.mem[0], 0);
	assert_true(nobody_is_told(&o));
	munmap(o.mem, LEN);
	close(o.uffd);
	close(fd);
}

/* The kernel refuses System V segments; and any process with the right to do so can attach one
 * at any time. */
static void system_v(void **state)
{
	struct object o;
	int id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);

	o.mem = shmat(id, NULL, 0);
	assert_false(registered(&o));
	assert_int_equal(errno, EINVAL);
	shmdt(o.mem);
	shmctl(id, IPC_RMID, NULL);
	close(o.uffd);
}

/* A file in /dev/shm or a memfd: whoever has the descriptor maps it again. */
static void by_another_mapping(void **state)
{
	struct object o;
	int fd = memfd_create("object", MFD_CLOEXEC);
	uint8_t *other;

	assert_int_equal(ftruncate(fd, LEN), 0);
	o.mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(registered(&o) && punched(&o));
	other = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_int_equal(other[0], 0);
	assert_int_equal(o.mem[0], 0);
	assert_true(nobody_is_told(&o));
	munmap(o.mem, LEN);
	munmap(other, LEN);
	close(fd);
	close(o.uffd);
}

/* Anonymous shared memory has no name, but a mapping of it can be duplicated. */
static void doubled(void **state)
{
	struct object o;
	uint8_t *other;

	o.mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(registered(&o) && punched(&o));
	other = mremap(o.mem, 0, LEN, MREMAP_MAYMOVE);
	assert_ptr_not_equal(other, MAP_FAILED);
	assert_int_equal(other[0], 0);
	assert_int_equal(o.mem[0], 0);
	assert_true(nobody_is_told(&o));
	munmap(o.mem, LEN);
	munmap(other, LEN);
	close(o.uffd);
}

/* And by a forked process, if the parent's userfaultfd does not report forks. */
static void forked(void **state)
{
	struct object o;
	int status;
	pid_t pid;

	o.mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(registered(&o) && punched(&o));
	pid = fork();
	if (!pid)
		_exit(o.mem[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(o.mem[0], 0);
	munmap(o.mem, LEN);
	close(o.uffd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_descriptor), cmocka_unit_test(by_another_mapping),
		cmocka_unit_test(system_v),      cmocka_unit_test(doubled),
		cmocka_unit_test(forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
