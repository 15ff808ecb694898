/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Open files: offsets, append mode, a description shared by two descriptors and a child, a
 * read-only one in the middle, close-on-exec, a directory, locks, current directory and umask.
 * zonetest: {'flavour': 'h ns', 'opts': '--file-locks'}
 */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "zt.h"

#define LEN 40000

static int append, shared, duplicate, middle, directory, locked;
static uint8_t buf[2 * LEN];
static pid_t kid;
static char cwd[256];

static int open_in(const char *name, int flags)
{
	char path[256];

	zt_path(path, name);
	return ZT_SYS(open(path, flags, 0644));
}

static long at(int fd)
{
	return lseek(fd, 0, SEEK_CUR);
}

static void kid_check(int n)
{
	(void)n;
	ZT_CHECK(at(shared) == 1234, "the child's offset is %ld", at(shared));
	ZT_CHECK(lseek(shared, 4321, SEEK_SET) == 4321, "lseek: %m");
}

static void check_modes(void)
{
	struct stat st;
	char now[256] = "";

	ZT_CHECK((fcntl(append, F_GETFL) & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_RDWR),
		 "append mode is lost");
	ZT_CHECK((fcntl(middle, F_GETFL) & O_ACCMODE) == O_RDONLY,
		 "a read-only file can be written");
	ZT_CHECK(fcntl(middle, F_GETFD) == FD_CLOEXEC && !fcntl(shared, F_GETFD),
		 "close-on-exec differs");
	ZT_CHECK(!fstat(directory, &st) && S_ISDIR(st.st_mode), "the directory is none");
	ZT_CHECK(getcwd(now, sizeof(now)) && !strcmp(now, cwd), "current directory is %s", now);
	ZT_CHECK(umask(0) == 027, "umask differs");
}

static void check_lock(void)
{
	int other = open_in("locked", O_RDWR);

	ZT_CHECK(flock(other, LOCK_EX | LOCK_NB) < 0, "the lock is lost");
	ZT_CHECK(!flock(locked, LOCK_UN) && !flock(other, LOCK_EX | LOCK_NB),
		 "the lock is not ours: %m");
	close(other);
}

static void check(void)
{
	check_modes();
	check_lock();
	ZT_CHECK(at(middle) == 777 && pread(middle, buf, LEN, 0) == LEN, "offset is %ld",
		 at(middle));
	zt_check(buf, LEN, 2, "read-only file");
	ZT_CHECK(at(duplicate) == 1234, "offset of the duplicate is %ld", at(duplicate));
	zt_join(kid);
	ZT_CHECK(at(shared) == 4321 && at(duplicate) == 4321,
		 "the child's seek does not show: no longer shared");
	ZT_CHECK(lseek(append, 0, SEEK_SET) == 0 && write(append, "end", 3) == 3, "write: %m");
	ZT_CHECK(pread(append, buf, sizeof(buf), 0) == LEN + 3, "append did not append");
	zt_check(buf, LEN, 1, "file in append mode");
	ZT_CHECK(!memcmp(buf + LEN, "end", 3), "the appended bytes are wrong");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	append = open_in("append", O_RDWR | O_CREAT | O_APPEND);
	zt_fill(buf, LEN, 1);
	zt_write_all(append, buf, LEN);
	shared = open_in("shared", O_RDWR | O_CREAT);
	duplicate = ZT_SYS(dup(shared));
	ZT_SYS(lseek(shared, 1234, SEEK_SET));
	middle = open_in("middle", O_WRONLY | O_CREAT);
	zt_fill(buf, LEN, 2);
	zt_write_all(middle, buf, LEN);
	close(middle);
	middle = open_in("middle", O_RDONLY | O_CLOEXEC);
	ZT_SYS(lseek(middle, 777, SEEK_SET));
	directory = open_in(".", O_RDONLY | O_DIRECTORY);
	locked = open_in("locked", O_RDWR | O_CREAT | O_CLOEXEC);
	ZT_SYS(chdir(zt_dir));
	if (!getcwd(cwd, sizeof(cwd)))
		zt_die("getcwd: %m");
	umask(027);
	kid = zt_fork(NULL, kid_check, 0);
	ZT_SYS(flock(locked, LOCK_EX));
	zt_ready(NULL);
	if (zt_selftest)
		ZT_SYS(lseek(middle, 778, SEEK_SET));
	zt_serve(check);
}
