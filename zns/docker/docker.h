/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DOCKER_H
#define ZNS_DOCKER_H
/*
 * Shared by the runtime wrapper (zns-runc) and `znsctl docker`: describes a container and its
 * settings, and decides whether one of its checkpoints is still needed. These functions print
 * nothing, and are not thread-safe.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"
#include "zns/json.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

struct zns_session;

#define DOCKER_ID_LEN 64 /* hex digits */
#define DOCKER_SETTING_MAX 256 /* most bytes of a value, with the NUL */

/*
 * Environment variables that zns-runc sets for the helper (zns/helper/dump/origin.c). They say
 * which container is dumped.
 */
#define ZNS_ORIGIN_KIND "ZNS_ORIGIN_KIND"
#define ZNS_ORIGIN_ID "ZNS_ORIGIN_ID"
#define ZNS_ORIGIN_NAME "ZNS_ORIGIN_NAME"
#define ZNS_ORIGIN_IMAGE "ZNS_ORIGIN_IMAGE"
#define ZNS_ORIGIN_ROOT "ZNS_ORIGIN_ROOT"
#define ZNS_ORIGIN_CHECKPOINT "ZNS_ORIGIN_CHECKPOINT"
#define ZNS_ORIGIN_TICKET "ZNS_ORIGIN_TICKET"
#define ZNS_ORIGIN_FROZEN "ZNS_ORIGIN_FROZEN"
#define ZNS_ORIGIN_LOG "ZNS_ORIGIN_LOG"
#define ZNS_ORIGIN_ENDED "ZNS_ORIGIN_ENDED"
/* For a restore: which container is restored, and which checkpoints of other containers it may
 * use ("any", or a list of ids). */
#define ZNS_RESTORE_ID "ZNS_RESTORE_ID"
#define ZNS_RESTORE_NAME "ZNS_RESTORE_NAME"
#define ZNS_RESTORE_ALLOW "ZNS_RESTORE_ALLOW"

/*
 * A file in a clone's directory, beside config.v2.json. It names the checkpoint of another
 * container from which the clone may be restored.
 */
#define DOCKER_CLONE_FILE "zns-clone"

#define DOCKER_DEFAULT_ROOT "/var/lib/docker"

/* A container, described by its bundle and by Docker's own directory. */
struct docker_container {
	char kind[16]; /* "docker", "podman", "cri"; "runc" if unknown */
	char id[128];
	/* Docker's name, podman/NAME, NAMESPACE/POD/CONTAINER of a CRI, or the id */
	char name[256];
	char image[256]; /* as given to `docker run`; empty: unknown */
	/* Docker's data root, or the result of podman_root(); empty: unknown, or another engine */
	char root[PATH_MAX];
	/* bundle of a Podman container for which podman_bundle() is true; else empty */
	char bundle[PATH_MAX];
	/* during create: the runtime's PID file, whose time is that of the last create */
	const char *pid_file;
	struct json_object *annotations, *labels, *env; /* from the spec; NULL if absent */
	struct json_object *spec, *config; /* these own the objects of the line above */
};

/* What the runtime's installer or caller has set. The container's creator cannot influence it. */
struct docker_runtime {
	const char *docker_root; /* --zns-docker-root; NULL: DOCKER_DEFAULT_ROOT */
	const char *state_root; /* runc's --root; NULL: not given */
};

/*
 * Describes a container. @bundle contains config.json. Always call docker_container_fini()
 * afterwards. -EPERM: Docker's files exist but cannot be trusted. -EINVAL: the name is not valid.
 */
int docker_container_read(const struct docker_runtime *rt, const char *bundle, const char *id,
			  struct docker_container *c, struct zns_err *err);
/* Finds the name of a Podman container. @init_pid: its first process; 0: unknown. */
void docker_container_podman(struct docker_container *c, int init_pid);
/* Describes a Docker container by <root>/containers/<id> only, for `znsctl docker`. */
int docker_container_read_root(const char *root, const char *id, struct docker_container *c,
			       struct zns_err *err);
