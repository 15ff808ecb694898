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
/* For a restore: the restored container, and the foreign checkpoints that it may use ("any" or
 * ids). */
#define ZNS_RESTORE_ID "ZNS_RESTORE_ID"
#define ZNS_RESTORE_NAME "ZNS_RESTORE_NAME"
#define ZNS_RESTORE_ALLOW "ZNS_RESTORE_ALLOW"

/* In a clone's directory, beside config.v2.json: the foreign checkpoint that it may be restored
 * from. */
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
	const char *pid_file; /* in a create: the PID file of the runtime that created it last */
	struct json_object *annotations, *labels, *env; /* from the spec; NULL if absent */
	struct json_object *spec, *config; /* own the three above */
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
/* Docker's own description alone, for `znsctl docker`: <root>/containers/<id>. */
int docker_container_read_root(const char *root, const char *id, struct docker_container *c,
			       struct zns_err *err);
void docker_container_fini(struct docker_container *c);
/* image.c: does the shell pattern fit its image, by a name of that? */
bool docker_image_fits(const struct docker_container *c, const char *pattern);

/* state.c: what runc or crun remembers of a running container. */
struct docker_state {
	char bundle[PATH_MAX];
	int init_pid; /* PID of its first process; 0: not known */
	/* start time of that process in clock ticks since boot; 0: not known */
	uint64_t init_start;
	bool frozen; /* by runc pause, or with a cgroup above it */
};
/* @root: the runtime's --root; NULL: its default. @id must be a good one (docker_good_id). */
int docker_state_read(const char *root, const char *id, struct docker_state *s,
		      struct zns_err *err);
/* @paths: the member cgroup_paths of runc's state. Of both versions of cgroups. */
bool docker_cgroup_frozen(struct json_object *paths);

/* running.c: a running container of Docker or Podman, by its name or id. -ENOENT, -ESRCH: it does
 * not run. */
struct docker_running {
	int pid; /* PID of its first process */
	char name[256]; /* as the engine or the caller gives it */
};
int docker_running(const char *name, struct docker_running *r, struct zns_err *err);

/* memory.c: zns.memory, as it is written. */
#define DOCKER_MEMORY_NEVER "never" /* a rule's: the container must not ask */
struct docker_memory {
	bool wanted;
	/* dram: bytes; percent: of its limit, or of the machine's memory */
	uint64_t dram, percent, idle_s;
	bool machine; /* auto: its part of @total, and at least @min */
	uint64_t total, min; /* in bytes; min 0: not set */
};
#define DOCKER_MEMORY_MIN_BYTES MIB(16) /* the default of `auto` */
int docker_memory_parse(const char *value, const char *where, struct docker_memory *m,
			struct zns_err *err);
/* The value of `memory-dram` in zns.conf. -ENOENT: not set. */
int docker_memory_total(uint64_t *total, struct zns_err *err);
/* Makes @m->dram the bytes that this container means; of auto, @m->total and @m->min. -EINVAL: more
 * than its limit; -EPERM: a minimum above the ceiling in tenants.conf. */
int docker_memory_size(const struct docker_container *c, struct docker_memory *m,
		       struct zns_err *err);
/* What its context is called: the container's name, with + for each slash. */
void docker_memory_name(const struct docker_container *c, char *out, size_t len);

/* pager.c: the pager of a memory context, ready when this returns. */
struct docker_pager {
	const char *name, *dev; /* of the context; dev NULL: the only device */
	pid_t pid; /* the first process */
	uint64_t began; /* zns_process_began() of that process; 0: not known */
	uint64_t dram, idle_s; /* bytes; idle_s 0: it does not hibernate by itself */
	uint32_t qos_mibps; /* limit of its write rate; 0: no limit */
	bool no_predict; /* no pages are prefetched */
	bool encrypt; /* also where checkpoints are not */
	/* The budget is its part of `total`, and at least `min`; 0: the budget is fixed. */
	uint64_t total, min;
};
int docker_pager_start(const struct docker_pager *p, struct zns_err *err);
/* Bytes of DRAM that a process and its descendants have; 0: it has ended. */
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
/* Is directory @name in @at root's alone, and on the same file system? The container writes what
 * Podman mounts for it there. */
bool docker_only_roots(int at, const char *name);
/* A letter or digit, then also _ . and -, as in names of Docker, Podman and Kubernetes. */
bool docker_good_word(const char *s);
bool docker_full_id(const char *s); /* 64 hex digits */
/* runc's own rule for container ids, which become parts of paths. */
bool docker_good_id(const char *id);

/* Has it no entries? False, too, if it cannot be read. *@mtime_ns is set if it can. */
bool docker_empty_dir(int at, const char *name, int64_t *mtime_ns);
/* The name of the Docker checkpoint under way: the newest empty directory that dockerd made for
 * one. "": unknown. */
void docker_pending_checkpoint(const struct docker_container *c, char *out, size_t len);

/*
 * compare.c: may a checkpoint of a container whose config.json was @was be restored into one whose
 * config.json is @now? -EPERM names the first difference in rights or shape.
 */
