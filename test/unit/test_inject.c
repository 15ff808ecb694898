/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls that we make in a process while its code is changed, as another process with the same
 * memory could do: only the call that was asked for is made, and no other call evades the seccomp
 * filter.
 */
#include <elf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "track_fixture.h"

static unsigned int nr_scans;

static int counted(int fd, unsigned long request, void *arg)
{
	nr_scans++;
	return ioctl(fd, request, arg);
}
#define ioctl counted
#include "../../zns/track/scan.c"
#undef ioctl
#include "zns/apart.h"
#include "zns/inject.h"

#ifdef __x86_64__
static char dir[] = "/tmp/zns-inject-XXXXXX", made[64];

static void forbid_mkdir(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ZNS_ARRAY_SIZE(f), f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(1);
}

/* 'y': mkdir() is forbidden. */
static void filtered(const struct ends *e, void *arg)
{
	forbid_mkdir();
	for (;;) {
		tell(e, syscall(SYS_mkdir, made, 0700) && errno == EPERM ? 'y' : 'n');
		await(e);
	}
}

struct script {
	pid_t pid;
	int mem; /* /proc/PID/mem */
	const uint8_t *code; /* put in the place of the instruction */
	size_t len;
	long before, after;
	int ret; /* of the call with other code */
};

static int change_and_call(struct zns_guest *g, void *arg)
{
	struct script *s = arg;
	const uint64_t args[6] = { (uintptr_t)made, 0700 };
	struct user_regs_struct r;
	struct iovec iov = { &r, sizeof(r) };
	uint8_t old[16];
	int ret = zns_guest_call(g, SYS_getppid, args, &s->before);

	if (!ret && ptrace(PTRACE_GETREGSET, s->pid, (void *)NT_PRSTATUS, &iov))
		ret = -errno;
	if (ret || pread(s->mem, old, s->len, (off_t)r.rip - 2) != (ssize_t)s->len ||
	    pwrite(s->mem, s->code, s->len, (off_t)r.rip - 2) != (ssize_t)s->len)
		return ret ? ret : -EIO;
	s->ret = zns_guest_call(g, SYS_getppid, args, &s->after);
	return pwrite(s->mem, old, s->len, (off_t)r.rip - 2) == (ssize_t)s->len ? 0 : -EIO;
}

