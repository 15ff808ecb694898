/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Takes the trackers of the parent from their keeper: see live_keep.h. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "keep.h"
#include "../live/live.h"

/*
 * ms to wait until a keeper has ended the protection, which takes it 25 ms for each GiB of memory
 */
#define DROP_MS 20000

static int connect_to(int dir, const char *name)
{
	struct sockaddr_un a;
	int sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (sk < 0)
		return -errno;
	keep_timeouts(sk);
	keep_address(dir, name, &a);
	if (!connect(sk, (struct sockaddr *)&a, sizeof(a)))
		return sk;
	/* a killed keeper has left its socket's name behind */
	if (errno == ECONNREFUSED)
		unlinkat(dir, name, 0);
	close(sk);
	return -ECONNREFUSED;
}

/* The PID of the process in our namespace; -1: it has exited. */
static pid_t pid_of(int pidfd)
{
	cleanup_file FILE *f = NULL;
	char path[64], line[128];
	int pid = -1;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	return pid > 0 ? pid : -1;
}

static void clear(struct live_keep *k)
{
	for (uint32_t n = 0; n < k->nr; n++)
		keep_close(&k->task[n]);
	free(k->task);
	free(k->pid);
	k->task = NULL;
	k->pid = NULL;
	k->nr = 0;
}

/* Receives all trackers that a keeper has. Returns 0, -EBUSY or another error. */
static int receive_set(int sk, struct keep_packet *set, struct live_keep *k)
{
	int ret = keep_recv(sk, set);

	keep_close(set);
	if (ret == 1 && set->op == KEEP_BUSY)
		return -EBUSY;
	if (ret != 1 || set->op != KEEP_SET || set->nr > KEEP_TASKS_MAX)
		return -EPROTO;
	k->task = calloc(set->nr + 1, sizeof(*k->task));
	k->pid = calloc(set->nr + 1, sizeof(*k->pid));
	if (!k->task || !k->pid)
		return -ENOMEM;
	for (; k->nr < set->nr; k->nr++) {
		if (keep_recv(sk, &k->task[k->nr]) != 1)
			return -EPROTO;
		if (k->task[k->nr].op != KEEP_TASK) {
			keep_close(&k->task[k->nr]);
			return -EPROTO;
		}
		k->pid[k->nr] = pid_of(k->task[k->nr].fd[ZNS_TRACK_PIDFD]);
	}
	return 0;
}

static bool has_one_of(const struct live_keep *k, const pid_t *pid, uint32_t nr)
{
	for (uint32_t i = 0; i < k->nr; i++)
		for (uint32_t n = 0; n < nr; n++)
			if (k->pid[i] == pid[n])
				return true;
	return false;
}

/* Tells a keeper to exit, and waits for it. Its exit means that the protection has ended. */
static void drop(int sk)
{
	struct keep_packet p = { .op = KEEP_DROP };
	struct pollfd f = { .fd = sk, .events = POLLIN };

	if (!keep_send(sk, &p))
		poll(&f, 1, DROP_MS);
}

static void look_at(struct live *l, int dir, const char *name, const pid_t *pid, uint32_t nr)
{
	struct live_keep one = { .parent = -1 }, *k = &l->keep;
	struct keep_packet set;
	int sk = connect_to(dir, name), ret;
	bool ours;

	if (sk < 0)
		return;
	ret = receive_set(sk, &set, &one);
	ours = !ret && l->track && k->has_parent && k->parent < 0 &&
	       !memcmp(set.id, k->of, ZNS_UUID_LEN);
	if (ours) {
		k->parent = sk;
		k->task = one.task;
		k->pid = one.pid;
		k->nr = one.nr;
		return;
	}
	if (!ret && has_one_of(&one, pid, nr))
		drop(sk);
	clear(&one);
	close(sk);
}

static bool is_name(const char *s)
{
	size_t len = strlen(s);

	return len > 5 && len < 64 && !strcmp(s + len - 5, ".sock");
}

void keep_take(struct live *l)
{
	cleanup_free pid_t *pid = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	int dir = keep_dir(&err);
	uint32_t nr;
	DIR *list;

	list = dir < 0 ? NULL : fdopendir(dir);
	if (!list) {
		if (dir >= 0)
			close(dir);
		snprintf(l->keep.why, sizeof(l->keep.why), "%.150s", err.msg);
		return;
	}
	nr = task_tree(l->root, &pid);
	for (struct dirent *e; (e = readdir(list));)
		if (is_name(e->d_name))
			look_at(l, dir, e->d_name, pid, nr);
	closedir(list);
	if (l->keep.parent < 0)
		snprintf(l->keep.why, sizeof(l->keep.why),
			 "nobody has tracked the tasks since that checkpoint");
}

bool live_keep_claim(struct live *l, struct live_task *t)
{
	struct live_keep *k = &l->keep;
	struct keep_packet *p = NULL;

	for (uint32_t n = 0; n < k->nr && !p; n++)
		if (k->pid[n] == t->pid) {
			p = &k->task[n];
			k->pid[n] = -1;
		}
	if (!p)
		return false;
	if (!zns_track_adopt(t->pid, &l->kernel, p->fd, &t->track, &t->why)) {
		for (int i = 0; i < ZNS_TRACK_FDS; i++)
			p->fd[i] = -1; /* the tracker owns this descriptor now */
		if (!keep_read_pages(p->fd[KEEP_PAGES], t->parents_pagemap, &t->parent,
				     &t->parents_areas)) {
			t->kept = true;
			return true;
		}
		zns_track_free(t->track);
		t->track = NULL;
	}
	/* the task has exited or runs another program, whose memory is not tracked yet */
	keep_close(p);
	t->why = (struct zns_err)ZNS_ERR_INIT;
	return false;
}

void live_keep_changed(struct live *l)
{
	struct keep_packet p = { .op = KEEP_CHANGED };

	if (l->keep.parent < 0 || l->keep.changed)
		return;
	l->keep.changed = true;
	/*
	 * ignore an error: if the keeper has died, no other dump can take the trackers from it
	 * either
	 */
	keep_send(l->keep.parent, &p);
}

void live_keep_end(struct live *l)
{
	clear(&l->keep);
	if (l->keep.parent >= 0)
		close(l->keep.parent);
	if (l->keep.next >= 0)
		close(l->keep.next);
	l->keep.parent = l->keep.next = -1;
}
