/* SPDX-License-Identifier: GPL-2.0-only */
/* format, register, unregister */
#include <string.h>
#include <sys/stat.h>
#include "lib/ctl.h"
#include "zns/emu.h"
#include "zns/store.h"

int ctl_format_device(struct zns_dev *dev, const struct ctl_map *map, bool force,
		      uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err)
{
	ZnsPb__Profile *profile;
	struct zns_emu_params e;
	uint8_t id[ZNS_UUID_LEN];
	int ret;

	if (zns_emu_info(dev, &e, id)) {
		ret = zns_uuid_generate(id);
		if (ret)
			return zns_fail_sys(err, ret, "no random UUID");
	}
	ret = ctl_make_profile(dev, map, &profile, err);
	if (ret)
		return ret;
	ret = zns_store_format(dev, id, profile, force, uuid, err);
	zns_pb__profile__free_unpacked(profile, NULL);
	return ret;
}

static int make_default(const uint8_t *uuid, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	return zns_config_set("default-device", zns_uuid_format(uuid, id), err);
}

/*
 * Finds the path of a device. A UUID is looked up among the registered devices, a path need not be
 * registered.
 */
static int spec_to_path(const char *spec, char *path, size_t len, struct zns_err *err)
{
	struct zns_registered reg;
	uint8_t uuid[ZNS_UUID_LEN];
	int ret;

	if (spec && zns_uuid_parse(spec, uuid))
		return zns_canonical_spec(spec, path, len, err);
	ret = zns_resolve_device(spec, &reg, err);
	if (!ret)
		snprintf(path, len, "%s", reg.path);
	return ret;
}

static int print_device(const struct ctl_args *args, const char *what, const uint8_t *uuid,
			const char *path)
{
	char id[ZNS_UUID_STR];

	zns_uuid_format(uuid, id);
	if (args->json)
		return ctl_print_json(ctl_obj(J("uuid", id), J("path", path)));
	printf("%s %s as %s\n", what, path, id);
	return CTL_OK;
}

struct measured {
	bool wanted, done;
	uint32_t zone, write_mibps, read_mibps;
};

/* Measures the speed of a zone if neither the device nor the user gives it. */
static int measure(struct zns_dev *dev, struct ctl_map *map, struct measured *m,
		   struct zns_err *err)
{
	struct zns_emu_params e;
	uint8_t id[ZNS_UUID_LEN];
	int ret;

	if (!m->wanted &&
	    (map->zone_write_mibps || (!zns_geo_is_disk(&dev->geo) && !zns_emu_info(dev, &e, id))))
		return 0;
	ret = zns_geo_is_disk(&dev->geo) ?
		      ctl_measure_disk(dev, &m->write_mibps, &m->read_mibps, err) :
		      ctl_measure_zone(dev, &m->zone, &m->write_mibps, &m->read_mibps, err);
	if (ret)
		return ret;
	m->done = true;
	map->zone_write_mibps = m->write_mibps;
	if (!map->zone_read_mibps)
		map->zone_read_mibps = m->read_mibps;
	return 0;
}

static int do_format(const char *path, struct ctl_map *map, bool force, const struct ctl_encrypt *e,
		     uint8_t *uuid, struct measured *m, struct zns_err *err)
{
	cleanup_close int lock = -1;
	struct zns_resv resv = { 0 };
	struct zns_dev *dev;
	int ret;

	ret = ctl_claim_device(path, &lock, err);
	if (!ret)
		ret = zns_dev_open(path, 0, &dev, err);
	if (ret)
		return ret;
	ret = ctl_reserve(dev, false, &resv, err);
	if (!ret)
		ret = measure(dev, map, m, err);
	if (!ret)
		ret = ctl_format_device(dev, map, force, uuid, err);
	if (!ret)
		ret = ctl_encrypt_store(dev, e, err);
	zns_resv_leave(&resv, NULL);
	zns_dev_close(dev);
	if (!ret)
		ret = zns_register(uuid, path, err);
	if (!ret && e->on)
		ret = zns_register_key(uuid, e->spec, err);
	/* set both flags anew: the registration of the old content may have had others */
	return ret ? ret : zns_register_flags(uuid, e->on, false, err);
}

