/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DOCKER_CMD_H
#define ZNS_DOCKER_CMD_H
/* znsctl-docker, which `znsctl docker` becomes: one function per sub-command, and what they share.
 */
#include "../../ctl/ctl.h"
#include "../docker.h"

/* names of periodic checkpoints; only these are ever thinned out */
#define DOCKER_AUTO_PREFIX "zns-auto-"
#define DOCKER_NAME_MAX 128

int docker_install(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_uninstall(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_status(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_checkpoint(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_recover(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_clone(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_schedule(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_unschedule(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_live(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_logs(const struct ctl_cmd *cmd, int argc, char **argv);
int docker_stats(const struct ctl_cmd *cmd, int argc, char **argv);

/* docker_daemon.c */
struct docker_daemon {
	struct docker_api api;
	char version[64];
	char root[PATH_MAX]; /* its data root */
	bool experimental;
	struct json_object *info; /* of GET /info */
};

#define DOCKER_CONFIG "/etc/docker/daemon.json"
int docker_daemon_open(struct docker_daemon *d, const char *host, struct zns_err *err);
void docker_daemon_close(struct docker_daemon *d);
/* Is a runtime, by its name or as Docker describes it, ours? */
bool docker_daemon_is_ours(const struct docker_daemon *d, const char *runtime);
bool docker_runtime_is_ours(struct json_object *runtime);
/* What this version of Docker cannot do, one line each, as far as it matters for checkpoints; an
 * array of strings. */
struct json_object *docker_limits(const char *version);

/* A container by name or id. *json is GET /containers/NAME/json; the settings come from its files.
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
/* Both at once, of zeroed ones; closed in every case. */
int docker_open(struct docker_daemon *d, const char *host, const char *name,
		struct docker_target *t, struct zns_err *err);
void docker_close(struct docker_daemon *d, struct docker_target *t);
/* Docker 28 and later, and a network namespace of its own (moby#50750). */
bool docker_cannot_restore(const struct docker_daemon *d, const struct docker_target *t);
#define DOCKER_CANNOT_RESTORE                                                                   \
	"this Docker (%s) cannot start container %s from a checkpoint, because of its network " \
	"(moby#50750): only --network host and --network container:OTHER work"

/* docker_list.c: the checkpoints of one container that have handles, the newest first. */
struct docker_entry {
	char name[256], dir[PATH_MAX];
	uint8_t id[ZNS_UUID_LEN], device[ZNS_UUID_LEN];
	int64_t created_ns;
	uint64_t bytes;
	bool lost; /* Docker does not have it: @dir is to be made */
};

int docker_entries(const struct docker_container *c, struct docker_entry **out, size_t *nr,
		   struct zns_err *err);
/* Is it in the catalogue of a registered device? 0 or -errno with the reason. */
int docker_entry_check(const struct docker_entry *e, struct zns_err *err);
/* Remove the oldest of those that have our prefix, and what they hold, until @keep are left. */
int docker_thin_out(const struct docker_daemon *d, const struct docker_container *c, unsigned keep,
		    struct zns_err *err);

/* docker_lost.c: add what the catalogues have of container @k and @list has not; all that is called
 * @wanted, if not NULL. */
int docker_lost(const struct docker_container *k, const char *wanted, struct docker_entry **list,
		size_t *nr, struct zns_err *err);
/* Make @e's directory, so that Docker can start from it. */
int docker_put_back(const struct docker_entry *e, struct zns_err *err);
void docker_sort(struct docker_entry *list, size_t nr); /* the newest first */

/*
 * docker_logs.c: image @name of a checkpoint, of @max bytes at most, into *out, which the caller
 * frees. -ENOENT with the line @absent: it has none.
 */
int docker_image(struct ctl_hold *h, const char *name, size_t max, const char *absent, char **out,
		 size_t *len, struct zns_err *err);

/* docker_live.c: of a checkpoint from the catalogue. @why says it in words. */
enum docker_life ctl_docker_life(const ZnsPb__Checkpoint *c, char *why, size_t len);

/* docker_checkpoint.c */
struct docker_ask {
	const char *name; /* of the checkpoint */
	const char *admission; /* NULL: as the container's settings say */
	bool exit; /* the container ends */
};

int docker_make_checkpoint(const struct docker_daemon *d, const struct docker_target *t,
			   const struct docker_ask *ask, struct zns_err *err);
/* A name from the time, with @prefix. */
void docker_time_name(const char *prefix, char *out, size_t len);
/* Docker's own rule for names. */
bool docker_good_name(const char *name);

#endif
