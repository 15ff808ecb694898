/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DOCKER_H
#define ZNS_DOCKER_H
/* Shared by the runtime wrapper (zns-runc) and `znsctl docker`: describes a container and its
 * settings, and decides whether one of its checkpoints is still needed. Nothing here prints.
 * Nothing is thread-safe. */
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
#define DOCKER_SETTING_MAX 256 /* bytes of a value, with the NUL */

/* zns-runc sets these variables for the helper. They say who the container is (read by
 * zns/helper/dump/origin.c). */
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

/* A file in a clone's directory, beside config.v2.json: names the other container's checkpoint
 * that the clone may be restored from. */
#define DOCKER_CLONE_FILE "zns-clone"

#define DOCKER_DEFAULT_ROOT "/var/lib/docker"

/* A container, as its bundle and Docker's own directory describe it. */
struct docker_container {
	char kind[16]; /* "docker", "podman", "cri"; "runc" if unknown */
	char id[128];
	char name[256]; /* Docker's name, podman/NAME, CRI's NAMESPACE/POD/CONTAINER, or the id */
	char image[256]; /* as given to `docker run`; "": not known */
	char root[PATH_MAX]; /* Docker's data root, or podman_root; "": neither, or not known */
	/* bundle of a Podman container for which podman_bundle() is true; else "" */
	char bundle[PATH_MAX];
	/* in a create: the runtime's PID file, whose time is that of the last create */
	const char *pid_file;
	struct json_object *annotations, *labels, *env; /* from the spec; NULL if absent */
	struct json_object *spec, *config; /* own the objects of the line above */
};

/*
 * What the runtime's installer or caller has set. The container's creator cannot choose any of it.
 */
struct docker_runtime {
	const char *docker_root; /* --zns-docker-root; NULL: DOCKER_DEFAULT_ROOT */
	const char *state_root; /* runc's --root; NULL: not given */
};

/* @bundle holds config.json. Always end with docker_container_fini. -EPERM: Docker's files exist
 * but cannot be trusted. -EINVAL: an impossible name. */
int docker_container_read(const struct docker_runtime *rt, const char *bundle, const char *id,
			  struct docker_container *c, struct zns_err *err);
/* Finds the name of a Podman container. @init_pid: its first process; 0: none. */
void docker_container_podman(struct docker_container *c, int init_pid);
/* Describes a Docker container from <root>/containers/<id> alone, for `znsctl docker`. */
int docker_container_read_root(const char *root, const char *id, struct docker_container *c,
			       struct zns_err *err);
void docker_container_fini(struct docker_container *c);
/* Is it a pod's sandbox? It has the pod's annotations, and runs only to hold its namespaces. */
bool docker_is_sandbox(const struct docker_container *c);
/* image.c: does shell pattern @pattern fit a name of its image? */
bool docker_image_fits(const struct docker_container *c, const char *pattern);

/* state.c: what runc or crun remembers of a running container. */
struct docker_state {
	char bundle[PATH_MAX];
	int init_pid; /* PID of its first process; 0: not known */
	/* start time of that process in clock ticks since boot; 0: not known */
	uint64_t init_start;
	bool frozen; /* paused by `runc pause`, or by a cgroup above its own */
};
/* @root: the runtime's --root; NULL: its default. @id must be a good one (docker_good_id). */
int docker_state_read(const char *root, const char *id, struct docker_state *s,
		      struct zns_err *err);
/* Is a cgroup in @paths frozen? @paths: the member cgroup_paths of runc's state, of cgroups
 * version 1 or 2. */
bool docker_cgroup_frozen(struct json_object *paths);

/* running.c: a running container of Docker or Podman, found by its name or id. -ENOENT: not
 * found; -ESRCH: it does not run. */
struct docker_running {
	int pid; /* PID of its first process */
	char name[256]; /* the name that the engine or the caller uses */
};
int docker_running(const char *name, struct docker_running *r, struct zns_err *err);