int docker_compare(struct json_object *was, struct json_object *now, struct zns_err *err);

/* The settings of one container. source NULL: not set. */
enum docker_key {
	DOCKER_QOS,
	DOCKER_ADMISSION,
	DOCKER_ALLOC,
	DOCKER_STRIPE,
	DOCKER_DEV, /* this one and the next cannot be set by environment variables */
	DOCKER_WEIGHT,
	DOCKER_CGROUP, /* the administrator's: rules, defaults, criu's configuration */
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
	DOCKER_FROM_ALLOW, /* the administrator's, as DOCKER_CGROUP */
	DOCKER_TCP, /* how to treat open connections; if not set, the flags in DOCKER_CRIU apply */
	DOCKER_STOP_ORDER, /* used by `docker suspend --all` */
	DOCKER_RESTORE_QOS, /* --zns-qos of a restore */
	DOCKER_NR_KEYS
};

struct docker_settings {
	char value[DOCKER_NR_KEYS][DOCKER_SETTING_MAX];
	/* "org.criu.config", "annotation", "label", "environment", "rule", "default" */
	const char *source[DOCKER_NR_KEYS];
	char criu_config[PATH_MAX]; /* annotation org.criu.config; criu reads it last, so it wins */
};

/* "qos", … "criu" is a list of flags that runc knows and Docker does not pass. The others are
 * options of criu. */
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
/* The container's own wishes, without rules and defaults. */
int docker_settings_own(const struct docker_container *c, struct docker_settings *s,
			struct zns_err *err);
/* -EINVAL: an unknown label or annotation "zns.…", for example a misspelled one. */
int docker_settings_known(const struct docker_container *c, struct zns_err *err);
/* Whatever becomes of its tasks. */
bool docker_wants_live(const struct docker_settings *s);
/* rules.c: fills in settings that are not set yet. */
int docker_rules(const struct docker_container *c, struct docker_settings *s, struct zns_err *err);
/* -EINVAL names @where. */
int docker_setting_check(enum docker_key key, const char *value, const char *where,
			 struct zns_err *err);

/* <run dir>/docker/<id>.<suffix>; creates the directory. */
int docker_run_path(const char *id, const char *suffix, char *out, size_t len, struct zns_err *err);

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
/* For a checkpoint of Docker origin. @c stays the owner of the strings. */
struct docker_made docker_made_of(const ZnsPb__Checkpoint *c);
enum docker_life { DOCKER_NEEDED, DOCKER_GONE, DOCKER_UNKNOWN };
enum docker_life docker_checkpoint_life(const struct docker_made *m, char *why, size_t len);
/* Was a container started after @since_ns, by its config.v2.json? No, if that does not say. */
bool docker_started_since(struct json_object *config, int64_t since_ns);

/* Like docker_checkpoint_life, for Podman. @root is <graphroot>/<driver>-containers, from
 * podman_root. If it is NULL or "", the checkpoint may have been exported with its handle, so the
 * result is UNKNOWN. */
enum docker_life podman_checkpoint_life(const char *root, const char *container_id,
					const uint8_t id[ZNS_UUID_LEN], char *why, size_t len);

/* podman.c: what happens to a checkpoint, judged by the command that called the runtime
 * (/proc/PID/cmdline). */
enum podman_call {
	PODMAN_KEPT, /* `podman container checkpoint`: its directory stays */
	PODMAN_EXPORTED, /* the directory is packed into a file or an image */
	PODMAN_OTHER, /* called by Podman's service or another program: not known */
};
enum podman_call podman_call_of(const char *args, size_t len);
/* The length of the part of @bundle behind <graphroot>/<driver>-containers, if that part is
 * /ID/userdata; 0: it is not the directory that Podman keeps for container @id during its whole
 * life. */
size_t podman_tail(const char *bundle, const char *id);
/* trust.c: is it that directory, and are it and those above it root's alone? With a user namespace
 * Podman gives it to the container's root. */
bool podman_bundle(const char *bundle, const char *id);
/* Finds <graphroot>/<driver>-containers. -ENOENT: @bundle is not container @id's, or the images
 * go elsewhere. */
int podman_root(const char *bundle, const char *id, const char *image_path, char *out, size_t len);

/* Calls @fn for each handle below <root>/containers/ID/checkpoints/NAME. Stops when it returns
 * non-zero. */
typedef int (*docker_handle_fn)(void *arg, const char *container_id, const char *name,
				const char *dir, const uint8_t checkpoint[ZNS_UUID_LEN]);
int docker_each_handle(const char *root, docker_handle_fn fn, void *arg);

/* restlog.c: copies the end (256 KiB) of criu's restore log to a place that outlives the
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
/* The result of the last start or stop by checkpoint, in one line. */
#define DOCKER_NOTE_FILE "zns-note"
/* When it was resumed the last two times, in seconds since boot. */
#define DOCKER_LIVES_FILE "zns-lives"
/* In a checkpoint's directory: what docker_compare() reads of the config.json at the dump. */
#define DOCKER_SHAPE_FILE "zns-shape.json"
/* Names of checkpoints that a container ended with, by zns.stop; only the newest one stays. */
#define DOCKER_STOP_PREFIX "zns-stop-"

