/* SPDX-License-Identifier: GPL-2.0-only */
/* Does the owner of a checkpoint still exist? One function for each kind of origin. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "gc.h"

static enum gc_life say(enum gc_life l, char *why, size_t len, const char *what)
{
	snprintf(why, len, "%s", what);
	return l;
}

static int limit_ms = -1;

void gc_life_within(int ms)
{
	limit_ms = ms;
}

/* Waits until a program exits, and kills it at the time limit. -ETIME: it was killed. */
static int reap(pid_t pid, int *status)
{
	cleanup_close int fd = limit_ms < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd f = { .fd = fd, .events = POLLIN };
	bool late = limit_ms >= 0 && (fd < 0 || poll(&f, 1, limit_ms) != 1);
	pid_t got;

	if (late)
		kill(pid, SIGKILL);
	do
		got = waitpid(pid, status, 0);
	while (got < 0 && errno == EINTR);
	return late ? -ETIME : got == pid ? 0 : -ECHILD;
}

/* Reads the answer, such as "gone why", as `znsctl-docker life` prints it. */
static enum gc_life read_answer(int fd, char *why, size_t len)
{
	static const char *const word[] = {
		[GC_NEEDED] = "needed ", [GC_GONE] = "gone ", [GC_UNKNOWN] = "unknown "
	};
	cleanup_file FILE *f = fdopen(fd, "re");
	char line[PATH_MAX + 512] = "";

	if (f && fgets(line, sizeof(line), f))
		for (size_t i = 0; i < ZNS_ARRAY_SIZE(word); i++)
			if (!strncmp(line, word[i], strlen(word[i]))) {
				line[strcspn(line, "\n")] = '\0';
				return say((enum gc_life)i, why, len, line + strlen(word[i]));
			}
	return say(GC_UNKNOWN, why, len, "znsctl-docker cannot tell");
}

/*
 * Asks the engine's package, which knows the engine's directories. Its program is installed beside
 * this one.
 */
static enum gc_life engine_life(const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const ZnsPb__Origin *o = c->origin;
	char path[PATH_MAX], id[ZNS_UUID_STR], created[24], life[] = "life", none[] = "";
	char ended[2] = { o->ended ? '1' : '0', '\0' };
	char *argv[] = { path,
			 life,
			 o->kind,
			 o->root ? o->root : none,
			 o->container_id ? o->container_id : none,
			 o->checkpoint_name ? o->checkpoint_name : none,
			 zns_uuid_format(c->id.data, id),
			 ended,
			 created,
			 NULL };
	posix_spawn_file_actions_t fa;
	int to[2], ret, status;
	pid_t pid;

	snprintf(created, sizeof(created), "%lld", (long long)c->created_ns);
	if (zns_own_program("znsctl-docker", path, sizeof(path)))
		return say(GC_UNKNOWN, why, len,
			   "znsctl-docker, which could tell, is not installed");
	if (pipe2(to, O_CLOEXEC))
		return say(GC_UNKNOWN, why, len, strerror(errno));
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, to[1], STDOUT_FILENO);
	ret = posix_spawn(&pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(to[1]);
	/* wait before reading: the answer is one line, which fits into the pipe's buffer */
	ret = ret ? -ret : reap(pid, &status);
	if (!ret)
		return read_answer(to[0], why, len); /* read_answer() closes it */
	close(to[0]);
	return say(GC_UNKNOWN, why, len, "znsctl-docker cannot tell in time");
}

static int program_path(const char *kind, char *path, size_t len, struct stat *st)
{
	return (size_t)snprintf(path, len, "%s/gc.d/%s", zns_config_dir(), kind) >= len ||
			       stat(path, st) ?
		       -ENOENT :
		       0;
}

static bool without_programs;

void gc_life_without_programs(void)
{
	without_programs = true;
}

/*
 * For CRI, and for Podman if there is such a program: the administrator's program CONFIG/gc.d/KIND
 * is executed with the arguments CHECKPOINT CONTAINER CONTAINER_ID IMAGE_DIR. Exit code 0: needed;
 * 1: gone; any other, or no program: unknown.
 */
static enum gc_life program_life(const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const ZnsPb__Origin *o = c->origin;
	char path[4096], id[ZNS_UUID_STR];
	char *argv[] = { path,
			 id,
			 c->container,
			 o->container_id ? o->container_id : (char *)"",
			 o->image_dir ? o->image_dir : (char *)"",
			 NULL };
	posix_spawn_file_actions_t fa;
	struct stat st;
	int status;
	pid_t pid;

	zns_uuid_format(c->id.data, id);
	if (without_programs)
		return say(GC_UNKNOWN, why, len, "gc.d programs are not asked");
	if (program_path(o->kind, path, sizeof(path), &st))
		return say(GC_UNKNOWN, why, len, "there is no gc.d program that could tell");
	if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & 022) || !S_ISREG(st.st_mode))
		return say(GC_UNKNOWN, why, len, "its gc.d program may be written by others");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	status = posix_spawn(&pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (status || reap(pid, &status) || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
		return say(GC_UNKNOWN, why, len, "its gc.d program cannot tell");
	return WEXITSTATUS(status) ?
		       say(GC_GONE, why, len, "its gc.d program says that it is gone") :
		       say(GC_NEEDED, why, len, "its gc.d program says that it is needed");
}

static enum gc_life podman_life(const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const ZnsPb__Origin *o = c->origin;
	char path[4096];
	struct stat st;

	if (!program_path(o->kind, path, sizeof(path), &st))
		return program_life(c, why, len);
	return engine_life(c, why, len);
}

typedef enum gc_life (*life_fn)(const ZnsPb__Checkpoint *c, char *why, size_t len);

static life_fn life_of(const ZnsPb__Checkpoint *c)
{
	const char *kind = c->origin ? c->origin->kind : NULL;
	static const struct {
		const char *kind;
		life_fn life;
	} kinds[] = { { "docker", engine_life },
		      { "podman", podman_life },
		      { "cri", program_life } };

	for (size_t i = 0; kind && i < ZNS_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kind, kinds[i].kind))
			return kinds[i].life;
	return NULL;
}

bool gc_swept(const ZnsPb__Checkpoint *c)
{
	return life_of(c);
}

enum gc_life gc_life(const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const char *made = c->origin->host;
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	if (made && !strcmp(made, host))
		return life_of(c)(c, why, len);
	snprintf(why, len, "made on another host (%.60s): nothing is known here",
		 made ? made : "unknown");
	return GC_UNKNOWN;
}
