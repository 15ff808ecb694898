/* SPDX-License-Identifier: GPL-2.0-only */
/* What a name may be, with openat2 and without: syscall() is wrapped. */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "zns/safeopen.h"
#include "zns/util.h"

static bool without; /* as a kernel before 5.6 */
static char top[64];
static int dir = -1;

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_openat2 && without) {
		errno = ENOSYS;
		return -1;
	}
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static const char *in_top(const char *name)
{
	static char path[2][PATH_MAX];
	static int n;

	n = !n;
	snprintf(path[n], sizeof(path[n]), "%s/%s", top, name);
	return path[n];
}

static int make(void **state)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd, sk = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(top, "/tmp/safeopen-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	dir = open(top, O_RDONLY | O_DIRECTORY);
	fd = openat(dir, "file", O_WRONLY | O_CREAT, 0600);
	if (fd < 0 || write(fd, "content", 7) != 7)
		return -1;
	close(fd);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/socket", top);
	if (bind(sk, (struct sockaddr *)&sun, sizeof(sun)))
		return -1;
	close(sk);
	return mkfifoat(dir, "fifo", 0600) || mkdirat(dir, "sub", 0700) ||
	       mkdirat(dir, "sub/deep", 0700) || symlinkat("file", dir, "link") ||
	       symlinkat("/none", dir, "dangling") || symlinkat("loop", dir, "loop") ||
	       symlinkat("sub", dir, "to-sub") || symlinkat(top, dir, "to-top") ||
	       symlinkat("..", dir, "sub/up") || symlinkat("/etc", dir, "his") ||
	       fchownat(dir, "his", 1234, 1234, AT_SYMLINK_NOFOLLOW);
}

static int drop(void **state)
{
	char cmd[96];

	close(dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	return system(cmd);
}

static void files(void **state)
{
	static const struct {
		const char *name;
		int code;
	} wrong[] = {
		{ "fifo", -EINVAL },    { "socket", -EINVAL },
		{ "sub", -EISDIR },     { "link", -ELOOP },
		{ "dangling", -ELOOP }, { "loop", -ELOOP },
		{ "none", -ENOENT },    { "", -EINVAL },
		{ ".", -EINVAL },       { "..", -EINVAL },
		{ "sub/x", -EINVAL },   { "/etc/passwd", -EINVAL },
		{ "../file", -EINVAL }, { "to-sub/deep", -EINVAL },
	};
	struct stat st, again;
	int fd;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(wrong); i++)
		assert_int_equal(zns_open_file(dir, wrong[i].name, &st), wrong[i].code);
	fd = zns_open_file(dir, "file", &st);
	assert_true(fd >= 0);
	assert_int_equal(st.st_size, 7);
	close(fd);
	fd = zns_open_file(dir, "file", &again);
	assert_true(zns_same_file(&st, &again));
	assert_int_equal(futimens(fd, (struct timespec[]){ { 1, 0 }, { 1, 0 } }), 0);
	close(fd);
	close(zns_open_file(dir, "file", &again));
	assert_false(zns_same_file(&st, &again));
	/* a lease that another process has on the file must not delay us */
	fd = openat(dir, "file", O_RDWR);
	assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	signal(SIGIO, SIG_IGN);
	assert_int_equal(zns_open_file(dir, "file", &st), -EAGAIN);
	close(fd);
}

static void planted(void **state)
{
	struct stat st;

	assert_int_equal(linkat(dir, "file", dir, "other", 0), 0);
	close(zns_open_file(dir, "file", &st));
	assert_false(zns_planted(dir, &st)); /* of the directory's owner */
	assert_int_equal(fchownat(dir, "other", 1234, 1234, 0), 0);
	close(zns_open_file(dir, "file", &st));
	assert_true(zns_planted(dir, &st));
	unlinkat(dir, "other", 0);
	close(zns_open_file(dir, "file", &st));
	assert_false(zns_planted(dir, &st)); /* it has no other name */
	assert_int_equal(fchownat(dir, "file", 0, 0, 0), 0);
}

/* The inode of a directory opened, or -errno. */
static long long inode(int fd)
{
	struct stat st;

	if (fd < 0)
		return fd;
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return (long long)st.st_ino;
}

static long long inode_of(const char *path)
{
	return inode(open(path, O_PATH));
}

