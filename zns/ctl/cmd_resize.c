/* SPDX-License-Identifier: GPL-2.0-only */
/* resize: makes a store on an ordinary disk larger or smaller, with its checkpoints in it */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "compact/compaction.h"
#include "zns/emu.h"
#include "zns/store.h"

struct resize {
	struct zns_registered reg;
	uint64_t size; /* bytes of the file or device, with the metadata; 0: all of the device */
	uint32_t before, after; /* number of zones */
	uint64_t bytes_before, bytes_after; /* bytes for checkpoints */
	uint64_t moved; /* bytes */
	uint64_t deadline; /* ns, as of zns_mono_ns() */
	bool dry_run, in_place;
};

#define WAIT_S 60
#define LOOK_MS 100 /* ms between two checks whether the zones behind the new end are unused */

/* Finds the new size. Without a size the store takes the whole partition or volume. */
static int size_of_disk(const char *path, uint64_t *size, struct zns_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	off_t end;

	if (fd < 0 || fstat(fd, &st))
		return zns_fail_sys(err, -errno, "cannot find the size of %s", path);
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
	k->in_place = !ret && zns_file_resizes_in_place(dev, k->after);
	k->bytes_before = (k->before - dev->geo.log_zones) * dev->geo.zone_capacity;
	k->bytes_after = (k->after - dev->geo.log_zones) * dev->geo.zone_capacity;
	zns_dev_close(dev);
	return ret;
}

static bool waits(const struct resize *k)
{
	struct timespec pause = { .tv_nsec = LOOK_MS * 1000000l };

	if (zns_mono_ns() >= k->deadline)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/*
 * Moves the data behind the new end to the front. -ENOSPC: not all data could be moved; @err has
 * the reason.
 */
static int move_tail(struct resize *k, struct zns_err *err)
{
	/*
	 * move with a share of the bandwidth by weight: if the moves gave way to all dumps, dumps
	 * without a pause would block them for ever
	 */
	struct compact x = { .keep = k->after, .dry_run = k->dry_run, .charged = true };
	int ret = compact_all(&x, k->reg.path, err);

	k->moved += k->dry_run ? x.plan.live : x.moved_bytes;
	if (!ret && x.given_up)
		ret = zns_fail(err, -ENOSPC, "%s cannot become that small: %s", k->reg.path, x.why);
	compact_free(&x);
	return ret;
}

/*
 * Resizes while others use the store. The broker resizes as soon as no data are behind the new end.
 * Until then it names the dump or restore that has data there, and grants no zones there. Gives up
 * if twice in a row nothing was moved and no dump uses those zones: moving again would not help.
 */
static int beside_others(struct resize *k, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Resize q = ZNS_PB__RESIZE__INIT;
	struct zns_broker b = { .fd = -1 };
	int ret = zns_broker_connect(&k->reg, &b, err), stuck = 0;

	q.zones = k->after;
	req.resize = &q;
	while (!ret) {
		uint64_t moved = k->moved;

		ret = ctl_tell(&b, &req, err);
		if (ret == -ENOTEMPTY) {
			ret = move_tail(k, err);
			stuck = ret && k->moved == moved ? stuck + 1 : 0;
			if (ret == -ENOSPC && stuck < 2 && waits(k))
				ret = 0;
		} else if (ret == -EBUSY && waits(k)) {
			ret = stuck = 0;
		} else {
			break;
		}
		if (!ret)
			ret = ctl_caught(err);
	}
	zns_broker_close(&b);
	return ret;
}

/* Refuses a store that another machine uses. */
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

/* Resizes a store that no other program has open, since the tables move. */
static int alone(const struct resize *k, struct zns_err *err)
{
	struct zns_dev *dev = NULL;
	struct zns_store *s;
	int lock = -1, ret;

	do
		ret = ctl_claim_device(k->reg.path, &lock, err);
	while (ret == -EBUSY && waits(k) && !ctl_caught(err));
	if (!ret)
		ret = zns_dev_open(k->reg.path, ZNS_DEV_CLAIM, &dev, err);
	if (!ret && dev->geo.nr_zones != k->before)
		ret = zns_fail(
			err, -EBUSY,
			"another command has resized %s meanwhile: look at `znsctl status`, and run this again if it is needed",
			k->reg.path);
	if (!ret)
		ret = check_store(k, dev, err);
	if (!ret)
		ret = zns_store_open(dev, 0, &s, err);
	if (!ret) {
		ret = zns_store_fit(s, k->after, err);
		zns_store_close(s);
	}
	if (!ret)
		ret = zns_file_resize(dev, k->after, err);
	zns_dev_close(dev);
	/* open the store once more, with its new size: its log gets the new number of zones */
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
	if (ret || k->after == k->before)
		return ret;
	if (k->dry_run)
		return k->after < k->before ? move_tail(k, err) : 0;
	ctl_catch_signals();
	if (k->in_place)
		return beside_others(k, err);
	if (k->after < k->before)
		ret = move_tail(k, err);
	return ret ? ret : alone(k, err);
}

static int print(const struct resize *k, bool json)
{
	char a[16], b[16], c[16];
	uint64_t room;

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
	if (ctl_is_limited(k->reg.path, k->size, &room))
		printf("LIMITED: the file system below has room for %s more only\n",
		       zns_format_size(room, a, sizeof(a)));
	return CTL_OK;
}

static int cmd_resize(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct resize k = { 0 };
	uint64_t wait_s = WAIT_S;
	const struct ctl_opt opts[] = { CTL_FLAG("dry-run", &k.dry_run),
					CTL_NUMBER("wait", &wait_s, 0, 86400,
						   "\"%s\" is no number of seconds"),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		ctl_take_dev(&args);
	if (args.argc > 1)
		return ctl_usage(cmd, "one device and one size at most");
	if (args.argc && (zns_parse_size(args.argv[0], &k.size) || !k.size))
		return ctl_usage(cmd, "\"%s\" is no size: 200G, 500GiB", args.argv[0]);
	k.deadline = zns_mono_ns() + wait_s * 1000000000;
	return run(&k, args.dev, &err) ? ctl_fail(cmd, &err) : print(&k, args.json);
}

const struct ctl_cmd command_resize = {
	"resize",
	"[DEV] [SIZE] [--wait SECONDS]",
	"make a store on a disk larger or smaller; its checkpoints stay",
	"SIZE, all told, as of create; without it all of a partition or volume; dumps\n"
	"and restores go on\n"
	"  --wait SECONDS  for those that use what goes (60); the message says which\n"
	"  --dry-run       only say what it would have, and what would be moved\n" CTL_DEV_HELP,
	cmd_resize,
};
