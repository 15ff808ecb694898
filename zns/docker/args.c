/* SPDX-License-Identifier: GPL-2.0-only */
/* Parses the part of runc's command line that we need, and runs runc. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "runc.h"
#include "zns/handle.h"
#include "zns/safeopen.h"

/*
 * Finds the value of option @name in "-name V", "--name V" or "--name=V". NULL: this word is
 * another option. *used: number of words of the option and its value.
 */
static const char *option(char **argv, int left, const char *name, int *used)
{
	const char *s = argv[0];
	size_t n = strlen(name);

	if (*s != '-')
		return NULL;
	s += s[1] == '-' ? 2 : 1;
	if (strncmp(s, name, n))
		return NULL;
	if (s[n] == '=') {
		*used = 1;
		return s + n + 1;
	}
	if (s[n] || left < 2)
		return NULL;
	*used = 2;
	return argv[1];
}

static bool take(char **argv, int left, const char *name, const char **to, int *used)
{
	const char *v = option(argv, left, name, used);

	if (v)
		*to = v;
	return v;
}

static int global(struct call *c, char **argv, int left, bool *ours)
{
	const char *config = NULL, *run = NULL, *format = NULL, *other = NULL;
	int used = 1;

	*ours = true;
	if (take(argv, left, "zns-config", &config, &used))
		setenv("ZNS_CONFIG", config, 1);
	else if (take(argv, left, "zns-run", &run, &used))
		setenv("ZNS_RUN", run, 1);
	else if (!take(argv, left, "zns-runc", &c->runc, &used) &&
		 !take(argv, left, "zns-docker-root", &c->docker_root, &used))
		*ours = false;
	if (*ours || take(argv, left, "root", &c->root, &used) ||
	    take(argv, left, "log", &c->log, &used) || take(argv, left, "criu", &other, &used) ||
	    take(argv, left, "rootless", &other, &used))
		return used;
	if (take(argv, left, "log-format", &format, &used))
		c->log_json = !strcmp(format, "json");
	return used;
}

int call_parse(int argc, char **argv, struct call *c, struct zns_err *err)
{
	ssize_t n = zns_read_link(AT_FDCWD, "/proc/self/exe", c->libexec, sizeof(c->libexec));
	int i = 1, used;
	bool ours;

	if (n <= 0)
		return zns_fail_sys(err, (int)n, "cannot read /proc/self/exe");
	*strrchr(c->libexec, '/') = 0;
	c->argv = calloc(argc + 2, sizeof(char *));
	if (!c->argv)
		return zns_fail(err, -ENOMEM, "no memory for the arguments");
	c->argc = 1;
	while (i < argc && argv[i][0] == '-') {
		used = global(c, argv + i, argc - i, &ours);
		for (; used; used--, i++)
			if (!ours)
				c->argv[c->argc++] = argv[i];
	}
	if (i == argc)
		return 0;
	c->command = argv[i];
	c->id = i + 1 < argc ? argv[argc - 1] : NULL;
	for (; i < argc; i++) {
		take(argv + i, argc - i, "image-path", &c->image_path, &used);
		take(argv + i, argc - i, "work-path", &c->work_path, &used);
		take(argv + i, argc - i, "pid-file", &c->pid_file, &used);
		take(argv + i, argc - i, "console-socket", &c->console, &used);
		if (!take(argv + i, argc - i, "bundle", &c->bundle, &used))
			take(argv + i, argc - i, "b", &c->bundle, &used);
		c->argv[c->argc++] = argv[i];
	}
	return 0;
}

int call_add_flag(struct call *c, const char *name)
{
	char **argv, *flag;
	int i;

	if (asprintf(&flag, "--%s", name) < 0)
		return -ENOMEM;
	for (i = 1; i < c->argc; i++)
		if (!strcmp(c->argv[i], flag))
			break;
	argv = i < c->argc ? NULL : calloc(c->argc + 2, sizeof(*argv));
	if (!argv) {
		free(flag);
		return i < c->argc ? 0 : -ENOMEM;
	}
	/* the container's id must stay the last word, as runc expects */
	memcpy(argv, c->argv, (c->argc - 1) * sizeof(*argv));
	argv[c->argc - 1] = flag;
	argv[c->argc] = c->argv[c->argc - 1];
	free(c->argv);
	c->argv = argv;
	c->argc++;
	return 0;
}

bool call_has_flag(const struct call *c, const char *name)
{
	for (int i = 1; i < c->argc; i++) {
		const char *s = c->argv[i];

		if (*s != '-')
			continue;
		s += s[1] == '-' ? 2 : 1;
		if (!strcmp(s, name) ||
		    (!strncmp(s, name, strlen(name)) && !strcmp(s + strlen(name), "=true")))
			return true;
	}
	return false;
}

