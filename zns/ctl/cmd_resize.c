/* SPDX-License-Identifier: GPL-2.0-only */
/* resize: makes a store on an ordinary disk larger or smaller, with its checkpoints in it */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "compact/compaction.h"
#include "zns/emu.h"
#include "zns/store.h"

struct resize {
	struct zns_registered reg;
	uint64_t size; /* 0: all of the device */
	uint32_t before, after; /* zones */
	uint64_t bytes_before, bytes_after; /* for checkpoints */
	uint64_t moved; /* bytes */
	bool dry_run;
};

/* Without a size the store takes all of a partition or volume. */
static int size_of_disk(const char *path, uint64_t *size, struct zns_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	off_t end;

	if (fd < 0 || fstat(fd, &st))
		return zns_fail_sys(err, -errno, "%s", path);
	end = S_ISBLK(st.st_mode) ? lseek(fd, 0, SEEK_END) : 0;
	if (end <= 0)
		return zns_fail(err, -EINVAL, "how large shall %s be? Say it: resize %s SIZE", path,
				path);
	*size = (uint64_t)end;
	return 0;
}

static int plan(struct resize *k, struct zns_err *err)
{
	struct zns_dev *dev;
	int ret = k->size ? 0 : size_of_disk(zns_spec_path(k->reg.path), &k->size, err);

	if (!ret)
		ret = zns_dev_open(k->reg.path, ZNS_DEV_RDONLY, &dev, err);
	if (ret)
		return ret;
	ret = zns_file_zones_for(dev, k->size, &k->after, err);
	k->before = dev->geo.nr_zones;
	k->bytes_before = (k->before - dev->geo.log_zones) * dev->geo.zone_capacity;
	k->bytes_after = (k->after - dev->geo.log_zones) * dev->geo.zone_capacity;
	zns_dev_close(dev);
	return ret;
}

/* Moves the data behind the new end to the front. Whether all of it was moved is checked later. */
static int move_tail(struct resize *k, struct zns_err *err)
{
	struct compact x = { .keep = k->after, .dry_run = k->dry_run };
	int ret = compact_all(&x, k->reg.path, err);

	k->moved = k->dry_run ? x.plan.live : x.moved_bytes;
	if (!ret && x.given_up)
		ret = zns_fail(err, -ENOSPC, "%s cannot become that small: %s", k->reg.path, x.why);
	compact_free(&x);
	return ret;
}

/* Refuses a store that another machine writes. */
static int check_store(const struct resize *k, struct zns_dev *dev, struct zns_err *err)
{
	char machine[ZNS_MACHINE_STR];
	struct zns_store *s;
	int ret = zns_machine_id(machine, err);

	if (!ret)
		ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, err);
	if (ret)
		return ret;
	ret = zns_store_mine(s, machine, err);
	if (!ret && memcmp(zns_store_uuid(s), k->reg.uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -ENODEV, "%s holds another store than the registered one",
			       k->reg.path);
	zns_store_close(s);
	return ret;
}

static int change(const struct resize *k, struct zns_err *err)
{
	struct zns_dev *dev = NULL;
	struct zns_store *s;
	int lock = -1, ret = ctl_claim_device(k->reg.path, &lock, err);

	if (!ret)
		ret = zns_dev_open(k->reg.path, ZNS_DEV_CLAIM, &dev, err);
	if (!ret && dev->geo.nr_zones != k->before)
		ret = zns_fail(err, -EBUSY, "%s was resized meanwhile", k->reg.path);
	if (!ret)
		ret = check_store(k, dev, err);
	if (!ret)
		ret = zns_store_fit(dev, k->after, err);
	if (!ret)
		ret = zns_file_resize(dev, k->after, err);
	zns_dev_close(dev);
	/* from now on its log has the new number of zones */
	dev = NULL;
	if (!ret)
		ret = zns_dev_open(k->reg.path, ZNS_DEV_CLAIM, &dev, err);
	if (!ret)
		ret = zns_store_open(dev, 0, &s, err);
	if (!ret)
		zns_store_close(s);
	zns_dev_close(dev);
	if (lock >= 0)
		close(lock);
	return ret;
}

static int run(struct resize *k, const char *spec, struct zns_err *err)
{
	int ret = zns_resolve_device(spec, &k->reg, err);

	if (!ret && !zns_spec_on_disk(k->reg.path))
		ret = zns_fail(
			err, -EMEDIUMTYPE,
			"%s is no store on a disk (file:PATH): a drive has the size that it has",
			k->reg.path);
	if (!ret)
		ret = plan(k, err);
	if (!ret && k->after < k->before)
		ret = move_tail(k, err);
	return ret || k->dry_run || k->after == k->before ? ret : change(k, err);
}

static int print(const struct resize *k, bool json)
{
	char a[16], b[16], c[16];

	if (json)
		return ctl_print_json(
			ctl_obj(J("path", (const char *)k->reg.path), J("bytes", k->bytes_after),
				J("bytes_before", k->bytes_before), J("zones", k->after),
				J("moved_bytes", k->moved), J("dry_run", k->dry_run)));
	printf("%s: %s for checkpoints%s, %s before", k->reg.path,
	       zns_format_size(k->bytes_after, a, sizeof(a)), k->dry_run ? " it would be" : "",
	       zns_format_size(k->bytes_before, b, sizeof(b)));
	if (k->moved)
		printf("; %s %smoved", zns_format_size(k->moved, c, sizeof(c)),
		       k->dry_run ? "would be " : "");
	printf("\n");
	return CTL_OK;
}

static int cmd_resize(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct resize k = { 0 };
	const struct ctl_opt opts[] = { CTL_FLAG("dry-run", &k.dry_run), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		ctl_take_dev(&args);
	if (args.argc > 1)
		return ctl_usage(cmd, "one device and one size at most");
	if (args.argc && (zns_parse_size(args.argv[0], &k.size) || !k.size))
		return ctl_usage(cmd, "\"%s\" is no size: 200G, 500GiB", args.argv[0]);
	return run(&k, args.dev, &err) ? ctl_fail(cmd, &err) : print(&k, args.json);
}

const struct ctl_cmd command_resize = {
	"resize",
	"[DEV] [SIZE]",
	"make a store on a disk larger or smaller, with its checkpoints in it",
	"SIZE, all told, as of create; without it all of a partition or volume\n"
	"  --dry-run       only say what it would have, and what would be moved\n" CTL_DEV_HELP,
	cmd_resize,
};