static void with_code(struct script *s)
{
	struct target c = start(filtered, NULL);
	struct zns_err err = ZNS_ERR_INIT;
	char path[48];
	uint64_t stop_ns;
	int maps;

	assert_int_equal(heard(&c), 'y');
	snprintf(path, sizeof(path), "/proc/%d/mem", c.pid);
	s->pid = c.pid;
	s->mem = open(path, O_RDWR | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/maps", c.pid);
	maps = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(s->mem >= 0 && maps >= 0);
	if (zns_inject(c.pid, maps, 60000, change_and_call, s, &stop_ns, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(access(made, F_OK), -1);
	say(&c, 'g'); /* the filter is active again */
	assert_int_equal(heard(&c), 'y');
	close(s->mem);
	close(maps);
	end(&c);
}

static void another_number(void **state)
{
	/* mov $SYS_mkdir, %eax; syscall */
	static const uint8_t code[] = { 0xb8, SYS_mkdir, 0, 0, 0, 0x0f, 0x05 };
	struct script s = { .code = code, .len = sizeof(code) };

	with_code(&s);
	assert_int_equal(s.ret, 0);
	assert_int_equal(s.before, getpid());
	assert_int_equal(s.after, getpid());
}

static void other_arguments(void **state)
{
	/* mov $SYS_unlink, %eax; xor %edi, %edi; syscall */
	static const uint8_t code[] = { 0xb8, SYS_unlink, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05 };
	struct script s = { .code = code, .len = sizeof(code) };

	with_code(&s);
	assert_int_equal(s.ret, 0);
	assert_int_equal(s.after, getpid());
}

/* int $0x80: the numbers mean other calls there. */
static void another_table(void **state)
{
	static const uint8_t code[] = { 0xcd, 0x80 };
	struct script s = { .code = code, .len = sizeof(code) };

	with_code(&s);
	assert_int_equal(s.ret, -ENOTSUP);
}

static int prepare(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(made, sizeof(made), "%s/made", dir);
	return 0;
}

static int clean(void **state)
{
	rmdir(made);
	return rmdir(dir);
}

/* The kernel unmaps it as a whole only. */
static bool unmap_vdso(void)
{
	void *at = (void *)getauxval(AT_SYSINFO_EHDR);

	for (size_t pages = 1; pages < 8; pages++)
		if (!munmap(at, pages * PAGE))
			return true;
	return false;
}

static void without_vdso(const struct ends *e, void *arg)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { 0x100000, MIB(1) },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	void *at = mmap((void *)0x100000, MIB(1), PROT_READ | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (fd < 0 || at == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &reg) || !unmap_vdso())
		tell(e, 'n');
	else
		tell(e, 'y');
	await(e);
}

static int ask_parent(struct zns_guest *g, void *arg)
{
	const uint64_t args[6] = { 0 };

	return zns_guest_call(g, SYS_getppid, args, arg);
}

/* The lowest code of the process is in memory whose pages another process should fill, and does
 * not. */
static void code_that_nobody_brings(void **state)
{
	struct target c = start(without_vdso, NULL);
	struct zns_err err = ZNS_ERR_INIT;
	char path[48];
	uint64_t stop_ns;
	long parent = 0;
	int maps;

	if (heard(&c) != 'y')
		skip();
	snprintf(path, sizeof(path), "/proc/%d/maps", c.pid);
	maps = open(path, O_RDONLY | O_CLOEXEC);
	if (zns_inject(c.pid, maps, 60000, ask_parent, &parent, &stop_ns, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(parent, getpid());
	close(maps);
	end(&c);
}

static int wait_for_ever(int fd, void *arg, void *out)
{
	char c;

	*(int *)out = 1;
	return (int)read(fd, &c, 1);
}

static int answer(int fd, void *arg, void *out)
{
	*(int *)out = 7;
	return fcntl(fd, F_GETFD) < 0 || fcntl(fd + 2, F_GETFD) >= 0 ? -EBADF : -EDOM;
}

static int alone(int fd, void *arg, void *out)
{
	return fd != -1 || fcntl(0, F_GETFD) >= 0 || fcntl(2, F_GETFD) >= 0 ? -EBADF : -EDOM;
}

static int crash(int fd, void *arg, void *out)
{
	raise(SIGKILL);
	return 0;
}

/* Work that may hang: it is left, and holds only the descriptor that it was given. */
static void left_behind(void **state)
{
	int out = 3, p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(zns_apart(answer, p[0], NULL, &out, sizeof(out), 60000), -EDOM);
	assert_int_equal(out, 7);
	assert_int_equal(zns_apart(alone, -1, NULL, NULL, 0, 60000), -EDOM);
	assert_int_equal(zns_apart(crash, -1, NULL, NULL, 0, 60000), -EIO);
	out = 3;
	assert_int_equal(zns_apart(wait_for_ever, p[0], NULL, &out, sizeof(out), 50), -ETIMEDOUT);
	assert_int_equal(out, 3);
	close(p[0]);
	/* the process is killed, and does not hold the file any more */
	until(write(p[1], "x", 1) < 0 && errno == EPIPE);
	close(p[1]);
}

static int count(int fd, void *arg, void *out)
{
	return ++*(int *)out;
}

/* Many questions to one process; the next one after it has hung is to another process. */
static void asked_again(void **state)
{
	struct zns_apart_process a;
	int p[2];

	assert_int_equal(zns_apart_begin(&a, count, -1, NULL, sizeof(int)), 0);
	for (int n = 1; n <= 3; n++)
		assert_int_equal(zns_apart_ask(&a, 60000), n);
	assert_int_equal(*(int *)a.shared, 3);
	zns_apart_end(&a);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(zns_apart_begin(&a, wait_for_ever, p[0], NULL, sizeof(int)), 0);
	assert_int_equal(zns_apart_ask(&a, 50), -ETIMEDOUT);
	zns_apart_end(&a);
	close(p[0]);
	until(write(p[1], "x", 1) < 0 && errno == EPIPE);
	close(p[1]);
}

static int nothing(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return 0;
}

/* A process may have terabytes of nothing, which take it some steps only. */
static void steps_over_holes(void **state)
{
	const struct scan_query q = { .mask = IS_WRITTEN, .returned = IS_WRITTEN, .step = MIB(1) };
	uint64_t len = GIB(64);
	void *hole = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), ret;

	assert_true(hole != MAP_FAILED && fd >= 0);
	ret = scan_range(fd, &q, (uintptr_t)hole, (uintptr_t)hole + len, nothing, NULL);
	munmap(hole, len);
	close(fd);
	if (ret == -ENOTTY)
		skip(); /* before Linux 6.7 */
	assert_int_equal(ret, 0);
	assert_in_range(nr_scans, 1, 100);
}

/* The file's name is longer than that of any descriptor that is asked for. */
static void name_of_a_descriptor(void **state)
{
	char path[128];
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), fd, got;

	snprintf(path, sizeof(path), "%s/%080d", dir, 1);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(self >= 0 && fd >= 0);
	assert_int_equal(zns_fetch_fd(self, fd, "anon_inode:[userfaultfd]"), -EBADF);
	got = zns_fetch_fd(self, fd, dir);
	assert_true(got >= 0);
	close(got);
	close(fd);
	close(self);
	unlink(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_number),       cmocka_unit_test(other_arguments),
		cmocka_unit_test(another_table),        cmocka_unit_test(code_that_nobody_brings),
		cmocka_unit_test(left_behind),          cmocka_unit_test(asked_again),
		cmocka_unit_test(name_of_a_descriptor), cmocka_unit_test(steps_over_holes),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, prepare, clean);
}
#else
int main(void)
{
	return 0;
}
#endif