void docker_container_fini(struct docker_container *c);
/*
 * Is the container a pod's sandbox? A sandbox has the pod's annotations, and runs only to keep
 * namespaces open.
 */
bool docker_is_sandbox(const struct docker_container *c);
/* image.c: does the shell pattern @pattern match a name of the container's image? */
bool docker_image_fits(const struct docker_container *c, const char *pattern);

/* state.c: what runc or crun has stored about a running container. */
struct docker_state {
	char bundle[PATH_MAX];
	int init_pid; /* PID of its first process; 0: unknown */
	/* start time of that process in clock ticks since boot; 0: unknown */
	uint64_t init_start;
	bool frozen; /* frozen by `runc pause`, or through a parent of its cgroup */
};
/* @root: the runtime's --root; NULL: its default. @id must have passed docker_good_id(). */
int docker_state_read(const char *root, const char *id, struct docker_state *s,
		      struct zns_err *err);
/* Is a cgroup in @paths frozen? @paths: the member cgroup_paths of runc's state, of cgroups
 * version 1 or 2. */
bool docker_cgroup_frozen(struct json_object *paths);

/*
 * running.c: finds a running container of Docker or Podman by its name or id. -ENOENT: not found;
 * -ESRCH: it does not run.
 */
struct docker_running {
	int pid; /* PID of its first process */
	char name[256]; /* the name that the engine or the caller uses for it */
};
int docker_running(const char *name, struct docker_running *r, struct zns_err *err);

/* memory.c: the parsed setting zns.memory */
#define DOCKER_MEMORY_NEVER "never" /* value of a rule that forbids zns.memory to the container */
struct docker_memory {
	bool wanted;
	/*
	 * the budget in bytes, or as a percentage of the container's limit (without a limit, of the
	 * machine's memory)
	 */
	uint64_t dram, percent, idle_s;
	bool machine; /* setting `auto`: the budget is a share of @total, and at least @min */
	uint64_t total, min; /* bytes; min 0: not given */
};
#define DOCKER_MEMORY_MIN_BYTES MIB(16) /* the default of @min for `auto` */
int docker_memory_parse(const char *value, const char *where, struct docker_memory *m,
			struct zns_err *err);
/* Gets `memory-dram` of zns.conf in bytes. -ENOENT: not set. */
int docker_memory_total(uint64_t *total, struct zns_err *err);
/*
 * Computes the budget of this container: sets @m->dram, and for `auto` also @m->total and @m->min.
 * -EINVAL: it exceeds the container's memory limit; -EPERM: the minimum exceeds the limit in
 * tenants.conf.
 */
int docker_memory_size(const struct docker_container *c, struct docker_memory *m,
		       struct zns_err *err);
/* The name of its memory context: the container's name, with + in place of each slash. */
void docker_memory_name(const struct docker_container *c, char *out, size_t len);

/* pager.c: starts the pager of a memory context. The pager is ready when the function returns. */
struct docker_pager {
	const char *name, *dev; /* name: of the context; dev NULL: the only registered device */
	pid_t pid; /* the first process of the container */
	uint64_t began; /* zns_process_began() of that process; 0: unknown */
	/* dram in bytes; idle_s 0: the context does not hibernate by itself */
	uint64_t dram, idle_s;
	uint32_t qos_mibps; /* MiB/s, limit for its writes; 0: none */
	bool no_predict; /* do not read pages ahead */
	bool encrypt; /* encrypt the pages, even if checkpoints are not encrypted */
	/* If not 0, the budget is a share of `total`, and at least `min`. */
	uint64_t total, min;
};
int docker_pager_start(const struct docker_pager *p, struct zns_err *err);
/* Bytes of DRAM that process @pid and its descendants use; 0: the process has ended. */
uint64_t docker_resident(pid_t pid);

/*
 * trust.c: reads the file @name of Docker's container @id below @root, or of the administrator's
 * directory @dir. -EPERM: the path contains a link, or another user than root may write the file or
 * its directories. -ENOENT: there is no such file. The caller frees *out.
 */
