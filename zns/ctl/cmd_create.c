/* SPDX-License-Identifier: GPL-2.0-only */
/* create: makes a store on a disk, or an emulated device, that is ready for use */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/ctl.h"
#include "zns/emu.h"

/* The parameters of an emulated device: how each is parsed and where its value is stored. */
enum kind {
	NUMBER,
	COUNT,
	LIMIT,
	SIZE,
	SIZE32,
	MEBIBYTES,
	RATE,
	RATE_OR_NONE,
	MAP,
	SWITCH,
	PREALLOC,
	SPARSE
};

static const struct param {
	const char *name;
	enum kind kind;
	size_t at; /* offset in struct zns_emu_params */
} params[] = {
#define AT(field) offsetof(struct zns_emu_params, field)
	{ "channels", COUNT, AT(channels) },
	{ "ways", COUNT, AT(ways) },
	{ "zones", COUNT, AT(nr_zones) },
	{ "zone-size", SIZE, AT(zone_size) },
	{ "zone-capacity", SIZE, AT(zone_capacity) },
	{ "block-size", SIZE32, AT(block_size) },
	{ "max-open", LIMIT, AT(max_open) },
	{ "max-active", LIMIT, AT(max_active) },
	{ "map", MAP, AT(map) },
	{ "timing", SWITCH, AT(timing) },
	{ "die-write-bw", RATE, AT(die_write_mibps) },
	{ "die-read-bw", RATE, AT(die_read_mibps) },
	{ "channel-bw", RATE, AT(channel_mibps) },
	{ "program-unit", SIZE32, AT(program_unit) },
	{ "buffer-units", NUMBER, AT(buffer_units) },
	{ "command-us", NUMBER, AT(command_us) },
	{ "reset-us", NUMBER, AT(reset_us) },
	{ "controller-bw", RATE_OR_NONE, AT(controller_mibps) },
	{ "gc-every", MEBIBYTES, AT(gc_every_mib) },
	{ "gc-stall-ms", NUMBER, AT(gc_stall_ms) },
	{ "cache", MEBIBYTES, AT(cache_mib) },
	{ "cache-bw", RATE_OR_NONE, AT(cache_mibps) },
	{ "cache-backed", SWITCH, AT(cache_backed) },
	{ "odd-dies", NUMBER, AT(odd_dies) },
	{ "odd-time", NUMBER, AT(odd_pct) },
	{ "planes", COUNT, AT(planes) },
	{ "small-dies", NUMBER, AT(small_dies) },
	{ "small-zones", NUMBER, AT(small_zones) },
	{ "row", COUNT, AT(row) },
	{ "zone-dies", COUNT, AT(zone_dies) },
	{ "zone-step", COUNT, AT(zone_step) },
	{ "throttle-after", MEBIBYTES, AT(heat_mib) },
	{ "throttle-cool", RATE, AT(cool_mibps) },
	{ "throttle-time", NUMBER, AT(throttle_pct) },
	{ "prealloc", PREALLOC, AT(prealloc) },
	{ "sparse", SPARSE, AT(prealloc) },
};

enum {
	OPT_PROFILE = OPT_OWN,
	OPT_NO_FORMAT,
	OPT_DEFAULT,
	OPT_FORCE,
	OPT_ENCRYPT,
	OPT_SIZE,
	OPT_PREALLOCATE,
	OPT_VOLATILE,
	OPT_RATE,
	OPT_PARAM
};

static const char *const maps[] = { "interleaved", "permuted", "shared" };

static int set_map(struct zns_emu_params *p, const char *v)
{
	if (!strncmp(v, "permuted:", 9)) {
		p->map = ZNS_EMU_MAP_PERMUTED;
		return zns_parse_number(v + 9, 0, UINT64_MAX, &p->map_seed);
	}
	p->map = strcmp(v, maps[ZNS_EMU_MAP_SHARED]) ? ZNS_EMU_MAP_INTERLEAVED : ZNS_EMU_MAP_SHARED;
	return strcmp(v, maps[p->map]) ? -EINVAL : 0;
}

static const char *option_name(const struct option *opts, int c)
{
	while (opts->name && opts->val != c)
		opts++;
	return opts->name ? opts->name : "?";
}

