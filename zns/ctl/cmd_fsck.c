/* SPDX-License-Identifier: GPL-2.0-only */
/* fsck: checks the catalogue, and can write a new one from everything that is still readable */
#include <string.h>
#include "fsck.h"

/* ---- a rebuild ---- */

static void tell(void *arg, const uint8_t *id, const char *container, enum zns_rebuild_source from,
		 bool taken, const char *why)
{
	struct fsck *k = arg;
	const char *source = from == ZNS_FROM_LOG ? "record" : "footer";
	char text[ZNS_UUID_STR];

	zns_uuid_format(id, text);
	json_object_array_add(k->found,
			      ctl_obj(J("id", text), J("container", container), J("from", source),
				      J("taken", taken), J("why", *why ? why : NULL)));
	if (!k->json)
		printf("%s  %-20s  %-7s  %s%s%s\n", text, ctl_text(container), source,
		       taken ? "found" : "left out", *why ? ": " : "", why);
}

static int intact(void *arg, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		  struct zns_err *err)
{
	struct fsck *k = arg;
	uint64_t bad = 0;
	int ret = ctl_verify_data(k->dev, m, &k->prog, &bad, err);

	if (ret || !bad)
		return ret;
	return zns_fail(err, -EBADMSG, "%llu units of its data are damaged",
			(unsigned long long)bad);
}

static void progress(void *arg, uint64_t bytes)
{
	ctl_progress_add(&((struct fsck *)arg)->prog, bytes);
}

static int do_rebuild(struct fsck *k, bool dry_run, struct zns_err *err)
{
	struct zns_rebuild_params p = { .dry_run = dry_run,
					.uuid = k->moved ? NULL : k->reg.uuid,
					.intact = intact,
					.tell = tell,
					.progress = progress,
					.arg = k };
	struct zns_rebuild_result r;
	ZnsPb__Mount self = ZNS_PB__MOUNT__INIT;
	struct zns_mount_names names;
	ZnsPb__Profile *profile;
	char size[16];
	int ret = ctl_make_profile(k->dev, &k->map, &profile, err);

	if (ret)
		return ret;
	p.profile = profile;
	ret = zns_mount_self(&self, &names, err);
	if (ret) {
		zns_pb__profile__free_unpacked(profile, NULL);
		return ret;
	}
	p.self = k->force ? NULL : &self;
	ctl_progress_start(&k->prog, "fsck", 0);
	ret = zns_rebuild(k->dev, &p, &r, err);
	ctl_progress_end(&k->prog);
	if (!ret && !k->json) {
		printf("%u good records in metadata zones, %u blocks of none; %zu footers in %u zones (%s read); %u "
		       "checkpoints, %u reservations, %u removed ones remembered\n",
		       r.records, r.damaged_blocks, r.scan.nr, r.scan.zones,
		       zns_format_size(r.scan.bytes, size, sizeof(size)), r.checkpoints,
		       r.reservations, r.tombstones);
		if (r.profile_lost)
			printf("the profile is lost: %s is taken instead\n",
			       k->map.spec ? "the map given" : "what the device says");
	}
	if (!ret) {
		k->rebuilt = !dry_run;
		k->lost = r.damaged_blocks;
		k->checkpoints = r.checkpoints;
		k->generation = r.generation;
		zns_scan_free(&r.scan);
	}
	zns_pb__profile__free_unpacked(profile, NULL);
	return ret;
}

/* ---- the command ---- */

static int check(struct fsck *k, struct zns_err *err)
{
	struct zns_store *s;
	int ret = zns_store_open(k->dev, ZNS_STORE_RDONLY, &s, err);

	if (ret)
		return ret;
	if (k->moved)
		memcpy(k->reg.uuid, zns_store_uuid(s), ZNS_UUID_LEN);
	ret = fsck_check(k, s, err);
	if (!ret && k->rebuilt && k->moved)
		ret = zns_register(k->reg.uuid, k->reg.path, err);
	zns_store_close(s);
	return ret;
}

static int mend(struct fsck *k, int damage, struct zns_err *err)
{
	bool wanted = k->rebuild || (k->repair && damage == -EBADMSG);
	int ret;

	k->gone = damage == -ENOMEDIUM;
	if (k->repair && damage == -ENOMEDIUM)
		return zns_fail(err, damage, "%s", k->damage);
	ret = do_rebuild(k, !wanted || k->dry_run, err);
	if (ret || !wanted || k->dry_run)
		return ret;
	return check(k, err);
}

/*
 * Finds the device. One that comes from another host and has lost its catalogue must be rebuilt
 * before it can be registered, so it need not be registered.
 */
static int find_device(struct fsck *k, const char *spec, struct zns_err *err)
{
	uint8_t uuid[ZNS_UUID_LEN];
	int ret = zns_resolve_device(spec, &k->reg, err);

	if (ret != -ENODEV || !k->rebuild || !spec || !*spec || !zns_uuid_parse(spec, uuid))
		return ret;
	k->moved = true;
	*err = (struct zns_err)ZNS_ERR_INIT;
	return zns_canonical_spec(spec, k->reg.path, sizeof(k->reg.path), err);
}

