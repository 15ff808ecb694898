// SPDX-License-Identifier: GPL-2.0-only
/* import: a plain CRIU image directory becomes a checkpoint; the order is that of a dump */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "archive.h"
#include "ctl.h"
#include "import.h"
#include "zns/crypt.h"
#include "zns/layout.h"
#include "zns/store.h"

#define CHUNK MIB(16)		/* between two looks at the progress */
#define COPIES_MAX 2000		/* as of a dump */

enum { OPT_QOS = OPT_OWN, OPT_ADMISSION, OPT_HANDLE, OPT_JOIN, OPT_PARENT };

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err)
{
	struct import *x = arg;

	return zns_broker_zone_get(&x->broker, &x->dev->geo, wish, out, err);
}

static int admission(struct import *x, ZnsPb__Response **resp, struct zns_err *err)
{
	ZnsPb__DumpBegin begin = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	int ret;

	x->unit = zns_stripe_unit(&x->dev->geo);
	if (x->join && x->pages->crypt) {
		begin.has_key_id = 1;
		begin.key_id = x->pages->crypt->key_id;
	} else if (x->master) {
		begin.has_key_id = 1;
		begin.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, (uint8_t *)zns_master_id(x->master) };
	}
	begin.container = x->container;
	begin.qos_mibps = x->qos_mibps;
	begin.admission = (char *)x->admission;
	begin.has_min_room = 1;
	begin.min_room = x->unit;
	if (x->parent_id && zns_broker_resolve_id(&x->broker, x->parent_id, x->parent, err))
		return zns_wrap(err, "--parent");
	if (x->has_parent) {
		begin.has_parent = 1;
		begin.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->parent };
	}
	origin.kind = (char *)"import";
	begin.origin = &origin;
	begin.has_join = x->join;
	if (x->join)
		begin.join = x->pages->id;
	req.dump_begin = &begin;
	ret = zns_broker_call(&x->broker, &req, resp, err);
	if (!ret && (!(*resp)->dump || !(*resp)->dump->n_groups || (*resp)->dump->n_groups > ZNS_STRIPE_MAX_WIDTH ||
		     (*resp)->dump->checkpoint.len != ZNS_UUID_LEN)) {
		zns_pb__response__free_unpacked(*resp, NULL);
		*resp = NULL;
		ret = zns_fail(err, -EPROTO, "znsd granted no usable stripe");
	}
	return ret;
}

static int start_writer(struct import *x, struct zns_err *err)
{
	uint32_t groups[ZNS_STRIPE_MAX_WIDTH], weights[ZNS_STRIPE_MAX_WIDTH];
	ZnsPb__Response *resp;
	int ret = admission(x, &resp, err);
	struct zns_writer_params p = { .dev = x->dev, .unit = x->unit, .zone_get = zone_get, .arg = x };

	if (ret)
		return ret;
	for (size_t i = 0; i < resp->dump->n_groups; i++) {
		groups[i] = resp->dump->groups[i]->group;
		weights[i] = resp->dump->groups[i]->weight;
	}
	memcpy(x->id, resp->dump->checkpoint.data, ZNS_UUID_LEN);
	x->shared_groups = resp->dump->shared_groups;
	if (resp->dump->note)
		fprintf(stderr, "znsctl import: note: %s\n", resp->dump->note);
	p.nr_groups = (uint32_t)resp->dump->n_groups;
	p.groups = groups;
	p.weights = weights;
	if (x->parent_handle && resp->n_checkpoints)
		ret = zns_handle_agrees(x->parent_handle, resp->checkpoints[0], err);
	if (!ret && x->master)
		ret = zns_crypt_new(x->master, x->id, &x->crypt, err);
	p.crypt = x->crypt;
	if (!ret)
		ret = zns_writer_new(&p, &x->w, err);
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

/* Not one of criu's images, which begin with a magic number or are known to have none: a plugin's. */
static bool is_beside(const char *name, const uint8_t *b, uint64_t size)
{
	static const char *const raw[] = { "pages-", "tmpfs-", "iptables-", "ip6tables-", "nftables-", "ifaddr-", "route-",
					   "route6-", "rule-", "netns-ct-", "netns-exp-" };
	/* images, service files, the inventory */
	static const uint32_t magic[] = { 0x54564319, 0x55105940, IMPORT_INVENTORY_MAGIC };
	uint32_t v;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(raw); i++)
		if (!strncmp(name, raw[i], strlen(raw[i])))
			return false;
	if (size < 4)
		return true;
	v = b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(magic); i++)
		if (v == magic[i])
			return false;
	return true;
}

