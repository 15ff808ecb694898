/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls in a process whose code is changed under them, as another process that has its
 * memory could do: the call that is made is the one that was asked for, and past the filter goes
 * no other one.
 */
#include <elf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "track_fixture.h"
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
	say(&c, 'g'); /* the filter is there again */
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_number),
		cmocka_unit_test(other_arguments),
		cmocka_unit_test(another_table),
	};

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