/* Returns -EINVAL if @v is not a valid value. */
static int set_param(struct zns_emu_params *p, const struct param *q, const char *v)
{
	static const char *const prealloc[] = { "allocated", "written", "sparse" };
	void *at = (char *)p + q->at;
	uint64_t n = 0;
	int ret;

	switch (q->kind) {
	case SIZE:
		return zns_parse_size(v, at);
	case RATE_OR_NONE:
		*(uint32_t *)at = 0;
		return strcmp(v, "none") ? zns_parse_mibps(v, at) : 0;
	case RATE:
		return zns_parse_mibps(v, at);
	case MAP:
		return set_map(p, v);
	case SWITCH:
		*(bool *)at = !strcmp(v, "on");
		return *(bool *)at || !strcmp(v, "off") ? 0 : -EINVAL;
	case SPARSE:
		v = "sparse";
		/* fall through */
	case PREALLOC:
		for (p->prealloc = 0; strcmp(v, prealloc[p->prealloc]);)
			if (++p->prealloc == ZNS_ARRAY_SIZE(prealloc))
				return -EINVAL;
		return 0;
	case SIZE32:
	case MEBIBYTES:
		ret = zns_parse_size(v, &n);
		if (!ret && q->kind == MEBIBYTES && n % MIB(1))
			ret = -EINVAL;
		n >>= q->kind == MEBIBYTES ? 20 : 0;
		break;
	default:
		ret = zns_parse_number(v, q->kind == COUNT,
				       q->kind == NUMBER ? UINT32_MAX : 1u << 24, &n);
	}
	if (ret || n > UINT32_MAX)
		return -EINVAL;
	*(uint32_t *)at = (uint32_t)n;
	return 0;
}

struct create {
	const char *profile;
	bool format, dflt, force, capacity_set;
	/* options of a store on a disk */
	bool disk, preallocate, is_volatile;
	uint64_t size;
	uint32_t write_mibps, read_mibps; /* 0: measure it */
	/*
	 * name of the last option that only an emulated device, or only a store on a disk, has;
	 * NULL: none given
	 */
	const char *of_emu, *of_disk;
	char path[256];
	uint8_t uuid[ZNS_UUID_LEN];
	struct ctl_encrypt encrypt;
	struct zns_emu_params p;
};

static int fill(struct create *k, uint32_t **die, struct zns_err *err)
{
	struct ctl_map map = { 0 };
	struct zns_dev *dev = NULL;
	char id[ZNS_UUID_STR];
	int ret = zns_dev_open(k->path, 0, &dev, err);

	if (ret)
		return ret;
	zns_emu_info(dev, &k->p, k->uuid);
	*die = calloc(k->p.nr_zones, sizeof(**die));
	ret = *die ? zns_emu_zone_map(dev, *die, err) :
		     zns_fail(err, -ENOMEM, "no memory for the map of zones");
	if (!ret && k->disk && !k->write_mibps)
		ret = ctl_measure_disk(dev, &k->write_mibps, &k->read_mibps, err);
	map.zone_write_mibps = k->write_mibps;
	map.zone_read_mibps = k->disk && !k->read_mibps ? k->write_mibps : k->read_mibps;
	if (!ret && k->format)
		ret = ctl_format_device(dev, &map, true, k->uuid, err);
	if (!ret && k->format)
		ret = ctl_encrypt_store(dev, &k->encrypt, err);
	zns_dev_close(dev);
	if (!ret)
		ret = zns_register(k->uuid, k->path, err);
	if (!ret && k->encrypt.on)
		ret = zns_register_key(k->uuid, k->encrypt.spec, err);
	if (!ret && k->encrypt.on)
		ret = zns_register_flags(k->uuid, true, false, err);
	if (!ret && k->dflt)
		ret = zns_config_set("default-device", zns_uuid_format(k->uuid, id), err);
	return ret;
}

static int make(struct create *k, uint32_t **die, struct zns_err *err)
{
	const char *file = zns_spec_path(k->path);
	cleanup_close int lock = -1;
	struct stat st;
	bool there = !stat(file, &st);
	int ret = 0;

	/* --force replaces a device: no broker may use the old one */
	if (k->force && there)
		ret = ctl_claim_device(k->path, &lock, err);
	if (!ret)
		ret = zns_emu_create(file, &k->p, k->force, err);
	if (ret)
		return ret;
	ret = fill(k, die, err);
	if (ret && !there)
		/* remove the file, else the next attempt would be refused because it exists */
		unlink(file);
	return ret;
}