/* memory.c: the parsed setting zns.memory */
#define DOCKER_MEMORY_NEVER "never" /* a rule forbids the container zns.memory */
struct docker_memory {
	bool wanted;
	/* the budget in bytes, or in percent of the container's limit (without one, of the
	 * machine's memory) */
	uint64_t dram, percent, idle_s;
	bool machine; /* auto: the budget is a share of @total, and at least @min */
	uint64_t total, min; /* bytes; min 0: not set */
};
#define DOCKER_MEMORY_MIN_BYTES MIB(16) /* @min of `auto` unless it is set */
int docker_memory_parse(const char *value, const char *where, struct docker_memory *m,
			struct zns_err *err);
/* The value of `memory-dram` in zns.conf. -ENOENT: not set. */
int docker_memory_total(uint64_t *total, struct zns_err *err);
/* Computes the budget of this container: sets @m->dram, with `auto` also @m->total and @m->min.
 * -EINVAL: more than the container's memory limit; -EPERM: a minimum above the ceiling in
 * tenants.conf. */
int docker_memory_size(const struct docker_container *c, struct docker_memory *m,
		       struct zns_err *err);
/* The name of its memory context: the container's name, with + in place of each slash. */
void docker_memory_name(const struct docker_container *c, char *out, size_t len);

/* pager.c: the pager of a memory context, ready when this returns. */
struct docker_pager {
	const char *name, *dev; /* name of the context; dev NULL: the only registered device */
	pid_t pid; /* the first process */
	uint64_t began; /* zns_process_began() of that process; 0: not known */
	uint64_t dram, idle_s; /* bytes; idle_s 0: it does not hibernate by itself */
	uint32_t qos_mibps; /* limit of its write rate; 0: no limit */
	bool no_predict; /* pages are never prefetched */
	bool encrypt; /* encrypt the pages, even if checkpoints are not encrypted */
	/* If not 0, the budget is a share of `total`, and at least `min`. */
	uint64_t total, min;
};
int docker_pager_start(const struct docker_pager *p, struct zns_err *err);
/* DRAM in bytes that process @pid and its descendants use; 0: it has ended. */
uint64_t docker_resident(pid_t pid);

/*
 * trust.c: reads file @name of Docker's container @id below @root, or of the administrator's
 * directory @dir. -EPERM: a link leads to it, or somebody but root may write it or its directories.
 * -ENOENT: there is none. The caller frees *out.
 */
int docker_read_own(const char *root, const char *id, const char *name, uint8_t **out, size_t *len,
		    struct zns_err *err);
/* Path of @name in the engine's directory of @c; "": of the directory itself. -ENOENT: no engine
 * has a directory for it. */
int docker_own_path(const struct docker_container *c, const char *name, char *out, size_t len);
/* The directory of its checkpoints, each of which is a directory. */
int docker_checkpoints_path(const struct docker_container *c, char *out, size_t len);
/* Like read_own for @c, which may also be Podman's. -ENOENT: also if no engine has a directory for
 * it. */
int docker_read_kept(const struct docker_container *c, const char *name, uint8_t **out, size_t *len,
		     struct zns_err *err);
int docker_read_admin(const char *dir, const char *name, size_t max, uint8_t **out, size_t *len,
		      struct zns_err *err);
/* Does directory @name in @at belong to root alone, and to the same file system? The container
 * can write what Podman mounts for it there. */
bool docker_only_roots(int at, const char *name);
/* A letter or digit, followed by letters, digits, _ . and -: a valid name for Docker, Podman and
 * Kubernetes. */
bool docker_good_word(const char *s);
bool docker_full_id(const char *s); /* 64 hex digits */
/* runc's own rule for container ids, which become parts of paths. */
bool docker_good_id(const char *id);

/* Is this directory empty? False, too, if it cannot be read. Sets *@mtime_ns if it can. */
bool docker_empty_dir(int at, const char *name, int64_t *mtime_ns);
/* The name of the Docker checkpoint under way: the newest empty directory that dockerd made for
 * one. "": unknown. */
void docker_pending_checkpoint(const struct docker_container *c, char *out, size_t len);

/*
 * compare.c: may a checkpoint of a container whose config.json was @was be restored into one whose
 * config.json is @now? -EPERM names the first difference in rights or shape. @strict: not if @was
 * does not say which joined namespaces are the host's.
 */
int docker_compare(struct json_object *was, struct json_object *now, bool strict,
		   struct zns_err *err);
/* Notes in @spec which joined namespaces are the host's, that is, this process's. */
void docker_mark_namespaces(struct json_object *spec);

