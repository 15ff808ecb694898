/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DOCKER_H
#define ZNS_DOCKER_H
/*
 * What the runtime wrapper (zns-runc) and `znsctl docker` share: what a container is, what it asks
 * for, and whether a checkpoint of it is still needed. Nothing here prints; nothing is thread-safe.
 */
#include <json.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

#define DOCKER_ID_LEN 64 /* hex digits */
#define DOCKER_SETTING_MAX 256 /* bytes of a value, with the NUL */

/* Environment of the helper, set by zns-runc: who the container is (zns/helper/origin.c reads it).
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
/* The same for a restore: who is restored, and which checkpoints of others it may have ("any", or
 * ids). */
#define ZNS_RESTORE_ID "ZNS_RESTORE_ID"
#define ZNS_RESTORE_NAME "ZNS_RESTORE_NAME"
#define ZNS_RESTORE_ALLOW "ZNS_RESTORE_ALLOW"

/* In a clone's directory, beside config.v2.json: the checkpoint of another container that it may be
 * restored from. */
#define DOCKER_CLONE_FILE "zns-clone"

#define DOCKER_DEFAULT_ROOT "/var/lib/docker"

/* A container as its bundle and, for Docker, its own directory describe it. */
struct docker_container {
	char kind[16]; /* "docker", "podman", "cri", or "runc" if nothing tells */
	char id[128];
	char name[256]; /* Docker's; podman/NAME; CRI: NAMESPACE/POD/CONTAINER; else the id */
	char image[256]; /* as given to `docker run`; "" unknown */
	char root[PATH_MAX]; /* of Docker's: the data root; podman_root; "" neither, or not known */
	struct json_object *annotations, *labels, *env; /* of the spec; NULL where there are none */
	struct json_object *spec, *config; /* what the three belong to */
};

/* What the runtime was told by whoever installed or calls it; nothing of it is the container's
 * creator's to choose. */
struct docker_runtime {
	const char *docker_root; /* --zns-docker-root; NULL: DOCKER_DEFAULT_ROOT */
	const char *state_root; /* runc's --root; NULL: not given */
};

/*
 * @bundle holds config.json. The caller ends it with docker_container_fini in every case. -EPERM:
 * Docker's files are there and not to be believed; -EINVAL: a name that nobody has.
 */
int docker_container_read(const struct docker_runtime *rt, const char *bundle, const char *id,
			  struct docker_container *c, struct zns_err *err);
/* Of a container of Podman's: its name. @init_pid is the container's first process, 0: none. */
void docker_container_podman(struct docker_container *c, int init_pid);
/* Docker's own description alone, as `znsctl docker` has it: <root>/containers/<id>. */
int docker_container_read_root(const char *root, const char *id, struct docker_container *c,
			       struct zns_err *err);
void docker_container_fini(struct docker_container *c);

/* An object member that is a string, or NULL. */
const char *docker_json_str(struct json_object *o, const char *key);
struct json_object *docker_json_get(struct json_object *o, const char *key);
int docker_json_parse(const char *path, const uint8_t *text, size_t len, struct json_object **out,
		      struct zns_err *err);
/* A whole JSON file; -EBADMSG names the place of the fault. */
int docker_json_read(const char *path, struct json_object **out, struct zns_err *err);

/*
 * trust.c: file @name of Docker's container @id below @root, or of the administrator's directory
 * @dir, if no link leads to it and none but root may write it or its directories: else -EPERM.
 * -ENOENT: there is none. The caller frees *out.
 */
int docker_read_own(const char *root, const char *id, const char *name, uint8_t **out, size_t *len,
		    struct zns_err *err);
int docker_read_admin(const char *dir, const char *name, size_t max, uint8_t **out, size_t *len,
		      struct zns_err *err);
/* A letter or digit, then those and _ . -: names of Docker, Podman and Kubernetes. */
bool docker_good_word(const char *s);
bool docker_full_id(const char *s); /* 64 hex digits */
/* runc's own rule for any container's id, which becomes part of paths */
bool docker_good_id(const char *id);

/* The name of the Docker checkpoint that is being made: the newest empty directory dockerd left for
 * it; "" unknown. */
void docker_pending_checkpoint(const struct docker_container *c, char *out, size_t len);

/* What one container asks for. Where source is NULL nothing is asked for. */
enum docker_key {
	DOCKER_QOS,
	DOCKER_ADMISSION,
	DOCKER_ALLOC,
	DOCKER_STRIPE,
	DOCKER_DEV,
	DOCKER_CRIU,
	DOCKER_NR_KEYS
};

struct docker_settings {
	char value[DOCKER_NR_KEYS][DOCKER_SETTING_MAX];
	const char *source[DOCKER_NR_KEYS]; /* "org.criu.config", "annotation", "label",
					       "environment", "rule", "default" */
	char criu_config[PATH_MAX]; /* annotation org.criu.config; criu reads it last, so it wins */
};