struct docker_resume {
	char from[ZNS_UUID_STR]; /* the checkpoint belongs to another container, and has this id */
	char dir[PATH_MAX]; /* directory of the checkpoint for the next start; "": a cold start */
	char name[600]; /* for another container's checkpoint: CONTAINER/NAME */
	bool asked; /* by DOCKER_RESUME_FILE */
	bool or_cold; /* a cold start if it cannot be restored */
	bool lost; /* it was to end with a checkpoint, but ran and ended without one */
};
/* Decides from what the next start of @c resumes. An error says why it cannot be restored; then
 * @r's or_cold tells whether it starts cold. */
int docker_resume_choose(const struct docker_container *c, const struct docker_settings *s,
			 struct docker_resume *r, struct zns_err *err);
/* Must the next start of @c fail, if @s is all that is known of its settings? Its files may be
 * newer than the checkpoint that it would resume from, or it has no checkpoint of its own. */
bool docker_resume_must(const struct docker_container *c, const struct docker_settings *s);
/* Does it ask for what only containers of Docker and Podman can have? */
bool docker_resume_in_vain(const struct docker_container *c, const struct docker_settings *s);
/*
 * from.c: the first start of a new container from another one's checkpoint (zns.from, which
 * it has): sets @r's dir, name and from. -EPERM: no rule of the administrator's allows it, or it
 * is not there (which of the two is not said), or the image or the program is another one.
 */
int docker_from(const struct docker_container *c, const struct docker_settings *s,
		struct docker_resume *r, struct zns_err *err);
/* Nobody but criu writes to a container's files between the two, and that in / and /tmp only. */
struct docker_frozen {
	int64_t at_ns; /* all its tasks were frozen */
	int64_t dumped_ns; /* the dump was complete */
};
/*
 * Notes that @c ended with checkpoint @name. After docker_resume_reserve() of the same name this
 * needs no space on the disk. -errno.
 */
int docker_resume_ended(const struct docker_container *c, const char *name,
			const struct docker_frozen *when);
/* Before the dump. -errno: the note could not be written, as on a full disk. */
int docker_resume_reserve(const struct docker_container *c, const char *name);
void docker_resume_unreserve(const struct docker_container *c); /* the dump failed */
/*
 * Called when the container is started: removes both files. -errno: one of them may still be used.
 */
int docker_resume_used(const char *root, const char *id);
int docker_resume_used_by(const struct docker_container *c);
/* Requests that the next start resumes from checkpoint @name, or, if NULL, from the one that the
 * container ended with. @out is its name. -ENOENT: it did not end with one, or has run since. */
int docker_resume_ask(const struct docker_container *c, const char *name, char *out, size_t len,
		      struct zns_err *err);
/* Writes DOCKER_SIGNAL_FILE. -errno. */
int docker_stop_by_signal(const struct docker_container *c);
/* Is it there? It serves once. */
bool docker_stops_by_signal(const struct docker_container *c);
/* A person's wish has served, though it failed. */
void docker_resume_refused(const struct docker_container *c);
/* The container is resumed, @now_s seconds after boot. */
void docker_resume_began(const struct docker_container *c, int64_t now_s);
/* The last two lives after a resume were shorter than ten seconds each and ended without a
 * checkpoint, so its memory may be what ends it. That is forgotten. */
bool docker_resume_loops(const struct docker_container *c, int64_t now_s);
/* Writes DOCKER_NOTE_FILE, and a record for the journal. */
void docker_note(const struct docker_container *c, int priority, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A cold start after a life that ended without a checkpoint is noted, unless the note has a reason
 * for that already. */
void docker_note_lost(const struct docker_container *c);
/* Writes DOCKER_SHAPE_FILE into a checkpoint's directory. -errno. */
int docker_shape_write(const char *dir, const char *bundle);
/* Has @c the rights and the shape of the container that was dumped into @dir? -ENOENT: not known.
 */
int docker_shape_check(const struct docker_container *c, const char *dir, struct zns_err *err);

/* -EEXIST: it has a volume that it may write to. @own: its directory in the engine's. */
int docker_has_volumes(struct json_object *spec, const char *own, struct zns_err *err);
/* -EEXIST: its own layer has a file that no mount covers, before its first start. -EOPNOTSUPP: its
 * root is no overlay. */
int docker_has_files(struct json_object *spec, struct zns_err *err);
/*
 * written.c: was a file of the container @spec written after it was frozen? That is its root and
 * its writable volumes. Files that the engine keeps for containers, in the directory that @own is
 * in, are left out. -EEXIST names one; -E2BIG, -ETIMEDOUT (after @limit_ms, also where a file
 * system hangs) and others: not known.
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
	uint64_t bytes; /* in DRAM */
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