int docker_read_own(const char *root, const char *id, const char *name, uint8_t **out, size_t *len,
		    struct zns_err *err);
/*
 * The path of @name in the engine's directory of @c; "" gives the directory itself. -ENOENT: no
 * engine has a directory for @c.
 */
int docker_own_path(const struct docker_container *c, const char *name, char *out, size_t len);
/* The directory that contains the directories of its checkpoints. */
int docker_checkpoints_path(const struct docker_container *c, char *out, size_t len);
/*
 * Like docker_read_own(), for a container @c of Docker or Podman. -ENOENT also if no engine has a
 * directory for it.
 */
int docker_read_kept(const struct docker_container *c, const char *name, uint8_t **out, size_t *len,
		     struct zns_err *err);
int docker_read_admin(const char *dir, const char *name, size_t max, uint8_t **out, size_t *len,
		      struct zns_err *err);
/*
 * Does the directory @name in @at belong to root alone, and is it on the same file system? The
 * container can write to directories that Podman mounts for it there.
 */
bool docker_only_roots(int at, const char *name);
/*
 * Is this a letter or digit, followed by letters, digits, _ . and -? Such a name is valid for
 * Docker, Podman and Kubernetes.
 */
bool docker_good_word(const char *s);
bool docker_full_id(const char *s); /* 64 hex digits */
/* Checks a container id by runc's own rule, since ids become parts of paths. */
bool docker_good_id(const char *id);

/* Is this directory empty? False also if it cannot be read. If it can, *@mtime_ns is set. */
bool docker_empty_dir(int at, const char *name, int64_t *mtime_ns);
/*
 * The name of the checkpoint that Docker is making: the newest empty directory that dockerd made
 * for one. Empty: unknown.
 */
void docker_pending_checkpoint(const struct docker_container *c, char *out, size_t len);

/*
 * compare.c: may a checkpoint of a container with the config.json @was be restored into one with
 * the config.json @now? -EPERM names the first difference. @strict: it may not if @was does not say
 * which joined namespaces are the host's.
 */
int docker_compare(struct json_object *was, struct json_object *now, bool strict,
		   struct zns_err *err);
/* Notes in @spec which joined namespaces are the host's, that is, those of this process. */
void docker_mark_namespaces(struct json_object *spec);

/* layers.c: the directory that the overlay mounted at @root writes to; "": it is no overlay. -EINVAL:
 * its path cannot be told. */
int docker_upper(const char *root, char *out, size_t len);
/* What the container with config.json @spec and this bundle runs on: an array with a text for each
 * layer, which no other directory of this machine has. NULL: it has no overlay, or it cannot be
 * told. */
struct json_object *docker_layers(struct json_object *spec, const char *bundle);

/* The settings of a container. Their source is NULL if they are not set. */
enum docker_key {
	DOCKER_QOS,
	DOCKER_ADMISSION,
	DOCKER_ALLOC,
	DOCKER_STRIPE,
	DOCKER_DEV, /* environment variables cannot set this setting and the following ones */
	DOCKER_WEIGHT,
	/* can only be set by the administrator: by rules, defaults, or criu's configuration */
	DOCKER_CGROUP,
	DOCKER_LIVE,
	DOCKER_NETWORK_LOCK,
	DOCKER_CRIU,
	DOCKER_MEMORY,
	DOCKER_MEMORY_PREDICT,
	DOCKER_MEMORY_MIN,
	DOCKER_GHOST_LIMIT, /* criu's own --ghost-limit */
	DOCKER_SUSPEND, /* docker_settings_read() derives the next three settings from this one */
	DOCKER_STOP,
	DOCKER_RESUME,
	DOCKER_RESUME_ELSE,
	DOCKER_FROM,
	DOCKER_FROM_ALLOW, /* can only be set by the administrator, like DOCKER_CGROUP */
	/* "name": what the image's name stands for may differ; like DOCKER_CGROUP, can only be set
	 * by the administrator */
	DOCKER_FROM_IMAGE,
	/* what a dump does with open connections; if not set, the flags in DOCKER_CRIU decide */
	DOCKER_TCP,
	DOCKER_STOP_ORDER, /* used by `docker suspend --all` */
	DOCKER_RESTORE_QOS, /* --zns-qos of a restore */
	DOCKER_NR_KEYS
};

