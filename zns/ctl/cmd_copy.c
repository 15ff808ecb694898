/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * copy: copies checkpoints from one device to another without changing them. Ids, names, times,
 * rates, origins, parents and keys stay. The target gets the bytes of each unit as they are on the
 * source, with their checksums.
 */
#include <string.h>
#include "lib/ctl.h"
#include "zns/chain.h"
#include "zns/pbcopy.h"
#include "zns/save.h"
#include "zns/sealed.h"
#include "zns/store.h"

#define CHUNK MIB(4)

struct copy {
	struct zns_registered from, to;
	ZnsPb__Response *source, *target; /* what is on them */
	struct ctl_progress prog;
	uint8_t *buf;
	bool dry_run, switches;
	uint32_t copied, there, refused;
	uint64_t bytes;
	char why[ZNS_ERR_MAX]; /* the first one could not be copied */
};

/* One checkpoint that is copied. */
struct item {
	struct zns_session from, to;
	ZnsPb__Response *answer; /* with its parents */
	struct zns_chain *chain;
	struct zns_save v;
};

/* The record without the places of its data: on the target these differ. */
static ZnsPb__Checkpoint *bare_record(const ZnsPb__Checkpoint *from, struct zns_err *err)
{
	ZnsPb__Checkpoint c = *from;

	c.n_zones = c.n_groups = c.n_metadata_groups = c.n_old_manifests = 0;
	c.manifest = NULL;
	c.crypt = NULL; /* the writer adds it */
	c.has_moved = c.has_moved_ns = c.has_packed = 0;
	c.has_memory_bytes = 0;
	return (ZnsPb__Checkpoint *)zns_pb_copy(&c.base, err);
}

static int begin(struct copy *k, struct item *i, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	const ZnsPb__Manifest *m = zns_chain_manifest(i->chain, 0);
	int ret = zns_sealed_may(m, err);

	if (!ret)
		ret = ctl_session_open(&i->to, k->to.path, ZNS_WRITES, err);
	if (ret)
		return ret;
	i->v.s = &i->to;
	i->v.sealed = m;
	i->v.unit = m->checkpoint->stripe_unit;
	i->v.keeps_record = true;
	i->v.c = bare_record(c, err);
	if (!i->v.c)
		return -ENOMEM;
	ask.container = c->container;
	ask.has_expected_bytes = 1;
	ask.expected_bytes = c->bytes;
	ask.has_parent = c->has_parent;
	ask.parent = c->parent;
	ask.has_sealed = 1;
	ask.sealed = c->id;
	if (m->checkpoint->crypt) {
		ask.has_key_id = 1;
		ask.key_id = m->checkpoint->crypt->key_id;
	}
	origin.kind = (char *)"copy";
	ask.origin = &origin;
	return zns_save_begin(&i->v, &ask, err);
}

static int write_images(struct copy *k, struct item *i, struct zns_err *err)
{
	const ZnsPb__Manifest *m = zns_chain_manifest(i->chain, 0);
	int ret = 0;

	for (uint32_t n = 0; n < m->n_images && !ret; n++) {
		const ZnsPb__Image *pb = m->images[n];
		struct zns_wimage *img;

		ret = zns_writer_sealed(i->v.w, &img, err);
		if (ret || pb->map)
			continue;
		for (uint64_t off = 0; off < pb->size && !ret; off += CHUNK) {
			size_t len = zns_min(CHUNK, pb->size - off);

			ret = zns_rimage_read(zns_reader_image(zns_chain_reader(i->chain), n), off,
					      k->buf, len, err);
			if (!ret)
				ret = zns_wimage_data(img, k->buf, len, err);
			if (!ret)
				ret = ctl_caught(err);
			ctl_progress_add(&k->prog, len);
		}
		if (!ret)
			ret = zns_wimage_seal(img, err);
	}
	return ret;
}

static void item_end(struct item *i)
{
	zns_save_end(&i->v); /* it borrows the manifest */
	zns_chain_close(i->chain);
	if (i->answer)
		zns_pb__response__free_unpacked(i->answer, NULL);
	zns_session_close(&i->from);
	zns_session_close(&i->to);
}