/* layers.c: the directory that the overlay mounted at @root writes to; "": it is no overlay. -EINVAL:
 * its path cannot be told. */
int docker_upper(const char *root, char *out, size_t len);
/* What the container with config.json @spec and this bundle runs on: an array with a text for each
 * layer, which no other directory of this machine has. NULL: it has no overlay, or it cannot be
 * told. */
struct json_object *docker_layers(struct json_object *spec, const char *bundle);

/* The settings of one container. source NULL: not set. */
enum docker_key {
	DOCKER_QOS,
	DOCKER_ADMISSION,
	DOCKER_ALLOC,
	DOCKER_STRIPE,
	DOCKER_DEV, /* environment variables cannot set this one and the next */
	DOCKER_WEIGHT,
	DOCKER_CGROUP, /* from the administrator only: rules, defaults, criu's configuration */
	DOCKER_LIVE,
	DOCKER_NETWORK_LOCK,
	DOCKER_CRIU,
	DOCKER_MEMORY,
	DOCKER_MEMORY_PREDICT,
	DOCKER_MEMORY_MIN,
	DOCKER_GHOST_LIMIT, /* --ghost-limit of criu itself */
	DOCKER_SUSPEND, /* docker_settings_read sets the next three from this one */
	DOCKER_STOP,
	DOCKER_RESUME,
	DOCKER_RESUME_ELSE,
	DOCKER_FROM,
	DOCKER_FROM_ALLOW, /* the administrator's only, like DOCKER_CGROUP */
	DOCKER_FROM_IMAGE, /* "name": what the image's name stands for may differ; likewise */
	/* what a dump does with open connections; if not set, the flags in DOCKER_CRIU decide */
	DOCKER_TCP,
	DOCKER_STOP_ORDER, /* used by `docker suspend --all` */
	DOCKER_RESTORE_QOS, /* --zns-qos of a restore */
	DOCKER_NR_KEYS
};

struct docker_settings {
	char value[DOCKER_NR_KEYS][DOCKER_SETTING_MAX];
	/* where a value came from: "org.criu.config", "annotation", "label", "environment",
	 * "rule", "default" */
	const char *source[DOCKER_NR_KEYS];
	/* the file that annotation org.criu.config names; criu reads it last, so it wins */
	char criu_config[PATH_MAX];
};

/* The settings' names ("qos", …). "criu" is a list of flags that runc has and Docker does not
 * pass. Each other setting is an option of criu. */
extern const char *const docker_key_name[DOCKER_NR_KEYS];
/* flags that DOCKER_CRIU may contain; NULL ends the list */
extern const char *const docker_flags[];

/*
 * The places in order: the file of annotation org.criu.config, annotation zns.KEY, label zns.KEY,
 * variable ZNS_KEY, the first matching rule of docker.rules, docker-KEY of zns.conf. The first one
 * that is set counts. -EINVAL: criu would not accept the value, or the rule file is bad.
 */
int docker_settings_read(const struct docker_container *c, struct docker_settings *s,
			 struct zns_err *err);
/* Reads what the container itself asks for, without rules and defaults. */
int docker_settings_own(const struct docker_container *c, struct docker_settings *s,
			struct zns_err *err);
/* -EINVAL: an unknown label or annotation "zns.…", for example a misspelled one. */
int docker_settings_known(const struct docker_container *c, struct zns_err *err);
/* Does its stop send the signal, whatever its settings say? */
bool docker_wants_live(const struct docker_settings *s);
/* rules.c: fills in settings that are not set yet. */
int docker_rules(const struct docker_container *c, struct docker_settings *s, struct zns_err *err);
/* -EINVAL names @where. */
int docker_setting_check(enum docker_key key, const char *value, const char *where,
			 struct zns_err *err);

/* Makes the path <run dir>/docker/<id>.<suffix>, and creates the directory. */
int docker_run_path(const char *id, const char *suffix, char *out, size_t len, struct zns_err *err);
void docker_run_unlink(const char *id, const char *suffix); /* removes that file, if it is there */