struct docker_settings {
	char value[DOCKER_NR_KEYS][DOCKER_SETTING_MAX];
	/*
	 * where a value comes from: "org.criu.config", "annotation", "label", "environment",
	 * "rule", "default"
	 */
	const char *source[DOCKER_NR_KEYS];
	/*
	 * the file that the annotation org.criu.config names; criu reads it last, so it overrides
	 * others
	 */
	char criu_config[PATH_MAX];
};

/*
 * The settings' names ("qos", …). "criu" is a list of those flags of runc that Docker does not
 * pass. Each other setting is an option of criu.
 */
extern const char *const docker_key_name[DOCKER_NR_KEYS];
/* flags that DOCKER_CRIU may contain, terminated by NULL */
extern const char *const docker_flags[];

/*
 * Reads all settings. The first place that has a setting decides: the file of the annotation
 * org.criu.config, the annotation zns.KEY, the label zns.KEY, the variable ZNS_KEY, the first
 * matching rule of docker.rules, docker-KEY of zns.conf. -EINVAL: criu would not accept the value,
 * or the rule file has an error.
 */
int docker_settings_read(const struct docker_container *c, struct docker_settings *s,
			 struct zns_err *err);
/* Reads only the settings of the container itself, without rules and defaults. */
int docker_settings_own(const struct docker_container *c, struct docker_settings *s,
			struct zns_err *err);
/* -EINVAL: a label or annotation "zns.…" is unknown, for example misspelled. */
int docker_settings_known(const struct docker_container *c, struct zns_err *err);
/* Do its settings demand a live dump, that is, neither "no" nor "auto"? */
bool docker_wants_live(const struct docker_settings *s);
/* rules.c: sets settings that are not set yet. */
int docker_rules(const struct docker_container *c, struct docker_settings *s, struct zns_err *err);
/* Checks a value. -EINVAL: it is not valid; the text names @where. */
int docker_setting_check(enum docker_key key, const char *value, const char *where,
			 struct zns_err *err);

/* Makes the path <run dir>/docker/<id>.<suffix>, and creates the directory <run dir>/docker. */
int docker_run_path(const char *id, const char *suffix, char *out, size_t len, struct zns_err *err);
void docker_run_unlink(const char *id, const char *suffix); /* removes that file, if it is there */

/*
 * Is a checkpoint that was made for Docker still needed? GONE only if dockerd's data root exists,
 * the container or the checkpoint does not, and no other container has the checkpoint's handle. A
 * checkpoint that ended its container is NEEDED until the container is started again, even if
 * Docker does not know the checkpoint: Docker may have failed after the dump. Only directories are
 * read. The caller adds the grace period. @why (may be NULL): the reason as text.
 */
struct docker_made {
	const char *root, *container_id, *checkpoint_name;
	const uint8_t *id;
	bool ended;
	int64_t created_ns;
};
/* Describes a checkpoint of Docker by its record. The strings are borrowed from @c. */
struct docker_made docker_made_of(const ZnsPb__Checkpoint *c);
enum docker_life { DOCKER_NEEDED, DOCKER_GONE, DOCKER_UNKNOWN };
enum docker_life docker_checkpoint_life(const struct docker_made *m, char *why, size_t len);
/*
 * Was a container started after @since_ns, according to its config.v2.json? False if that file has
 * no time.
 */
bool docker_started_since(struct json_object *config, int64_t since_ns);

/*
 * Like docker_checkpoint_life(), for Podman. @root: <graphroot>/<driver>-containers, from
 * podman_root(). If it is NULL or empty, the checkpoint may have been exported with its handle, so
 * the result is UNKNOWN.
 */
enum docker_life podman_checkpoint_life(const char *root, const char *container_id,
					const uint8_t id[ZNS_UUID_LEN], char *why, size_t len);

