/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * znsctl-probe, the program that `znsctl probe` executes: measures the device and stores the result
 * as its profile, or compares a sample with the stored profile.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "probe_cmd.h"
#include "zns/emu.h"
#include "zns/probe.h"
#include "zns/store.h"

#define STATE_MAX MIB(32) /* bytes; enough for a million zones */
/* Delay of the first progress line if the output is no terminal. */
#define FIRST_LINE_NS UINT64_C(5000000000)
#define LINE_NS UINT64_C(30000000000)

struct probe_cmd {
	const struct ctl_cmd *cmd;
	struct ctl_args args;
	bool verify, resume, dry_run;
	uint64_t sample;
	struct zns_registered reg;
	char state_path[300];
	struct zns_dev *dev;
	struct zns_resv resv;
	struct zns_store *store;
	struct zns_probe_params par;
	struct zns_probe_map map;
	bool shown, terminal;
	uint64_t next_line;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = 1;
}

static void show(void *arg, const struct zns_probe_progress *p)
{
	static const char *const phase[] = { "rates", "dies", "channels", "check", "done" };
	struct probe_cmd *k = arg;
	char written[16], left[32] = "", groups[32] = "";

	if (!k->terminal && zns_mono_ns() < k->next_line)
		return;
	k->next_line = zns_mono_ns() + LINE_NS;
	if (p->left_s >= 0)
		snprintf(left, sizeof(left), ", %d:%02d left", (int)p->left_s / 60,
			 (int)p->left_s % 60);
	if (p->groups)
		snprintf(groups, sizeof(groups), ", %u groups", p->groups);
	fprintf(stderr,
		k->terminal ? "\rprobe: %s %u/%u%s, %s written%s\033[K" :
			      "probe: %s %u/%u%s, %s written%s\n",
		phase[p->phase], p->done, p->total, groups,
		zns_format_size(p->written, written, sizeof(written)), left);
	fflush(stderr);
	k->shown = k->terminal;
}

static void unshow(struct probe_cmd *k)
{
	if (k->shown)
		fprintf(stderr, "\r\033[K");
	k->shown = false;
}

static void keep_state(void *arg, const void *state, size_t len)
{
	struct probe_cmd *k = arg;

	zns_replace_file(AT_FDCWD, k->state_path, state, len, 0600);
}

static int load_state(struct probe_cmd *k, struct zns_err *err)
{
	cleanup_free uint8_t *state = NULL;
	size_t len;
	int ret = zns_read_file(AT_FDCWD, k->state_path, STATE_MAX, &state, &len);

	if (ret == -ENOENT)
		return zns_fail(
			err, ret,
			"no interrupted probe of %s is known here (%s): run without --resume",
			k->reg.path, k->state_path);
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", k->state_path);
	ret = zns_probe_load(state, len, k->dev->geo.nr_zones, &k->map, err);
	if (ret) {
		zns_wrap(err, "%s", k->state_path);
		return ret;
	}
	if (k->par.unit && k->par.unit != k->map.unit)
		return zns_fail(
			err, -EINVAL,
			"the interrupted probe used units of %u bytes: give the same, or none",
			k->map.unit);
	k->par.unit = k->map.unit;
	return 0;
}

/* Uses the model time of the emulator, so that the measurement need not wait. */
static int set_clock(struct probe_cmd *k, struct zns_err *err)
{
	struct zns_emu_params p;

	if (zns_emu_info(k->dev, &p, NULL))
		return 0;
	if (!p.timing)
		return zns_fail(
			err, -ENOTSUP,
			"%s has no timing model, so nothing can be measured on it: its groups are what `create` or `format --map` were told",
			k->reg.path);
	return zns_emu_set_clock(k->dev, ZNS_EMU_CLOCK_THREAD, err);
}

/* Refuses a device that another host uses: a probe writes to zones, and the profile. */
static int check_host(const struct probe_cmd *k, struct zns_err *err)
{
	ZnsPb__Mount self = ZNS_PB__MOUNT__INIT;
	struct zns_mount_names names;
	int ret = zns_mount_self(&self, &names, err);

	return ret ? ret : zns_store_mine(k->store, self.machine, err);
}