static int copy_one(struct copy *k, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	struct item i = { .from = ZNS_SESSION_INIT, .to = ZNS_SESSION_INIT };
	const struct zns_reader_params p = { .sealed = true };
	int ret = ctl_session_open(&i.from, k->from.path, ZNS_READS, err);

	if (!ret)
		ret = zns_session_lease(&i.from, c->id.data, true, &i.answer, err);
	if (!ret)
		ret = zns_session_chain(&i.from, i.answer, NULL, &p, &i.chain, err);
	if (!ret)
		ret = begin(k, &i, i.answer->checkpoints[0], err);
	if (!ret)
		ret = write_images(k, &i, err);
	if (!ret)
		ret = zns_save_publish(&i.v, err);
	if (ret)
		zns_save_give_up(&i.v, ret, "the copy failed");
	else
		k->bytes += i.v.c->bytes;
	item_end(&i);
	return ret;
}

/* 1: it is there. */
static int is_there(const struct copy *k, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const ZnsPb__Checkpoint *t = ctl_listed(k->target, c->id.data);
	char id[ZNS_UUID_STR];

	if (!t)
		return 0;
	if (t->created_ns == c->created_ns && !strcmp(t->container, c->container))
		return 1;
	return zns_fail(err, -EEXIST, "%s has another checkpoint %s", k->to.path,
			zns_uuid_format(c->id.data, id));
}

/*
 * Does the copy go on after this error? Yes, if another command changed the checkpoint meanwhile,
 * or if the checkpoint cannot leave its device.
 */
static bool goes_on(int ret)
{
	return ret == -EOPNOTSUPP || ret == -ENOENT || ret == -EEXIST || ret == -EBADMSG ||
	       ret == -ENOKEY;
}

/* In the order of the list: parents come before their children. */
static int copy_all(struct copy *k, struct zns_err *err)
{
	for (size_t n = 0; n < k->source->n_checkpoints; n++) {
		const ZnsPb__Checkpoint *c = k->source->checkpoints[n];
		struct zns_err e = ZNS_ERR_INIT;
		int ret = is_there(k, c, &e);

		if (ret > 0) {
			k->there++;
			continue;
		}
		if (!ret && !k->dry_run)
			ret = copy_one(k, c, &e);
		if (!ret) {
			k->copied++;
			k->bytes += k->dry_run ? c->bytes : 0;
			continue;
		}
		if (!goes_on(ret)) {
			*err = e;
			return ret;
		}
		if (!k->refused++)
			snprintf(k->why, sizeof(k->why), "%s", e.msg);
	}
	return 0;
}

/*
 * Rules and pins are copied last: a rule on the target would remove checkpoints that have just
 * arrived.
 */
static int copy_rules(struct copy *k, struct zns_err *err)
{
	struct zns_broker b = { .fd = -1 };
	int ret = zns_broker_connect(&k->to, &b, err);

	for (size_t i = 0; i < k->source->n_marks && !ret; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
		ZnsPb__Mark m = ZNS_PB__MARK__INIT;

		m.checkpoint = k->source->marks[i]->checkpoint;
		m.has_pinned = m.pinned = 1;
		req.mark = &m;
		if (k->source->marks[i]->pinned)
			ret = ctl_tell(&b, &req, err);
		if (ret == -ENOENT) /* the checkpoint of this pin could not be copied */
			ret = 0;
	}
	for (size_t i = 0; i < k->source->n_retentions && !ret; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

		req.retain = k->source->retentions[i];
		ret = ctl_tell(&b, &req, err);
	}
	zns_broker_close(&b);
	return ret;
}

/* Called when no other program has the source open. */
static int all_listed(const struct copy *k, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c;
	struct zns_store *s = NULL;
	struct zns_dev *dev;
	int ret = zns_dev_open(k->from.path, ZNS_DEV_RDONLY, &dev, err);

	if (ret)
		return ret;
	ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, err);
	for (size_t i = 0; !ret && (c = zns_store_checkpoint(s, i)); i++)
		if (!ctl_listed(k->source, c->id.data))
			ret = zns_fail(err, -EBUSY,
				       "%s has got a checkpoint meanwhile: run the command again",
				       k->from.path);
	zns_store_close(s);
	zns_dev_close(dev);
	return ret;
}