/*
 * podman.c: what Podman will do with a checkpoint, according to the command line of the process
 * that called the runtime (/proc/PID/cmdline).
 */
enum podman_call {
	PODMAN_KEPT, /* `podman container checkpoint`: its directory stays */
	PODMAN_EXPORTED, /* the directory is packed into a file or an image */
	PODMAN_OTHER, /* unknown: called by Podman's service or another program */
};
enum podman_call podman_call_of(const char *args, size_t len);
/*
 * Does @bundle end in /ID/userdata, right below <graphroot>/<driver>-containers? Podman keeps that
 * directory for container @id as long as the container exists. Returns the length of that ending,
 * else 0.
 */
size_t podman_tail(const char *bundle, const char *id);
/*
 * trust.c: is @bundle that directory, and may only root write to it and to the directories above
 * it? In a user namespace it belongs to the container's root.
 */
bool podman_bundle(const char *bundle, const char *id);
/*
 * Finds <graphroot>/<driver>-containers. -ENOENT: @bundle is not that of container @id, or the
 * images are written elsewhere.
 */
int podman_root(const char *bundle, const char *id, const char *image_path, char *out, size_t len);

/* Calls @fn for each handle below <root>/containers/ID/checkpoints/NAME. Stops when it returns
 * non-zero. */
typedef int (*docker_handle_fn)(void *arg, const char *container_id, const char *name,
				const char *dir, const uint8_t checkpoint[ZNS_UUID_LEN]);
int docker_each_handle(const char *root, docker_handle_fn fn, void *arg);

/*
 * restlog.c: copies the last 256 KiB of criu's restore log to a directory where it stays when the
 * container is removed. Returns 0 or -errno.
 */
int docker_keep_restore_log(const char *id, const char *from);
/*
 * Reads the restore log of container @id. @id may also be the beginning of an id, with at least 12
 * characters, if it fits only one log. The caller frees *text.
 */
int docker_restore_log(const char *id, uint8_t **text, size_t *len, struct zns_err *err);

/*
 * Removes a directory that contains handles and plain images, but no subdirectories. Returns 0 or
 * -errno; -ENOTDIR also for a link.
 */
int docker_remove_dir(const char *dir);

/*
 * resume.c: files in the directory that Docker or Podman keep for a container and remove together
 * with it. The first file names the checkpoint that ended the container, and its time: it exists
 * until the container is started again. The second file names the checkpoint that a user has
 * requested for the next start.
 */
#define DOCKER_ENDED_FILE "zns-ended"
#define DOCKER_RESUME_FILE "zns-resume"
/* If this file exists, the next stop sends the signal, whatever zns.stop says. */
#define DOCKER_SIGNAL_FILE "zns-signal"
/* This file contains the result of the last start or stop by checkpoint, in one line. */
#define DOCKER_NOTE_FILE "zns-note"
/* This file contains the times of the last two resumes, in seconds since boot. */
#define DOCKER_LIVES_FILE "zns-lives"
/*
 * In a checkpoint's directory: those parts of config.json at the dump that docker_compare() needs.
 */
#define DOCKER_SHAPE_FILE "zns-shape.json"
#define DOCKER_SHAPE_LAYERS "zns-layers" /* a member of it, from docker_layers() */
/*
 * Prefix of the names of checkpoints that ended their container (zns.stop); only the newest is
 * kept.
 */
#define DOCKER_STOP_PREFIX "zns-stop-"

struct docker_resume {
	/* id of the checkpoint, if it belongs to another container; else empty */
	char from[ZNS_UUID_STR];
	/* directory of the checkpoint for the next start; empty: a cold start, without a checkpoint */
	char dir[PATH_MAX];
	char name[600]; /* CONTAINER/NAME, if the checkpoint belongs to another container */
	bool asked; /* DOCKER_RESUME_FILE requests it */
	bool or_cold; /* start cold if the checkpoint cannot be restored */
	bool lost; /* the container should have been ended by a checkpoint, but ended without one */
};
/*
 * Decides from which checkpoint the next start of @c resumes. If it returns an error (the reason
 * why the checkpoint cannot be restored), @r->or_cold says whether to start cold.
 */
