/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd: the broker of one zoned device. Its first client starts it; it exits when it is idle. */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "zns/process.h"
#include "requests.h"
#include "zns-version.h"

static const char usage_text[] =
	"usage: znsd DEV|UUID [--foreground] [--idle SECONDS]\n"
	"The broker of one store: grants zones and bandwidth, writes the catalogue,\n"
	"reclaims zones. It is started by the first program that needs it and leaves\n"
	"when idle.\n"
	"\n"
	"  --foreground    stay in the foreground, log to standard error\n"
	"  --idle SECONDS  leave after so long without a connection (default 10, or\n"
	"                  $ZNSD_IDLE_S; 0: never)\n"
	"  --ready-fd N    say \"ready\" or what is wrong on descriptor N (used by the\n"
	"                  programs that start it)\n"
	"  --help, -h      this text\n"
	"  --version, -V   which build this is\n";

#define READY_FD 3

struct options {
	const char *spec;
	bool foreground;
	int ready_fd;
	uint64_t idle_ns;
};

static int parse_idle(const char *s, uint64_t *ns)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !(v >= 0 && v <= 1e9))
		return -EINVAL;
	*ns = (uint64_t)(v * 1e9);
	return 0;
}

static int usage(const char *what)
{
	fprintf(stderr, "znsd: %s; see znsd --help\n", what);
	return 2;
}

/* Returns 0 to continue; else the exit code + 1. */
static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, 'f' },
		{ "idle", required_argument, NULL, 'i' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	const char *env = secure_getenv("ZNSD_IDLE_S");
	char *end;
	int c;

	*o = (struct options){ .ready_fd = -1, .idle_ns = ZNSD_IDLE_MS * 1000000ull };
	if (env && *env && parse_idle(env, &o->idle_ns))
		return 1 + usage("ZNSD_IDLE_S must be a number of seconds");
	while ((c = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
		switch (c) {
		case 'f':
			o->foreground = true;
			break;
		case 'i':
			if (parse_idle(optarg, &o->idle_ns))
				return 1 + usage("--idle takes a number of seconds");
			break;
		case 'r':
			o->ready_fd = (int)strtol(optarg, &end, 10);
			if (*end || o->ready_fd < 0 || fcntl(o->ready_fd, F_GETFD) < 0)
				return 1 + usage("--ready-fd takes an open descriptor");
			fcntl(o->ready_fd, F_SETFD, FD_CLOEXEC);
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 1;
		case 'V':
			printf("znsd: ZNS-CRIU %s\n", ZNS_VERSION);
			return 1;
		default:
			return 1 + 2;
		}
	}
	if (argc - optind != 1)
		return 1 + usage("give one device");
	o->spec = argv[optind];
	return 0;
}

/* Forks if znsd was started from a shell: the parent waits until the daemon is ready, and prints
 * its message. */
static void detach(struct options *o)
{
	char line[ZNS_ERR_MAX + 32] = "";
	int p[2], null;
	ssize_t n, at = 0;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		perror("znsd");
		exit(1);
	}
	if (!pid) {
		/* Close everything else, so that we do not keep the shell's locks and pipes
		 * open. */
		o->ready_fd = p[1] == READY_FD ? p[1] : dup2(p[1], READY_FD);
		fcntl(READY_FD, F_SETFD, FD_CLOEXEC);
		zns_close_from(READY_FD + 1);
		setsid();
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
		}
		return;
	}
	close(p[1]);
	while ((n = read(p[0], line + at, sizeof(line) - 1 - at)) > 0)
		at += n;
	line[strcspn(line, "\n")] = 0;
	if (!strcmp(line, "ready"))
		exit(0);
	fprintf(stderr, "znsd: %s\n",
		strchr(line, ' ') ? strchr(line, ' ') + 1 : "died while starting");
	exit(1);
}

/* Writes the log to the same file as clients do that start the broker. */
static void log_to_file(const struct znsd *d)
{
	char path[4096];
	int fd;

	if (zns_broker_path(d->reg.uuid, "log", path, sizeof(path)))
		return;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static void say(int fd, int code, const char *line)
{
	if (fd < 0)
		return;
	if (code)
		dprintf(fd, "%d %s\n", code, line);
	else
		dprintf(fd, "ready\n");
	close(fd);
}

int main(int argc, char **argv)
{
	struct server server = { .lock_fd = -1, .dev_lock_fd = -1, .listen_fd = -1 };
	struct znsd d = { .server = &server, .readers_fd = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct options o;
	bool detached = false, left;
	int ret;

	ret = parse_options(argc, argv, &o);
	if (ret)
		return ret - 1;
	if (zns_std_fds())
		return 1;
	umask(077);
	/* In the foreground a supervisor has already set cgroup, limits and the like. */
	if (o.foreground) {
		zns_process_signals();
		zns_process_raise_limits();
	} else {
		zns_process_shed();
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	/* writes beyond the file size limit then fail with an error instead of killing us */
	signal(SIGXFSZ, SIG_IGN);
	if (!o.foreground && o.ready_fd < 0) {
		detach(&o);
		detached = true;
	}
	left = o.foreground || zns_cgroup_escape();
	server.idle_ns = o.idle_ns;
	ret = zns_process_limits(&err);
	if (!ret)
		ret = server_start(&d, o.spec, &err);
	if (ret) {
		/* If znsd was started from a shell, the parent prints the error; if by a client,
		 * the client does. */
		if (o.ready_fd < 0)
			fprintf(stderr, "znsd: %s\n", err.msg);
		/* Release the locks before reporting the error, because the client may retry at
		 * once. */
		server_stop(&d);
		say(o.ready_fd, ret, err.msg);
		return 1;
	}
	if (detached)
		log_to_file(&d);
	znsd_log("serving %s: %u zones, %u groups, %zu checkpoints", d.reg.path, d.nr_zones,
		 d.nr_groups, zns_store_nr_checkpoints(d.store));
	if (!left)
		znsd_log(
			"this process stays in cgroups of whoever started it: their limits hold for it, and it ends with them");
	say(o.ready_fd, 0, NULL);
	ret = server_loop(&d);
	server_stop(&d);
	znsd_log("left %s", d.reg.path);
	return ret ? 1 : 0;
}