/*
 * Resets the zones that a killed probe has left behind: in empty zones of the catalogue their data
 * would be taken for another writer's.
 */
static int clear(struct probe_cmd *k, struct zns_err *err)
{
	uint32_t n;
	int ret = zns_probe_clear(k->dev, &n, err);

	if (ret || !n)
		return ret;
	zns_store_close(k->store);
	k->store = NULL;
	return zns_store_open(k->dev, 0, &k->store, err);
}

static int open_all(struct probe_cmd *k, int *lock, struct zns_err *err)
{
	int ret = zns_resolve_device(k->args.dev, &k->reg, err);

	if (!ret)
		ret = zns_broker_run_dir(err);
	if (!ret)
		ret = ctl_claim_device(k->reg.path, lock, err);
	if (!ret)
		ret = zns_dev_open(k->reg.path, 0, &k->dev, err);
	if (!ret)
		ret = ctl_reserve(k->dev, false, &k->resv, err);
	if (!ret)
		ret = zns_store_open(k->dev, 0, &k->store, err);
	if (!ret && memcmp(zns_store_uuid(k->store), k->reg.uuid, ZNS_UUID_LEN))
		ret = zns_fail(
			err, -ESTALE,
			"%s holds another store than it is registered with: register it again",
			k->reg.path);
	if (!ret)
		ret = check_host(k, err);
	if (!ret)
		ret = clear(k, err);
	if (!ret)
		ret = set_clock(k, err);
	if (!ret && zns_broker_path(k->reg.uuid, "probe", k->state_path, sizeof(k->state_path)))
		ret = zns_fail(err, -ENAMETOOLONG, "the runtime directory's name is too long");
	return ret;
}

static double written_share(const struct probe_cmd *k)
{
	const struct zns_geometry *g = &k->dev->geo;

	return (double)k->map.written / ((double)g->nr_zones * g->zone_capacity);
}

/* The budget, or the default with which the probe begins if the user gave none. */
static uint64_t budget_of(const struct probe_cmd *k, uint32_t unit)
{
	return k->par.budget ? k->par.budget : zns_probe_budget(&k->dev->geo, unit);
}

static int print_json(struct json_object *j, const struct probe_cmd *k)
{
	const struct zns_probe_map *m = &k->map;

	return ctl_print_json(ctl_json_join(
		j, ctl_obj(J("unit", m->unit), J("bytes_written", m->written),
			   J("written_share", written_share(k)), J("budget", budget_of(k, m->unit)),
			   JB("budget_grows", !k->par.budget), J("resets", m->resets),
			   J("reads", m->reads), J("bytes_read", m->read_bytes),
			   J("device_s", m->device_ns / 1e9), J("wall_s", m->wall_ns / 1e9))));
}

/* For each kind of set, its times relative to the prediction; 1 is as predicted. */
static struct json_object *predictions(const struct zns_probe_map *m)
{
	static const char *const claim[] = { "share", "apart", "read" };
	struct json_object *all = json_object_new_array();

	for (int i = 0; i < ZNS_PROBE_CLAIMS; i++) {
		const struct zns_probe_seen *s = &m->seen[i];

		json_object_array_add(all, ctl_obj(J("claim", claim[i]), J("sets", s->sets),
						   J("wrong", s->wrong), J("low", s->low),
						   J("mean", s->mean), J("high", s->high)));
	}
	return all;
}

static void print_predictions(const struct zns_probe_map *m)
{
	const struct zns_probe_seen *s = m->seen;

	printf("the map's predictions were tried: %u pairs of one group (%u zones, %u are needed), %u sets of several groups, %u reads beside writes; %u were not as predicted\n",
	       s[ZNS_PROBE_SHARE].sets, m->zones_predicted, m->zones_needed,
	       s[ZNS_PROBE_APART].sets, s[ZNS_PROBE_READ].sets,
	       s[ZNS_PROBE_SHARE].wrong + s[ZNS_PROBE_APART].wrong + s[ZNS_PROBE_READ].wrong);
	printf("a map with 1 %% of its pairs wrong passes this test with a chance of %.2g\n",
	       m->miss);
}