/*
 * Is a checkpoint of Docker origin still needed? GONE only if dockerd's data root exists, the
 * container or the checkpoint does not, and no other container has its handle. A checkpoint that
 * ended its container is NEEDED until the container was started again, even if Docker does not know
 * it: Docker may have failed after the dump. Looks at directories only. The caller adds the grace
 * period. @why (may be NULL): the reason in words.
 */
struct docker_made {
	const char *root, *container_id, *checkpoint_name;
	const uint8_t *id;
	bool ended;
	int64_t created_ns;
};
/* Describes a checkpoint of Docker origin by its record. The strings still belong to @c. */
struct docker_made docker_made_of(const ZnsPb__Checkpoint *c);
enum docker_life { DOCKER_NEEDED, DOCKER_GONE, DOCKER_UNKNOWN };
enum docker_life docker_checkpoint_life(const struct docker_made *m, char *why, size_t len);
/* Was a container started after @since_ns, by its config.v2.json? False if that file has no
 * time. */
bool docker_started_since(struct json_object *config, int64_t since_ns);

/* Like docker_checkpoint_life, for Podman. @root is <graphroot>/<driver>-containers, from
 * podman_root. If it is NULL or "", the checkpoint may have been exported with its handle, so the
 * result is UNKNOWN. */
enum docker_life podman_checkpoint_life(const char *root, const char *container_id,
					const uint8_t id[ZNS_UUID_LEN], char *why, size_t len);

/* podman.c: what happens to a checkpoint that Podman makes, judged by the command line of the
 * process that called the runtime (/proc/PID/cmdline). */
enum podman_call {
	PODMAN_KEPT, /* `podman container checkpoint`: its directory stays */
	PODMAN_EXPORTED, /* the directory is packed into a file or an image */
	PODMAN_OTHER, /* called by Podman's service or another program: not known */
};
enum podman_call podman_call_of(const char *args, size_t len);
/* Does @bundle end in /ID/userdata, right below <graphroot>/<driver>-containers? That is the
 * directory that Podman keeps for container @id during its whole life. Returns the length of
 * this ending, else 0. */
size_t podman_tail(const char *bundle, const char *id);
/* trust.c: is @bundle that directory, and may only root write it and the directories above it?
 * In a user namespace it belongs to the container's root. */
bool podman_bundle(const char *bundle, const char *id);
/* Finds <graphroot>/<driver>-containers. -ENOENT: @bundle is not container @id's, or the images
 * go elsewhere. */
int podman_root(const char *bundle, const char *id, const char *image_path, char *out, size_t len);

/* Calls @fn for each handle below <root>/containers/ID/checkpoints/NAME. Stops when it returns
 * non-zero. */
typedef int (*docker_handle_fn)(void *arg, const char *container_id, const char *name,
				const char *dir, const uint8_t checkpoint[ZNS_UUID_LEN]);
int docker_each_handle(const char *root, docker_handle_fn fn, void *arg);

/* restlog.c: copies the last 256 KiB of criu's restore log to a place that outlives the
 * container. -errno. */
int docker_keep_restore_log(const char *id, const char *from);
/* Reads the log of container @id; @id may also be the beginning of one, 12 characters or more,
 * if only one log fits. The caller frees *text. */
int docker_restore_log(const char *id, uint8_t **text, size_t *len, struct zns_err *err);

/* Removes a directory of handles and plain images without subdirectories. -errno; -ENOTDIR: also a
 * link. */
int docker_remove_dir(const char *dir);

/* resume.c: files in the directory that Docker or Podman keep for a container, and remove with it.
 * The first names the checkpoint with which it ended, and its time: it exists until the container
 * is started again. The second names the checkpoint for its next start, as a user has requested. */
#define DOCKER_ENDED_FILE "zns-ended"
#define DOCKER_RESUME_FILE "zns-resume"
/* If it exists, the next stop sends the signal, whatever zns.stop says. */
#define DOCKER_SIGNAL_FILE "zns-signal"
/* Its file with the result of the last start or stop by checkpoint, in one line. */
#define DOCKER_NOTE_FILE "zns-note"
/* Its file with the times of the last two resumes, in seconds since boot. */
#define DOCKER_LIVES_FILE "zns-lives"
/* In a checkpoint's directory: the parts of config.json at the dump that docker_compare() needs. */
#define DOCKER_SHAPE_FILE "zns-shape.json"
#define DOCKER_SHAPE_LAYERS "zns-layers" /* a member of it, from docker_layers() */
/* Prefix of the checkpoints that a container ended with (zns.stop); only the newest is kept. */
#define DOCKER_STOP_PREFIX "zns-stop-"