static uint64_t usable(const struct zns_emu_params *p)
{
	return (p->nr_zones - p->log_zones) * p->zone_capacity;
}

static int print_store(const struct create *k, bool json)
{
	char id[ZNS_UUID_STR], size[16];
	uint32_t read = k->read_mibps ? k->read_mibps : k->write_mibps;
	uint64_t room;

	zns_uuid_format(k->uuid, id);
	if (json)
		return ctl_print_json(
			ctl_obj(J("uuid", id), J("path", (const char *)k->path),
				J("formatted", k->format), J("default", k->dflt),
				J("bytes", usable(&k->p)), J("zones", k->p.nr_zones),
				J("zone_size", k->p.zone_size), J("block_size", k->p.block_size),
				J("write_mibps", k->write_mibps), J("read_mibps", read)));
	printf("made %s: %s for checkpoints, on a disk that writes %u MiB/s and reads %u MiB/s\n",
	       k->path, zns_format_size(usable(&k->p), size, sizeof(size)), k->write_mibps, read);
	printf("%s as %s%s\n",
	       k->format ? "formatted and registered" : "registered, not formatted,", id,
	       k->dflt ? ", the default device" : "");
	if (ctl_is_limited(k->path, 0, &room))
		printf("LIMITED: the file system below has room for %s of it only\n",
		       zns_format_size(room, size, sizeof(size)));
	return CTL_OK;
}

static int print_made(const struct create *k, const uint32_t *die, bool json)
{
	const struct zns_emu_params *p = &k->p;
	char id[ZNS_UUID_STR], zs[16], zc[16], total[16];
	struct json_object *j;

	zns_uuid_format(k->uuid, id);
	if (!json) {
		printf("made %s: %u zones of %s (%s usable), %s, %u channels x %u ways, %s map\n",
		       k->path, p->nr_zones, zns_format_size(p->zone_size, zs, sizeof(zs)),
		       zns_format_size(p->zone_capacity, zc, sizeof(zc)),
		       zns_format_size(p->nr_zones * p->zone_capacity, total, sizeof(total)),
		       p->channels, p->ways, maps[p->map]);
		printf("%s as %s%s\n",
		       k->format ? "formatted and registered" : "registered, not formatted,", id,
		       k->dflt ? ", the default device" : "");
		return CTL_OK;
	}
	j = ctl_obj(J("uuid", id), J("path", (const char *)k->path), J("formatted", k->format),
		    J("default", k->dflt), J("zones", p->nr_zones), J("zone_size", p->zone_size),
		    J("zone_capacity", p->zone_capacity), J("block_size", p->block_size),
		    J("max_open", p->max_open), J("max_active", p->max_active),
		    J("channels", p->channels), J("ways", p->ways), J("map", maps[p->map]));
	if (p->map == ZNS_EMU_MAP_PERMUTED)
		json_object_object_add(j, "map_seed", ctl_j_uint(p->map_seed));
	return ctl_print_json(ctl_json_join(
		j, ctl_obj(J("timing", p->timing), J("die_write_mibps", p->die_write_mibps),
			   J("die_read_mibps", p->die_read_mibps),
			   J("channel_mibps", p->channel_mibps), J("program_unit", p->program_unit),
			   J("buffer_units", p->buffer_units), J("command_us", p->command_us),
			   J("reset_us", p->reset_us), J("controller_mibps", p->controller_mibps),
			   J("gc_every_mib", p->gc_every_mib), J("gc_stall_ms", p->gc_stall_ms),
			   J("cache_mib", p->cache_mib), J("cache_mibps", p->cache_mibps),
			   JB("cache_backed", p->cache_backed), J("odd_dies", p->odd_dies),
			   J("odd_pct", p->odd_pct), J("planes", p->planes),
			   J("small_dies", p->small_dies), J("small_zones", p->small_zones),
			   J("row", p->row), J("zone_dies", p->zone_dies),
			   J("zone_step", p->zone_step), J("heat_mib", p->heat_mib),
			   J("cool_mibps", p->cool_mibps), J("throttle_pct", p->throttle_pct),
			   J("zone_die", ctl_json_u32s(die, p->nr_zones)))));
}

