// SPDX-License-Identifier: GPL-2.0-only
/* create: an emulated device, ready for use */
#include <string.h>
#include <sys/stat.h>
#include "ctl.h"
#include "zns/emu.h"

enum {
	OPT_PROFILE = OPT_OWN, OPT_CHANNELS, OPT_WAYS, OPT_ZONES, OPT_ZONE_SIZE, OPT_ZONE_CAPACITY, OPT_BLOCK_SIZE,
	OPT_MAX_OPEN, OPT_MAX_ACTIVE, OPT_MAP, OPT_TIMING, OPT_DIE_WRITE, OPT_DIE_READ, OPT_CHANNEL_BW, OPT_NO_FORMAT,
	OPT_DEFAULT, OPT_FORCE, OPT_PROGRAM_UNIT, OPT_BUFFER_UNITS, OPT_COMMAND_US, OPT_RESET_US, OPT_CONTROLLER_BW, OPT_GC_EVERY,
	OPT_GC_STALL, OPT_PREALLOC, OPT_SPARSE, OPT_ENCRYPT,
};

static const struct option opts[] = {
	{ "profile", required_argument, NULL, OPT_PROFILE },
	{ "channels", required_argument, NULL, OPT_CHANNELS },
	{ "ways", required_argument, NULL, OPT_WAYS },
	{ "zones", required_argument, NULL, OPT_ZONES },
	{ "zone-size", required_argument, NULL, OPT_ZONE_SIZE },
	{ "zone-capacity", required_argument, NULL, OPT_ZONE_CAPACITY },
	{ "block-size", required_argument, NULL, OPT_BLOCK_SIZE },
	{ "max-open", required_argument, NULL, OPT_MAX_OPEN },
	{ "max-active", required_argument, NULL, OPT_MAX_ACTIVE },
	{ "map", required_argument, NULL, OPT_MAP },
	{ "timing", required_argument, NULL, OPT_TIMING },
	{ "die-write-bw", required_argument, NULL, OPT_DIE_WRITE },
	{ "die-read-bw", required_argument, NULL, OPT_DIE_READ },
	{ "channel-bw", required_argument, NULL, OPT_CHANNEL_BW },
	{ "no-format", no_argument, NULL, OPT_NO_FORMAT },
	{ "default", no_argument, NULL, OPT_DEFAULT },
	{ "force", no_argument, NULL, OPT_FORCE },
	{ "program-unit", required_argument, NULL, OPT_PROGRAM_UNIT },
	{ "buffer-units", required_argument, NULL, OPT_BUFFER_UNITS },
	{ "command-us", required_argument, NULL, OPT_COMMAND_US },
	{ "reset-us", required_argument, NULL, OPT_RESET_US },
	{ "controller-bw", required_argument, NULL, OPT_CONTROLLER_BW },
	{ "gc-every", required_argument, NULL, OPT_GC_EVERY },
	{ "gc-stall-ms", required_argument, NULL, OPT_GC_STALL },
	{ "prealloc", required_argument, NULL, OPT_PREALLOC },
	{ "sparse", no_argument, NULL, OPT_SPARSE },
	{ "encrypt", required_argument, NULL, OPT_ENCRYPT },
	CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
};

static uint32_t *model_field(struct zns_emu_params *p, int c)
{
	switch (c) {
	case OPT_PROGRAM_UNIT:
		return &p->program_unit;
	case OPT_BUFFER_UNITS:
		return &p->buffer_units;
	case OPT_COMMAND_US:
		return &p->command_us;
	case OPT_RESET_US:
		return &p->reset_us;
	case OPT_GC_EVERY:
		return &p->gc_every_mib;
	default:
		return &p->gc_stall_ms;
	}
}

/* Of the timing model alone, and where the file's space comes from. */
static int set_model(struct zns_emu_params *p, int c, const char *v)
{
	static const char *const prealloc[] = { "allocated", "written", "sparse" };
	uint64_t n = 0;
	int ret;

	switch (c) {
	case OPT_SPARSE:
		p->prealloc = ZNS_EMU_SPARSE;
		return 0;
	case OPT_PREALLOC:
		for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(prealloc); i++) {
			if (strcmp(v, prealloc[i]))
				continue;
			p->prealloc = i;
			return 0;
		}
		return -EINVAL;
	case OPT_CONTROLLER_BW:
		p->controller_mibps = 0;
		return strcmp(v, "none") ? zns_parse_mibps(v, &p->controller_mibps) : 0;
	case OPT_PROGRAM_UNIT:
	case OPT_GC_EVERY:
		ret = zns_parse_size(v, &n);
		if (!ret && (c == OPT_GC_EVERY ? n % MIB(1) || n >> 20 > UINT32_MAX : n > UINT32_MAX))
			ret = -EINVAL;
		break;
	default:
		ret = ctl_number(v, 0, UINT32_MAX, &n);
	}
	if (ret)
		return ret;
	*model_field(p, c) = c == OPT_GC_EVERY ? n >> 20 : n;
	return 0;
}

