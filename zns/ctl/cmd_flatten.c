// SPDX-License-Identifier: GPL-2.0-only
/*
 * flatten: an incremental checkpoint is read through its chain and written anew, whole, under the same id: handles and
 * children stay good, its parents are not needed for it any more.
 */
#include <limits.h>
#include <string.h>
#include "ctl.h"
#include "zns/crypt.h"
#include "zns/flat.h"
#include "zns/layout.h"
#include "zns/store.h"
#include "zns/writer.h"

#define CHUNK MIB(4)

enum { OPT_QOS = OPT_OWN };

struct flatten {
	struct ctl_session s;	/* holds the chain, and the zones that are written */
	int lock;		/* as a writer */
	struct zns_dev *dev;
	struct zns_chain *chain;
	struct zns_flat *flat;
	struct zns_master *master;
	struct zns_crypt *crypt;
	struct zns_writer *w;
	ZnsPb__Handle *handle;	/* of the directory that was named; or NULL */
	ZnsPb__Checkpoint *old;	/* the record as it was */
	uint32_t qos_mibps;
	struct ctl_progress prog;
};

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err)
{
	struct flatten *x = arg;

	return zns_broker_zone_get(&x->s.broker, &x->dev->geo, wish, out, err);
}

static int open_chain(struct flatten *x, const char *what, struct zns_err *err)
{
	struct zns_reader_params p = { .dev = x->s.dev };
	uint8_t id[ZNS_UUID_LEN];
	ZnsPb__Response *resp;
	int ret = zns_broker_resolve_id(&x->s.broker, what, id, err);
	char text[ZNS_UUID_STR];

	if (!ret)
		ret = ctl_lease_chain(&x->s, id, &resp, err);
	if (ret)
		return ret;
	if (x->handle)
		ret = zns_handle_agrees(x->handle, resp->checkpoints[0], err);
	if (!ret && !resp->checkpoints[0]->has_parent)
		ret = zns_fail(err, -EINVAL, "checkpoint %s has no parent: %s", zns_uuid_format(id, text),
			       resp->checkpoints[0]->pages_only ?
				       "its pages are all there, `znsctl import --join` adds the other images" :
				       "it is whole already");
	if (!ret)
		ret = zns_chain_open(&p, &x->s.reg, x->s.broker.encrypted, resp->checkpoints, resp->n_checkpoints, &x->chain, err);
	if (!ret && x->handle)
		ret = zns_crypt_check_handle(zns_chain_crypt(x->chain, 0), x->handle, zns_chain_manifest(x->chain, 0), err);
	if (!ret)
		ret = zns_flat_new(x->chain, &x->flat, err);
	if (!ret) {		/* its manifest's own copy may be older */
		x->old = resp->checkpoints[0];
		resp->checkpoints[0] = resp->checkpoints[--resp->n_checkpoints];
	}
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static int admission(struct flatten *x, ZnsPb__Response **resp, struct zns_err *err)
{
	ZnsPb__DumpBegin begin = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	int ret;

	if (x->master) {
		begin.has_key_id = 1;
		begin.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, (uint8_t *)zns_master_id(x->master) };
	}
	begin.container = x->old->container;
	begin.qos_mibps = x->qos_mibps;
	begin.has_min_room = begin.has_expected_bytes = begin.has_flatten = 1;
	begin.min_room = zns_stripe_unit(&x->dev->geo);
	begin.expected_bytes = zns_flat_bytes(x->flat);
	begin.flatten = x->old->id;
	origin.kind = (char *)"flatten";
	begin.origin = &origin;
	req.dump_begin = &begin;
	ret = zns_broker_call(&x->s.broker, &req, resp, err);
	if (!ret && (!(*resp)->dump || !(*resp)->dump->n_groups || (*resp)->dump->n_groups > ZNS_STRIPE_MAX_WIDTH)) {
		zns_pb__response__free_unpacked(*resp, NULL);
		ret = zns_fail(err, -EPROTO, "znsd granted no usable stripe");
	}
	return ret;
}