int call_signal(const char *name)
{
	uint64_t number;
	const char *s = strncmp(name, "SIG", 3) ? name : name + 3, *abbrev;

	if (!zns_parse_number(name, 1, 64, &number))
		return (int)number;
	if (!strncmp(s, "RTMIN", 5) && (!s[5] || s[5] == '+'))
		return SIGRTMIN + (s[5] ? atoi(s + 6) : 0);
	for (int sig = 1; sig < SIGRTMIN; sig++) {
		abbrev = sigabbrev_np(sig);
		if (abbrev && !strcmp(s, abbrev))
			return sig;
	}
	return 0;
}

const char *call_killed(const struct call *c, int *sig)
{
	const char *words[2] = { NULL, "TERM" };
	int at = 1, n = 0;

	if (strcmp(c->command, "kill"))
		return NULL;
	while (at < c->argc && c->argv[at] != c->command)
		at++;
	for (at++; at < c->argc && n < 2; at++)
		if (c->argv[at][0] != '-')
			words[n++] = c->argv[at];
	if (sig)
		*sig = call_signal(words[1]);
	return words[0];
}

int call_run(const struct call *c, int out)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (out >= 0) {
			dup2(out, STDOUT_FILENO);
			dup2(out, STDERR_FILENO);
		}
		execv(c->argv[0], c->argv);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			pid = -1;
	if (pid < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void call_null_stdio(void)
{
	/* the target may be descriptor 0, 1 or 2, which must stay open over exec */
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

char **call_again(const struct call *c, const char *log, const char *const *words)
{
	const char *const ours[] = { "--zns-runc", c->argv[0], "--zns-docker-root",
				     c->docker_root ? c->docker_root : DOCKER_DEFAULT_ROOT };
	const char *const last[] = { "--log", log, "--log-format", "json" };
	char **argv;
	int n = 0, nr = 0;

	while (words[nr])
		nr++;
	argv = calloc((size_t)(c->argc + nr) + 12, sizeof(*argv));
	if (!argv)
		return NULL;
	argv[n++] = (char *)(uintptr_t) "zns-runc";
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(ours); i++)
		argv[n++] = (char *)(uintptr_t)ours[i];
	for (int i = 1; i < c->argc && c->argv[i] != c->command; i++)
		argv[n++] = c->argv[i];
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(last); i++)
		argv[n++] = (char *)(uintptr_t)last[i];
	for (int i = 0; i < nr; i++)
		argv[n++] = (char *)(uintptr_t)words[i];
	return argv;
}

bool call_last_error(const char *log, char *out, size_t len)
{
	cleanup_free uint8_t *text = NULL;
	struct json_object *o;
	const char *level, *msg;
	char *line, *save;
	bool found = false;
	size_t n;

	if (zns_read_file(AT_FDCWD, log, MIB(1), &text, &n))
		return false;
	for (line = strtok_r((char *)text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (zns_json_parse(log, (uint8_t *)line, strlen(line), &o, NULL))
			continue;
		level = zns_json_str(o, "level");
		msg = zns_json_str(o, "msg");
		if (level && msg && !strcmp(level, "error")) {
			snprintf(out, len, "%s", msg);
			found = true;
		}
		json_object_put(o);
	}
	return found;
}

int call_find_runc(struct call *c, char *out, size_t len, struct zns_err *err)
{
	const char *path = secure_getenv("PATH"), *p, *end;
	struct stat me, st;

	if (c->runc) {
		if (access(c->runc, X_OK))
			return zns_fail_sys(
				err, -errno,
				"cannot run %s, the runc that --zns-runc names (in Docker: daemon.json's runtimeArgs)",
				c->runc);
		snprintf(out, len, "%s", c->runc);
		return 0;
	}
	if (stat("/proc/self/exe", &me))
		return zns_fail_sys(err, -errno, "cannot read the attributes of /proc/self/exe");
	for (p = path && *path ? path : "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"; *p;
	     p = *end ? end + 1 : end) {
		end = p + strcspn(p, ":");
		if (*p != '/' || (size_t)snprintf(out, len, "%.*s/runc", (int)(end - p), p) >= len)
			continue;
		if (!stat(out, &st) && S_ISREG(st.st_mode) && !access(out, X_OK) &&
		    (st.st_ino != me.st_ino || st.st_dev != me.st_dev))
			return 0;
	}
	return zns_fail(
		err, -ENOENT,
		"no runc in PATH: install it, or name it with --zns-runc in daemon.json's runtimeArgs");
}

bool call_has_handle(const char *dir)
{
	cleanup_close int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd >= 0 && zns_handle_present(fd);
}