/* 0, or -EINVAL: @v is no value for option @c. */
static int set_param(struct zns_emu_params *p, int c, const char *v)
{
	uint64_t n = 0;
	int ret = 0;

	if (c >= OPT_PROGRAM_UNIT)
		return set_model(p, c, v);
	switch (c) {
	case OPT_ZONE_SIZE:
		return zns_parse_size(v, &p->zone_size);
	case OPT_ZONE_CAPACITY:
		return zns_parse_size(v, &p->zone_capacity);
	case OPT_DIE_WRITE:
		return zns_parse_mibps(v, &p->die_write_mibps);
	case OPT_DIE_READ:
		return zns_parse_mibps(v, &p->die_read_mibps);
	case OPT_CHANNEL_BW:
		return zns_parse_mibps(v, &p->channel_mibps);
	case OPT_TIMING:
		p->timing = !strcmp(v, "on");
		return p->timing || !strcmp(v, "off") ? 0 : -EINVAL;
	case OPT_MAP:
		if (!strcmp(v, "interleaved"))
			p->map = ZNS_EMU_MAP_INTERLEAVED;
		else if (!strcmp(v, "shared"))
			p->map = ZNS_EMU_MAP_SHARED;
		else if (!strncmp(v, "permuted:", 9) && !ctl_number(v + 9, 0, UINT64_MAX, &p->map_seed))
			p->map = ZNS_EMU_MAP_PERMUTED;
		else
			return -EINVAL;
		return 0;
	case OPT_BLOCK_SIZE:
		ret = zns_parse_size(v, &n);
		p->block_size = n <= UINT32_MAX ? (uint32_t)n : 0;
		return ret;
	}
	ret = ctl_number(v, c != OPT_MAX_OPEN && c != OPT_MAX_ACTIVE, 1u << 24, &n);
	if (ret)
		return ret;
	switch (c) {
	case OPT_CHANNELS:
		p->channels = n;
		break;
	case OPT_WAYS:
		p->ways = n;
		break;
	case OPT_ZONES:
		p->nr_zones = n;
		break;
	case OPT_MAX_OPEN:
		p->max_open = n;
		break;
	case OPT_MAX_ACTIVE:
		p->max_active = n;
		break;
	}
	return 0;
}

struct create {
	const char *profile;
	bool format, dflt, force, capacity_set;
	char path[256];
	uint8_t uuid[ZNS_UUID_LEN];
	struct ctl_encrypt encrypt;
	struct zns_emu_params p;
};

