/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads and writes the header block, and computes the layout from it. A header is untrusted until
 * all of it was checked. */
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "emu_priv.h"
#include "zns/config.h"

void emu_layout_of(const struct zns_emu_params *p, struct emu_layout *lay)
{
	uint32_t zones = p->table_off ? p->table_zones : p->nr_zones;
	uint64_t table = zns_align_up((uint64_t)zones * sizeof(struct emu_entry), EMU_BLOCK);
	uint64_t units = (uint64_t)p->channels * p->ways * emu_planes(p) + p->channels;
	uint64_t model = 0;

	if (p->timing)
		model = sizeof(struct emu_model) + p->nr_zones * sizeof(struct emu_model_zone) +
			units * sizeof(struct emu_cal);

	lay->mirror_off = EMU_BLOCK + table;
	lay->model_off = lay->mirror_off + table;
	lay->cache_off = lay->model_off + model;
	if (p->timing && p->cache_mib)
		model += sizeof(struct emu_cache) + emu_cache_units(p) * sizeof(uint64_t);
	lay->heat_off = lay->model_off + model;
	if (p->timing && p->heat_mib)
		model += sizeof(struct emu_heat);
	lay->live_len = zns_align_up(lay->model_off + model, 65536);
	lay->live_off = p->table_off ? p->table_off : EMU_LIVE_OFF;
	lay->dur_off = lay->live_off + lay->live_len;
	lay->dur_len = table;
	lay->data_off = p->table_off ? p->data_off :
				       zns_align_up(lay->dur_off + lay->dur_len, EMU_DATA_ALIGN);
	lay->stride = zns_align_up(p->zone_capacity, EMU_BLOCK);
	lay->log_stride = zns_align_up(p->log_capacity, EMU_BLOCK);
	/* cannot overflow: there are at most 2^20 zones of 2^40 bytes */
	lay->data_end = lay->data_off + lay->log_stride * p->log_zones +
			lay->stride * (p->nr_zones - p->log_zones);
	lay->total = zns_max(lay->data_end, lay->dur_off + lay->dur_len);
}

static uint64_t file_hash(const struct emu_header *h, const struct emu_header_file *f)
{
	return zns_hash_seeded(f, offsetof(struct emu_header_file, hash), h->hash);
}

static uint64_t tables_hash(const struct emu_header_file *f, const struct emu_header_tables *t)
{
	return zns_hash_seeded(t, offsetof(struct emu_header_tables, hash), f->hash);
}

static uint64_t more_hash(const struct emu_header *h, const struct emu_header_more *m)
{
	return zns_hash_seeded(m, offsetof(struct emu_header_more, hash), h->hash);
}

static bool has_more(const struct emu_header_more *m)
{
	const struct emu_header_more none = { 0 };

	return memcmp(m, &none, offsetof(struct emu_header_more, hash)) != 0;
}

static uint32_t header_bytes(const struct zns_emu_params *p, const struct emu_header_more *m)
{
	return (uint32_t)(sizeof(struct emu_header) +
			  (p->log_zones ? sizeof(struct emu_header_file) :
			   has_more(m)  ? sizeof(*m) :
					  0) +
			  (p->table_off ? sizeof(struct emu_header_tables) : 0));
}