static bool holds_store(const char *path)
{
	struct zns_err err = ZNS_ERR_INIT;
	char spec[PATH_MAX];
	struct zns_dev *dev;

	if (snprintf(spec, sizeof(spec), "file:%s", path) >= (int)sizeof(spec) ||
	    zns_dev_open(spec, ZNS_DEV_RDONLY, &dev, &err))
		return false;
	zns_dev_close(dev);
	return true;
}

/* Finds the store's size. Without --size a store takes the whole partition or volume. */
static int size_of(const char *path, uint64_t *size, struct zns_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st = { 0 };
	off_t end = 0;

	if (fd < 0 && errno != ENOENT)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	if (fd < 0 && !strncmp(path, "/dev/", 5))
		return zns_fail(err, -ENOENT, "there is no device %s", path);
	if (fd >= 0 && !fstat(fd, &st) && S_ISBLK(st.st_mode))
		end = lseek(fd, 0, SEEK_END);
	else if (S_ISREG(st.st_mode) && st.st_size && holds_store(path))
		return zns_fail(
			err, -EEXIST,
			"%s exists: `znsctl register file:%s` uses the store in it; a new one takes --size SIZE and --force",
			path, path);
	if (end <= 0)
		return zns_fail(err, -EINVAL, "how large shall %s be? Say --size SIZE", path);
	*size = (uint64_t)end;
	return 0;
}

static int shape_store(struct create *k, struct zns_err *err)
{
	int ret = k->size ? 0 : size_of(zns_spec_path(k->path), &k->size, err);

	if (!ret)
		ret = zns_file_params(k->size, &k->p, err);
	if (k->preallocate)
		k->p.prealloc = ZNS_EMU_ALLOCATED;
	k->p.is_volatile = k->is_volatile;
	return ret;
}

/* Handles an option that only one kind of device has. Returns -EINVAL if @optarg is not valid. */
static int take_own(struct create *k, int c, const struct param *q, const char *name, bool pass)
{
	if (q || c == OPT_PROFILE)
		k->of_emu = name;
	else if (c == OPT_SIZE || c == OPT_PREALLOCATE || c == OPT_VOLATILE || c == OPT_RATE)
		k->of_disk = name;
	switch (c) {
	case OPT_PROFILE:
		k->profile = optarg;
		return 0;
	case OPT_PREALLOCATE:
		k->preallocate = true;
		return 0;
	case OPT_VOLATILE:
		k->is_volatile = true;
		return 0;
	case OPT_SIZE:
		return zns_parse_size(optarg, &k->size);
	case OPT_RATE:
		return zns_parse_mibps(optarg, &k->write_mibps);
	default:
		return pass && q ? set_param(&k->p, q, optarg) : 0;
	}
}