struct docker_resume {
	/* id of the checkpoint, if it belongs to another container; else "" */
	char from[ZNS_UUID_STR];
	char dir[PATH_MAX]; /* directory of the checkpoint for the next start; "": a cold start */
	char name[600]; /* for another container's checkpoint: CONTAINER/NAME */
	bool asked; /* requested by DOCKER_RESUME_FILE */
	bool or_cold; /* start cold if the checkpoint cannot be restored */
	bool lost; /* it should have ended with a checkpoint, but ended without one */
};
/* Decides from which checkpoint the next start of @c resumes. After an error, which says why it
 * cannot be restored, @r's or_cold tells whether to start cold. */
int docker_resume_choose(const struct docker_container *c, const struct docker_settings *s,
			 struct docker_resume *r, struct zns_err *err);
/* Must the next start of @c fail if only settings @s are known? Yes if its files may be newer
 * than the checkpoint that it would resume from, or if it has no checkpoint of its own. */
bool docker_resume_must(const struct docker_container *c, const struct docker_settings *s);
/* Does @c ask for a suspend, stop or resume setting, which only works for containers of Docker
 * and Podman? */
bool docker_resume_in_vain(const struct docker_container *c, const struct docker_settings *s);
/*
 * from.c: the first start of a container that asks for another one's checkpoint (zns.from): sets
 * @r's dir, name and from. -EPERM: no rule allows it, or there is no such checkpoint (the text does
 * not say which), or image or program differ.
 */
int docker_from(const struct docker_container *c, const struct docker_settings *s,
		struct docker_resume *r, struct zns_err *err);
/* Does the administrator allow it the checkpoint CONTAINER/NAME: by a rule or a default, or in the
 * list of allowed names? */
bool docker_from_allowed(const struct docker_settings *s, const char *name);
/* -EPERM. The text does not say whether there is such a checkpoint. */
int docker_from_refused(const struct docker_settings *s, struct zns_err *err);
/*
 * from_store.c: docker_from() for a container of a CRI. The checkpoint is one of the catalogue, and
 * its directory is made in the run directory: docker_from_forget() removes it, after an error, too.
 * @r's dir stays "" if the checkpoint is of a container of another name in the pod.
 */
int docker_from_store(const struct docker_container *c, const struct docker_settings *s,
		      struct docker_resume *r, struct zns_err *err);
#define DOCKER_FROM_DIR "from" /* the suffix of that directory (docker_run_path) */
void docker_from_forget(const char *id);
/* Makes directory @path with what a restore within create needs: the handle of @c, whose manifest
 * is @m, and the files of runc and zns-runc that the dump has stored. Removes it after an error. */
int docker_unpack(struct zns_session *s, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		  const char *path, struct zns_err *err);
/* The times of a dump. Between the two only criu writes to the container's files, and only in /
 * and /tmp. */
struct docker_frozen {
	int64_t at_ns; /* when all its tasks were frozen */
	int64_t dumped_ns; /* when the dump was complete */
};
/*
 * Notes that @c ended with checkpoint @name. Needs no space on the disk if docker_resume_reserve()
 * has reserved it for the same name. -errno.
 */
int docker_resume_ended(const struct docker_container *c, const char *name,
			const struct docker_frozen *when);
/* Reserves the note before the dump. -errno: it could not be written, for example on a full
 * disk. */
int docker_resume_reserve(const struct docker_container *c, const char *name);
/* Removes the reserved note after a failed dump. */
void docker_resume_unreserve(const struct docker_container *c);
/*
 * Called when the container is started: removes both notes. -errno: one of them is still there and
 * would be used again.
 */
int docker_resume_used(const char *root, const char *id);
int docker_resume_used_by(const struct docker_container *c);
/* Requests that the next start resumes from checkpoint @name; NULL: from the one that the
 * container ended with. @out is the checkpoint's name. -ENOENT: it did not end with one, or was
 * started since. */
int docker_resume_ask(const struct docker_container *c, const char *name, char *out, size_t len,
		      struct zns_err *err);