static bool may_copy(const struct import *x, const struct import_file *f)
{
	if (x->handle.dir < 0 && !x->join)
		return false;
	if (x->crypt)	/* as of a dump */
		return !strcmp(f->name, "inventory.img") && f->size <= ZNS_HANDLE_COPY_MAX;
	return x->nr_copies < COPIES_MAX && f->size <= ZNS_HANDLE_COPY_MAX && x->copies + f->size <= ZNS_HANDLE_COPIES_MAX &&
	       strncmp(f->name, "pages-", 6);
}

/* What goes beside the handle is what went to the device: nothing is read again. */
static int keep_copy(struct import *x, struct import_file *f, const uint8_t *data, struct zns_err *err)
{
	f->copy = malloc(f->size + 1);
	if (!f->copy)
		return zns_fail_sys(err, -ENOMEM, "copy of %s", f->name);
	memcpy(f->copy, data, f->size);
	x->copies += f->size;
	x->nr_copies++;
	return 0;
}

int import_image(struct import *x, struct import_file *f, import_get get, void *arg, struct zns_err *err)
{
	struct zns_wimage *img;
	int ret;

	if (!x->buf)
		x->buf = malloc(CHUNK);
	if (!x->buf)
		return zns_fail_sys(err, -ENOMEM, "buffer");
	ret = zns_writer_image(x->w, f->name, !strncmp(f->name, "pages-", 6), &img, err);
	if (!ret && !f->size && is_beside(f->name, x->buf, 0))
		zns_wimage_set_beside(img);
	for (uint64_t off = 0; off < f->size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, f->size - off);

		ret = get(arg, x->buf, len, off, err);
		if (ret)
			return ret;
		if (!off && is_beside(f->name, x->buf, f->size))
			zns_wimage_set_beside(img);
		ret = zns_wimage_data(img, x->buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret && may_copy(x, f))
		ret = keep_copy(x, f, x->buf, err);
	return ret ? ret : zns_wimage_seal(img, err);
}

/* Better now than when the device has been filled. */
static int check_room(const struct import *x, struct zns_err *err)
{
	char want[16], have[16];
	uint64_t room = (uint64_t)x->dev->geo.nr_zones * x->dev->geo.zone_capacity;

	if (x->prog.total <= room)
		return 0;
	return zns_fail(err, -ENOSPC, "no space: %s has images of %s, the whole device holds %s", x->path,
			zns_format_size(x->prog.total, want, sizeof(want)), zns_format_size(room, have, sizeof(have)));
}

static ZnsPb__Checkpoint *new_record(const struct import *x)
{
	ZnsPb__Checkpoint *c = calloc(1, sizeof(*c));
	char host[64] = "", path[PATH_MAX];

	if (!c)
		return NULL;
	zns_pb__checkpoint__init(c);
	gethostname(host, sizeof(host) - 1);
	c->id.data = malloc(ZNS_UUID_LEN);
	c->has_pre_dump = c->pre_dump = x->pre_dump;
	c->parent.data = x->has_parent ? malloc(ZNS_UUID_LEN) : NULL;
	c->has_parent = c->parent.data != NULL;
	if (c->has_parent) {
		memcpy(c->parent.data, x->parent, ZNS_UUID_LEN);
		c->parent.len = ZNS_UUID_LEN;
	}
	c->container = strdup(x->container);
	c->origin = calloc(1, sizeof(*c->origin));
	if (c->origin)
		zns_pb__origin__init(c->origin);
	if (!c->id.data || !c->container || !c->origin || c->has_parent != x->has_parent) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return NULL;
	}
	memcpy(c->id.data, x->id, ZNS_UUID_LEN);
	c->id.len = ZNS_UUID_LEN;
	c->created_ns = zns_now_ns();
	c->has_qos_requested_mibps = x->qos_mibps > 0;
	c->qos_requested_mibps = x->qos_mibps;
	c->has_shared_groups = 1;
	c->shared_groups = x->shared_groups;
	c->origin->kind = strdup("import");
	c->origin->host = strdup(host);
	c->origin->image_dir = strdup(realpath(x->path, path) ? path : x->path);
	return c;
}

