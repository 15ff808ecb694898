/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tmpfs without contents, which criu archives without tar: an empty one, one like a container's
 * /dev, and one for each thing that is left to tar (many entries, deep ones, long names, a far
 * link, hard links). Names, types, modes, owners, times, devices and links are compared.
 * zonetest: {'flavour': 'ns'}
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "zt.h"

#define MANY 150
#define DEEP 12
#define LONG 150

static const char *const mounts[] = {
	"/empty", "/dev2", "/many", "/deep", "/long", "/far", "/hard"
};
#define NR_MOUNTS (sizeof(mounts) / sizeof(mounts[0]))

static char *before, *now; /* listings */

static void entry(FILE *out, const char *path)
{
	char target[512] = "";
	struct stat st;

	ZT_CHECK(!lstat(path, &st), "%s: %m", path);
	if (S_ISLNK(st.st_mode))
		ZT_CHECK(readlink(path, target, sizeof(target) - 1) > 0, "%s: %m", path);
	fprintf(out, "%s %o %u/%u %ld %u:%u links %u %s\n", path, st.st_mode, st.st_uid, st.st_gid,
		(long)st.st_mtime, major(st.st_rdev), minor(st.st_rdev),
		S_ISDIR(st.st_mode) ? 0 : (unsigned int)st.st_nlink, target);
}

static void walk(FILE *out, const char *path)
{
	struct dirent **names;
	char sub[4096];
	int nr = scandir(path, &names, NULL, alphasort);

	ZT_CHECK(nr >= 0, "%s: %m", path);
	entry(out, path);
	for (int i = 0; i < nr; i++) {
		const char *name = names[i]->d_name;

		if (strcmp(name, ".") && strcmp(name, "..")) {
			snprintf(sub, sizeof(sub), "%s/%s", path, name);
			if (names[i]->d_type == DT_DIR)
				walk(out, sub);
			else
				entry(out, sub);
		}
		free(names[i]);
	}
	free(names);
}

static void list(char **text)
{
	size_t len;
	FILE *out = open_memstream(text, &len);

	for (size_t i = 0; i < NR_MOUNTS; i++)
		walk(out, mounts[i]);
	fclose(out);
}

static void check(void)
{
	char *a = before, *b;

	free(now);
	list(&now);
	for (b = now; *a && *a == *b; a++, b++)
		;
	ZT_CHECK(*a == *b, "from \"%.60s\" on it is \"%.60s\"", a, b);
	zt_digest(now, strlen(now));
}

static void made(const char *path, mode_t mode, uid_t uid, time_t mtime)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = mtime } };

	ZT_SYS(lchown(path, uid, uid + 1));
	if (mode)
		ZT_SYS(chmod(path, mode));
	ZT_SYS(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW));
}

static void file(const char *path)
{
	close(ZT_SYS(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640)));
}

static void setup_dev(void)
{
	ZT_SYS(mknod("/dev2/null", S_IFCHR | 0666, makedev(1, 3)));
	made("/dev2/null", 0606, 7, 1000000001);
	ZT_SYS(mknod("/dev2/disk", S_IFBLK | 0600, makedev(259, 70000)));
	ZT_SYS(mkfifo("/dev2/fifo", 0600));
	made("/dev2/fifo", 0620, 8, 1000000002);
	ZT_SYS(symlink("/proc/self/fd", "/dev2/fd"));
	made("/dev2/fd", 0, 9, 1000000003);
	file("/dev2/empty");
	made("/dev2/empty", 06755, 10, 1000000004);
	ZT_SYS(mkdir("/dev2/pts", 0700));
	file("/dev2/pts/name with a blank");
	made("/dev2/pts", 01777, 11, 1000000005);
	made("/dev2", 0751, 12, 1000000006);
}

static void setup_rest(void)
{
	char path[1024], name[LONG + 1];

	for (int i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "/many/%d", i);
		file(path);
	}
	strcpy(path, "/deep");
	for (int i = 0; i < DEEP; i++) {
		strcat(path, "/d");
		ZT_SYS(mkdir(path, 0711));
	}
	memset(name, 'n', LONG);
	name[LONG] = '\0';
	snprintf(path, sizeof(path), "/long/%s", name);
	file(path);
	ZT_SYS(symlink(name, "/far/link"));
	file("/hard/one");
	ZT_SYS(link("/hard/one", "/hard/other"));
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	for (size_t i = 0; i < NR_MOUNTS; i++) {
		ZT_SYS(mkdir(mounts[i], 0755));
		ZT_SYS(mount("tmpfs", mounts[i], "tmpfs", 0, "mode=0700"));
	}
	made("/empty", 03750, 5, 1000000000);
	setup_dev();
	setup_rest();
	list(&before);
	zt_ready(check);
	if (zt_selftest)
		ZT_SYS(chmod("/dev2/empty", 0755));
	zt_serve(check);
}
