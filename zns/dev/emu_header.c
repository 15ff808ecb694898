/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The header block and the layout derived from it. A header is untrusted until it was fully
 * checked. */
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "emu_priv.h"

void emu_layout_of(const struct zns_emu_params *p, struct emu_layout *lay)
{
	uint64_t table = zns_align_up((uint64_t)p->nr_zones * sizeof(struct emu_entry), EMU_BLOCK);
	uint64_t units = (uint64_t)p->channels * p->ways + p->channels;
	uint64_t model = 0;

	if (p->timing)
		model = sizeof(struct emu_model) + p->nr_zones * sizeof(struct emu_model_zone) +
			units * sizeof(struct emu_cal);

	lay->mirror_off = EMU_BLOCK + table;
	lay->model_off = lay->mirror_off + table;
	lay->live_len = zns_align_up(lay->model_off + model, 65536);
	lay->dur_off = EMU_LIVE_OFF + lay->live_len;
	lay->dur_len = table;
	lay->data_off = zns_align_up(lay->dur_off + lay->dur_len, EMU_DATA_ALIGN);
	lay->stride = zns_align_up(p->zone_capacity, EMU_BLOCK);
	/* no overflow: at most 2^20 zones of 2^40 bytes */
	lay->total = lay->data_off + lay->stride * p->nr_zones;
}

int emu_header_write(int fd, const struct zns_emu_params *p, const uint8_t uuid[ZNS_UUID_LEN])
{
	uint8_t block[EMU_BLOCK] = { 0 };
	struct emu_layout lay;
	struct emu_header h = {
		.magic = EMU_MAGIC,
		.version = ZNS_EMU_FORMAT,
		.header_bytes = sizeof(h),
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
	memcpy(block, &h, sizeof(h));
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

int emu_header_read(int fd, const char *path, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN],
		    struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	struct emu_layout lay;
	struct emu_header h;
	uint64_t size = 0;
	struct stat st;
	int ret = zns_pread_all(fd, &h, sizeof(h), 0);

	if (ret && ret != -ENODATA)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	if (ret && !fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_size)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is empty, not an emulated device: create one with `znsctl create emu:%s`",
			path, path);
	if (ret || h.magic != EMU_MAGIC)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is not an emulated device, it holds something else: take another name, or overwrite it with "
			"`znsctl create --force emu:%s`",
			path, path);
	if (h.version < ZNS_EMU_FORMAT)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s has emulator format %u of an older version, this program knows %u: create the device anew with `znsctl create --force emu:%s`",
			path, h.version, ZNS_EMU_FORMAT, path);
	if (h.version != ZNS_EMU_FORMAT || h.header_bytes != sizeof(h))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s has emulator format %u, this program knows %u: use the matching version",
			path, h.version, ZNS_EMU_FORMAT);
	if (h.hash != zns_hash(&h, offsetof(struct emu_header, hash)))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s: the header of the emulated device is damaged: restore it from a backup or create the device anew with `znsctl create --force emu:%s`",
			path, path);
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
	};
	ret = emu_params_check(p, &why);
	if (!ret && h.timing > 1)
		ret = zns_fail(&why, -EINVAL, "unknown timing model %u", h.timing);
	if (!ret) {
		emu_layout_of(p, &lay);
		if (lay.data_off != h.data_off || lay.total != h.total)
			ret = zns_fail(&why, -EINVAL, "layout does not follow from the parameters");
	}
	if (ret)
		return zns_fail(err, -EMEDIUMTYPE, "%s: bad header of an emulated device: %s", path,
				why.msg);
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