static int own_key(struct flatten *x, struct zns_err *err)
{
	char spec[PATH_MAX + 16];
	bool of_host;
	int ret = zns_key_spec_of(&x->s.reg, spec, sizeof(spec), &of_host, err);

	return ret ? ret : zns_master_load(spec, &x->master, err);
}

static int start_writer(struct flatten *x, struct zns_err *err)
{
	uint32_t groups[ZNS_STRIPE_MAX_WIDTH], weights[ZNS_STRIPE_MAX_WIDTH];
	struct zns_writer_params p = { .dev = x->dev, .zone_get = zone_get, .arg = x };
	ZnsPb__Response *resp;
	int ret = zns_master_for_dump(&x->s.reg, x->s.broker.encrypted ? x->s.broker.key_id : NULL, &x->master, err);

	if (!ret && !x->master && zns_chain_crypt(x->chain, 0))	/* what was encrypted stays so, whatever new ones are */
		ret = own_key(x, err);
	if (!ret)
		ret = admission(x, &resp, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < resp->dump->n_groups; i++) {
		groups[i] = resp->dump->groups[i]->group;
		weights[i] = resp->dump->groups[i]->weight;
	}
	x->old->has_packed = x->old->packed = resp->dump->packed;
	p.nr_groups = (uint32_t)resp->dump->n_groups;
	p.unit = zns_writer_unit(&x->dev->geo, p.nr_groups);
	p.groups = groups;
	p.weights = weights;
	zns_pb__response__free_unpacked(resp, NULL);
	if (x->master)	/* of the old key some nonces are used up */
		ret = zns_crypt_new(x->master, x->old->id.data, &x->crypt, err);
	p.crypt = x->crypt;
	return ret ? ret : zns_writer_new(&p, &x->w, err);
}

static int write_image(struct flatten *x, uint32_t n, uint8_t *buf, struct zns_err *err)
{
	const ZnsPb__Image *pb = zns_chain_manifest(x->chain, 0)->images[n];
	uint64_t size = zns_flat_size(x->flat, n);
	struct zns_wimage *img;
	int ret = zns_writer_image(x->w, pb->name, !strncmp(pb->name, "pages-", 6), &img, err);

	if (!ret && pb->beside)
		zns_wimage_set_beside(img);
	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);

		ret = zns_flat_read(x->flat, n, off, buf, len, err);
		if (!ret)
			ret = zns_wimage_data(img, buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	return ret ? ret : zns_wimage_seal(img, err);
}

static void drop_places(ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < c->n_zones; i++)
		zns_pb__zone_use__free_unpacked(c->zones[i], NULL);
	free(c->zones);
	free(c->groups);
	free(c->metadata_groups);
	free(c->old_manifests);
	c->zones = NULL;
	c->groups = c->metadata_groups = c->old_manifests = NULL;
	c->n_zones = c->n_groups = c->n_metadata_groups = c->n_old_manifests = 0;
	if (c->manifest)
		zns_pb__extent_ref__free_unpacked(c->manifest, NULL);
	c->manifest = NULL;
	if (c->crypt)
		zns_pb__checkpoint_key__free_unpacked(c->crypt, NULL);
	c->crypt = NULL;
	free(c->parent.data);
	c->parent = (ProtobufCBinaryData){ 0, NULL };
	c->has_parent = 0;
}