/* From here on handles of the source lead to the target. */
static int hand_over(struct copy *k, struct zns_err *err)
{
	int lock = -1, ret;

	if (k->refused)
		return zns_fail(err, -EOPNOTSUPP, "%s stays registered: %u could not be copied",
				k->from.path, k->refused);
	ret = ctl_claim_device(k->from.path, &lock, err);
	if (!ret)
		ret = all_listed(k, err);
	if (!ret)
		ret = zns_register_successor(k->from.uuid, k->to.uuid, err);
	if (lock >= 0)
		close(lock);
	return ret;
}

static int run(struct copy *k, const char *from, const char *to, struct zns_err *err)
{
	int ret = zns_resolve_device(from, &k->from, err);

	if (!ret)
		ret = zns_resolve_device(to, &k->to, err);
	if (!ret && !memcmp(k->from.uuid, k->to.uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -EINVAL, "%s cannot be copied to itself", k->from.path);
	if (!ret)
		ret = ctl_list(k->from.path, &k->source, err);
	if (!ret)
		ret = ctl_list(k->to.path, &k->target, err);
	k->buf = malloc(CHUNK);
	if (!ret && !k->buf)
		ret = zns_fail_sys(err, -ENOMEM, "buffer");
	if (ret)
		return ret;
	for (size_t i = 0; i < k->source->n_checkpoints; i++)
		if (!ctl_listed(k->target, k->source->checkpoints[i]->id.data))
			k->prog.total += k->source->checkpoints[i]->bytes;
	ctl_catch_signals();
	ctl_progress_start(&k->prog, "copying", k->prog.total);
	ret = copy_all(k, err);
	ctl_progress_end(&k->prog);
	if (!ret && !k->dry_run)
		ret = copy_rules(k, err);
	return ret || !k->switches || k->dry_run ? ret : hand_over(k, err);
}

static void print(const struct copy *k, bool json)
{
	char size[16];

	if (json) {
		ctl_print_json(ctl_obj(J("from", (const char *)k->from.path),
				       J("to", (const char *)k->to.path), J("copied", k->copied),
				       J("bytes", k->bytes), J("there", k->there),
				       J("refused", k->refused),
				       J("why", k->refused ? (const char *)k->why : NULL),
				       JB("dry_run", k->dry_run)));
		return;
	}
	printf("%u checkpoint%s, %s %s to %s; %u were there\n", k->copied,
	       k->copied == 1 ? "" : "s", zns_format_size(k->bytes, size, sizeof(size)),
	       k->dry_run ? "would be copied" : "copied", k->to.path, k->there);
	if (k->refused)
		printf("%u could not be copied: %s\n", k->refused, k->why);
}

static int cmd_copy(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct copy k = { 0 };
	const struct ctl_opt opts[] = { CTL_FLAG("dry-run", &k.dry_run),
					CTL_FLAG("switch", &k.switches), CTL_OPTS_END };
	int ret;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 2)
		return ctl_usage(cmd, "two devices are wanted: from which, and to which");
	ret = run(&k, args.argv[0], args.argv[1], &err);
	if (k.target)
		print(&k, args.json);
	if (ret)
		ctl_fail(cmd, &err);
	if (k.source)
		zns_pb__response__free_unpacked(k.source, NULL);
	if (k.target)
		zns_pb__response__free_unpacked(k.target, NULL);
	free(k.buf);
	return ret || k.refused ? CTL_FAILED : CTL_OK;
}

const struct ctl_cmd command_copy = {
	"copy",
	"DEV DEV2 [--switch] [--dry-run]",
	"copy all checkpoints to another device, as they are",
	"ids, names, times, parents, keys, pins and rules stay; what is there already is left out\n"
	"  --switch        then DEV is forgotten, and handles that name it lead to DEV2\n"
	"  --dry-run       only say how much\n",
	cmd_copy,
};