int emu_header_write(int fd, const struct zns_emu_params *p, const uint8_t uuid[ZNS_UUID_LEN])
{
	uint8_t block[EMU_BLOCK] = { 0 };
	struct emu_header_file f = { .log_capacity = p->log_capacity,
				     .log_zones = p->log_zones,
				     .log_block = p->log_block };
	struct emu_header_tables t = { .table_off = p->table_off, .table_zones = p->table_zones };
	struct emu_header_more m = {
		.cache_mib = p->cache_mib,
		.cache_mibps = p->cache_mibps,
		.cache_backed = p->cache_backed,
		.odd_dies = p->odd_dies,
		.odd_pct = p->odd_pct,
		.planes = p->planes,
		.small_dies = p->small_dies,
		.small_zones = p->small_zones,
		.row = p->row,
		.zone_dies = p->zone_dies,
		.zone_step = p->zone_step,
		.heat_mib = p->heat_mib,
		.cool_mibps = p->cool_mibps,
		.throttle_pct = p->throttle_pct,
	};
	struct emu_layout lay;
	struct emu_header h = {
		.magic = EMU_MAGIC,
		.version = !p->log_zones ? ZNS_EMU_FORMAT :
			   p->log_block  ? ZNS_FILE_FORMAT_BLOCKS :
					   ZNS_FILE_FORMAT,
		.header_bytes = header_bytes(p, &m),
		.nr_zones = p->nr_zones,
		.block_size = p->block_size,
		.zone_size = p->zone_size,
		.zone_capacity = p->zone_capacity,
		.max_open = p->max_open,
		.max_active = p->max_active,
		.channels = p->channels,
		.ways = p->ways,
		.map_seed = p->map_seed,
		.map = p->map,
		.timing = p->timing,
		.die_write_mibps = p->die_write_mibps,
		.die_read_mibps = p->die_read_mibps,
		.channel_mibps = p->channel_mibps,
		.program_unit = p->program_unit,
		.buffer_units = p->buffer_units,
		.command_us = p->command_us,
		.reset_us = p->reset_us,
		.controller_mibps = p->controller_mibps,
		.gc_every_mib = p->gc_every_mib,
		.gc_stall_ms = p->gc_stall_ms,
	};

	emu_layout_of(p, &lay);
	memcpy(h.uuid, uuid, ZNS_UUID_LEN);
	h.data_off = lay.data_off;
	h.total = lay.total;
	h.hash = zns_hash(&h, offsetof(struct emu_header, hash));
	f.hash = file_hash(&h, &f);
	t.hash = tables_hash(&f, &t);
	m.hash = more_hash(&h, &m);
	memcpy(block, &h, sizeof(h));
	if (p->log_zones)
		memcpy(block + sizeof(h), &f, sizeof(f));
	else if (has_more(&m))
		memcpy(block + sizeof(h), &m, sizeof(m));
	if (p->table_off)
		memcpy(block + sizeof(h) + sizeof(f), &t, sizeof(t));
	return zns_pwrite_all(fd, block, sizeof(block), 0);
}

bool emu_header_present(int fd)
{
	uint64_t magic;

	return !zns_pread_all(fd, &magic, sizeof(magic), 0) && magic == EMU_MAGIC;
}

static int file_size(int fd, uint64_t *out)
{
	struct stat st;
	off_t end;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode)) {
		*out = st.st_size;
		return 0;
	}
	end = lseek(fd, 0, SEEK_END);
	if (end < 0)
		return -errno;
	*out = end;
	return 0;
}

static bool is_file_format(const struct emu_header *h)
{
	return h->version == ZNS_FILE_FORMAT || h->version == ZNS_FILE_FORMAT_BLOCKS;
}

/* Returns an error which says what @spec contains instead of an emulated device of this kind. */
static int not_ours(int fd, const char *spec, bool file, const struct emu_header *h, bool read,
		    struct zns_err *err)
{
	const char *path = zns_spec_path(spec), *noun = file ? "a store" : "an emulated device";
	struct stat st;

	if (!read && !fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_size)
		return zns_fail(err, -EMEDIUMTYPE,
				"%s is empty, not %s: create one with `znsctl create %s%s`", path,
				noun, spec, file ? " --size SIZE" : "");
	if (read && h->magic == EMU_MAGIC &&
	    (file ? h->version == ZNS_EMU_FORMAT : is_file_format(h)))
		return zns_fail(err, -EMEDIUMTYPE, "%s is %s: name it %s:%s", path,
				file ? "an emulated device" : "a store on a disk",
				file ? "emu" : "file", path);
	return zns_fail(
		err, -EMEDIUMTYPE,
		"%s is not %s, it holds something else: take another name, or overwrite it with "
		"`znsctl create --force %s%s`",
		path, noun, spec, file ? " --size SIZE" : "");
}

/* Reads the part of the header that only a store on an ordinary disk has. -EBADMSG: damaged. */
static int read_rest(int fd, const struct emu_header *h, struct emu_header_file *f,
		     struct emu_header_tables *t)
{
	if (zns_pread_all(fd, f, sizeof(*f), sizeof(*h)) || f->hash != file_hash(h, f))
		return -EBADMSG;
	if (h->header_bytes == sizeof(*h) + sizeof(*f))
		return 0;
	if (zns_pread_all(fd, t, sizeof(*t), sizeof(*h) + sizeof(*f)) ||
	    t->hash != tables_hash(f, t) || !t->table_off)
		return -EBADMSG;
	return 0;
}

/* Checks the parts of a header that identify it, and its hashes. */
static int check_header(int fd, const char *spec, struct emu_header *h, struct emu_header_file *f,
			struct emu_header_tables *t, struct emu_header_more *m, struct zns_err *err)
{
	const char *path = zns_spec_path(spec);
	bool file = zns_spec_on_disk(spec), bad, more;
	uint32_t want = file ? ZNS_FILE_FORMAT : ZNS_EMU_FORMAT;
	const char *what = file ? "store" : "emulator";
	int ret = zns_pread_all(fd, h, sizeof(*h), 0);