static void print_cost(const struct probe_cmd *k)
{
	const struct zns_probe_map *m = &k->map;
	char w[16], r[16];

	printf("took %.1f s of the device's time (%.1f s here): %s written, %.1f %% of the capacity, %llu zones reset, %llu reads of %s in all\n",
	       m->device_ns / 1e9, m->wall_ns / 1e9, zns_format_size(m->written, w, sizeof(w)),
	       100 * written_share(k), (unsigned long long)m->resets, (unsigned long long)m->reads,
	       zns_format_size(m->read_bytes, r, sizeof(r)));
}

static int print_found(const struct probe_cmd *k, const ZnsPb__Profile *p)
{
	const struct zns_probe_map *m = &k->map;
	uint32_t promised, promise = zns_profile_promise(p, &promised);
	struct json_object *unknown;

	if (!k->args.json) {
		if (m->one_domain)
			printf("one domain: several zones together are written %.2f times as fast as one; striping gains nothing here\n",
			       m->scaling);
		else if (m->nr_channels)
			printf("%u groups of zones that share a die, on %u channels (two dies of a channel lose %.0f %% when read at once)\n",
			       m->nr_groups, m->nr_channels, 100 * m->channel_loss);
		else
			printf("%u groups of zones that share a die; no two dies disturb each other, so channels are not known\n",
			       m->nr_groups);
		printf("one zone: %u MiB/s written, %u MiB/s read; confidence %.4f, %u zones unknown; stored\n",
		       m->zone_write_mibps, m->zone_read_mibps, m->confidence, m->nr_unknown);
		if (promised + !!p->has_unknown_group < p->n_groups)
			printf("promises are of %u MiB/s for each of %u groups; the others are slower, and nothing is promised in them\n",
			       promise, promised);
		if (m->nr_channels)
			printf("%u tests of pairs of dies, made once more, agree with the channels, %u do not; confidence in these %.4f\n",
			       m->channel_tests - m->channel_tests_wrong, m->channel_tests_wrong,
			       m->channels_right);
		if (m->retests)
			printf("%u tests of zones at random agree, %u do not; %.0f %% of all measurements were disturbed and did not count\n",
			       m->retests - m->retests_wrong, m->retests_wrong, 100 * m->spoiled);
		print_predictions(m);
		if (m->load > 1)
			printf("groups together take up to %.2f times as long as one alone: what they share, such as a channel, is slower than they, or stalls; a zone's rate is what is left then\n",
			       m->load);
		if (m->nr_joined)
			printf("%u groups that reads found share a die with another group when they are written, and are one with it\n",
			       m->nr_joined);
		if (m->channel_doubt[0])
			printf("channels are left out: %s\n", m->channel_doubt);
		if (m->cache_mib)
			printf("a write cache of %u MiB at least takes %u MiB/s until it is full\n",
			       m->cache_mib, m->cached_write_mibps);
		if (m->device_write_mibps)
			printf("the device as a whole: %u MiB/s written, less than its groups together; promises stay below\n",
			       m->device_write_mibps);
		if (m->nr_failed)
			printf("%u zones could not be written and are left out: %s\n", m->nr_failed,
			       m->failure);
		if (m->doubt[0])
			printf("stored because of --force, but doubted: %s\n", m->doubt);
		print_cost(k);
		return CTL_OK;
	}
	unknown = json_object_new_array();
	for (uint32_t z = 0; z < m->nr_zones; z++)
		if (m->zone_group[z] == ZNS_PROBE_NONE)
			json_object_array_add(unknown, json_object_new_int64(z));
	return print_json(
		ctl_obj(J("uuid", ctl_json_uuid(k->reg.uuid)), J("path", (const char *)k->reg.path),
			J("source", p->source), J("groups", m->nr_groups),
			J("channels", m->nr_channels ? ctl_j_int(m->nr_channels) : NULL),
			J("zones", m->nr_zones), J("unknown_zones", unknown),
			J("failed_zones", m->nr_failed),
			J("failure", m->nr_failed ? m->failure : NULL),
			J("confidence", m->confidence),
			J("channel_confidence",
			  m->nr_channels ? ctl_j_double(m->channels_right) : NULL),
			J("channel_tests", m->channel_tests),
			J("channel_tests_wrong", m->channel_tests_wrong), J("tests", m->retests),
			J("tests_wrong", m->retests_wrong), J("disturbed", m->spoiled),
			J("overruled", m->overruled), J("doubt", m->doubt[0] ? m->doubt : NULL),
			J("zone_write_mibps", m->zone_write_mibps),
			J("zone_read_mibps", m->zone_read_mibps), J("scaling", m->scaling),
			J("device_write_mibps",
			  m->device_write_mibps ? ctl_j_int(m->device_write_mibps) : NULL),
			J("channel_loss",
			  m->channel_loss > 0 ? ctl_j_double(m->channel_loss) : NULL),
			J("channel_doubt", m->channel_doubt[0] ? m->channel_doubt : NULL),
			J("group_write_mibps", ctl_json_u32s(m->group_write_mibps, m->nr_groups)),
			J("group_read_mibps", ctl_json_u32s(m->group_read_mibps, m->nr_groups)),
			J("cached_write_mibps",
			  m->cache_mib ? ctl_j_int(m->cached_write_mibps) : NULL),
			J("cache_mib", m->cache_mib), J("groups_joined", m->nr_joined),
			J("load", zns_max(m->load, 1.0)), J("miss", m->miss),
			J("zones_predicted", m->zones_predicted),
			J("zones_needed", m->zones_needed), J("sets_needed", m->sets_needed),
			J("predicted", predictions(m))),
		k);
}

