/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nsinit ROOT PROGRAM ARG…: run PROGRAM as init of new pid, mount, network, ipc and uts namespaces
 * with ROOT (a mount point) as its root directory. Prints the pid of init as seen from here and
 * leaves.
 */
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void mount_on(const char *type, const char *dir, const char *opts)
{
	mkdir(dir, 0755);
	if (mount(type, dir, type, MS_NOSUID, opts))
		err(1, "mount %s on %s", type, dir);
}

static void enter_root(const char *root)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		err(1, "make / private");
	if (chdir(root))
		err(1, "%s", root);
	mkdir("old", 0700);
	if (syscall(SYS_pivot_root, ".", "old"))
		err(1, "pivot_root %s", root);
	if (chdir("/") || umount2("/old", MNT_DETACH) || rmdir("/old"))
		err(1, "leave the old root");
	mount_on("proc", "/proc", NULL);
	mount_on("tmpfs", "/tmp", "mode=1777");
	mount_on("tmpfs", "/dev/shm", "mode=1777");
	mount_on("devpts", "/dev/pts", "newinstance,ptmxmode=0666");
}

static void standard_fds(void)
{
	int in = open("/dev/null", O_RDONLY),
	    out = open("/zt/stdio", O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (in < 0 || out < 0)
		err(1, "open standard descriptors");
	dup2(in, 0);
	dup2(out, 1);
	dup2(out, 2);
	closefrom(3);
}

int main(int argc, char **argv)
{
	pid_t pid;

	if (argc < 3)
		errx(2, "usage: nsinit ROOT PROGRAM [ARG…]");
	if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS))
		err(1, "unshare");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid) {
		printf("%d\n", pid);
		return 0;
	}
	setsid();
	enter_root(argv[1]);
	standard_fds();
	execv(argv[2], argv + 2);
	err(1, "%s", argv[2]);
}