static int run(struct fsck *k, const char *spec, struct zns_err *err)
{
	bool write = (k->repair || k->rebuild) && !k->dry_run;
	int ret = find_device(k, spec, err);

	if (!ret)
		ret = ctl_claim_device(k->reg.path, &k->lock, err);
	if (!ret)
		ret = zns_dev_open(k->reg.path, write ? 0 : ZNS_DEV_RDONLY, &k->dev, err);
	if (!ret && write)
		ret = ctl_reserve(k->dev, false, &k->resv, err);
	if (!ret)
		ret = check(k, err);
	if (ret == -EBADMSG || ret == -ENOMEDIUM) {
		snprintf(k->damage, sizeof(k->damage), "%s", err->msg);
		if (!k->json)
			printf("DAMAGED  %s\n", k->damage);
		*err = (struct zns_err)ZNS_ERR_INIT;
		return mend(k, ret, err);
	}
	if (ret || !k->rebuild)
		return ret;
	if (!k->force)
		return zns_fail(
			err, -EEXIST,
			"the catalogue of %s can be read, so there is nothing to rebuild (--force rebuilds it anyway)",
			k->reg.path);
	ret = do_rebuild(k, k->dry_run, err);
	return ret || k->dry_run ? ret : check(k, err);
}

/*
 * Warns that pins may be lost. Pins are stored only in the log, so nobody can tell whether a lost
 * record was a pin.
 */
static void say_pins(const struct fsck *k)
{
	size_t nr = json_object_array_length(k->pinned);

	printf("records of the log are lost, and pins and retentions may be among them: `znsctl retain` lists what is kept, and pinned %s now",
	       nr == 1 ? "is" : "are");
	for (size_t i = 0; i < nr; i++)
		printf(" %s", json_object_get_string(json_object_array_get_idx(k->pinned, i)));
	printf("%s\n", nr ? "" : " none");
}

static int finish(const struct ctl_cmd *cmd, struct fsck *k, const struct zns_err *err)
{
	size_t problems = json_object_array_length(k->problems);
	bool bad = problems || (*k->damage && !k->rebuilt), pins = k->lost && k->rebuilt;
	struct ctl_fold fold;

	if (k->json) {
		ctl_print_json(
			ctl_obj(J("device", (const char *)k->reg.path), JB("readable", !*k->damage),
				J("damage", *k->damage ? k->damage : NULL), J("torn", k->torn),
				J("generation", k->generation), J("checkpoints", k->checkpoints),
				J("problems", json_object_get(k->problems)),
				J("found", json_object_get(k->found)), J("rebuilt", k->rebuilt),
				J("pinned", pins ? json_object_get(k->pinned) : NULL)));
	} else if (!err->code) {
		ctl_fold_begin(&fold);
		printf("%s: generation %llu%s, %zu checkpoints, %zu problem%s\n", k->reg.path,
		       (unsigned long long)k->generation, k->rebuilt ? " (new)" : "",
		       k->checkpoints, problems, problems == 1 ? "" : "s");
		if (*k->damage && !k->rebuilt)
			printf("nothing was changed: so it would be after `znsctl fsck --%s %s`\n",
			       k->gone ? "rebuild" : "repair", k->reg.path);
		if (pins)
			say_pins(k);
		if (k->torn)
			printf("the log ends in a record that a crash cut off; the broker begins a new generation\n");
		ctl_fold_end(&fold, 4);
	}
	if (err->code)
		return ctl_fail(cmd, err);
	return bad ? CTL_FAILED : CTL_OK;
}

static int cmd_fsck(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct fsck k = { .lock = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	int code;
	const struct ctl_opt opts[] = { CTL_FLAG("repair", &k.repair),
					CTL_FLAG("rebuild", &k.rebuild),
					CTL_FLAG("force", &k.force),
					CTL_FLAG("dry-run", &k.dry_run),
					CTL_TEXT("map", &k.map.spec),
					CTL_RATE("zone-write-bw", &k.map.zone_write_mibps),
					CTL_RATE("zone-read-bw", &k.map.zone_read_mibps),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	if (k.repair && k.rebuild)
		return ctl_usage(cmd, "give --repair or --rebuild, not both");
	if (k.force && !k.rebuild)
		return ctl_usage(cmd, "--force is for --rebuild");
	k.json = args.json;
	k.problems = json_object_new_array();
	k.found = json_object_new_array();
	k.pinned = json_object_new_array();
	if (!run(&k, args.dev, &err))
		err = (struct zns_err)ZNS_ERR_INIT; /* forget errors of earlier attempts */
	code = finish(cmd, &k, &err);
	zns_resv_leave(&k.resv, NULL);
	zns_dev_close(k.dev);
	if (k.lock >= 0)
		close(k.lock);
	json_object_put(k.problems);
	json_object_put(k.found);
	json_object_put(k.pinned);
	return code;
}

const struct ctl_cmd command_fsck = {
	"fsck",
	"[DEV] [--repair|--rebuild [--force]] [--dry-run]",
	"check the catalogue; write a new one from what can still be read",
	"  --repair        if it is damaged: from its readable records and the zones\n"
	"  --rebuild       also if it is gone: from the zones\n"
	"  --force         rebuild one that can be read\n  --dry-run       only say what would be found\n"
	"  --map FILE|\"i % N\", --zone-write-bw MIBPS, --zone-read-bw MIBPS\n"
	"                  as for format, if the profile is lost\n" CTL_DEV_HELP,
	cmd_fsck,
};
