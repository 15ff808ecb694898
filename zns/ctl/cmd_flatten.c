/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * flatten: reads an incremental checkpoint through its chain, and writes all of its data anew under
 * the same id. Its handles and children stay valid, and it no longer needs its parents. Composed
 * images become ordinary ones, so pages that a live dump copied more than once no longer take space
 * for the older copies.
 */
#include <limits.h>
#include <string.h>
#include "compact/compaction.h"
#include "zns/bucket.h"
#include "zns/crypt.h"
#include "zns/flat.h"
#include "zns/save.h"

#define CHUNK MIB(4)
/* ms between two reports to the broker, unless the broker asks for earlier ones */
#define TELL_MS 250u

struct flatten {
	/* its connection holds the leases on the chain and on the zones being written */
	struct zns_session s;
	struct zns_save v;
	struct zns_chain *chain;
	struct zns_flat *flat;
	ZnsPb__Handle *handle; /* the handle in the directory on the command line; NULL: none */
	bool dry_run;
	uint32_t qos_mibps;
	/* weight of a separate class; 0: use the weight of the checkpoint's owner */
	uint32_t weight;
	/* done: bytes written; tell_ns: time of the next report to the broker */
	uint64_t done, tell_ns;
	struct ctl_progress prog;
};

static bool is_composed(const ZnsPb__Manifest *m)
{
	for (size_t i = 0; i < m->n_images; i++)
		if (m->images[i]->map)
			return true;
	return false;
}

static int is_of_use(const struct flatten *x, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	if (c->has_parent || (!c->pages_only && is_composed(zns_chain_manifest(x->chain, 0))))
		return 0;
	return zns_fail(
		err, -EINVAL, "checkpoint %s has no parent: %s", zns_uuid_format(c->id.data, id),
		c->pages_only ?
			"its pages are all there, `znsctl import --join` adds the other images" :
			"it is whole already");
}

static int open_chain(struct flatten *x, const char *what, struct zns_err *err)
{
	struct zns_reader_params p = { .bucket = x->v.bucket };
	uint8_t id[ZNS_UUID_LEN];
	ZnsPb__Response *resp;
	int ret = zns_broker_resolve_id(&x->s.broker, what, id, err);

	if (!ret)
		ret = zns_session_lease(&x->s, id, true, &resp, err);
	if (ret)
		return ret;
	if (x->handle)
		ret = zns_handle_agrees(x->handle, resp->checkpoints[0], err);
	if (!ret)
		ret = zns_session_chain(&x->s, resp, x->handle, &p, &x->chain, err);
	if (!ret)
		ret = is_of_use(x, resp->checkpoints[0], err);
	if (!ret)
		ret = zns_flat_new(x->chain, &x->flat, err);
	if (!ret) { /* use the record of the log: its copy in the manifest may be older */
		x->v.c = resp->checkpoints[0];
		resp->checkpoints[0] = resp->checkpoints[--resp->n_checkpoints];
	}
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static int own_key(struct flatten *x, struct zns_err *err)
{
	char spec[PATH_MAX + 16];
	bool of_host;
	int ret = zns_key_spec_of(&x->s.reg, spec, sizeof(spec), &of_host, err);

	return ret ? ret : zns_master_load(spec, &x->v.master, err);
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
	if (c->crypt) /* use a new key: some nonces of the old one are used up */
		zns_pb__checkpoint_key__free_unpacked(c->crypt, NULL);
	c->crypt = NULL;
	free(c->parent.data);
	c->parent = (ProtobufCBinaryData){ 0, NULL };
	c->has_parent = c->has_parent_bytes = c->has_memory_bytes = 0;
}

/*
 * Makes the new record. It keeps the history of the old record, but has new places and a new key.
 */
static int begin(struct flatten *x, struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	ZnsPb__Checkpoint *c = x->v.c;
	int ret = zns_save_key(&x->v, err);

	x->v.former = zns_chain_manifest(x->chain, 0);
	x->v.former_crypt = zns_chain_crypt(x->chain, 0);
	/* an encrypted checkpoint stays encrypted, even if new checkpoints are not encrypted */
	if (!ret && !x->v.master && x->v.former_crypt)
		ret = own_key(x, err);
	if (ret)
		return ret;
	ask.container = c->container;
	ask.qos_mibps = x->qos_mibps;
	ask.has_expected_bytes = ask.has_flatten = 1;
	ask.expected_bytes = zns_flat_bytes(x->flat);
	ask.flatten = c->id;
	ask.has_weight = ask.has_own_class = ask.own_class = x->weight > 0;
	ask.weight = x->weight;
	origin.kind = (char *)"flatten";
	ask.origin = &origin;
	ret = zns_save_begin(&x->v, &ask, err);
	if (ret)
		return ret;
	zns_bucket_set(x->v.bucket, x->v.grant->rate_mibps);
	drop_places(c);
	return 0;
}

/*
 * Reports progress to the broker, and keeps to the rate in its answer: a flattening gets a share of
 * the bandwidth by weight and ceilings, as a dump does.
 */
static int tell(struct flatten *x, struct zns_err *err)
{
	ZnsPb__Progress q = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	uint32_t ms = TELL_MS;
	int ret;

	if (zns_mono_ns() < x->tell_ns)
		return 0;
	q.bytes = x->done;
	q.has_total = q.has_moved = 1;
	q.total = zns_flat_bytes(x->flat);
	q.moved = zns_bucket_passed(x->v.bucket);
	req.progress = &q;
	ret = zns_session_ask(&x->s, &req, &r, err);
	if (ret)
		return ret;
	zns_bucket_set(x->v.bucket, r->rate_mibps);
	if (r->has_again_ms)
		ms = zns_min(ms, r->again_ms);
	x->tell_ns = zns_mono_ns() + ms * UINT64_C(1000000);
	zns_pb__response__free_unpacked(r, NULL);
	return 0;
}

static int write_image(struct flatten *x, uint32_t n, uint8_t *buf, struct zns_err *err)
{
	const ZnsPb__Image *pb = zns_chain_manifest(x->chain, 0)->images[n];
	uint64_t size = zns_flat_size(x->flat, n);
	struct zns_wimage *img;
	int ret = zns_writer_image(x->v.w, pb->name, !strncmp(pb->name, "pages-", 6), &img, err);

	if (!ret && pb->beside)
		zns_wimage_set_beside(img);
	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);

		ret = zns_flat_read(x->flat, n, off, buf, len, err);
		if (!ret)
			ret = zns_wimage_data(img, buf, len, err);
		x->done += len;
		ctl_progress_add(&x->prog, len);
		if (!ret)
			ret = tell(x, err);
	}
	return ret ? ret : zns_wimage_seal(img, err);
}

