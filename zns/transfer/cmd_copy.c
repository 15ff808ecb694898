/* SPDX-License-Identifier: GPL-2.0-only */
/* copy: copies checkpoints from one device to another without changing them */
#include <string.h>
#include "as_is.h"
#include "zns/chain.h"
#include "zns/store.h"

#define CHUNK MIB(4)

struct copy {
	struct zns_registered from, to;
	ZnsPb__Response *source, *target; /* the lists of checkpoints of the two devices */
	struct ctl_progress prog;
	uint8_t *buf;
	bool dry_run, switches;
	uint32_t copied, there, refused, orphans;
	uint64_t bytes;
	char why[ZNS_ERR_MAX]; /* why the first checkpoint that failed could not be copied */
};

static int write_images(struct copy *k, const struct as_is *from, struct zns_save *v,
			struct zns_err *err)
{
	const ZnsPb__Manifest *m = from->m;
	int ret = 0;

	for (uint32_t n = 0; n < m->n_images && !ret; n++) {
		const ZnsPb__Image *pb = m->images[n];
		struct zns_wimage *img;

		ret = zns_writer_sealed(v->w, &img, err);
		if (ret || pb->map)
			continue;
		for (uint64_t off = 0; off < pb->size && !ret; off += CHUNK) {
			size_t len = zns_min(CHUNK, pb->size - off);

			ret = zns_rimage_read(zns_reader_image(zns_chain_reader(from->chain), n),
					      off, k->buf, len, err);
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

static int copy_one(struct copy *k, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	struct zns_session to = ZNS_SESSION_INIT;
	struct as_is from = AS_IS_INIT;
	struct zns_save v = { .s = &to };
	int ret = as_is_open(&from, k->from.path, c->id.data, err);

	if (!ret)
		ret = as_is_write(&v, &to, k->to.path, from.m, from.c, false, err);
	if (!ret)
		ret = write_images(k, &from, &v, err);
	if (!ret)
		ret = zns_save_publish(&v, err);
	if (ret)
		zns_save_give_up(&v, ret, "the copy failed");
	else
		k->bytes += v.c->bytes;
	zns_save_end(&v); /* call this first: the writer still uses the manifest */
	as_is_close(&from);
	/* pin before the connection closes: a retention rule may be applied then */
	if (!ret && as_is_orphan(c)) {
		ret = as_is_pin(&to.broker, &c->id, err);
		k->orphans++;
	}
	zns_session_close(&to);
	return ret;
}

/* Copies the checkpoints in the order of the list, in which parents come before their children. */
static int copy_all(struct copy *k, struct zns_err *err)
{
	for (size_t n = 0; n < k->source->n_checkpoints; n++) {
		const ZnsPb__Checkpoint *c = k->source->checkpoints[n];
		struct zns_err e = ZNS_ERR_INIT;
		int ret = as_is_there(k->target, k->to.path, c, &e);

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
		if (!as_is_goes_on(ret)) {
			*err = e;
			return ret;
		}
		if (!k->refused++)
			snprintf(k->why, sizeof(k->why), "%s", e.msg);
	}
	return 0;
}

/*
 * Copies rules and pins. This is done last, since a rule on the target would remove checkpoints
 * that were just copied.
 */
static int copy_rules(struct copy *k, struct zns_err *err)
{
	struct zns_broker b = { .fd = -1 };
	int ret = zns_broker_connect(&k->to, &b, err);

	for (size_t i = 0; i < k->source->n_marks && !ret; i++)
		if (k->source->marks[i]->pinned)
			ret = as_is_pin(&b, &k->source->marks[i]->checkpoint, err);
	for (size_t i = 0; i < k->source->n_retentions && !ret; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

		req.retain = k->source->retentions[i];
		ret = ctl_tell(&b, &req, err);
	}
	zns_broker_close(&b);
	return ret;
}

/*
 * Checks that all checkpoints of the source were copied. Called when no other program has the
 * source open.
 */
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

/*
 * Registers the target as the successor of the source: from here on handles that name the source
 * lead to the target.
 */
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
		ret = zns_fail(err, -ENOMEM, "no memory for a buffer");
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
				       J("refused", k->refused), J("orphans", k->orphans),
				       J("why", k->refused ? (const char *)k->why : NULL),
				       JB("dry_run", k->dry_run)));
		return;
	}
	printf("%u checkpoint%s, %s %s to %s; %u were there\n", k->copied,
	       k->copied == 1 ? "" : "s", zns_format_size(k->bytes, size, sizeof(size)),
	       k->dry_run ? "would be copied" : "copied", k->to.path, k->there);
	if (k->orphans)
		printf("%u are pinned: what they were made for is gone, and a sweep would remove them\n",
		       k->orphans);
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

const struct ctl_cmd transfer_copy = {
	"copy",
	"DEV DEV2 [--switch] [--dry-run]",
	"copy all checkpoints to another device, as they are",
	"ids, names, times, parents, keys, pins and rules stay; what is there already is\n"
	"left out\n"
	"  --switch        then DEV is forgotten, and handles that name it lead to DEV2\n"
	"  --dry-run       only say how much\n",
	cmd_copy,
};
