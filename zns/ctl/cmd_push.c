/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * push, pull: checkpoints through a registry. skopeo speaks with it; the image is in an OCI layout
 * on the way (oci.h), in a directory of our own that is gone afterwards.
 */
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
#include "ctl.h"
#include "oci.h"
#include "zns/safeopen.h"

#define TAG "checkpoint"
#define SHARED_MAX 32 /* options that go on to skopeo */
#define POLL_MS 20

struct way {
	const char *tmp, *registry;
	char dir[PATH_MAX]; /* of our own; "": none yet */
	char layout[PATH_MAX + 32]; /* DIR/layout:TAG */
	char *const *options; /* of skopeo */
	int nr_options;
	bool said; /* what failed has told the user */
};

static int make_dir(struct way *w, struct zns_err *err)
{
	if (snprintf(w->dir, sizeof(w->dir), "%s/znsctl-XXXXXX", w->tmp) >= (int)sizeof(w->dir) ||
	    strchr(w->tmp, ':'))
		return zns_fail(err, -EINVAL, "--tmp %s: too long, or a colon in it", w->tmp);
	if (!mkdtemp(w->dir)) {
		int ret = -errno;

		w->dir[0] = 0;
		return zns_fail_sys(err, ret, "%s", w->tmp);
	}
	snprintf(w->layout, sizeof(w->layout), "%s/layout:" TAG, w->dir);
	return 0;
}

/* All in a directory that only we write. */
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

