/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_RUNC_H
#define ZNS_RUNC_H
/* zns-runc: the OCI runtime that Docker calls. It runs runc with our criu and the container's
 * settings. */
#include <sys/stat.h>
#include <time.h>
#include "docker.h"

struct call {
	char **argv; /* for runc: [0] is its path; our own options are removed */
	int argc;
	const char *runc; /* --zns-runc; NULL: the first runc in PATH that is not ours */
	const char *docker_root; /* --zns-docker-root */
	const char *command, *id;
	const char *root, *log, *image_path, *work_path, *bundle, *pid_file, *console;
	bool log_json;
	char libexec[PATH_MAX]; /* directory of this program, criu and zns-helper */
};

/* args.c: @argv is the program's. Missing words stay NULL. */
int call_parse(int argc, char **argv, struct call *c, struct zns_err *err);
/* Adds the flag "--NAME" to runc's command, unless it is there. -ENOMEM. */
int call_add_flag(struct call *c, const char *name);
bool call_has_flag(const struct call *c, const char *name);
/* Of `kill [--all] ID [SIGNAL]`: the id, and the signal if @sig is not NULL. NULL: another
 * command. */
const char *call_killed(const struct call *c, int *sig);
/* The number of a signal, as a name with or without SIG, or a number; 0: there is none. */
int call_signal(const char *name);
/* The command line that calls this program again: for the same runc, root and configuration, with
 * @words (NULL ends them) as its command, and its log in JSON at @log. NULL: no memory. */
char **call_again(const struct call *c, const char *log, const char *const *words);
void call_null_stdio(void); /* what is read and written from now on is nothing */
/* The last error in such a log. False: there is none. */
bool call_last_error(const char *log, char *out, size_t len);
bool call_has_handle(const char *dir); /* of a checkpoint that is committed */
int call_find_runc(struct call *c, char *out, size_t len, struct zns_err *err);

/* pause.c: for commands pause, resume and delete. True: it is done, runc is not called. */
bool pause_call(const struct call *c);

/* netlock.c: a checkpoint leaves its TCP connections locked. */
void netlock_tell(const char *id); /* for criu: where it notes that */
void netlock_forget(const char *id); /* it has been restored */
void netlock_lift(const struct docker_container *k); /* it is created afresh */

/* extend.c: containers with zns.memory. */
struct wants_memory {
	char id[128], name[256], dev[DOCKER_SETTING_MAX];
	struct docker_memory m;
	bool no_predict;
	int pid; /* its first process */
	uint64_t began; /* zns_process_began() of that */
	struct stat before; /* the program that it is before the start */
};
/* For a container that has been created. What is wrong with its wish is noted. */
bool extend_wanted(const struct call *c, struct wants_memory *w);
int extend_start(struct call *c, struct wants_memory *w); /* runs runc; its exit code */
void extend_begin(const struct call *c, struct wants_memory *w, bool restored);
void extend_forget(const struct call *c); /* the note about a container that is deleted */

/*
 * hold.c: a container that comes back from a checkpoint in its ordinary create and start. *@held:
 * create is done, and the restore waits for start. Else create goes on with runc.
 */
int hold_create(struct call *c, const struct docker_container *k, bool *held, struct zns_err *err);
/* A command for a container that is held: 0, or its error. -ENOENT: it is not held. */
int hold_call(const struct call *c, struct zns_err *err);

/* orphan.c: from now until this process ends, whatever it becomes: if the engine ends before, the
 * container's shim is killed, as no later start would get past it; of a start, when the container
 * has been stopped. */
void orphan_watch(const struct call *c);
/* A pidfd of the dockerd that has called; when it is gone nobody will call start. -errno: not
 * known, or (-ESRCH) gone. */
int orphan_engine(const char *root);

/* links.c: before a restore, sources of mounts that are symbolic links become their targets. */
int links_resolve(const char *bundle, struct zns_err *err);

/* suspend.c: the runtime's kill, as a checkpoint with which the container ends. False: the signal
 * is sent as always. */
bool suspend_kill(const struct call *c);
bool suspend_is_stop(const struct call *c); /* is it the checkpoint of such a stop? */
/* The signal with which an engine stops it. */
int suspend_signal(const struct docker_container *k);
/* Held until a stop has ended by checkpoint or by signal, and by a checkpoint that ends the
 * container. A descriptor; -EWOULDBLOCK: another one holds it. */
int suspend_lock(const struct docker_container *k);
/* What the checkpoint is called that call @c makes: by its directory, or by the one that dockerd
 * has made. "": not known. */
void suspend_name(const struct call *c, const struct docker_container *k, char *out, size_t len);

/* ended.c: what a later start has to know of a dump. */
struct ended {
	char name[256]; /* of the checkpoint; "": it leaves the container running, or is no Docker's
			 */
	char frozen[PATH_MAX]; /* the file in which criu notes when the tasks were frozen */
	long long began_ns; /* before that */
	int init; /* a pidfd */
	int lock; /* of suspend_lock(); the stop that calls this has it already */
};
/* Before the dump: all that needs space on the disk. An error fails the dump. */
int ended_prepare(const struct call *c, const struct docker_container *k,
		  const struct docker_state *state, struct ended *e, struct zns_err *err);
/* After runc has ended with exit code @failed. */
void ended_finish(const struct call *c, const struct docker_container *k, struct ended *e,
		  int failed);

/* report.c: puts one readable line about a failure where Docker looks for it. */
void report_line(const struct call *c, const char *line);
/* Finds the line in criu's log that gives the reason. -ENOENT: none was written since @since. */
int report_find(const struct call *c, const char *log_name, const struct timespec *since, char *out,
		size_t len);

/* feasible.c. -ERANGE: no checkpoint could ever have the bandwidth that is asked for. */
int feasible_qos(const struct docker_settings *s, struct zns_err *err);

#endif
