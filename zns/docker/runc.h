/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_RUNC_H
#define ZNS_RUNC_H
/*
 * zns-runc: the OCI runtime that Docker calls. It executes runc with our criu and the container's
 * settings.
 */
#include <sys/stat.h>
#include <time.h>
#include "docker.h"

struct call {
	char **argv; /* runc's arguments: [0] is runc's path, and our own options are removed */
	int argc;
	const char *runc; /* --zns-runc; NULL: the first runc in PATH that is not zns-runc */
	const char *docker_root; /* --zns-docker-root */
	const char *command, *id;
	const char *root, *log, *image_path, *work_path, *bundle, *pid_file, *console;
	bool log_json;
	char libexec[PATH_MAX]; /* directory of this program, criu and zns-helper */
};

/*
 * args.c: parses @argv, the arguments of zns-runc. Fields for options that are not given stay NULL.
 */
int call_parse(int argc, char **argv, struct call *c, struct zns_err *err);
/* Adds the flag "--NAME" to runc's command, unless it has it already. -ENOMEM. */
int call_add_flag(struct call *c, const char *name);
bool call_has_flag(const struct call *c, const char *name);
/* Parses `kill [--all] ID [SIGNAL]`: returns the id, and the signal if @sig is not NULL. NULL:
 * another command. */
const char *call_killed(const struct call *c, int *sig);
/* Parses a signal's name, with or without SIG, or its number; 0: unknown. */
int call_signal(const char *name);
/*
 * Returns arguments that execute this program again with the same runc, root and configuration,
 * with the command @words (terminated by NULL) and its JSON log in the file @log. NULL: no memory.
 */
char **call_again(const struct call *c, const char *log, const char *const *words);
/* Runs runc with the arguments of @c, whose output goes to descriptor @out (-1: to ours). Returns its
 * exit code, of a signal 128 more than that; -1: it could not be started. */
int call_run(const struct call *c, int out);
void call_null_stdio(void); /* opens /dev/null as descriptors 0, 1 and 2 */
/* Finds the last error in criu's log. False: there is none. */
bool call_last_error(const char *log, char *out, size_t len);
/* Does the directory contain the handle of a committed checkpoint? */
bool call_has_handle(const char *dir);
int call_find_runc(struct call *c, char *out, size_t len, struct zns_err *err);

/* pause.c: handles pause, resume and delete. True: it is done, and runc must not be called. */
bool pause_call(const struct call *c);

/* netlock.c: the lock that a checkpoint leaves on the container's TCP connections. */
void netlock_tell(const char *id); /* tells criu where to write the name of its lock */
void netlock_forget(const char *id); /* call it after the restore */
/* call it when the container is created cold */
void netlock_lift(const struct docker_container *k);

/* extend.c: attaches containers with the setting zns.memory to a pager. */
struct wants_memory {
	char id[128], name[256], dev[DOCKER_SETTING_MAX];
	struct docker_memory m;
	bool no_predict;
	int pid; /* PID of its first process */
	uint64_t began; /* zns_process_began() of that process */
	struct stat before; /* the executable of that process before start */
};
/* Does the container have the setting? Call it after create. Notes an error of the setting. */
bool extend_wanted(const struct call *c, struct wants_memory *w);
int extend_start(struct call *c, struct wants_memory *w); /* runs runc; returns its exit code */
void extend_begin(const struct call *c, struct wants_memory *w, bool restored);
void extend_forget(const struct call *c); /* removes the note about a container that is deleted */

/*
 * hold.c: at create, begins the restore of a container that resumes. *@held: create is done, and
 * the restore waits for start. Otherwise create continues with runc.
 */
int hold_create(struct call *c, const struct docker_container *k, bool *held, struct zns_err *err);
/*
 * Handles a command for a container whose restore waits. Returns 0 or an error of the command.
 * -ENOENT: it is no such container.
 */
int hold_call(const struct call *c, struct zns_err *err);

/*
 * orphan.c: watches this process until it ends, also if it executes another program. If the engine
 * ends first, the container's shim is killed (after a `start` the container is stopped before
 * that), since every later start would fail because of that shim.
 */
void orphan_watch(const struct call *c);
/*
 * Returns a pidfd of the dockerd that made this call: after its exit nobody will call start.
 * -errno: unknown; -ESRCH: it has exited.
 */
int orphan_engine(const char *root);

/*
 * links.c: before a restore, replaces sources of mounts that are symbolic links by their targets.
 */
int links_resolve(const char *bundle, struct zns_err *err);

/*
 * suspend.c: replaces the runtime's kill by a checkpoint that ends the container. False: send the
 * signal as usual.
 */
bool suspend_kill(const struct call *c);
bool suspend_is_stop(const struct call *c); /* is this call the checkpoint of such a stop? */
/* The signal with which an engine stops this container. */
int suspend_signal(const struct docker_container *k);
/*
 * Takes the lock of a stop. A stop holds it until the container has ended by checkpoint or signal;
 * any checkpoint that ends the container holds it too. Returns a descriptor; -EWOULDBLOCK: another
 * process has the lock.
 */
int suspend_lock(const struct docker_container *k);
/*
 * The name of the checkpoint that call @c makes: from the name of its directory, or of the one that
 * dockerd has made for it. Empty: unknown.
 */
void suspend_name(const struct call *c, const struct docker_container *k, char *out, size_t len);

/* ended.c: what a later start must know about a dump. */
struct ended {
	/*
	 * name of the checkpoint; empty: nothing has to be noted, since the container continues to
	 * run or is not Docker's
	 */
	char name[256];
	char frozen[PATH_MAX]; /* the file in which criu notes when the tasks were frozen */
	long long began_ns; /* time just before the dump */
	int init; /* pidfd of the container's first process */
	/* descriptor of suspend_lock(); -1: the stop that made this call holds the lock */
	int lock;
};
/* Before the dump: writes all that needs disk space. If this fails, the dump must fail. */
int ended_prepare(const struct call *c, const struct docker_container *k,
		  const struct docker_state *state, struct ended *e, struct zns_err *err);
/* Call it after runc has exited with the code @failed. */
void ended_finish(const struct call *c, const struct docker_container *k, struct ended *e,
		  int failed);

/* report.c: writes one readable line about a failure to where Docker looks for it. */
void report_line(const struct call *c, const char *line);
/* Finds the line with the reason in criu's log. -ENOENT: none was written since @since. */
int report_find(const struct call *c, const char *log_name, const struct timespec *since, char *out,
		size_t len);

/* feasible.c. -ERANGE: the device could never give the requested bandwidth. */
int feasible_qos(const struct docker_settings *s, struct zns_err *err);

#endif