/* Writes DOCKER_SIGNAL_FILE: the next stop sends the signal. -errno. */
int docker_stop_by_signal(const struct docker_container *c);
/* Removes that file and says whether it was there: it counts for one stop. */
bool docker_stops_by_signal(const struct docker_container *c);
/* Removes a requested resume after it was tried, even if that failed. */
void docker_resume_refused(const struct docker_container *c);
/* Notes the time of a resume, @now_s seconds after boot. */
void docker_resume_began(const struct docker_container *c, int64_t now_s);
/* Did the container end twice in a row without a checkpoint, each time less than ten seconds
 * after a resume? Then its memory may be the reason. True once, then counted anew. */
bool docker_resume_loops(const struct docker_container *c, int64_t now_s);
/* Writes DOCKER_NOTE_FILE, and a record for the journal. */
void docker_note(const struct docker_container *c, int priority, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Notes a cold start after a run that ended without a checkpoint, unless a note has the reason
 * already. */
void docker_note_lost(const struct docker_container *c);
/* Writes DOCKER_SHAPE_FILE into a checkpoint's directory, @cri: with the program's arguments and
 * the layers of its image, which docker_from_store() compares. -errno. */
int docker_shape_write(const char *dir, const char *bundle, bool cri);
/* Has @c the same rights and shape as the container that was dumped into @dir? -ENOENT: not
 * known. */
int docker_shape_check(const struct docker_container *c, const char *dir, struct zns_err *err);

/* -EEXIST: the container has a writable volume. @own: the directory that the engine keeps for
 * it; "": it is a container of a CRI. */
int docker_has_volumes(struct json_object *spec, const char *own, struct zns_err *err);
/* -EEXIST: before its first start its own layer has a file that no mount covers. -EOPNOTSUPP:
 * its root is no overlay. */
int docker_has_files(struct json_object *spec, struct zns_err *err);
/*
 * written.c: was a file of the container with config.json @spec written after it was frozen? Looks
 * at its root and its writable volumes. Files that the engine keeps for containers, beside
 * directory @own, are left out. -EEXIST names a written file; -E2BIG, -ETIMEDOUT (after @limit_ms,
 * also where a file system hangs) and others: not known.
 */
int docker_written_since(struct json_object *spec, const char *own,
			 const struct docker_frozen *frozen, uint32_t limit_ms,
			 struct zns_err *err);

/* A mount of @spec whose files Podman drops when the container ends; NULL: none. */
const char *docker_podman_drops(struct json_object *spec);

/* order.c: a container that `docker suspend --all` may suspend. */
#define DOCKER_STOP_ORDER_DEFAULT 100
struct docker_candidate {
	char id[128], name[256];
	pid_t pid; /* PID of its first process */
	unsigned long order; /* zns.stop-order: the least is first */
	bool idle;
	uint64_t bytes; /* bytes of memory in DRAM */
	uint64_t rate; /* bytes/s, from zns.qos; 0: not set */
	uint64_t ticks; /* CPU time since it began, in ticks */
};
/* Sorts by stop order; within one order, idle containers come first, and the largest of these. */
void docker_suspend_order(struct docker_candidate *list, size_t nr);

/* api.c: dockerd's HTTP interface over its UNIX socket. */
struct docker_api {
	char socket[108]; /* --host, $DOCKER_HOST, or /var/run/docker.sock */
	unsigned limit_s; /* limit for an answer, in seconds; 0: none */
};

int docker_api_init(struct docker_api *a, const char *host, struct zns_err *err);
/*
 * Sends one request. @body may be NULL. *out (may be NULL) is the answer's JSON, or NULL if it has
 * none. An answer of 400 or more is -ENOENT (404), -EEXIST (409) or -EREMOTEIO, with Docker's line
 * in @err.
 */
int docker_api_call(const struct docker_api *a, const char *method, const char *path,
		    struct json_object *body, struct json_object **out, struct zns_err *err);

/*
 * *@out: the text of the service that takes checkpoints of @container, to be freed; @self is the
 * program, @host may be NULL. Each word is quoted. -EINVAL: a control character, -ENOMEM.
 */
int docker_unit_service(const char *container, const char *self, const char *host, unsigned keep,
			char **out, struct zns_err *err);

#endif
