/* SPDX-License-Identifier: GPL-2.0-only */
/* See skopeo.h. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "../ctl/lib/ctl.h"
#include "skopeo.h"
#include "zns/safeopen.h"

#define POLL_MS 20
#define LOOK_NS 1000000000ULL

int skopeo_dir(struct skopeo *w, struct zns_err *err)
{
	if (snprintf(w->dir, sizeof(w->dir), "%s/znsctl-XXXXXX", w->tmp) >= (int)sizeof(w->dir) ||
	    strchr(w->tmp, ':'))
		return zns_fail(err, -EINVAL, "--tmp %s: too long, or a colon in it", w->tmp);
	if (!mkdtemp(w->dir)) {
		int ret = -errno;

		w->dir[0] = 0;
		return zns_fail_sys(err, ret, "cannot make a directory in %s", w->tmp);
	}
	snprintf(w->layout, sizeof(w->layout), "%s/layout:" SKOPEO_TAG, w->dir);
	return 0;
}

/* Removes all files of a directory that only we can write. */
static void empty(int fd)
{
	DIR *d = fd < 0 ? NULL : fdopendir(dup(fd));
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(fd, e->d_name, 0) && (errno == EISDIR || errno == EPERM)) {
			cleanup_close int sub = zns_open_subdir(fd, e->d_name);

			empty(sub);
			unlinkat(fd, e->d_name, AT_REMOVEDIR);
		}
	}
	if (d)
		closedir(d);
}

void skopeo_dir_end(const struct skopeo *w)
{
	cleanup_close int fd =
		*w->dir ? open(w->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	empty(fd);
	if (*w->dir)
		rmdir(w->dir);
}

/* Finds the message in the last line of skopeo's output: time="…" level=fatal msg="…" */
const char *skopeo_words(char *text)
{
	char *end = text + strlen(text), *msg;

	while (end > text && end[-1] == '\n')
		*--end = 0;
	while (end > text && end[-1] != '\n')
		end--;
	msg = strstr(end, "msg=\"");
	if (!msg)
		return end;
	end = strrchr(msg, '"');
	*end = 0;
	return msg + 5;
}

/*
 * Number of bytes that a child process has read and written, including sockets; 0: the kernel does
 * not count them.
 */
static uint64_t moved(pid_t pid)
{
	unsigned long long in = 0, out = 0;
	char path[40];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/io", pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "rchar: %llu wchar: %llu", &in, &out) < 2)
		in = out = 0;
	if (f)
		fclose(f);
	return in + out;
}

struct watched {
	uint64_t bytes, since_ns;
};

/* Has the child transferred enough since the last check? There is one check a second. */
static int watch(struct skopeo *w, pid_t pid, struct watched *last, struct zns_err *err)
{
	uint64_t now = zns_mono_ns(), bytes;
	bool patient;

	if (now - last->since_ns < LOOK_NS)
		return 0;
	bytes = moved(pid);
	patient = ctl_patience_waited(&w->patience, bytes ? now - last->since_ns : 0);
	ctl_patience_got(&w->patience, bytes - zns_min(bytes, last->bytes));
	*last = (struct watched){ bytes, now };
	return patient ? 0 : ctl_patience_fail(&w->patience, "the registry sent", err);
}

/*
 * Reads what a child prints until it exits, and keeps the first bytes. A signal to us ends the
 * child, and so does a registry that sends and takes nothing any more.
 */
static int listen_to(struct skopeo *w, pid_t pid, int fd, char *text, size_t len, int *status,
		     struct zns_err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct watched last = { 0, zns_mono_ns() };
	char rest[512];
	size_t have = 0;
	bool over = false;
	int ret = 0;

	while (!over) {
		ssize_t n;

		over = waitpid(pid, status, WNOHANG);
		if (!ret && !over && (ret = ctl_caught(err)))
			kill(pid, SIGTERM);
		if (!ret && !over && (ret = watch(w, pid, &last, err)))
			kill(pid, SIGKILL);
		if (poll(&p, 1, over ? 0 : POLL_MS) <= 0)
			continue;
		n = have < len - 1 ? read(fd, text + have, len - 1 - have) :
				     read(fd, rest, sizeof(rest));
		if (n <= 0)
			p.fd = -1;
		else if (have < len - 1)
			text[have += (size_t)n] = 0;
	}
	return ret;
}

int skopeo_not_there(int ret, struct zns_err *err)
{
	return zns_fail(err, ret, "cannot start skopeo: %s%s", strerror(-ret),
			ret == -ENOENT ? ": install the package skopeo" : "");
}

static int run(struct skopeo *w, char **argv, bool silent, struct zns_err *err)
{
	posix_spawn_file_actions_t fa;
	char text[4096] = "";
	int status = 0, p[2], ret;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return zns_fail_sys(err, -errno, "cannot make a pipe");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (silent)
		posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, p[1], STDERR_FILENO);
	ret = -posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	if (ret)
		skopeo_not_there(ret, err);
	else
		ret = listen_to(w, pid, p[0], text, sizeof(text), &status, err);
	close(p[0]);
	if (ret || !status)
		return ret;
	if (WIFSIGNALED(status))
		return zns_fail(err, -EIO, "%s failed: it was ended by signal %d", argv[0],
				WTERMSIG(status));
	return zns_fail(err, -EIO, "%s failed: %s", argv[0], ctl_text(skopeo_words(text)));
}

/* Blobs are copied unchanged, so a parent's layer that the registry already has is not sent. */
int skopeo_copy(struct skopeo *w, char *from, char *to, bool silent, struct zns_err *err)
{
	char *argv[8 + SKOPEO_OPTIONS] = { "skopeo", "copy", "--preserve-digests" };
	int n = 3;

	for (int i = 0; i < w->nr_options; i++)
		argv[n++] = w->options[i];
	argv[n++] = from;
	argv[n] = to;
	return run(w, argv, silent, err);
}

/* Arguments after the first two are passed to skopeo. */
int skopeo_take(const struct ctl_cmd *cmd, struct ctl_args *args, int own, struct skopeo *w)
{
	if (args->argc > own && args->argv[own][0] != '-')
		ctl_take_dev(args);
	if (args->argc < own || args->argc - own > SKOPEO_OPTIONS)
		return ctl_usage(
			cmd,
			own == 2 ?
				"a checkpoint and where to are wanted: ID docker://REGISTRY/NAME:TAG" :
				"where from is wanted: docker://REGISTRY/NAME:TAG");
	w->registry = args->argv[own - 1];
	if (!strchr(w->registry, ':') || *w->registry == '-')
		return ctl_usage(
			cmd, "%s does not say how to reach it: write docker://REGISTRY/NAME:TAG",
			w->registry);
	w->options = args->argv + own;
	w->nr_options = args->argc - own;
	for (int i = 0; i < w->nr_options; i++)
		if (w->options[i][0] != '-')
			return ctl_usage(
				cmd,
				"%s is no option: after -- come options of skopeo, which begin with -",
				w->options[i]);
	ctl_patience_start(&w->patience, w->timeout_s);
	if (!w->tmp)
		w->tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp";
	return 0;
}
