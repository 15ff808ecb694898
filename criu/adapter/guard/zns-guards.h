/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_GUARDS_H__
#define __CR_ZNS_GUARDS_H__
/*
 * Shared by the files of the guard. The processes run while the guard examines them. A process that
 * exits meanwhile cannot prevent the dump, so an error that means this is ignored.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct zns_guard_task {
	pid_t pid;
	/* index of the parent; 0 for the root, whose parent is set to itself */
	unsigned int parent;
};

/* A parent comes before its children. Free @task with xfree(). */
struct zns_guard_tree {
	struct zns_guard_task *task;
	unsigned int nr, max;
};

/*
 * Lists the tree below @root, and calls @each for every thread. Returns -1 after an error message.
 */
int zns_guard_walk(struct zns_guard_tree *tree, pid_t root, int (*each)(pid_t pid, pid_t tid));

/* Reads /proc/PID/NAME as text, cut to @size. Returns the length; 0: it cannot be read. */
size_t zns_guard_text(pid_t pid, const char *name, char *text, size_t size);
/* Opens the directory /proc/PID/NAME; NULL: it cannot be read. */
DIR *zns_guard_dir(pid_t pid, const char *name);
/* State and flags of a thread (proc_pid_stat(5)); false: the thread has exited. */
bool zns_guard_stat(pid_t pid, pid_t tid, char *state, unsigned int *flags);

/* Removes line breaks and control characters from a text, so that it can be printed in an error. */
char *zns_guard_plain(char *text);
/* Returns the name of a process. The text is valid until the next call but one. */
const char *zns_guard_name(pid_t pid);

/* Is it the pager of a memory context, by its name? Any process may have that name. */
bool zns_guard_is_pager(pid_t pid);

/* zns-guard-files.c: what was checked and found so far. */
struct zns_guard_seen {
	bool pre_dump;
	pid_t uffd_pid; /* a process that has a userfaultfd open; 0: none */
	int uffd;
};
/* Checks all descriptors of a process. Returns -1 after an error message. */
int zns_guard_files(pid_t pid, struct zns_guard_seen *seen);
/* Prints why this descriptor prevents a dump. @what: the kind of its file. Always returns -1. */
int zns_guard_refuse_fd(pid_t pid, int fd, const char *what);

#endif