/* "qos", …; "criu" is a list of flags that runc knows and Docker does not pass, the others are
 * options of criu. */
extern const char *const docker_key_name[DOCKER_NR_KEYS];
extern const char *const docker_flags[]; /* what DOCKER_CRIU may name; NULL ends it */

/*
 * The file of annotation org.criu.config, annotation zns.KEY, label zns.KEY, variable ZNS_KEY, the
 * first rule of docker.rules that fits, docker-KEY of zns.conf: the first one that is there counts.
 * -EINVAL: a value that criu would not take, or a bad rule file.
 */
int docker_settings(const struct docker_container *c, struct docker_settings *s,
		    struct zns_err *err);
/* What the container itself says, without rules and defaults. */
int docker_settings_own(const struct docker_container *c, struct docker_settings *s,
			struct zns_err *err);
/* -EINVAL: a label or annotation "zns.…" that is none of ours, a misspelled one say. */
int docker_settings_known(const struct docker_container *c, struct zns_err *err);
/* rules.c: fill what is not set yet. */
int docker_rules(const struct docker_container *c, struct docker_settings *s, struct zns_err *err);
/* -EINVAL names @where. */
int docker_setting_check(enum docker_key key, const char *value, const char *where,
			 struct zns_err *err);

/* <run dir>/docker/<id>.<suffix>; makes the directory. */
int docker_run_path(const char *id, const char *suffix, char *out, size_t len, struct zns_err *err);

/*
 * Is a checkpoint of Docker origin still needed? GONE only if dockerd's data root is there, the
 * container or the checkpoint is not, and no other container has a handle of it. A checkpoint that
 * its container ended with is NEEDED until that was started again, whether Docker knows it or not:
 * Docker may have failed after the dump. Looks at the directory only; the caller adds the grace
 * period. @why (may be NULL) says it in words.
 */
struct docker_made {
	const char *root, *container_id, *checkpoint_name;
	const uint8_t *id;
	bool ended;
	int64_t created_ns;
};
/* whose origin is Docker; c stays its owner */
struct docker_made docker_made_of(const ZnsPb__Checkpoint *c);
enum docker_life { DOCKER_NEEDED, DOCKER_GONE, DOCKER_UNKNOWN };
enum docker_life docker_checkpoint_life(const struct docker_made *m, char *why, size_t len);

/*
 * The same for Podman; @root is <graphroot>/<driver>-containers, as podman_root found it. NULL or
 * "": it may have been exported with its handle, so UNKNOWN.
 */
enum docker_life podman_checkpoint_life(const char *root, const char *container_id,
					const uint8_t id[ZNS_UUID_LEN], char *why, size_t len);

/* podman.c: what the words of the command that called the runtime (/proc/PID/cmdline) say about a
 * checkpoint. */
enum podman_call {
	PODMAN_KEPT, /* `podman container checkpoint`, its directory stays where it is */
	PODMAN_EXPORTED, /* the directory is packed into a file or an image */
	PODMAN_OTHER, /* Podman's service, or something else: nothing is known */
};
enum podman_call podman_call(const char *args, size_t len);
/* <graphroot>/<driver>-containers, if @bundle is that of container @id and the images go into it.
 * -ENOENT: not so. */
int podman_root(const char *bundle, const char *id, const char *image_path, char *out, size_t len);

/* Calls @fn for every handle below <root>/containers/ID/checkpoints/NAME; stops when it returns
 * non-zero. */
typedef int (*docker_handle_fn)(void *arg, const char *container_id, const char *name,
				const char *dir, const uint8_t checkpoint[ZNS_UUID_LEN]);
int docker_each_handle(const char *root, docker_handle_fn fn, void *arg);

/* restlog.c: copy the end (256 KiB) of criu's log of a restore to where it outlives the container.
 * -errno. */
int docker_keep_restore_log(const char *id, const char *from);
/* The one of container @id, or of the only one whose id begins with it (12 characters or more). The
 * caller frees *text. */
int docker_restore_log(const char *id, uint8_t **text, size_t *len, struct zns_err *err);

/* Remove a directory of handles and plain images (no subdirectories). -errno. */
int docker_remove_dir(const char *dir);

/* api.c: dockerd's HTTP interface, over its UNIX socket. */
struct docker_api {
	char socket[108]; /* --host, $DOCKER_HOST, or /var/run/docker.sock */
};

int docker_api_init(struct docker_api *a, const char *host, struct zns_err *err);
/*
 * One request. @body may be NULL. *out (may be NULL) is the answer's JSON, NULL if it has none. An
 * answer of 400 or more is -ENOENT (404), -EEXIST (409) or -EREMOTEIO, with Docker's own line in
 * @err.
 */
int docker_api_call(const struct docker_api *a, const char *method, const char *path,
		    struct json_object *body, struct json_object **out, struct zns_err *err);

#endif
