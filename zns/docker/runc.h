/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_RUNC_H
#define ZNS_RUNC_H
/* zns-runc: the OCI runtime that Docker calls. It runs runc with our criu and the container's
 * settings. */
#include <sys/stat.h>
#include <time.h>
#include "docker.h"

struct call {
	char **argv; /* runc's arguments: [0] is its path, our own options are removed */
	int argc;
	const char *runc; /* --zns-runc; NULL: the first runc in PATH that is not ours */
	const char *docker_root; /* --zns-docker-root */
	const char *command, *id;
	const char *root, *log, *image_path, *work_path, *bundle, *pid_file, *console;
	bool log_json;
	char libexec[PATH_MAX]; /* directory of this program, criu and zns-helper */
};

/* args.c: parses @argv, the arguments of zns-runc. What is missing stays NULL. */
int call_parse(int argc, char **argv, struct call *c, struct zns_err *err);
/* Adds the flag "--NAME" to runc's command, unless it is there. -ENOMEM. */
int call_add_flag(struct call *c, const char *name);
bool call_has_flag(const struct call *c, const char *name);
/* Parses `kill [--all] ID [SIGNAL]`: returns the id, and the signal if @sig is not NULL. NULL:
 * another command. */
const char *call_killed(const struct call *c, int *sig);
/* Parses a signal's name, with or without SIG, or its number; 0: unknown. */
int call_signal(const char *name);
/* Arguments that run this program again with the same runc, root and configuration, the command
 * @words (NULL ends them), and its JSON log at @log. NULL: no memory. */
char **call_again(const struct call *c, const char *log, const char *const *words);
/* Runs runc with the arguments of @c, whose output goes to descriptor @out (-1: to ours). Returns its
 * exit code, of a signal 128 more than that; -1: it could not be started. */
int call_run(const struct call *c, int out);
void call_null_stdio(void); /* opens 0, 1 and 2 on /dev/null */
/* The last error in criu's log. False: there is none. */
bool call_last_error(const char *log, char *out, size_t len);
/* true if the directory has the handle of a committed checkpoint */
bool call_has_handle(const char *dir);
int call_find_runc(struct call *c, char *out, size_t len, struct zns_err *err);

/* pause.c: handles pause, resume and delete. True: done, runc must not be called. */
bool pause_call(const struct call *c);

/* netlock.c: a checkpoint leaves the container's TCP connections locked. */
void netlock_tell(const char *id); /* tells criu where to note its lock */
void netlock_forget(const char *id); /* to be called after the restore */
/* to be called when the container is created afresh */
void netlock_lift(const struct docker_container *k);

/* extend.c: attaches containers that ask for it (zns.memory) to a pager. */
struct wants_memory {
	char id[128], name[256], dev[DOCKER_SETTING_MAX];
	struct docker_memory m;
	bool no_predict;
	int pid; /* PID of its first process */
	uint64_t began; /* zns_process_began() of that process */
	struct stat before; /* the file of the program that runs in it before the start */
};
/* Does the container ask for it? Called after its create. Notes problems with the setting. */
bool extend_wanted(const struct call *c, struct wants_memory *w);
int extend_start(struct call *c, struct wants_memory *w); /* runs runc; returns its exit code */
void extend_begin(const struct call *c, struct wants_memory *w, bool restored);
void extend_forget(const struct call *c); /* the note about a container that is deleted */

/* hold.c: at create, restores a container that is to resume. *@held: create is done, and the
 * restore waits for start. Else create goes on with runc. */
int hold_create(struct call *c, const struct docker_container *k, bool *held, struct zns_err *err);
/* Handles a command for a held container: 0 or an error of it. -ENOENT: it is not held. */
int hold_call(const struct call *c, struct zns_err *err);

/* orphan.c: watches until this process ends, also if it executes another program. If the engine
 * ends before it, the container's shim is killed (after a `start` the container is stopped
 * first), since no later start would get past that shim. */
void orphan_watch(const struct call *c);
/* A pidfd of the dockerd that made this call; after its exit nobody will call start. -errno: not
 * known; -ESRCH: it has exited. */
int orphan_engine(const char *root);

/* links.c: before a restore, sources of mounts that are symbolic links become their targets. */
int links_resolve(const char *bundle, struct zns_err *err);

/* suspend.c: turns the runtime's kill into a checkpoint that ends the container. False: send the
 * signal as usual. */
bool suspend_kill(const struct call *c);
bool suspend_is_stop(const struct call *c); /* Is this call the checkpoint of such a stop? */
/* The signal with which an engine stops this container. */
int suspend_signal(const struct docker_container *k);
/* The lock of a stop: held until it has ended by checkpoint or signal, and by any checkpoint
 * that ends the container. Returns a descriptor; -EWOULDBLOCK: another process has the lock. */
int suspend_lock(const struct docker_container *k);
/* The name of the checkpoint that call @c makes: by its directory, or by the one that dockerd
 * made for it. "": not known. */
void suspend_name(const struct call *c, const struct docker_container *k, char *out, size_t len);

/* ended.c: what a later start must know about a dump. */
struct ended {
	/* name of the checkpoint; "": nothing to note, it leaves the container running or is not
	 * Docker's */
	char name[256];
	char frozen[PATH_MAX]; /* the file in which criu notes when the tasks were frozen */
	long long began_ns; /* time before the freeze */
	int init; /* pidfd of the container's first process */
	int lock; /* descriptor of suspend_lock(); -1 if the stop that made this call holds it */
};
/* Before the dump: writes everything that needs disk space. If it fails the dump must fail. */
int ended_prepare(const struct call *c, const struct docker_container *k,
		  const struct docker_state *state, struct ended *e, struct zns_err *err);
/* To be called after runc has ended with exit code @failed. */
void ended_finish(const struct call *c, const struct docker_container *k, struct ended *e,
		  int failed);

/* report.c: puts one readable line about a failure where Docker looks for it. */
void report_line(const struct call *c, const char *line);
/* Finds the line in criu's log that gives the reason. -ENOENT: none was written since @since. */
int report_find(const struct call *c, const char *log_name, const struct timespec *since, char *out,
		size_t len);

/* feasible.c. -ERANGE: the device could never give the requested bandwidth. */
int feasible_qos(const struct docker_settings *s, struct zns_err *err);

#endif