static int cmd_format(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct ctl_map map = { 0 };
	bool force = false, dflt = false;
	struct ctl_encrypt encrypt;
	struct measured m = { 0 };
	const char *key = NULL, *write = NULL;
	uint8_t uuid[ZNS_UUID_LEN];
	char path[256];
	const struct ctl_opt opts[] = { CTL_TEXT("map", &map.spec),
					CTL_TEXT("zone-write-bw", &write),
					CTL_RATE("zone-read-bw", &map.zone_read_mibps),
					CTL_FLAG("default", &dflt),
					CTL_FLAG("force", &force),
					CTL_TEXT("encrypt", &key),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	m.wanted = write && !strcmp(write, "measure");
	if (write && !m.wanted && zns_parse_mibps(write, &map.zone_write_mibps))
		return ctl_usage(cmd, "\"%s\" is no bandwidth", write);
	/* A destructive command uses no default device: it must be named. */
	if (!args.dev && args.argc == 1)
		args.dev = *args.argv++, args.argc--;
	if (!args.dev || args.argc)
		return ctl_usage(cmd, "give one device");
	if (spec_to_path(args.dev, path, sizeof(path), &err) ||
	    ctl_encrypt_load(key, &encrypt, &err) ||
	    do_format(path, &map, force, &encrypt, uuid, &m, &err) ||
	    (dflt && make_default(uuid, &err)))
		return ctl_fail(cmd, &err);
	if (m.done && !args.json)
		printf("zone %u alone, measured: %u MiB/s written, %u MiB/s read; znsctl probe finds out which zones share a die\n",
		       m.zone, m.write_mibps, m.read_mibps);
	return print_device(&args, "formatted", uuid, path);
}

const struct ctl_cmd command_format = {
	"format",
	"DEV [OPTIONS]",
	"write an empty store on a device and register it",
	"  --map FILE|\"i % N\"     which zones share a die, if the device does not say: a\n"
	"                         file with one group number per zone, or zone index\n"
	"                         modulo N\n"
	"  --zone-write-bw MIBPS|measure, --zone-read-bw MIBPS\n"
	"                          the rates of one zone; a real device is measured if\n"
	"                          they are not given\n"
	"  --encrypt KEYSPEC   its checkpoints; file:PATH or keyring:DESCRIPTION\n"
	"  --default       make it the default device\n"
	"  --force         even if it holds checkpoints\n",
	cmd_format,
};

/*
 * Takes the device over from the host that the store names. The administrator declares that this
 * host does not use the device any more.
 */
static int take_over(const char *path, struct zns_err *err)
{
	ZnsPb__Mount m = ZNS_PB__MOUNT__INIT;
	struct zns_mount_names names;
	cleanup_close int lock = -1;
	struct zns_resv resv = { 0 };
	struct zns_store *store;
	struct zns_dev *dev;
	int ret = ctl_claim_device(path, &lock, err);

	if (!ret)
		ret = zns_mount_self(&m, &names, err);
	if (!ret)
		ret = zns_dev_open(path, 0, &dev, err);
	if (ret)
		return ret;
	ret = ctl_reserve(dev, true, &resv, err);
	if (!ret)
		ret = zns_store_open(dev, 0, &store, err);
	if (!ret) {
		ret = zns_store_claim(store, &m, err);
		if (!ret)
			ret = zns_store_claim_now(store, err);
		if (!ret)
			ret = zns_store_unclaim(store, err);
		zns_store_close(store);
	}
	/*
	 * On an error keep the drive's reservation for the next broker: commands of the other host
	 * may still arrive.
	 */
	if (ret)
		zns_resv_leave(&resv, NULL);
	zns_dev_close(dev);
	return ret;
}

static int read_uuid(const char *path, uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err)
{
	struct zns_store *store;
	struct zns_dev *dev;
	int ret = zns_dev_open(path, ZNS_DEV_RDONLY, &dev, err);

	if (ret)
		return ret;
	ret = zns_store_open(dev, ZNS_STORE_RDONLY, &store, err);
	if (!ret) {
		memcpy(uuid, zns_store_uuid(store), ZNS_UUID_LEN);
		zns_store_close(store);
	}
	zns_dev_close(dev);
	return ret;
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(zns_spec_path(a), &x) && !stat(zns_spec_path(b), &y) &&
	       (S_ISBLK(x.st_mode) ? S_ISBLK(y.st_mode) && x.st_rdev == y.st_rdev :
				     x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/*
 * Is a second store with this UUID registered? A store in a file is easily copied, and a copy has
 * the same UUID. It must not replace the first store, which is still in use. If the store was
 * moved, the old path is the broker's name of it. Two device nodes of one drive are the same store.
 */
static int check_twin(const uint8_t *uuid, const char *path, struct zns_registered *was,
		      struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	uint8_t there[ZNS_UUID_LEN];

	was->path[0] = 0;
	if (zns_registered_by_uuid(uuid, was, NULL) || memcmp(was->uuid, uuid, ZNS_UUID_LEN) ||
	    !strcmp(was->path, path) || !zns_spec_in_file(path) || !zns_spec_in_file(was->path)) {
		was->path[0] = 0;
		return 0;
	}
	if (!same_file(was->path, path) && !read_uuid(was->path, there, NULL) &&
	    !memcmp(there, uuid, ZNS_UUID_LEN))
		return zns_fail(
			err, -EEXIST,
			"%s is a copy of %s, which is registered: both are store %s. To use the copy from now on: `znsctl unregister %s` first",
			path, was->path, zns_uuid_format(uuid, id), was->path);
	return ctl_ask_to_leave(was, err);
}

static int cmd_register(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	uint8_t uuid[ZNS_UUID_LEN];
	bool dflt = false, take = false;
	struct zns_registered was;
	char path[256];
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("default", &dflt), CTL_FLAG("take-over", &take),
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one device");
	ret = zns_canonical_spec(args.argv[0], path, sizeof(path), &err);
	/*
	 * Take over first: a host that died during a format leaves a reservation of the drive, but
	 * no store.
	 */
	if (!ret && take)
		ret = take_over(path, &err);
	if (!ret)
		ret = read_uuid(path, uuid, &err);
	if (!ret)
		ret = check_twin(uuid, path, &was, &err);
	if (ret || zns_register(uuid, path, &err) || (dflt && make_default(uuid, &err)))
		return ctl_fail(cmd, &err);
	if (*was.path && !args.json)
		printf("%s: it was registered as %s\n", path, was.path);
	return print_device(&args, "registered", uuid, path);
}

const struct ctl_cmd command_register = {
	"register",
	"DEV",
	"register a formatted device, for instance one from another host",
	"  --take-over     take it over from another host that no longer has it\n"
	"  --default       make it the default device\n",
	cmd_register,
};

/*
 * Does default-device name this device? Then this setting must be removed too, or every command
 * without DEV would fail.
 */
static bool is_default(const struct zns_registered *reg)
{
	char value[256], uuid[ZNS_UUID_STR];

	return !zns_config_get("default-device", value, sizeof(value), NULL) &&
	       (!strcmp(value, reg->path) || !strcmp(value, zns_uuid_format(reg->uuid, uuid)));
}

static int cmd_unregister(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct zns_registered reg;
	uint8_t uuid[ZNS_UUID_LEN];
	int lock = -1, ret;
	const struct ctl_opt opts[] = { CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one device");
	if (!zns_uuid_parse(args.argv[0], uuid))
		ret = zns_registered_by_uuid(uuid, &reg, &err);
	else
		ret = zns_registered_by_path(args.argv[0], &reg, &err);
	/*
	 * A UUID may name a store that was handed over to another one. Then only this registration
	 * is removed, that of the successor stays.
	 */
	if (!ret && !zns_uuid_parse(args.argv[0], uuid) && memcmp(uuid, reg.uuid, sizeof(uuid))) {
		if (zns_unregister(uuid, &err))
			return ctl_fail(cmd, &err);
		return print_device(&args, "unregistered", uuid, "a store that was handed over");
	}
	/*
	 * Refuse while the device is in use. A device that is missing or has a damaged registration
	 * can still be unregistered.
	 */
	if (!ret) {
		ret = ctl_claim_device(reg.path, &lock, &err);
		if (ret && ret != -EBUSY)
			ret = 0;
	} else if (ret == -EINVAL && !zns_uuid_parse(args.argv[0], uuid)) {
		memcpy(reg.uuid, uuid, sizeof(uuid));
		snprintf(reg.path, sizeof(reg.path), "a damaged entry");
		ret = 0;
	}
	if (!ret)
		ret = zns_unregister(reg.uuid, &err);
	if (!ret && is_default(&reg))
		ret = zns_config_set("default-device", NULL, &err);
	if (lock >= 0)
		close(lock);
	if (ret)
		return ctl_fail(cmd, &err);
	return print_device(&args, "unregistered", reg.uuid, reg.path);
}

const struct ctl_cmd command_unregister = {
	"unregister", "DEV|UUID", "forget a device; what it holds stays", "", cmd_unregister,
};