static int run(struct flatten *x, const char *spec, const char *what, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	int ret = buf ? ctl_session_open(&x->s, spec, ZNS_READS | ZNS_WRITES, err) :
			zns_fail(err, -ENOMEM, "no memory for a buffer");

	x->v.bucket = zns_bucket_new();
	if (!ret && !x->v.bucket)
		ret = zns_fail(err, -ENOMEM, "no memory for a token bucket");
	if (!ret)
		ret = open_chain(x, what, err);
	if (ret || x->dry_run)
		return ret;
	ret = begin(x, err);
	if (ret)
		return ret;
	ctl_progress_start(&x->prog, "flatten", zns_flat_bytes(x->flat));
	for (uint32_t n = 0; n < zns_flat_images(x->flat) && !ret; n++)
		if (!zns_chain_manifest(x->chain, 0)->images[n]->part)
			ret = write_image(x, n, buf, err);
	if (!ret)
		ret = zns_save_publish(&x->v, err);
	if (ret)
		zns_save_give_up(&x->v, ret, "the flattening failed");
	ctl_progress_end(&x->prog);
	return ret;
}

static int print_json(const struct flatten *x)
{
	struct json_object *j =
		ctl_json_join(ctl_json(x->v.c, "id container bytes page_bytes"),
			      ctl_obj(J("checkpoints_read", zns_chain_levels(x->chain)),
				      JB("written", !x->dry_run)));

	if (x->dry_run)
		ctl_json_join(j, ctl_obj(J("would_write_bytes", zns_flat_bytes(x->flat))));
	return ctl_print_json(j);
}

static int print(const struct flatten *x, bool json)
{
	char id[ZNS_UUID_STR], size[16];

	if (json)
		return print_json(x);
	zns_uuid_format(x->v.c->id.data, id);
	if (x->dry_run) {
		printf("%s of %s is not written anew, as asked: %s would be\n", id,
		       ctl_text(x->v.c->container),
		       zns_format_size(zns_flat_bytes(x->flat), size, sizeof(size)));
		return CTL_OK;
	}
	printf("%s of %s is written anew, %s: %s in %u images\n", id, ctl_text(x->v.c->container),
	       zns_chain_levels(x->chain) > 1 ? "without parents" : "without superseded copies",
	       zns_format_size(x->v.c->bytes, size, sizeof(size)), x->v.c->nr_images);
	return CTL_OK;
}

static int cmd_flatten(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct flatten x = { .s = ZNS_SESSION_INIT, .v.s = &x.s };
	char dev_id[ZNS_UUID_STR], id[ZNS_UUID_STR];
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *what;
	const char *weight = NULL;
	int ret = 0;
	const struct ctl_opt opts[] = { CTL_RATE("qos", &x.qos_mibps),
					CTL_FLAG("dry-run", &x.dry_run),
					CTL_TEXT("weight", &weight), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (weight_option(weight, &x.weight, &err)) {
		ctl_fail(cmd, &err);
		return CTL_USAGE;
	}
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1 || !*args.argv[0])
		return ctl_usage(
			cmd, "give one checkpoint: its id, or a directory that holds its handle");
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
	zns_save_end(&x.v);
	zns_flat_free(x.flat);
	zns_chain_close(x.chain);
	zns_bucket_free(x.v.bucket);
	if (x.handle)
		zns_pb__handle__free_unpacked(x.handle, NULL);
	zns_session_close(&x.s);
	return ret;
}

const struct ctl_cmd command_flatten = {
	"flatten",
	"[DEV] ID|DIRECTORY [--qos MIBPS] [--weight owner|N] [--dry-run]",
	"write a checkpoint anew, without its parents and old copies",
	"  --qos MIBPS     bandwidth to write with, as --zns-qos of criu\n"
	"  --weight owner  take the part of whoever it belongs to (criu-zns(8)); so\n"
	"                  without the option\n"
	"  --weight N      take a part of its own, 100 to 10000\n"
	"  --dry-run       only say how much would be written\n" CTL_DEV_HELP,
	cmd_flatten,
};