	if (ret && ret != -ENODATA)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	if (ret || h->magic != EMU_MAGIC ||
	    (file ? h->version == ZNS_EMU_FORMAT : is_file_format(h)))
		return not_ours(fd, spec, file, h, !ret, err);
	if (h->version < want)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s has %s format %u of an older version, this program knows %u: create the device anew with `znsctl create --force %s`",
			path, what, h->version, want, spec);
	more = !file && h->header_bytes == sizeof(*h) + sizeof(*m);
	if ((h->version != want && !(file && is_file_format(h))) ||
	    (!more && h->header_bytes != sizeof(*h) + (file ? sizeof(*f) : 0) &&
	     !(file && h->header_bytes == sizeof(*h) + sizeof(*f) + sizeof(*t))))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s has %s format %u, this program knows %u: use the matching version",
			path, what, h->version, want);
	bad = h->hash != zns_hash(h, offsetof(struct emu_header, hash));
	if (file && !bad)
		bad = read_rest(fd, h, f, t) != 0;
	if (more && !bad)
		bad = zns_pread_all(fd, m, sizeof(*m), sizeof(*h)) || m->hash != more_hash(h, m);
	if (bad)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s: the header of the %s is damaged: restore it from a backup or create the device anew with `znsctl create --force %s`",
			path, file ? "store" : "emulated device", spec);
	return 0;
}

int emu_header_read(int fd, const char *spec, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN],
		    struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	const char *path = zns_spec_path(spec);
	struct emu_header_file f = { 0 };
	struct emu_header_tables t = { 0 };
	struct emu_header_more m = { 0 };
	struct emu_layout lay;
	struct emu_header h;
	uint64_t size = 0;
	int ret = check_header(fd, spec, &h, &f, &t, &m, err);

	if (ret)
		return ret;
	*p = (struct zns_emu_params){
		.nr_zones = h.nr_zones,
		.block_size = h.block_size,
		.zone_size = h.zone_size,
		.zone_capacity = h.zone_capacity,
		.max_open = h.max_open,
		.max_active = h.max_active,
		.channels = h.channels,
		.ways = h.ways,
		.map = h.map,
		.map_seed = h.map_seed,
		.timing = h.timing,
		.die_write_mibps = h.die_write_mibps,
		.die_read_mibps = h.die_read_mibps,
		.channel_mibps = h.channel_mibps,
		.program_unit = h.program_unit,
		.buffer_units = h.buffer_units,
		.command_us = h.command_us,
		.reset_us = h.reset_us,
		.controller_mibps = h.controller_mibps,
		.gc_every_mib = h.gc_every_mib,
		.gc_stall_ms = h.gc_stall_ms,
		.log_zones = f.log_zones,
		.log_capacity = f.log_capacity,
		.log_block = h.version == ZNS_FILE_FORMAT_BLOCKS ? f.log_block : 0,
		.data_off = t.table_off ? h.data_off : 0,
		.table_off = t.table_off,
		.table_zones = t.table_zones,
		.cache_mib = m.cache_mib,
		.cache_mibps = m.cache_mibps,
		.cache_backed = m.cache_backed,
		.odd_dies = m.odd_dies,
		.odd_pct = m.odd_pct,
		.planes = m.planes,
		.small_dies = m.small_dies,
		.small_zones = m.small_zones,
		.row = m.row,
		.zone_dies = m.zone_dies,
		.zone_step = m.zone_step,
		.heat_mib = m.heat_mib,
		.cool_mibps = m.cool_mibps,
		.throttle_pct = m.throttle_pct,
	};
	ret = emu_params_check(p, &why);
	if (!ret && !f.log_zones && is_file_format(&h))
		ret = zns_fail(&why, -EINVAL, "its header names no zones for the log");
	if (!ret && h.timing > 1)
		ret = zns_fail(&why, -EINVAL, "unknown timing model %u", h.timing);
	if (!ret) {
		emu_layout_of(p, &lay);
		if (lay.data_off != h.data_off || lay.total != h.total)
			ret = zns_fail(&why, -EINVAL, "layout does not follow from the parameters");
	}
	if (ret)
		return zns_fail(err, -EMEDIUMTYPE, "%s: bad header: %s", path, why.msg);
	ret = file_size(fd, &size);
	if (ret)
		return zns_fail_sys(err, ret, "cannot tell the size of %s", path);
	if (size < lay.total)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s was cut short: %llu bytes of %llu: restore it from a backup or create it anew",
			path, (unsigned long long)size, (unsigned long long)lay.total);
	memcpy(uuid, h.uuid, ZNS_UUID_LEN);
	return 0;
}
