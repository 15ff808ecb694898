/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CONFIG_H
#define ZNS_CONFIG_H
/*
 * The administrator's configuration, in /etc/zns-criu or $ZNS_CONFIG. devices.d/ has one file for
 * each registered device; its name is the UUID, and its lines are "path = DEV" and, if the device's
 * checkpoints have a key of their own (zns/crypt.h), "key = KEYSPEC". zns.conf has lines "key =
 * value" (default-device = UUID or DEV; encrypt-key = KEYSPEC). Runtime files (socket, locks) are
 * in /run/zns-criu or $ZNS_RUN. Nothing is cached: every call reads the files.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns/util.h"

const char *zns_config_dir(void);
const char *zns_run_dir(void);

struct zns_registered {
	uint8_t uuid[ZNS_UUID_LEN];
	char path[256]; /* canonical device spec, such as "emu:/…" or "/dev/…" */
	/* new checkpoints must be encrypted, and plain ones are not read (unless plain_ok), whatever
	 * the device's own catalogue says */
	bool encrypted;
	/* plain (unencrypted) checkpoints are read nevertheless, because the administrator allowed
	 * it */
	bool plain_ok;
};

/* Adds or replaces the entry uuid → path; an existing entry keeps its key. Other entries with that
 * path are removed. Creates the directories with mode 0700. */
int zns_register(const uint8_t uuid[ZNS_UUID_LEN], const char *path, struct zns_err *err);
int zns_unregister(const uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err);
/* Reads, or writes (NULL: removes), the KEYSPEC of a registered device. -ENOENT: it has none; @err
 * has no text then. */
int zns_registered_key(const uint8_t uuid[ZNS_UUID_LEN], char *out, size_t len,
		       struct zns_err *err);
int zns_register_key(const uint8_t uuid[ZNS_UUID_LEN], const char *spec, struct zns_err *err);
/* Sets the two flags of struct zns_registered; a negative value leaves that flag as it is. */
int zns_register_flags(const uint8_t uuid[ZNS_UUID_LEN], int encrypted, int plain_ok,
		       struct zns_err *err);

/* Finds a registered device by its UUID. -ENOENT: it is not registered on this machine; the message
 * names the UUID and the remedy. */
int zns_registered_by_uuid(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out,
			   struct zns_err *err);
/* From now on requests for the store @uuid go to @successor, which has copies of its checkpoints;
 * handles may name either store. This ends when @uuid is registered again or unregistered. */
int zns_register_successor(const uint8_t uuid[ZNS_UUID_LEN], const uint8_t successor[ZNS_UUID_LEN],
			   struct zns_err *err);
/* Is @uuid the UUID of this store, or of a store that it succeeds? */
bool zns_is_store(const uint8_t uuid[ZNS_UUID_LEN], const struct zns_registered *reg);
/* Finds a registered device by a path as given on the command line; both paths are made canonical
 * first. -ENOENT: it is not registered on this machine. */
int zns_registered_by_path(const char *path, struct zns_registered *out, struct zns_err *err);
/* Returns all registered devices; *out is malloc'ed, and the caller frees it. */
int zns_registered_list(struct zns_registered **out, size_t *nr, struct zns_err *err);

/* Finds the device that a command means: @spec if given (path or UUID), else $ZNS_DEV, else
 * default-device, else the only registered one. It must be registered. -ENODEV: the message names
 * the remedy. */
int zns_resolve_device(const char *spec, struct zns_registered *out, struct zns_err *err);

/*
 * Returns the path in a device spec: what follows the prefix that names a backend ("emu:"), or the
 * whole spec if it has none. A prefix consists of lower-case letters and a colon.
 */
const char *zns_spec_path(const char *spec);
/* Does the spec name a file or a plain block device in which we emulate zones ("emu:", "file:")? */
bool zns_spec_in_file(const char *spec);
/* Does the spec name a store on an ordinary disk ("file:")? */
bool zns_spec_on_disk(const char *spec);
/* Does the spec name a device by path (with a known prefix, or in /dev), rather than by name or
 * UUID? */
