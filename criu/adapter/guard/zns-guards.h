/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_GUARDS_H__
#define __CR_ZNS_GUARDS_H__
/*
 * Shared by the files of the guard. The processes run while the guard looks at them. One that ends
 * meanwhile cannot hinder the dump, so an error that means this is ignored.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct zns_guard_task {
	pid_t pid;
	unsigned int parent; /* index of its parent; 0 for the root, which is its own parent */
};

/* A parent comes before its children. Free @task with xfree. */
struct zns_guard_tree {
	struct zns_guard_task *task;
	unsigned int nr, max;
};

/* Collects the tree below @root, and calls @each for every thread. -1: printed. */
int zns_guard_walk(struct zns_guard_tree *tree, pid_t root, int (*each)(pid_t pid, pid_t tid));

/* Reads /proc/PID/NAME as text, cut to @size. Returns its length; 0: it cannot be read. */
size_t zns_guard_text(pid_t pid, const char *name, char *text, size_t size);
/* The folder /proc/PID/NAME; NULL if it cannot be read. */
DIR *zns_guard_dir(pid_t pid, const char *name);
/* State and flags of a thread (proc_pid_stat(5)); false: the thread has exited. */
bool zns_guard_stat(pid_t pid, pid_t tid, char *state, unsigned int *flags);

/* Makes text fit for an error line: no line breaks, no control characters. */
char *zns_guard_plain(char *text);
/* Name of a process; the text stays valid until the next call but one. */
const char *zns_guard_name(pid_t pid);

/* Is it the pager of a memory context, by its name? Anybody may have that name. */
bool zns_guard_is_pager(pid_t pid);

/* zns-guard-files.c: what has been checked, and what was found. */
struct zns_guard_seen {
	bool pre_dump;
	pid_t uffd_pid; /* a process that has a userfaultfd open; 0: there is none */
	int uffd;
};
/* All descriptors of a process. -1: printed. */
int zns_guard_files(pid_t pid, struct zns_guard_seen *seen);
/* Prints why this descriptor prevents a dump; @what: the kind of its file. Always -1. */
int zns_guard_refuse_fd(pid_t pid, int fd, const char *what);

#endif
