/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns.memory: attaches a container with this setting to a pager once it runs
 * (Documentation/inside/memory.md). A separate process does this outside of the container's
 * cgroups, so that the runtime does not wait. If it fails, the container runs without a pager, and
 * `znsctl memory status` shows the reason from a note. The pager exits when the container does.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "runc.h"
#include "zns/config.h"
#include "zns/process.h"

/* ms for runc's init process in the container to execute the container's program */
#define EXEC_MS 10000
#define LOOK_NS 2000000
#define NOTE "memory"

static void note(const struct wants_memory *w, const char *line)
{
	char path[PATH_MAX], text[ZNS_ERR_MAX + 300];
	struct zns_err err = ZNS_ERR_INIT;

	if (docker_run_path(w->id, NOTE, path, sizeof(path), &err))
		return;
	snprintf(text, sizeof(text), "%s\n%s\n", w->name, line);
	zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600);
}

void extend_forget(const struct call *c)
{
	docker_run_unlink(c->id, NOTE);
}

static bool program_of(int pid, struct stat *st)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return !stat(path, st);
}

/*
 * Sets the first process in @w, unless the PID that the runtime has stored belongs to another
 * process by now.
 */
static void first_process(struct wants_memory *w, const struct docker_state *s)
{
	w->began = s->init_pid > 1 ? zns_process_began(s->init_pid) : 0;
	w->pid = w->began && (!s->init_start || s->init_start == w->began) ? s->init_pid : 0;
}

bool extend_wanted(const struct call *c, struct wants_memory *w)
{
	const struct docker_runtime rt = { c->docker_root, c->root };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_settings set;
	struct docker_container k;
	struct docker_state s;
	int ret;

	memset(w, 0, sizeof(*w));
	if (!docker_good_id(c->id) || docker_state_read(c->root, c->id, &s, &err))
		return false;
	snprintf(w->id, sizeof(w->id), "%s", c->id);
	snprintf(w->name, sizeof(w->name), "%.200s", c->id);
	ret = docker_container_read(&rt, s.bundle, c->id, &k, &err);
	if (!ret) {
		docker_container_podman(&k, s.init_pid);
		docker_memory_name(&k, w->name, sizeof(w->name));
		ret = docker_settings_read(&k, &set, &err);
	}
	if (!ret && set.source[DOCKER_MEMORY])
		ret = docker_memory_parse(set.value[DOCKER_MEMORY], "zns.memory", &w->m, &err);
	if (!ret && set.source[DOCKER_MEMORY_MIN])
		zns_parse_size(set.value[DOCKER_MEMORY_MIN], &w->m.min);
	if (!ret && w->m.wanted)
		ret = docker_memory_size(&k, &w->m, &err);
	if (!ret && w->m.wanted && !strcmp(k.kind, "cri") && docker_is_sandbox(&k))
		w->m.wanted = false;
	w->no_predict = !ret && set.source[DOCKER_MEMORY_PREDICT] &&
			!strcmp(set.value[DOCKER_MEMORY_PREDICT], "off");
	if (!ret && set.source[DOCKER_DEV])
		snprintf(w->dev, sizeof(w->dev), "%s", set.value[DOCKER_DEV]);
	docker_container_fini(&k);
	/* note an error of the settings: the container is started nevertheless */
	if (ret && ret != -ENOENT)
		note(w, err.msg);
	first_process(w, &s);
	program_of(w->pid, &w->before);
	return !ret && w->m.wanted && w->pid > 1;
}

/*
 * Waits until the container's own program runs: if the process were attached earlier, exec would
 * detach it.
 */
static bool await_program(const struct wants_memory *w)
{
	struct stat now;

	for (int ms = 0; ms < EXEC_MS; ms += 2) {
		if (zns_process_began(w->pid) != w->began || !program_of(w->pid, &now))
			return false;
		if (now.st_ino != w->before.st_ino || now.st_dev != w->before.st_dev)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
	}
	/* the program may be the same one that ran before, so attach it anyway */
	return true;
}

static void __attribute__((noreturn))
attach(const struct call *c, struct wants_memory *w, bool restored)
{
	struct docker_pager p = { .name = w->name,
				  .idle_s = w->m.idle_s,
				  .dram = w->m.dram,
				  .no_predict = w->no_predict,
				  .total = w->m.machine ? w->m.total : 0,
				  .min = w->m.min };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_state s;

	setsid();
	call_null_stdio();
	zns_close_from(3); /* runc's caller waits until these pipes are closed */
	zns_cgroup_escape();
	if (chdir("/"))
		_exit(1);
	if (restored && docker_state_read(c->root, w->id, &s, &err))
		_exit(0);
	if (restored)
		first_process(w, &s);
	else if (!await_program(w))
		_exit(0);
	if (w->pid <= 1)
		_exit(0);
	extend_forget(c);
	p.pid = w->pid;
	p.began = w->began;
	if (w->m.machine)
		p.dram = zns_max(zns_min(docker_resident(p.pid), p.total), p.min);
	p.dev = *w->dev ? w->dev : NULL;
	/* no note is needed if the container has ended meanwhile */
	if (docker_pager_start(&p, &err) && zns_process_began(w->pid) == w->began)
		note(w, err.msg);
	_exit(0);
}

void extend_begin(const struct call *c, struct wants_memory *w, bool restored)
{
	pid_t pid = fork();

	if (!pid) {
		/* fork again, so that the runtime gets no child to wait for */
		if (fork())
			_exit(0);
		attach(c, w, restored);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

int extend_start(struct call *c, struct wants_memory *w)
{
	int status = call_run(c, -1);

	if (!status)
		extend_begin(c, w, false);
	return status < 0 ? 1 : status;
}