/* Data durable, then the record; *out is the caller's, also after a failure (NULL: none). */
static int commit(struct import *x, ZnsPb__Checkpoint **out, struct zns_err *err)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = calloc(1, sizeof(*ref));
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Checkpoint *c = *out = x->join ? import_join_record(x) : new_record(x);
	ZnsPb__Response *resp = NULL;
	char id[ZNS_UUID_STR];
	int ret;

	if (!ref || !c) {
		free(ref);
		return zns_fail_sys(err, -ENOMEM, "record");
	}
	zns_pb__extent_ref__init(ref);
	m.device.data = x->reg.uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = c;
	ret = x->join ? zns_crypt_former_macs(x->crypt, x->pages_m, &m.former_macs, &m.n_former_macs, err) : 0;
	if (!ret)
		ret = zns_writer_finish(x->w, &m, ref, err);
	memcpy(x->seal, zns_writer_seal(x->w), sizeof(x->seal));
	free(m.former_macs);
	c->manifest = ref;
	if (!x->join)	/* else its rate is that of the pages */
		zns_writer_rate(x->w, c);
	if (!ret)
		ret = zns_writer_durable(x->w, c, err);
	if (ret)
		return ret;
	req.commit = c;
	ret = zns_broker_call(&x->broker, &req, &resp, err);
	if (resp)
		zns_pb__response__free_unpacked(resp, NULL);
	if (ret == -EPIPE)
		zns_wrap(err, "znsd died during the commit, `znsctl ls` tells whether checkpoint %s exists",
			 zns_uuid_format(x->id, id));
	return ret;
}

static int run(struct import *x, const char *spec, const char *handle, ZnsPb__Checkpoint **c, struct zns_err *err)
{
	int ret;

	if (x->join)
		ret = import_join_open(x, spec, err);
	else
		ret = ctl_archive_name(x->path) && !ctl_is_dir(x->path) ? import_archive_scan(x, err) : import_scan(x, err);
	if (!ret && handle)
		ret = ctl_outdir_open(&x->handle, handle, err);
	if (!ret && !x->join)
		ret = ctl_connect(spec, &x->reg, &x->broker, err);
	if (!ret)
		ret = zns_broker_lock_shared(x->reg.uuid, "writers", &x->lock, err);
	if (!ret)
		ret = zns_dev_open(x->reg.path, 0, &x->dev, err);
	if (!ret && x->join)
		ret = import_join_scan(x, err);
	if (!ret)
		ret = check_room(x, err);
	if (!ret && !x->join)
		ret = zns_master_for_dump(&x->reg, x->broker.encrypted ? x->broker.key_id : NULL, &x->master, err);
	if (!ret && (x->master || x->crypt))
		zns_crypt_harden();
	if (!ret)
		ret = start_writer(x, err);
	if (!ret && x->join)
		ret = zns_writer_adopt(x->w, x->pages, x->pages_m, err);
	if (!ret)
		ret = x->archive >= 0 ? import_read_archive(x, err) : import_read_dir(x, err);
	if (!ret)
		ret = commit(x, c, err);
	if (ret && x->w)
		zns_writer_cancel(x->w, ret, "the import failed");
	zns_writer_free(x->w);
	if (!ret && handle) {
		ret = import_write_handle(x, *c, err);
		if (ret)
			import_drop(x, err);
	}
	if (!ret && x->join)
		ret = import_join_handle(x, *c, err);
	if (ret)
		ctl_outdir_undo(&x->handle);
	return ret;
}

static int print(const struct import *x, const ZnsPb__Checkpoint *c, const char *handle, bool json, double seconds)
{
	char id[ZNS_UUID_STR], size[16];
	struct json_object *j;

	zns_uuid_format(x->id, id);
	if (!json && x->join) {
		printf("joined %zu images of %s with the pages of checkpoint %s of %s: %u images, %s in %.1f s\n", x->nr_files, x->path,
		       id, x->container, c->nr_images, zns_format_size(c->bytes, size, sizeof(size)), seconds);
		return CTL_OK;
	}
	if (!json) {
		printf("imported %s as checkpoint %s of %s: %u images, %s in %.1f s\n", ctl_text(x->path), id, ctl_text(x->container), c->nr_images,
		       zns_format_size(c->bytes, size, sizeof(size)), seconds);
		if (handle)
			printf("restore it with: criu restore -D %s\n", handle);
		else
			printf("restore it with: criu restore -D EMPTY_DIR --zns-checkpoint %s\n", id);
		return CTL_OK;
	}
	j = json_object_new_object();
	json_object_object_add(j, "id", json_object_new_string(id));
	json_object_object_add(j, "container", json_object_new_string(x->container));
	json_object_object_add(j, "images", json_object_new_int64(c->nr_images));
	json_object_object_add(j, "bytes", json_object_new_int64(c->bytes));
	json_object_object_add(j, "skipped", json_object_new_int64(x->nr_skipped));
	json_object_object_add(j, "handle", handle ? json_object_new_string(handle) : x->join ? json_object_new_string(x->path) : NULL);
	json_object_object_add(j, "joined", json_object_new_boolean(x->join));
	json_object_object_add(j, "seconds", json_object_new_double(seconds));
	return ctl_print_json(j);
}