static int make(struct create *k, uint32_t **die, struct zns_err *err)
{
	const struct ctl_map map = { 0 };
	cleanup_close int lock = -1;
	struct zns_dev *dev = NULL;
	char id[ZNS_UUID_STR];
	struct stat st;
	int ret;

	/* Replacing one: not under a broker. */
	if (k->force && !stat(k->path + 4, &st)) {
		ret = ctl_claim_device(k->path, &lock, err);
		if (ret)
			return ret;
	}
	ret = zns_emu_create(k->path + 4, &k->p, k->force, err);
	if (!ret)
		ret = zns_dev_open(k->path, 0, &dev, err);
	if (ret)
		return ret;
	zns_emu_info(dev, &k->p, k->uuid);
	*die = calloc(k->p.nr_zones, sizeof(**die));
	ret = *die ? zns_emu_zone_map(dev, *die, err) : zns_fail_sys(err, -ENOMEM, "zone map");
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

static int print_made(const struct create *k, const uint32_t *die, bool json)
{
	static const char *const maps[] = { "interleaved", "permuted", "shared" };
	const struct zns_emu_params *p = &k->p;
	char id[ZNS_UUID_STR], zs[16], zc[16], total[16];
	struct json_object *j;

	zns_uuid_format(k->uuid, id);
	if (!json) {
		printf("made %s: %u zones of %s (%s usable), %s, %u channels x %u ways, %s map\n", k->path, p->nr_zones,
		       zns_format_size(p->zone_size, zs, sizeof(zs)), zns_format_size(p->zone_capacity, zc, sizeof(zc)),
		       zns_format_size(p->nr_zones * p->zone_capacity, total, sizeof(total)), p->channels, p->ways,
		       maps[p->map]);
		printf("%s as %s%s\n", k->format ? "formatted and registered" : "registered, not formatted,", id,
		       k->dflt ? ", the default device" : "");
		return CTL_OK;
	}
	j = json_object_new_object();
	json_object_object_add(j, "uuid", json_object_new_string(id));
	json_object_object_add(j, "path", json_object_new_string(k->path));
	json_object_object_add(j, "formatted", json_object_new_boolean(k->format));
	json_object_object_add(j, "default", json_object_new_boolean(k->dflt));
	json_object_object_add(j, "zones", json_object_new_int64(p->nr_zones));
	json_object_object_add(j, "zone_size", json_object_new_int64(p->zone_size));
	json_object_object_add(j, "zone_capacity", json_object_new_int64(p->zone_capacity));
	json_object_object_add(j, "block_size", json_object_new_int64(p->block_size));
	json_object_object_add(j, "max_open", json_object_new_int64(p->max_open));
	json_object_object_add(j, "max_active", json_object_new_int64(p->max_active));
	json_object_object_add(j, "channels", json_object_new_int64(p->channels));
	json_object_object_add(j, "ways", json_object_new_int64(p->ways));
	json_object_object_add(j, "map", json_object_new_string(maps[p->map]));
	if (p->map == ZNS_EMU_MAP_PERMUTED)
		json_object_object_add(j, "map_seed", json_object_new_uint64(p->map_seed));
	json_object_object_add(j, "timing", json_object_new_boolean(p->timing));
	json_object_object_add(j, "die_write_mibps", json_object_new_int64(p->die_write_mibps));
	json_object_object_add(j, "die_read_mibps", json_object_new_int64(p->die_read_mibps));
	json_object_object_add(j, "channel_mibps", json_object_new_int64(p->channel_mibps));
	json_object_object_add(j, "program_unit", json_object_new_int64(p->program_unit));
	json_object_object_add(j, "buffer_units", json_object_new_int64(p->buffer_units));
	json_object_object_add(j, "command_us", json_object_new_int64(p->command_us));
	json_object_object_add(j, "reset_us", json_object_new_int64(p->reset_us));
	json_object_object_add(j, "controller_mibps", json_object_new_int64(p->controller_mibps));
	json_object_object_add(j, "gc_every_mib", json_object_new_int64(p->gc_every_mib));
	json_object_object_add(j, "gc_stall_ms", json_object_new_int64(p->gc_stall_ms));
	json_object_object_add(j, "zone_die", ctl_json_u32s(die, p->nr_zones));
	return ctl_print_json(j);
}

static int cmd_create(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct create k = { .format = true };
	cleanup_free uint32_t *die = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool zone_size_set = false;
	const char *key = NULL;
	int c, pass;

	/* Twice: a preset comes first wherever it stands. */
	for (pass = 0; pass < 2; pass++) {
		optind = 0;
		while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
			if (c == OPT_PROFILE)
				k.profile = optarg;
			else if (c == OPT_NO_FORMAT)
				k.format = false;
			else if (c == OPT_DEFAULT)
				k.dflt = true;
			else if (c == OPT_FORCE)
				k.force = true;
			else if (c == OPT_ENCRYPT)
				key = optarg;
			else if (pass && set_param(&k.p, c, optarg))
				return ctl_usage(cmd, "\"%s\" is no value for --%s", optarg, opts[c - OPT_OWN].name);
			k.capacity_set |= c == OPT_ZONE_CAPACITY;
			zone_size_set |= c == OPT_ZONE_SIZE;
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
	/* A zone size alone means zones without a gap. */
	if (zone_size_set && !k.capacity_set)
		k.p.zone_capacity = k.p.zone_size;
	if (args.argc != 1 || strncmp(args.argv[0], "emu:", 4))
		return ctl_usage(cmd, "one device is wanted, as emu:PATH");
	if (key && !k.format)
		return ctl_usage(cmd, "--encrypt is for a formatted device: leave --no-format out, or give it to format");
	if (zns_canonical_spec(args.argv[0], k.path, sizeof(k.path), &err) || ctl_encrypt_load(key, &k.encrypt, &err) || make(&k, &die, &err))
		return ctl_fail(cmd, &err);
	return print_made(&k, die, args.json);
}

const struct ctl_cmd command_create = {
	"create", "emu:PATH [OPTIONS]", "make an emulated zoned device, format and register it",
	"  --profile NAME          start from a preset\n"
	"  --channels N, --ways N  dies = channels x ways\n"
	"  --zones N, --zone-size SIZE, --zone-capacity SIZE, --block-size N\n"
	"  --max-open N, --max-active N   0: no limit\n"
	"  --map interleaved|permuted:SEED|shared   which die a zone sits on\n"
	"  --timing on|off         the NAND timing model\n"
	"  --die-write-bw MIBPS, --die-read-bw MIBPS, --channel-bw MIBPS\n"
	"  --program-unit SIZE, --buffer-units N, --command-us N, --reset-us N, --controller-bw MIBPS|none,\n"
	"  --gc-every SIZE, --gc-stall-ms N       the timing model's other parameters\n"
	"  --prealloc allocated|written|sparse    how the file's space is got; --sparse is short for the last\n"
	"  --no-format     only create and register\n"
	"  --encrypt KEYSPEC   its checkpoints will be encrypted: file:PATH or keyring:DESCRIPTION\n"
	"  --default       make it the default device\n"
	"  --force         replace an existing device\n",
	cmd_create,
};