static int cmd_create(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option own[] = {
		{ "profile", required_argument, NULL, OPT_PROFILE },
		{ "no-format", no_argument, NULL, OPT_NO_FORMAT },
		{ "default", no_argument, NULL, OPT_DEFAULT },
		{ "force", no_argument, NULL, OPT_FORCE },
		{ "encrypt", required_argument, NULL, OPT_ENCRYPT },
		{ "size", required_argument, NULL, OPT_SIZE },
		{ "preallocate", no_argument, NULL, OPT_PREALLOCATE },
		{ "volatile", no_argument, NULL, OPT_VOLATILE },
		{ "rate", required_argument, NULL, OPT_RATE },
		CTL_COMMON_OPTIONS,
		CTL_END_OPTIONS,
	};
	struct option opts[ZNS_ARRAY_SIZE(params) + ZNS_ARRAY_SIZE(own)];
	struct create k = { .format = true };
	cleanup_free uint32_t *die = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool zone_size_set = false;
	const char *key = NULL;
	int c, pass;

	for (c = 0; c < (int)ZNS_ARRAY_SIZE(params); c++)
		opts[c] = (struct option){ params[c].name,
					   params[c].kind == SPARSE ? no_argument :
								      required_argument,
					   NULL, OPT_PARAM + c };
	memcpy(opts + c, own, sizeof(own));
	/*
	 * parse the options twice: a preset must be applied before single parameters, wherever it
	 * stands on the command line
	 */
	for (pass = 0; pass < 2; pass++) {
		optind = 0;
		while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
			const struct param *q = c >= OPT_PARAM ? &params[c - OPT_PARAM] : NULL;

			if (c == OPT_NO_FORMAT)
				k.format = false;
			else if (c == OPT_DEFAULT)
				k.dflt = true;
			else if (c == OPT_FORCE)
				k.force = true;
			else if (c == OPT_ENCRYPT)
				key = optarg;
			else if (take_own(&k, c, q, option_name(opts, c), pass))
				return ctl_usage(cmd, "\"%s\" is no value for --%s", optarg,
						 option_name(opts, c));
			k.capacity_set |= q && q->at == AT(zone_capacity);
			zone_size_set |= q && q->at == AT(zone_size);
		}
		if (c == -2)
			return args.code;
		if (pass)
			break;
		zns_emu_default_params(&k.p);
		if (k.profile && zns_emu_profile(k.profile, &k.p, &err)) {
			ctl_fail(cmd, &err);
			return err.code == -ENOENT ? CTL_USAGE : CTL_FAILED;
		}
	}
	/* if only a zone size was given, the zone capacity equals it */
	if (zone_size_set && !k.capacity_set)
		k.p.zone_capacity = k.p.zone_size;
	if (args.argc != 1 || !zns_spec_in_file(args.argv[0]))
		return ctl_usage(cmd, "one device is wanted, as file:PATH or emu:PATH");
	k.disk = zns_spec_on_disk(args.argv[0]);
	if (k.disk ? k.of_emu : k.of_disk)
		return ctl_usage(cmd,
				 k.disk ? "--%s is for emu:PATH, a store in a file has none of it" :
					  "--%s is for file:PATH",
				 k.disk ? k.of_emu : k.of_disk);
	if (key && !k.format)
		return ctl_usage(
			cmd,
			"--encrypt is for a formatted device: leave --no-format out, or give it to format");
	if (zns_canonical_spec(args.argv[0], k.path, sizeof(k.path), &err) ||
	    (k.disk && shape_store(&k, &err)) || ctl_encrypt_load(key, &k.encrypt, &err) ||
	    make(&k, &die, &err))
		return ctl_fail(cmd, &err);
	return k.disk ? print_store(&k, args.json) : print_made(&k, die, args.json);
}

const struct ctl_cmd command_create = {
	"create",
	"file:PATH --size SIZE|emu:PATH [OPTIONS]",
	"make a store on a disk, or an emulated zoned device",
	"of file:PATH, a file, partition or volume:\n"
	"  --size SIZE     as 200G; without it all of a partition or volume\n"
	"  --preallocate   take all of the space now, instead of with each checkpoint\n"
	"  --rate MIBPS    how fast the disk is, instead of measuring it\n"
	"  --volatile      allow a file in memory, which a reboot ends\n"
	"of emu:PATH:\n"
	"  --profile NAME          start from a preset\n"
	"  --channels N, --ways N  dies = channels x ways\n"
	"  --zones N, --zone-size SIZE, --zone-capacity SIZE, --block-size N\n"
	"  --max-open N, --max-active N   0: no limit\n"
	"  --map interleaved|permuted:SEED|shared   which die a zone sits on\n"
	"  --timing on|off         the NAND timing model\n"
	"  --die-write-bw MIBPS, --die-read-bw MIBPS, --channel-bw MIBPS\n"
	"  --program-unit SIZE, --buffer-units N, --command-us N, --reset-us N,\n"
	"  --controller-bw MIBPS|none,\n"
	"  --gc-every SIZE, --gc-stall-ms N       the timing model's other parameters\n"
	"  --cache SIZE, --cache-bw MIBPS|none    a write cache in front of the dies\n"
	"  --cache-backed on|off                  by capacitors: no flush empties it\n"
	"  --odd-dies N, --odd-time PERCENT       so many dies take another time\n"
	"  --planes N                             of a die: read alone, program as one\n"
	"  --small-dies N, --small-zones N        so many dies have that many zones only\n"
	"  --row N                                zones in a row that are on one die\n"
	"  --zone-dies N, --zone-step N           dies of a zone, from each N-th on\n"
	"  --throttle-after SIZE, --throttle-cool MIBPS, --throttle-time PERCENT\n"
	"                  a drive that gets hot\n"
	"  --prealloc allocated|written|sparse    the file's space; --sparse: the last\n"
	"of both:\n"
	"  --no-format     only create and register\n"
	"  --encrypt KEYSPEC   its checkpoints; file:PATH or keyring:DESCRIPTION\n"
	"  --default       make it the default device\n"
	"  --force         replace an existing device\n",
	cmd_create,
};