int docker_resume_choose(const struct docker_container *c, const struct docker_settings *s,
			 struct docker_resume *r, struct zns_err *err);
/*
 * Must the next start of @c fail if only settings @s can be read? Yes if its files may be newer
 * than the checkpoint from which it would resume, or if it has no checkpoint of its own.
 */
bool docker_resume_must(const struct docker_container *c, const struct docker_settings *s);
/*
 * Does @c have a setting for suspend, stop or resume, which only works for containers of Docker and
 * Podman?
 */
bool docker_resume_in_vain(const struct docker_container *c, const struct docker_settings *s);
/*
 * from.c: for the first start of a container with zns.from, which begins with a checkpoint of
 * another container: sets dir, name and from of @r. -EPERM: no rule allows it, there is no such
 * checkpoint (the text does not say which of the two), or image or program differ.
 */
int docker_from(const struct docker_container *c, const struct docker_settings *s,
		struct docker_resume *r, struct zns_err *err);
/*
 * Does the administrator allow the checkpoint CONTAINER/NAME: by a rule or default that names it,
 * or by the list of allowed names?
 */
bool docker_from_allowed(const struct docker_settings *s, const char *name);
/* Returns -EPERM, with a text that does not say whether there is such a checkpoint. */
int docker_from_refused(const struct docker_settings *s, struct zns_err *err);
/*
 * from_store.c: like docker_from(), for a container of a CRI. The checkpoint is looked up in the
 * catalogue, and its directory is made in the run directory; docker_from_forget() removes that
 * directory, and must be called after an error too. @r->dir stays empty if the checkpoint is of a
 * container with another name in the pod.
 */
int docker_from_store(const struct docker_container *c, const struct docker_settings *s,
		      struct docker_resume *r, struct zns_err *err);
#define DOCKER_FROM_DIR "from" /* the suffix of that directory (docker_run_path()) */
void docker_from_forget(const char *id);
/*
 * Makes the directory @path with what a restore during create needs: the handle of @c, whose
 * manifest is @m, and the files of runc and zns-runc that the dump has stored. After an error the
 * directory is removed.
 */
int docker_unpack(struct zns_session *s, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		  const char *path, struct zns_err *err);
/*
 * The times of a dump. Between the two, only criu writes to the container's files, and only in /
 * and /tmp.
 */
struct docker_frozen {
	int64_t at_ns; /* when all tasks were frozen */
	int64_t dumped_ns; /* when the dump was complete */
};
/*
 * Notes that the checkpoint @name ended @c. If docker_resume_reserve() was called for this name,
 * this needs no more space on the disk. Returns 0 or -errno.
 */
int docker_resume_ended(const struct docker_container *c, const char *name,
			const struct docker_frozen *when);
/*
 * Reserves the space of that note before the dump. -errno: it could not be written, for example
 * because the disk is full.
 */
int docker_resume_reserve(const struct docker_container *c, const char *name);
/* Removes the reserved note after a failed dump. */
void docker_resume_unreserve(const struct docker_container *c);
/*
 * Called when the container was started: removes both notes. -errno: one of them could not be
 * removed and would be used again.
 */
int docker_resume_used(const char *root, const char *id);
int docker_resume_used_by(const struct docker_container *c);
/*
 * Requests that the next start resumes from the checkpoint @name; NULL: from the one that ended the
 * container. @out: the checkpoint's name. -ENOENT: no checkpoint ended it, or it was started since.
 */
int docker_resume_ask(const struct docker_container *c, const char *name, char *out, size_t len,
		      struct zns_err *err);
/* Writes DOCKER_SIGNAL_FILE, so that the next stop sends the signal. Returns 0 or -errno. */
int docker_stop_by_signal(const struct docker_container *c);
/* Removes that file, since it counts for one stop only, and returns whether it existed. */
bool docker_stops_by_signal(const struct docker_container *c);
/* Removes the request to resume after it was tried, even if that failed. */
void docker_resume_refused(const struct docker_container *c);
/* Notes that a resume begins, @now_s seconds after boot. */
void docker_resume_began(const struct docker_container *c, int64_t now_s);
/*
 * Did the container end twice in a row without a checkpoint, each time less than ten seconds after
 * a resume? Then its memory may be the cause. After it has returned true once, the count begins
 * anew.
 */