static int interrupted(struct probe_cmd *k)
{
	uint32_t known = 0;

	for (uint32_t z = 0; k->map.zone_group && z < k->map.nr_zones; z++)
		known += k->map.zone_group[z] != ZNS_PROBE_NONE;
	if (k->verify || k->map.phase == ZNS_PROBE_CALIBRATE)
		fprintf(stderr, "znsctl probe: interrupted; what was written is reset\n");
	else
		fprintf(stderr,
			"znsctl probe: interrupted with %u of %u zones placed; what was written is reset, go on with: znsctl probe %s --resume\n",
			known, k->map.nr_zones, k->reg.path);
	return CTL_FAILED;
}

/*
 * Reports that the measurement was disturbed or the budget too small, which says nothing against
 * the device.
 */
static int refuse(struct probe_cmd *k, int ret, const struct zns_err *err)
{
	if ((ret == -EAGAIN || ret == -EDQUOT) && k->args.json)
		ctl_print_json(ctl_obj(J("uuid", ctl_json_uuid(k->reg.uuid)),
				       J("path", k->reg.path), JB("refused", true)));
	return ctl_fail(k->cmd, err);
}

static int find(struct probe_cmd *k, struct zns_err *err)
{
	ZnsPb__Profile *p = NULL;
	int ret = k->resume ? load_state(k, err) : 0, code = CTL_FAILED;

	if (!ret)
		ret = zns_probe_run(k->dev, &k->par, &k->map, err);
	unshow(k);
	if (ret == -EINTR)
		return interrupted(k);
	/* there is no state from which a run could continue */
	if (ret == -EAGAIN)
		unlink(k->state_path);
	if (!ret)
		ret = probe_to_profile(&k->map, zns_store_profile(k->store), &p, err);
	if (!ret)
		ret = zns_store_set_profile(k->store, p, err);
	if (!ret) {
		unlink(k->state_path);
		code = print_found(k, p);
	}
	if (p)
		zns_pb__profile__free_unpacked(p, NULL);
	return ret ? refuse(k, ret, err) : code;
}