/* The directory's own name, whatever way it was given. */
static void default_container(struct import *x)
{
	char path[PATH_MAX];
	const char *base;

	if (x->container[0] || !realpath(x->path, path))
		return;
	if (!ctl_is_dir(path))
		path[ctl_archive_stem(path)] = 0;
	base = strrchr(path, '/');
	snprintf(x->container, sizeof(x->container), "%.*s", (int)sizeof(x->container) - 1, base ? base + 1 : path);
}

static int cmd_import(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "container", required_argument, NULL, OPT_CONTAINER },
		{ "qos", required_argument, NULL, OPT_QOS },
		{ "admission", required_argument, NULL, OPT_ADMISSION },
		{ "handle", required_argument, NULL, OPT_HANDLE },
		{ "join", no_argument, NULL, OPT_JOIN },
		{ "parent", required_argument, NULL, OPT_PARENT },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct import x = { .broker = { .fd = -1 }, .lock = -1, .dir = -1, .archive = -1, .handle = CTL_OUTDIR_INIT };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	ZnsPb__Checkpoint *record = NULL;
	const char *handle = NULL;
	double seconds;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		if (c == OPT_CONTAINER && (!*optarg || strlen(optarg) >= sizeof(x.container)))
			return ctl_usage(cmd, "--container takes a name of 1 to %zu bytes", sizeof(x.container) - 1);
		if (c == OPT_CONTAINER)
			strcpy(x.container, optarg);
		if (c == OPT_QOS && zns_parse_mibps(optarg, &x.qos_mibps))
			return ctl_usage(cmd, "\"%s\" is no bandwidth", optarg);
		if (c == OPT_ADMISSION)
			x.admission = optarg;
		if (c == OPT_HANDLE)
			handle = optarg;
		x.join |= c == OPT_JOIN;
		if (c == OPT_PARENT)
			x.parent_id = optarg;
	}
	if (c == -2)
		return args.code;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1 || !*args.argv[0])
		return ctl_usage(cmd, "one image directory, or an archive of one (.tar, .tgz), is wanted");
	if (x.join && (handle || x.container[0]))
		return ctl_usage(cmd, "--join goes to the checkpoint that the directory's handle names: no --handle, no --container");
	x.path = args.argv[0];
	if (x.join && ctl_archive_name(x.path) && !ctl_is_dir(x.path))
		return ctl_usage(cmd, "--join takes the directory that has the handle, not an archive");
	if (!x.join)
		default_container(&x);
	ctl_progress_start(&x.prog, "import", 0);
	ret = run(&x, args.dev, handle, &record, &err);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) : print(&x, record, handle, args.json, seconds);
	if (record)
		zns_pb__checkpoint__free_unpacked(record, NULL);
	zns_dev_close(x.dev);
	zns_broker_close(&x.broker);
	import_join_fini(&x);
	import_fini(&x);
	return ret;
}

const struct ctl_cmd command_import = {
	"import", "[DEV] DIR|FILE.tar|FILE.tgz [OPTIONS]", "a plain CRIU image directory, or archive of one, becomes a checkpoint on zones",
	"  --container NAME  whose checkpoint it is; otherwise the directory's or archive's name\n"
	"  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	"  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	"  --handle NEWDIR   write a handle there, to restore from\n"
	"  --parent ID       of an incremental dump: the checkpoint that its parent was imported as\n"
	"  --join            DIR is a page server's, with the sender's other images copied into it: add these images\n"
	"                    to the checkpoint that has the pages\n" CTL_DEV_HELP,
	cmd_import,
};