bool zns_spec_named(const char *spec);
/* Makes a spec canonical: "emu:rel" → "emu:/abs", "rel" → "/abs"; the path need not exist. */
int zns_canonical_spec(const char *spec, char *out, size_t len, struct zns_err *err);

/* Copies the value of @key in zns.conf to @out. -ENOENT: not set. -EINVAL: the file has a line that
 * is not "key = value", or an unknown key. */
int zns_config_get(const char *key, char *out, size_t len, struct zns_err *err);
/* "deadline": seconds without a sign of life after which one process gives up waiting for another;
 * ZNS_DEADLINE_S if it is not set. 0: never. */
#define ZNS_DEADLINE_S 10
int zns_config_deadline(uint32_t *seconds, struct zns_err *err);
/*
 * "keep-tracking": seconds for which the memory tracking of a dumped process is kept for the next
 * dump (live.md); ZNS_KEEP_TRACKING_S if it is not set. 0: it is not kept.
 */
#define ZNS_KEEP_TRACKING_S (6 * 3600)
int zns_config_keep_tracking(uint64_t *seconds, struct zns_err *err);
/*
 * "sweep": the broker runs `znsctl gc` itself so many seconds after the last run on the device;
 * ZNS_SWEEP_S if it is not set. 0: never.
 */
#define ZNS_SWEEP_S (3 * 3600)
int zns_config_sweep(uint64_t *seconds, struct zns_err *err);

/*
 * "restore-cache": bytes of memory that restores of one device share while several read the same
 * units (zns/hot.h). If it is not set: 256 MiB, or a sixteenth of the machine's memory if that is
 * less. 0: none.
 */
int zns_config_restore_cache(uint64_t *bytes, struct zns_err *err);
int zns_config_set(const char *key, const char *value, struct zns_err *err);

/*
 * tenants.conf: limits that the administrator sets and a container's own settings cannot exceed.
 * One rule a line:
 *
 *	name PATTERN | uid N[-M]	max-qos=RATE max-groups=N total-qos=RATE total-groups=N weight=N
 *
 * PATTERN is a shell pattern for the container's name; uid is the user of the dumped task. The
 * first rule that matches applies. max-… is for one dump, total-… for all running dumps under the
 * rule. 0: no limit. weight: for dumps and restores that do not ask for one.
 */
/* Range of the weights by which dumps and restores share groups. */
#define ZNS_WEIGHT_MIN 100u
#define ZNS_WEIGHT_MAX 10000u
#define ZNS_WEIGHT_DEFAULT 100u

struct zns_tenant {
	char who[512]; /* the rule's "name PATTERN" or "uid N"; empty: no rule applies */
	unsigned line; /* line of the rule in tenants.conf */
	uint32_t max_qos_mibps, max_groups;
	uint32_t max_weight; /* highest weight of one dump or restore */
	/* weight of a dump or restore that does not ask for one; never above max_weight */
	uint32_t weight;
	uint32_t total_qos_mibps, total_groups;
	/* limits for memory contexts: bytes on zones of one context, and of all contexts under the
	 * rule; MiB/s that one context may write */
	uint64_t max_memory, total_memory;
	/* most bytes of DRAM that one context may be guaranteed (with zns.memory=auto) */
	uint64_t max_memory_min;
	uint32_t memory_mibps;
};

/* Finds the limits of a container. @uid < 0: the user is not known, so no uid rule applies.
 * -EINVAL: the file has a bad line, even if that line is for somebody else. If there is no file, no
 * rule applies. */
int zns_tenant_find(const char *container, int64_t uid, struct zns_tenant *out,
		    struct zns_err *err);

/* zns_machine_id: the identity of this machine, 32 hexadecimal digits, from $ZNS_CONFIG/machine-id
 * or else /etc/machine-id. If neither exists, a random id is stored in the former. zns_boot_id: a
 * UUID that the kernel makes at each boot. */
#define ZNS_MACHINE_STR 33
int zns_machine_id(char out[ZNS_MACHINE_STR], struct zns_err *err);
int zns_boot_id(char out[ZNS_UUID_STR], struct zns_err *err);

#endif