/* What it was made with stays as it was; what says where it is, and by which key, is new. */
static int commit(struct flatten *x, struct zns_err *err)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = calloc(1, sizeof(*ref));
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Checkpoint *c = x->old;
	ZnsPb__Response *resp = NULL;
	int ret = 0;

	if (!ref)
		return zns_fail_sys(err, -ENOMEM, "record");
	zns_pb__extent_ref__init(ref);
	drop_places(c);
	c->has_moved = c->has_moved_ns = 1;
	c->moved++;
	c->moved_ns = zns_now_ns();
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->s.reg.uuid };
	m.checkpoint = c;
	if (x->crypt)	/* one that stays plain, or becomes encrypted now, has none */
		ret = zns_crypt_former_macs(zns_chain_crypt(x->chain, 0), zns_chain_manifest(x->chain, 0), &m.former_macs,
					    &m.n_former_macs, err);
	if (!ret)
		ret = zns_writer_finish(x->w, &m, ref, err);
	free(m.former_macs);
	c->manifest = ref;
	if (!ret)
		ret = zns_dev_flush(x->dev, err);
	if (ret)
		return ret;
	req.commit = c;
	ret = zns_broker_call(&x->s.broker, &req, &resp, err);
	if (resp)
		zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static int run(struct flatten *x, const char *spec, const char *what, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	int ret = buf ? ctl_session_open(&x->s, spec, err) : zns_fail_sys(err, -ENOMEM, "buffer");

	if (!ret)
		ret = zns_broker_lock_shared(x->s.reg.uuid, "writers", &x->lock, err);
	if (!ret)
		ret = zns_dev_open(x->s.reg.path, 0, &x->dev, err);
	if (!ret)
		ret = open_chain(x, what, err);
	if (!ret)
		ret = start_writer(x, err);
	if (ret)
		return ret;
	ctl_progress_start(&x->prog, "flatten", zns_flat_bytes(x->flat));
	for (uint32_t n = 0; n < zns_flat_images(x->flat) && !ret; n++)
		ret = write_image(x, n, buf, err);
	if (!ret)
		ret = commit(x, err);
	if (ret)
		zns_writer_cancel(x->w, ret, "the flattening failed");
	ctl_progress_end(&x->prog);
	return ret;
}

static int print(const struct flatten *x, bool json)
{
	char id[ZNS_UUID_STR], size[16];
	struct json_object *j;

	zns_uuid_format(x->old->id.data, id);
	if (!json) {
		printf("%s of %s has no parent any more: %s in %u images\n", id, ctl_text(x->old->container),
		       zns_format_size(x->old->bytes, size, sizeof(size)), x->old->nr_images);
		return CTL_OK;
	}
	j = json_object_new_object();
	json_object_object_add(j, "id", json_object_new_string(id));
	json_object_object_add(j, "container", json_object_new_string(x->old->container));
	json_object_object_add(j, "bytes", json_object_new_int64(x->old->bytes));
	json_object_object_add(j, "page_bytes", json_object_new_int64(x->old->page_bytes));
	json_object_object_add(j, "checkpoints_read", json_object_new_int64(zns_chain_levels(x->chain)));
	return ctl_print_json(j);
}

static int cmd_flatten(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "qos", required_argument, NULL, OPT_QOS },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct flatten x = { .s = { .broker = { .fd = -1 }, .lock = -1 }, .lock = -1 };
	char dev_id[ZNS_UUID_STR], id[ZNS_UUID_STR];
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *what;
	int c, ret = 0;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		if (c == OPT_QOS && zns_parse_mibps(optarg, &x.qos_mibps))
			return ctl_usage(cmd, "\"%s\" is no bandwidth", optarg);
	if (c == -2)
		return args.code;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1 || !*args.argv[0])
		return ctl_usage(cmd, "one checkpoint's id or a directory is wanted");
	what = args.argv[0];
	if (ctl_is_dir(what)) {
		ret = ctl_handle_ids(what, dev_id, id, &x.handle, &err);
		what = id;
		if (!args.dev)
			args.dev = dev_id;
	}
	if (!ret)
		ret = run(&x, args.dev, what, &err);
	ret = ret ? ctl_fail(cmd, &err) : print(&x, args.json);
	zns_writer_free(x.w);
	zns_flat_free(x.flat);
	zns_chain_close(x.chain);
	zns_crypt_free(x.crypt);
	zns_master_free(x.master);
	if (x.handle)
		zns_pb__handle__free_unpacked(x.handle, NULL);
	if (x.old)
		zns_pb__checkpoint__free_unpacked(x.old, NULL);
	zns_dev_close(x.dev);
	if (x.lock >= 0)
		close(x.lock);
	ctl_session_close(&x.s);
	return ret;
}

const struct ctl_cmd command_flatten = {
	"flatten", "[DEV] ID|DIRECTORY [--qos MIBPS]", "write an incremental checkpoint anew without its parents, under its id",
	"  --qos MIBPS     bandwidth to write with, as --zns-qos of criu\n" CTL_DEV_HELP,
	cmd_flatten,
};