bool docker_resume_loops(const struct docker_container *c, int64_t now_s);
/* Writes DOCKER_NOTE_FILE, and a journal record. */
void docker_note(const struct docker_container *c, int priority, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Notes a cold start after a run that ended without a checkpoint, unless a note has given the
 * reason already.
 */
void docker_note_lost(const struct docker_container *c);
/* Writes DOCKER_SHAPE_FILE into a checkpoint's directory, @cri: with the program's arguments and
 * the layers of its image, which docker_from_store() compares. -errno. */
int docker_shape_write(const char *dir, const char *bundle, bool cri);
/*
 * Has @c the same rights and mounts as the container that was dumped into @dir? -ENOENT: unknown.
 */
int docker_shape_check(const struct docker_container *c, const char *dir, struct zns_err *err);

/*
 * -EEXIST: the container has a writable volume. @own: the directory that the engine keeps for the
 * container; "" for a container of a CRI.
 */
int docker_has_volumes(struct json_object *spec, const char *own, struct zns_err *err);
/*
 * -EEXIST: although the container was never started, its own layer has a file that no mount covers.
 * -EOPNOTSUPP: its root is no overlay.
 */
int docker_has_files(struct json_object *spec, struct zns_err *err);
/*
 * written.c: was a file of the container with the config.json @spec written after it was frozen?
 * Checks its root and its writable volumes, without files that the engine keeps for containers in
 * the directory @own or beside it. -EEXIST: yes; the text names the file. -E2BIG, -ETIMEDOUT (after
 * @limit_ms, also if a file system hangs) and others: unknown.
 */
int docker_written_since(struct json_object *spec, const char *own,
			 const struct docker_frozen *frozen, uint32_t limit_ms,
			 struct zns_err *err);

/*
 * Returns a mount of @spec whose files Podman discards when the container ends; NULL: there is
 * none.
 */
const char *docker_podman_drops(struct json_object *spec);

/* order.c: a container that `docker suspend --all` may suspend. */
#define DOCKER_STOP_ORDER_DEFAULT 100
struct docker_candidate {
	char id[128], name[256];
	pid_t pid; /* PID of its first process */
	unsigned long order; /* value of zns.stop-order: the smallest is first */
	bool idle;
	uint64_t bytes; /* bytes of memory in DRAM */
	uint64_t rate; /* bytes/s, from zns.qos; 0: not set */
	uint64_t ticks; /* CPU time since its start, in ticks */
};
/*
 * Sorts by stop order. Within one stop order, idle containers come first, and among them the
 * largest.
 */
void docker_suspend_order(struct docker_candidate *list, size_t nr);

/* api.c: dockerd's HTTP interface on its UNIX socket. */
struct docker_api {
	char socket[108]; /* --host, $DOCKER_HOST, or /var/run/docker.sock */
	unsigned limit_s; /* seconds to wait for an answer; 0: no limit */
};

int docker_api_init(struct docker_api *a, const char *host, struct zns_err *err);
/*
 * Sends one request. @body may be NULL. *out (may be NULL): the JSON of the answer; NULL: it has
 * none. Status 404 is -ENOENT, 409 is -EEXIST, any other from 400 on is -EREMOTEIO; @err has
 * Docker's text.
 */
int docker_api_call(const struct docker_api *a, const char *method, const char *path,
		    struct json_object *body, struct json_object **out, struct zns_err *err);

/*
 * *@out: the text of a systemd service that makes checkpoints of @container; the caller frees it.
 * @self: the program; @host may be NULL. All words are quoted. -EINVAL: a control character;
 * -ENOMEM.
 */
int docker_unit_service(const char *container, const char *self, const char *host, unsigned keep,
			char **out, struct zns_err *err);

#endif