static void directories(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char base[ZNS_BASE_MAX], longer[PATH_MAX + 10], name[300];
	int fd;

	assert_int_equal(inode(zns_open_dir(top, &err)), inode_of(top));
	assert_int_equal(inode(zns_open_dir(in_top("sub//deep/"), &err)),
			 inode_of(in_top("sub/deep")));
	/* root's own links are followed, and a user's is not, wherever it stands */
	assert_int_equal(inode(zns_open_dir(in_top("to-sub/deep"), &err)),
			 inode_of(in_top("sub/deep")));
	assert_int_equal(inode(zns_open_dir(in_top("to-top/to-sub/../sub/./deep"), &err)),
			 inode_of(in_top("sub/deep")));
	assert_int_equal(inode(zns_open_dir(in_top("sub/up"), &err)), inode_of(top));
	assert_int_equal(zns_open_dir(in_top("his"), &err), -ELOOP);
	assert_non_null(strstr(err.msg, "user 1234"));
	assert_int_equal(zns_open_dir(in_top("his/apt"), &err), -ELOOP);
	assert_int_equal(zns_open_dir(in_top("to-top/his"), &err), -ELOOP);
	assert_int_equal(zns_open_dir(in_top("loop"), &err), -ELOOP);
	assert_int_equal(zns_open_dir(in_top("file"), &err), -ENOTDIR);
	assert_int_equal(zns_open_dir(in_top("fifo"), &err), -ENOTDIR);
	assert_int_equal(zns_open_dir(in_top("link"), &err), -ENOTDIR);
	assert_int_equal(zns_open_dir(in_top("none"), &err), -ENOENT);
	assert_int_equal(zns_open_dir("", &err), -ENOENT);
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = 0;
	assert_int_equal(zns_open_dir(longer, &err), -ENAMETOOLONG);
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(zns_open_dir(in_top(name), &err), -ENAMETOOLONG);
	assert_int_equal(zns_open_parent(in_top(name), base, &err), -ENAMETOOLONG);

	assert_int_equal(inode(zns_open_parent(in_top("to-sub/x//"), base, &err)),
			 inode_of(in_top("sub")));
	assert_string_equal(base, "x");
	assert_int_equal(inode(zns_open_parent("x.tar", base, &err)), inode_of("."));
	assert_string_equal(base, "x.tar");
	assert_int_equal(inode(zns_open_parent("/x", base, &err)), inode_of("/"));
	assert_int_equal(zns_open_parent("/", base, &err), -EINVAL);
	assert_int_equal(zns_open_parent(in_top(".."), base, &err), -EINVAL);
	assert_int_equal(zns_open_parent(in_top("his/x"), base, &err), -ELOOP);

	fd = zns_open_subdir(dir, "sub");
	assert_int_equal(inode(fd), inode_of(in_top("sub")));
	assert_int_equal(zns_open_subdir(dir, "to-sub"), -ENOTDIR);
	assert_int_equal(zns_open_subdir(dir, "file"), -ENOTDIR);
	assert_int_equal(zns_open_subdir(dir, "sub/deep"), -EINVAL);
	assert_int_equal(zns_open_subdir(dir, ".."), -EINVAL);
}

static void writing(void **state)
{
	static const char *const over[] = { "new",  "new",    "link", "dangling",
					    "fifo", "socket", "loop" };
	cleanup_free uint8_t *buf = NULL;
	char tmp[ZNS_BASE_MAX];
	struct stat st;
	size_t len;
	int fd;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(over); i++) {
		assert_int_equal(zns_put_file(dir, over[i], "data", 4), 0);
		fd = zns_open_file(dir, over[i], &st);
		assert_true(fd >= 0 && st.st_size == 4 && (st.st_mode & 07777) == 0600);
		close(fd);
	}
	assert_int_equal(zns_put_file(dir, "sub", "data", 4), -EISDIR);
	assert_int_equal(zns_read_plain(dir, "file", 100, &buf, &len), 0);
	assert_string_equal((char *)buf, "content"); /* through no link */
	assert_int_equal(zns_make_file(dir, "file"), -EEXIST);
	assert_int_equal(zns_make_file(dir, "../x"), -EINVAL);
	fd = zns_make_temp(dir, "base", tmp);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(zns_rename_new(dir, tmp, "file"), -EEXIST);
	assert_int_equal(zns_rename_new(dir, tmp, "renamed"), 0);
	assert_int_equal(faccessat(dir, tmp, F_OK, 0), -1);
}

static void locks(void **state)
{
	int mine = open(top, O_RDONLY), other = open(top, O_RDONLY);

	assert_int_equal(zns_flock(mine, LOCK_SH, 0), 0);
	assert_int_equal(zns_flock(other, LOCK_SH, 0), 0);
	assert_int_equal(zns_flock(other, LOCK_EX, 50), -ETIMEDOUT);
	close(mine);
	assert_int_equal(zns_flock(other, LOCK_EX, 50), 0);
	close(other);
	assert_int_equal(zns_flock(-1, LOCK_SH, 0), -EBADF);
}

static void links(void **state)
{
	struct { /* what an end that is written too far would change */
		char text[8], behind;
	} out = { "", 'x' };
	int fd;

	assert_int_equal(symlinkat("1234567", dir, "fits"), 0);
	assert_int_equal(symlinkat("12345678", dir, "long"), 0);
	assert_int_equal(zns_read_link(dir, "fits", out.text, 8), 7);
	assert_string_equal(out.text, "1234567");
	assert_int_equal(zns_read_link(dir, "long", out.text, 8), 7);
	assert_string_equal(out.text, "1234567");
	assert_int_equal(out.behind, 'x');
	fd = openat(dir, "long", O_PATH | O_NOFOLLOW);
	assert_int_equal(zns_read_link(fd, "", out.text, 4), 3);
	assert_string_equal(out.text, "123");
	close(fd);
	assert_int_equal(zns_read_link(dir, "file", out.text, 8), -EINVAL);
	assert_string_equal(out.text, "");
	assert_int_equal(zns_read_link(dir, "none", out.text, 8), -ENOENT);
}

static int old_kernel(void **state)
{
	without = true;
	return make(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files),   cmocka_unit_test(planted), cmocka_unit_test(directories),
		cmocka_unit_test(writing), cmocka_unit_test(locks),   cmocka_unit_test(links),
	};
	int failed;

	if (geteuid()) {
		fprintf(stderr, "safeopen: links and files of others take root to make\n");
		return 1;
	}
	failed = cmocka_run_group_tests_name("safeopen", tests, make, drop);
	return failed +
	       cmocka_run_group_tests_name("safeopen without openat2", tests, old_kernel, drop);
}
