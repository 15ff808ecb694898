/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FILE_FIXTURE_H
#define FILE_FIXTURE_H
/* A store on an ordinary disk, in a file of @size bytes, for tests of znsd. */
#include "broker_fixture.h"
#include "zns/save.h"

static inline void good(int ret, const struct zns_err *err)
{
	if (ret)
		fail_msg("%d: %s", ret, err->msg);
}

/* Returns the bytes that the store has for checkpoints. */
static inline uint64_t fx_open_file(struct fx *f, uint64_t size)
{
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	ZnsPb__DieGroup g = ZNS_PB__DIE_GROUP__INIT, *gp = &g;
	const char *tmp = getenv("TMPDIR");
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_emu_params e;
	uint8_t uuid[ZNS_UUID_LEN];
	char path[300];

	fx_dir(f, tmp ? tmp : "/dev/shm");
	good(zns_file_params(size, &e, &err), &err);
	e.is_volatile = true;
	snprintf(path, sizeof(path), "%s/store", f->dir);
	good(zns_emu_create(path, &e, false, &err), &err);
	snprintf(path, sizeof(path), "file:%s/store", f->dir);
	good(zns_dev_open(path, 0, &f->dev, &err), &err);
	p.source = "one-domain";
	p.zone_write_mibps = p.zone_read_mibps = 1000;
	p.confidence = 1;
	p.groups = &gp;
	p.n_groups = 1;
	p.zone_group = calloc(e.nr_zones, sizeof(*p.zone_group));
	p.n_zone_group = e.nr_zones;
	good(zns_uuid_generate(uuid), &err);
	good(zns_store_format(f->dev, uuid, &p, false, f->reg.uuid, &err), &err);
	free(p.zone_group);
	good(zns_register(f->reg.uuid, path, &err), &err);
	good(zns_registered_by_uuid(f->reg.uuid, &f->reg, &err), &err);
	return (e.nr_zones - e.log_zones) * e.zone_capacity;
}

static inline int put_pages(struct zns_save *v, uint64_t bytes, struct zns_err *err)
{
	static uint64_t buf[KIB(256) / 8];
	struct zns_wimage *img;
	int ret = zns_writer_image(v->w, "pages-1.img", true, &img, err);

	buf[0] = bytes;
	for (uint64_t off = 0; off < bytes && !ret; off += sizeof(buf))
		ret = zns_wimage_data(img, buf, zns_min(bytes - off, sizeof(buf)), err);
	return ret ? ret : zns_wimage_seal(img, err);
}

/* Writes a complete checkpoint of one image, as a helper does. */
static inline int save_pages(struct fx *f, const char *container, uint32_t qos, uint64_t bytes,
			     uint8_t *id, struct zns_err *err)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	struct zns_session s = ZNS_SESSION_INIT;
	struct zns_save v = { .s = &s };
	int ret;

	good(zns_session_open(&s, &f->reg, ZNS_WRITES, err), err);
	q.container = (char *)container;
	q.qos_mibps = qos;
	q.has_expected_bytes = q.has_least_bytes = 1;
	q.expected_bytes = q.least_bytes = bytes;
	ret = zns_save_begin(&v, &q, err);
	if (!ret)
		ret = put_pages(&v, bytes, err);
	if (!ret)
		ret = zns_save_publish(&v, err);
	memcpy(id, v.id, ZNS_UUID_LEN);
	if (ret)
		zns_save_give_up(&v, ret, "full");
	zns_save_end(&v);
	zns_session_close(&s);
	return ret;
}

static inline void ctl(const char *args)
{
	char cmd[PATH_MAX + 500];

	snprintf(cmd, sizeof(cmd), "%s/znsctl %s >/dev/null", getenv("ZNS_LIBEXEC"), args);
	if (system(cmd))
		fail_msg("%s", cmd);
}

#endif
