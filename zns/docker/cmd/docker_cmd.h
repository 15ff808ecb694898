/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DOCKER_CMD_H
#define ZNS_DOCKER_CMD_H
/*
 * znsctl-docker, the program that `znsctl docker` executes: one function for each sub-command, and
 * shared functions.
 */
#include "../../ctl/lib/ctl.h"
#include "../docker.h"

/* prefix of the names of periodic checkpoints; only these are ever removed automatically */
#define DOCKER_AUTO_PREFIX "zns-auto-"
#define DOCKER_NAME_MAX 128

int docker_install(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_uninstall(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_status(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_checkpoint(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_recover(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_suspend(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_resume(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_clone(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_schedule(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_unschedule(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_life(int argc, char **argv); /* for `znsctl gc`: is a checkpoint still needed? */
int docker_live(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_logs(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_stats(const struct ctl_cmd *cmd, int argc, char **argv);

/* docker_daemon.c */
struct docker_daemon {
	struct docker_api api;
	char version[64];
	char root[PATH_MAX]; /* the data root of the daemon */
	bool experimental;
	struct json_object *info; /* answer of GET /info */
};

#define DOCKER_CONFIG "/etc/docker/daemon.json"
int docker_daemon_open(struct docker_daemon *d, const char *host, struct zns_err *err);
void docker_daemon_close(struct docker_daemon *d);
/* Is this runtime zns-runc? Given by its name, or by Docker's description of it. */
bool docker_daemon_is_ours(const struct docker_daemon *d, const char *runtime);
bool docker_runtime_is_ours(struct json_object *runtime);
/* Lists what this version of Docker cannot do with checkpoints: an array of strings. */
struct json_object *docker_limits(const char *version);

/*
 * Describes the container @name (a name or an id). *json: Docker's answer to GET
 * /containers/NAME/json. The settings are read from Docker's files.
 */
struct docker_target {
	struct docker_container c;
	struct json_object *json;
	bool running;
	const char *runtime;
};

int docker_target_open(const struct docker_daemon *d, const char *name, struct docker_target *t,
		       struct zns_err *err);
void docker_target_close(struct docker_target *t);
/*
 * Opens the daemon @d and the container @t, which must be zeroed. Close both, also after an error.
 */
int docker_open(struct docker_daemon *d, const char *host, const char *name,
		struct docker_target *t, struct zns_err *err);
void docker_close(struct docker_daemon *d, struct docker_target *t);
/*
 * True for Docker 28 and later, if the container has a network namespace of its own (moby#50750).
 */
bool docker_cannot_restore(const struct docker_daemon *d, const struct docker_target *t);
#define DOCKER_CANNOT_RESTORE                                                                   \
	"this Docker (%s) cannot start container %s with --checkpoint, because of its network " \
	"(moby#50750): start it with znsctl docker resume"
/*
 * Starts container @id, whose settings are those of @t, from its checkpoint @name: by Docker's own
 * restore or, if this version has none, by an ordinary start that resumes.
 */
int docker_start_from(const struct docker_daemon *d, const struct docker_target *t, const char *id,
		      const char *name, struct zns_err *err);

/* docker_list.c: the checkpoints of one container that have a handle, newest first. */
struct docker_entry {
	char name[256], dir[PATH_MAX];
	uint8_t id[ZNS_UUID_LEN], device[ZNS_UUID_LEN];
	int64_t created_ns;
	uint64_t bytes;
	bool lost; /* Docker does not list it any more; before a start @dir must be created again */
};

int docker_entries(const struct docker_container *c, struct docker_entry **out, size_t *nr,
		   struct zns_err *err);
/* Is it in the catalogue of a registered device? Returns 0, or -errno with the reason. */
int docker_entry_check(const struct docker_entry *e, struct zns_err *err);
/*
 * Removes the oldest checkpoints whose names begin with @prefix, with their data, until @keep of
 * them are left. @spare (NULL: none) is never removed, and not counted: its time stamp may be
 * wrong, since clocks can be set back.
 */
int docker_thin_out(const struct docker_daemon *d, const struct docker_container *c,
		    const char *prefix, const char *spare, unsigned keep, struct zns_err *err);

/*
 * docker_lost.c: adds the checkpoints of container @k that are in a catalogue but not in the list.
 * @wanted: only the one with this name; NULL: all.
 */
int docker_lost(const struct docker_container *k, const char *wanted, struct docker_entry **list,
		size_t *nr, struct zns_err *err);
/* Makes the directory of @e, so that Docker can start from it. */
int docker_put_back(const struct docker_entry *e, struct zns_err *err);
void docker_sort(struct docker_entry *list, size_t nr); /* newest first */

/*
 * docker_logs.c: reads image @name of a checkpoint, at most @max bytes, into *out, which the caller
 * frees. -ENOENT, with the text @absent: there is no such image.
 */
int docker_image(struct ctl_hold *h, const char *name, size_t max, const char *absent, char **out,
		 size_t *len, struct zns_err *err);

/* docker_live.c: is this checkpoint of the catalogue still needed? @why: the reason as text. */
enum docker_life ctl_docker_life(const ZnsPb__Checkpoint *c, char *why, size_t len);

/*
 * docker_suspend.c: makes the checkpoint @name, which ends the container @t. The container's
 * restart policy stays unchanged. @admission: as in struct docker_ask.
 */
int docker_suspend_one(const struct docker_daemon *d, const struct docker_target *t,
		       const char *name, const char *admission, struct zns_err *err);
/* Restores the restart policies that were removed by suspends which were killed. Prints errors. */
void docker_policies_back(const struct docker_daemon *d);
/*
 * docker_suspend_all.c. -EIO: at least one container could not be suspended and continues to run.
 */
int docker_suspend_all(struct docker_daemon *d, bool json, bool limited, uint64_t within_s,
		       struct zns_err *err);

/* docker_checkpoint.c */
struct docker_ask {
	const char *name; /* name of the checkpoint */
	const char *admission; /* NULL: use the container's setting */
	bool exit; /* the container ends afterwards */
};

int docker_make_checkpoint(const struct docker_daemon *d, const struct docker_target *t,
			   const struct docker_ask *ask, struct zns_err *err);
/* Makes a name of @prefix and the present time. */
void docker_time_name(const char *prefix, char *out, size_t len);
/* Is the name valid by Docker's rule for names? */
bool docker_good_name(const char *name);

#endif