static void say_drift(const struct zns_probe_drift *d, const struct zns_probe_map *m)
{
	if (d->domain_changed)
		printf("drift: %s: several zones together are written %.2f times as fast as one\n",
		       m->one_domain ? "stored as one domain, but zones are independent" :
				       "zones are not independent any more",
		       d->scaling);
	if (d->zones_moved) {
		printf("drift: %u of %u zones tested are not in the stored group:", d->zones_moved,
		       d->zones_checked);
		for (uint32_t i = 0;
		     i < zns_min(d->zones_moved, (uint32_t)ZNS_ARRAY_SIZE(d->moved)); i++)
			printf(" %u", d->moved[i]);
		printf(d->zones_moved > ZNS_ARRAY_SIZE(d->moved) ? " …\n" : "\n");
	}
	if (d->groups_joined)
		printf("drift: %u pairs of groups are on one die, such as %u and %u\n",
		       d->groups_joined, d->joined[0], d->joined[1]);
	if (d->waits_together)
		printf("drift: %u of %u sets of zones wait for something that they should not share\n",
		       d->waits_together, d->sets_checked);
	if (d->channels_moved)
		printf("drift: %u of %u pairs of dies do not share channels as stored\n",
		       d->channels_moved, d->channels_checked);
	if (d->rates_changed)
		printf("drift: one zone is written at %u MiB/s (stored: %u) and read at %u MiB/s (stored: %u)\n",
		       d->zone_write_mibps, m->zone_write_mibps, d->zone_read_mibps,
		       m->zone_read_mibps);
}

static int verify(struct probe_cmd *k, struct zns_err *err)
{
	struct zns_probe_drift d;
	bool drift;
	int ret = probe_from_profile(zns_store_profile(k->store), &k->map, err);

	if (!ret)
		ret = zns_probe_verify(k->dev, &k->par, &k->map, k->sample, &d, err);
	unshow(k);
	if (ret == -EINTR)
		return interrupted(k);
	if (ret)
		return refuse(k, ret, err);
	drift = d.domain_changed || d.zones_moved || d.groups_joined || d.channels_moved ||
		d.rates_changed || d.sets_wrong;
	if (!k->args.json) {
		say_drift(&d, &k->map);
		if (drift)
			printf("the profile no longer holds: run znsctl probe %s\n", k->reg.path);
		else
			printf("no drift: %u groups, %u zones, %u pairs of dies and the rates of a zone agree with the profile\n",
			       d.groups_checked, d.zones_checked, d.channels_checked);
		print_predictions(&k->map);
		print_cost(k);
		return drift ? CTL_FAILED : CTL_OK;
	}
	print_json(
		ctl_obj(J("uuid", ctl_json_uuid(k->reg.uuid)), J("path", k->reg.path),
			J("drift", drift), J("domain_changed", d.domain_changed),
			J("zones_checked", d.zones_checked), J("zones_moved", d.zones_moved),
			J("moved",
			  ctl_json_u32s(d.moved,
					zns_min(d.zones_moved, (uint32_t)ZNS_ARRAY_SIZE(d.moved)))),
			J("groups_checked", d.groups_checked), J("groups_joined", d.groups_joined),
			J("channels_checked", d.channels_checked),
			J("channels_moved", d.channels_moved), J("rates_changed", d.rates_changed),
			J("zone_write_mibps", d.zone_write_mibps),
			J("zone_read_mibps", d.zone_read_mibps), J("scaling", d.scaling),
			J("sets_checked", d.sets_checked), J("sets_wrong", d.sets_wrong),
			J("zones_needed", k->map.zones_needed),
			J("predicted", predictions(&k->map))),
		k);
	return drift ? CTL_FAILED : CTL_OK;
}

static int dry_run(struct probe_cmd *k, struct zns_err *err)
{
	const struct zns_geometry *g = &k->dev->geo;
	cleanup_free struct zns_zone *zones = calloc(g->nr_zones, sizeof(*zones));
	uint32_t empty = 0, data = 0, unit = zns_probe_unit(g, k->par.unit);
	uint64_t budget = budget_of(k, unit);
	char u[16], b[16], w[16];
	int ret = zones ? zns_dev_report(k->dev, 0, g->nr_zones, zones, err) :
			  zns_fail(err, -ENOMEM, "no memory for the zones");

	if (ret)
		return ctl_fail(k->cmd, err);
	for (uint32_t z = 0; z < g->nr_zones; z++) {
		bool readable = !zones[z].conventional && zones[z].state != ZNS_ZONE_OFFLINE;

		empty += readable && zones[z].state == ZNS_ZONE_EMPTY;
		data += readable && zones[z].state != ZNS_ZONE_EMPTY;
	}
	if (k->args.json)
		return ctl_print_json(ctl_obj(J("uuid", ctl_json_uuid(k->reg.uuid)),
					      J("path", k->reg.path), JB("dry_run", true),
					      J("zones_to_write", empty), J("zones_to_read", data),
					      J("unit", unit), J("budget", budget),
					      JB("budget_grows", !k->par.budget)));
	printf("%s: would write %u empty zones, a unit of %s each (%s) and more into some, at most %s in all%s, and reset them; %u zones with data would only be read\n",
	       k->reg.path, empty, zns_format_size(unit, u, sizeof(u)),
	       zns_format_size((uint64_t)empty * unit, w, sizeof(w)),
	       zns_format_size(budget, b, sizeof(b)),
	       k->par.budget ?
		       "" :
		       " at first, and then as much as the tests of what it finds take (--budget limits both)",
	       data);
	return CTL_OK;
}