static void remove_dir(const struct way *w)
{
	cleanup_close int fd = *w->dir ? open(w->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	empty(fd);
	if (*w->dir)
		rmdir(w->dir);
}

/* The text of its last line of skopeo's: time="…" level=fatal msg="…" */
static const char *last_words(char *text)
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

/* What a child writes until it ends; the first bytes are kept. A signal to us ends it. @fd -1:
 * nothing is listened to. */
static int listen_to(pid_t pid, int fd, char *text, size_t len, int *status, struct zns_err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char rest[512];
	size_t have = 0;
	bool over = false;
	int ret = 0;

	while (!over) {
		ssize_t n;

		over = waitpid(pid, status, WNOHANG);
		if (!ret && !over && (ret = ctl_caught(err)))
			kill(pid, SIGTERM);
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

/* @program: its name, for messages; NULL: this znsctl, which has said what failed (*said). */
static int run(const char *program, char **argv, bool silent, bool *said, struct zns_err *err)
{
	posix_spawn_file_actions_t fa;
	char text[4096] = "";
	int status = 0, p[2], ret;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return zns_fail_sys(err, -errno, "pipe");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (silent)
		posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (program)
		posix_spawn_file_actions_adddup2(&fa, p[1], STDERR_FILENO);
	ret = -posix_spawnp(&pid, program ? program : "/proc/self/exe", &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	if (ret)
		zns_fail(err, ret, "cannot start %s: %s%s", program ? program : "znsctl",
			 strerror(-ret), ret == -ENOENT ? ": install the package skopeo" : "");
	else
		ret = listen_to(pid, program ? p[0] : -1, text, sizeof(text), &status, err);
	close(p[0]);
	*said = !program && status && !ret;
	if (ret || !status)
		return ret;
	return zns_fail(err, -EIO, "%s failed: %s", argv[0], ctl_text(last_words(text)));
}

/* This znsctl again, with a command of its own; @args end with NULL. */
static int self(struct way *w, char **args, bool silent, struct zns_err *err)
{
	return run(NULL, args, silent, &w->said, err);
}

/* Blobs stay what they are: a parent's layer, that the registry has, is not sent. */
static int skopeo(struct way *w, char *from, char *to, bool silent, struct zns_err *err)
{
	char *argv[8 + SHARED_MAX] = { "skopeo", "copy", "--preserve-digests" };
	int n = 3;

	for (int i = 0; i < w->nr_options; i++)
		argv[n++] = w->options[i];
	argv[n++] = from;
	argv[n] = to;
	return run("skopeo", argv, silent, &w->said, err);
}

static int failed(const struct ctl_cmd *cmd, const struct way *w, const struct zns_err *err)
{
	return w->said ? CTL_FAILED : ctl_fail(cmd, err);
}

/* Arguments behind the first two are skopeo's. */
static int take(const struct ctl_cmd *cmd, struct ctl_args *args, int own, struct way *w)
{
	if (args->argc > own && args->argv[own][0] != '-')
		ctl_take_dev(args);
	if (args->argc < own || args->argc - own > SHARED_MAX)
		return ctl_usage(cmd, own == 2 ? "a checkpoint and where to are wanted: ID docker://REGISTRY/NAME:TAG" :
						 "where from is wanted: docker://REGISTRY/NAME:TAG");
	w->registry = args->argv[own - 1];
	if (!strchr(w->registry, ':') || *w->registry == '-')
		return ctl_usage(cmd, "%s names no transport: docker://REGISTRY/NAME:TAG", w->registry);
	w->options = args->argv + own;
	w->nr_options = args->argc - own;
	for (int i = 0; i < w->nr_options; i++)
		if (w->options[i][0] != '-')
			return ctl_usage(cmd, "%s is no option of skopeo", w->options[i]);
	if (!w->tmp)
		w->tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp";
	return 0;
}

static int cmd_push(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct way w = { .tmp = NULL };
	bool flatten = false;
	char to[PATH_MAX + 40];
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("flatten", &flatten), CTL_TEXT("tmp", &w.tmp),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = take(cmd, &args, 2, &w);
	if (ret)
		return ret;
	ctl_catch_signals();
	ret = make_dir(&w, &err);
	if (!ret) {
		char *export[9] = { "znsctl", "export", "--oci", args.argv[0], w.layout };
		int n = 5;

		if (flatten)
			export[n++] = "--flatten";
		if (args.dev) {
			export[n++] = "--dev";
			export[n] = (char *)args.dev;
		}
		ret = self(&w, export, true, &err);
	}
	snprintf(to, sizeof(to), "oci:%s", w.layout);
	if (!ret)
		ret = skopeo(&w, to, (char *)w.registry, args.json, &err);
	remove_dir(&w);
	if (ret)
		return failed(cmd, &w, &err);
	if (args.json)
		return ctl_print_json(ctl_obj(J("id", args.argv[0]), J("target", w.registry)));
	printf("pushed %s to %s\n", ctl_text(args.argv[0]), ctl_text(w.registry));
	return CTL_OK;
}

static int cmd_pull(const struct ctl_cmd *cmd, int argc, char **argv)
{
	const char *container = NULL, *qos = NULL, *admission = NULL, *handle = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct way w = { .tmp = NULL };
	char from[PATH_MAX + 40];
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("container", &container), CTL_TEXT("qos", &qos),
					CTL_TEXT("admission", &admission),
					CTL_TEXT("handle", &handle), CTL_TEXT("tmp", &w.tmp),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = take(cmd, &args, 1, &w);
	if (ret)
		return ret;
	ctl_catch_signals();
	ret = make_dir(&w, &err);
	snprintf(from, sizeof(from), "oci:%s", w.layout);
	if (!ret)
		ret = skopeo(&w, (char *)w.registry, from, true, &err);
	if (!ret) {
		const struct {
			const char *name, *value;
		} given[] = { { "--container", container },
			      { "--qos", qos },
			      { "--admission", admission },
			      { "--handle", handle },
			      { "--dev", args.dev } };
		char *import[4 + 2 * ZNS_ARRAY_SIZE(given) + 2] = { "znsctl", "import", "--oci",
								    w.layout };
		int n = 4;

		for (size_t i = 0; i < ZNS_ARRAY_SIZE(given); i++)
			if (given[i].value) {
				import[n++] = (char *)given[i].name;
				import[n++] = (char *)given[i].value;
			}
		if (args.json)
			import[n++] = "--json";
		ret = self(&w, import, false, &err);
	}
	remove_dir(&w);
	return ret ? failed(cmd, &w, &err) : CTL_OK;
}

#define TMP_HELP                                                                                        \
	"  --tmp DIR       room for the image on its way; otherwise $TMPDIR or /var/tmp\n" CTL_DEV_HELP \
	"  -- …            options of skopeo copy, such as --authfile FILE\n"

const struct ctl_cmd command_push = {
	"push",
	"[DEV] ID|DIRECTORY docker://REGISTRY/NAME:TAG [--flatten] [-- SKOPEO OPTIONS]",
	"send a checkpoint with its parents to a registry, as an OCI image",
	"  What the registry has already, such as a parent's layer, is not sent again\n"
	"  --flatten       send an incremental checkpoint as if it had been dumped in full\n" TMP_HELP,
	cmd_push,
};

const struct ctl_cmd command_pull = {
	"pull",
	"[DEV] docker://REGISTRY/NAME:TAG [OPTIONS] [-- SKOPEO OPTIONS]",
	"fetch a checkpoint with its parents from a registry",
	"  --container NAME  whose checkpoint it is; otherwise what the image says\n"
	"  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	"  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	"  --handle NEWDIR   write a handle there, to restore from\n" TMP_HELP,
	cmd_pull,
};