static int cmd_probe(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct probe_cmd k = { .cmd = cmd, .par = { .stop = &stop } };
	struct sigaction sa = { .sa_handler = on_signal };
	struct zns_err err = ZNS_ERR_INIT;
	cleanup_close int lock = -1;
	const char *unit = NULL;
	uint64_t size;
	int code;
	const struct ctl_opt opts[] = { CTL_FLAG("verify", &k.verify),
					CTL_FLAG("resume", &k.resume),
					CTL_SIZE("budget", &k.par.budget, 1),
					CTL_TEXT("unit", &unit),
					CTL_FLAG("dry-run", &k.dry_run),
					CTL_NUMBER("sample", &k.sample, 1, 1 << 20,
						   "\"%s\" is no number of zones"),
					CTL_FLAG("force", &k.par.force),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &k.args))
		return k.args.code;
	if (unit && (zns_parse_size(unit, &size) || size < 4096 || size > MIB(16) || size % 4096))
		return ctl_usage(cmd, "\"%s\" is no program unit: 4K to 16M, a multiple of 4K",
				 unit);
	if (unit)
		k.par.unit = (uint32_t)size;
	ctl_take_dev(&k.args);
	if (k.args.argc)
		return ctl_usage(cmd, "probe takes one device: \"%s\" is too much", k.args.argv[0]);
	if (k.verify && k.resume)
		return ctl_usage(cmd, "--verify and --resume exclude each other");
	if (k.verify && k.par.force)
		return ctl_usage(cmd, "--verify stores nothing: --force is not for it");
	if (k.sample && !k.verify)
		return ctl_usage(cmd, "--sample goes with --verify");
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	k.par.arg = &k;
	k.par.seed = zns_now_ns();
	k.par.progress = show;
	k.terminal = isatty(STDERR_FILENO);
	k.next_line = k.terminal ? 0 : zns_mono_ns() + FIRST_LINE_NS;
	if (!k.verify)
		k.par.checkpoint = keep_state;
	if (open_all(&k, &lock, &err))
		code = ctl_fail(cmd, &err);
	else if (k.dry_run)
		code = dry_run(&k, &err);
	else
		code = k.verify ? verify(&k, &err) : find(&k, &err);
	zns_probe_fini(&k.map);
	if (k.store)
		zns_store_close(k.store);
	zns_resv_leave(&k.resv, NULL);
	zns_dev_close(k.dev);
	return code;
}

static const struct ctl_cmd command = {
	"probe",
	"[DEV] [OPTIONS]",
	"measure which zones share a die or a channel, and their rates",
	"  --verify        only test a sample against what is stored; exit code 1 if it\n"
	"                  no longer holds\n"
	"  --sample N      test N zones (with --verify)\n"
	"  --resume        go on with an interrupted probe\n"
	"  --force         store what was found although it is doubted\n"
	"  --budget SIZE   write at most so much; without it, what the tests of the\n"
	"                  groups found take, which may be more than the capacity\n"
	"  --unit SIZE     the drive's program unit; default 192K\n"
	"  --dry-run       only say what would be done\n" CTL_DEV_HELP,
	cmd_probe,
};

int main(int argc, char **argv)
{
	char name[] = "znsctl probe";

	if (ctl_begin())
		return CTL_FAILED;
	argv[0] = name;
	return ctl_end(name, cmd_probe(&command, argc, argv));
}
