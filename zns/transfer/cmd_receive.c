/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * receive: writes the checkpoints of a stream (zns/stream.h) to a device, unchanged. A checkpoint
 * becomes visible only when all of it has arrived. The stream may come from anybody. So it cannot
 * change what is on the device already, unless --trusted is given.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "as_is.h"
#include "patience.h"
#include "zns/crypt.h"
#include "zns/stream.h"

#define TIMEOUT_S 60
#define LOOK_MS 1000

struct receive {
	struct zns_registered to;
	struct zns_geometry geo;
	ZnsPb__Response *target; /* the checkpoints that the device had before */
	struct zns_stream in;
	struct ctl_patience patience;
	uint64_t timeout_s;
	bool trusted;
	struct ctl_progress prog;
	uint32_t received, there, refused, rules, rules_left, claimed, orphans;
	uint64_t bytes;
	char why[ZNS_ERR_MAX]; /* why the first one was refused */
	/* the checkpoint that is being received; false: its frames are skipped */
	bool open;
	struct zns_session s;
	struct zns_save v;
	ZnsPb__Manifest *m;
	struct zns_crypt *proof;
	struct zns_wimage *image; /* the image that is being written; NULL: none */
	uint64_t left; /* bytes of @image that have not arrived yet */
	uint32_t next; /* index of the image after it */
};

/* ---- the stream ---- */

/* Waits for bytes within the limit for the sender. The wait for the first byte has no limit. */
static int await(struct receive *x, struct zns_err *err)
{
	struct pollfd f = { .fd = STDIN_FILENO, .events = POLLIN };
	int ret;

	for (;;) {
		uint64_t from = zns_mono_ns();

		if (poll(&f, 1, LOOK_MS) > 0)
			return 0;
		ret = ctl_caught(err);
		if (ret)
			return ret;
		if (x->in.last && !ctl_patience_ticked(&x->patience, from))
			return ctl_patience_fail(&x->patience, "the sender sent", err);
	}
}

static int from_stdin(void *arg, void *buf, size_t len, struct zns_err *err)
{
	struct receive *x = arg;
	size_t done = 0;

	while (done < len) {
		ssize_t n;
		int ret = await(x, err);

		if (ret)
			return ret;
		n = read(STDIN_FILENO, (uint8_t *)buf + done, len - done);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return zns_fail_sys(err, -errno, "cannot read the stream");
		if (!n)
			return -ENODATA;
		if (n > 0) {
			ctl_patience_got(&x->patience, (uint64_t)n);
			done += (size_t)n;
		}
	}
	return ctl_caught(err);
}

/* ---- one checkpoint ---- */

static void item_end(struct receive *x)
{
	zns_save_end(&x->v); /* call this first: the writer still uses the manifest and the key */
	zns_session_close(&x->s);
	zns_crypt_free(x->proof);
	if (x->m)
		zns_pb__manifest__free_unpacked(x->m, NULL);
	x->proof = NULL;
	x->m = NULL;
	x->image = NULL;
	x->left = x->next = 0;
	x->open = false;
}

/* Skips this checkpoint. Returns 0 if the others can still be received. */
static int refuse(struct receive *x, int ret, struct zns_err *err)
{
	zns_save_give_up(&x->v, ret, "it was not received");
	item_end(x);
	if (!as_is_goes_on(ret) && ret != -EPROTONOSUPPORT && ret != -EPERM &&
	    ret != -EKEYREJECTED && ret != -ESTALE)
		return ret;
	if (!x->refused++)
		snprintf(x->why, sizeof(x->why), "%s", ctl_text(err->msg));
	*err = (struct zns_err)ZNS_ERR_INIT;
	return 0;
}

/* If this host has the master key, it must fit. It is not an error if the host does not have it. */
static int find_key(struct receive *x, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	int ret = x->m->checkpoint->crypt ? zns_crypt_of(&x->to, false, x->m, &x->proof, &e) : 0;

	if (ret == -EBADMSG || ret == -EKEYREJECTED || ret == -ENOMEM || ret == -EPROTONOSUPPORT) {
		*err = e;
		return ret;
	}
	if (x->proof)
		zns_crypt_harden();
	return 0;
}

/*
 * The sender chose the container's name, which may be that of a container of this host, and the
 * origin, by which engines and gc would take the checkpoint for theirs. So the record is marked as
 * claimed, which means that no retention rule counts it, and only the kind of its origin is kept.
 */
static int claim(struct receive *x, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__Origin *o;

	if (x->trusted)
		return 0;
	o = malloc(sizeof(*o));
	if (!o)
		return zns_fail(err, -ENOMEM, "no memory for the record");
	zns_pb__origin__init(o);
	o->kind = strdup("import");
	if (!o->kind) {
		free(o);
		return zns_fail(err, -ENOMEM, "no memory for the record");
	}
	o->has_claimed = o->claimed = true;
	if (c->origin)
		zns_pb__origin__free_unpacked(c->origin, NULL);
	c->origin = o;
	x->claimed++;
	return 0;
}

static int take_item(struct receive *x, struct zns_err *err)
{
	int ret = as_is_there(x->target, x->to.path, x->in.item->record, err);

	x->open = !ret;
	x->there += ret > 0;
	return ret < 0 ? refuse(x, ret, err) : 0;
}

static int take_images(struct receive *x, struct zns_err *err)
{
	int ret;

	if (!x->open)
		return 0;
	ret = zns_stream_images(&x->in, &x->geo, &x->m, err);
	if (!ret)
		ret = find_key(x, err);
	x->v.proof = x->proof;
	if (!ret)
		ret = as_is_write(&x->v, &x->s, x->to.path, x->m, x->in.item->record, !x->trusted,
				  err);
	if (!ret)
		ret = claim(x, x->v.c, err);
	x->prog.total += x->in.item->record->bytes;
	return ret ? refuse(x, ret, err) : 0;
}

/* Closes images that have all their bytes, and opens the next one that has bytes to come. */
static int turn_image(struct receive *x, struct zns_err *err)
{
	int ret = 0;

	while (!ret && !x->left) {
		if (x->image)
			ret = zns_wimage_seal(x->image, err);
		x->image = NULL;
		if (ret || x->next == x->m->n_images)
			break;
		x->left = x->m->images[x->next]->map ? 0 : x->m->images[x->next]->size;
		x->next++;
		ret = zns_writer_sealed(x->v.w, &x->image, err);
	}
	return ret;
}

static int take_data(struct receive *x, struct zns_err *err)
{
	const uint8_t *p = x->in.f.payload;
	size_t len = x->in.f.len;
	int ret = 0;

	while (x->open && len && !ret) {
		size_t n;

		ret = turn_image(x, err);
		if (!ret && !x->image)
			ret = zns_fail(err, -EBADMSG,
				       "the stream has more bytes than the record of its "
				       "checkpoint says");
		n = zns_min(x->left, (uint64_t)len);
		if (!ret)
			ret = zns_wimage_data(x->image, p, n, err);
		p += n;
		len -= n;
		x->left -= n;
		ctl_progress_add(&x->prog, n);
	}
	return ret ? refuse(x, ret, err) : 0;
}

static int take_done(struct receive *x, struct zns_err *err)
{
	int ret;

	if (!x->open)
		return 0;
	ret = turn_image(x, err);
	if (!ret && x->left)
		ret = zns_fail(err, -EBADMSG,
			       "the stream has fewer bytes than the record of its checkpoint says");
	if (!ret)
		ret = zns_save_publish(&x->v, err);
	if (ret)
		return refuse(x, ret, err);
	x->received++;
	x->bytes += x->v.c->bytes;
	/* pin before the connection closes: a retention rule may be applied then */
	if (x->trusted && (x->in.item->pinned || as_is_orphan(x->v.c))) {
		ret = as_is_pin(&x->s.broker, &x->v.c->id, err);
		x->orphans += !x->in.item->pinned;
	}
	item_end(x);
	return ret;
}

static int take_drop(struct receive *x, struct zns_err *err)
{
	if (x->open)
		return refuse(x,
			      zns_fail(err, -ENOENT, "the sender gave it up: %.*s",
				       (int)x->in.f.len, (const char *)x->in.f.payload),
			      err);
	return 0;
}

/*
 * Applies the sender's rules. This is done last: a rule would remove checkpoints that were just
 * received.
 */
static int take_end(struct receive *x, struct zns_err *err)
{
	struct zns_broker b = { .fd = -1 };
	int ret;

	if (!x->trusted) {
		x->rules_left = (uint32_t)x->in.end->n_rules;
		return 0;
	}
	ret = zns_broker_connect(&x->to, &b, err);
	for (size_t i = 0; i < x->in.end->n_rules && !ret; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

		req.retain = x->in.end->rules[i];
		ret = ctl_tell(&b, &req, err);
		x->rules += !ret;
	}
	zns_broker_close(&b);
	return ret;
}

static int take(struct receive *x, int type, struct zns_err *err)
{
	switch (type) {
	case ZNS_FRAME_STREAM_ITEM:
		return take_item(x, err);
	case ZNS_FRAME_STREAM_IMAGES:
		return take_images(x, err);
	case ZNS_FRAME_STREAM_DATA:
		return take_data(x, err);
	case ZNS_FRAME_STREAM_DONE:
		return take_done(x, err);
	case ZNS_FRAME_STREAM_DROP:
		return take_drop(x, err);
	case ZNS_FRAME_STREAM_END:
		return take_end(x, err);
	default:
		return 0;
	}
}

static int read_all(struct receive *x, struct zns_err *err)
{
	int ret, type;

	do {
		type = zns_stream_next(&x->in, err);
		ret = type < 0 ? type : take(x, type, err);
	} while (!ret && type != ZNS_FRAME_STREAM_END);
	if (ret)
		zns_save_give_up(&x->v, ret, "the stream failed");
	item_end(x);
	return ret;
}

static int run(struct receive *x, const char *spec, struct zns_err *err)
{
	int ret = ctl_session_open(&x->s, spec, ZNS_READS, err);

	if (!ret) {
		x->to = x->s.reg;
		x->geo = x->s.dev->geo;
		zns_session_close(&x->s);
		ret = ctl_list(x->to.path, &x->target, err);
	}
	if (ret)
		return ret;
	ctl_catch_signals();
	ctl_patience_start(&x->patience, x->timeout_s);
	ctl_progress_start(&x->prog, "receiving", 0);
	ret = read_all(x, err);
	ctl_progress_end(&x->prog);
	return ret;
}

static void print(const struct receive *x, bool json)
{
	char size[16];

	if (json) {
		ctl_print_json(ctl_obj(
			J("from", x->in.begin ? ctl_json_uuid(x->in.begin->device.data) : NULL),
			J("to", (const char *)x->to.path), J("received", x->received),
			J("bytes", x->bytes), J("there", x->there), J("refused", x->refused),
			J("why", x->refused ? (const char *)x->why : NULL), J("rules", x->rules),
			J("rules_left", x->rules_left), J("claimed", x->claimed),
			J("orphans", x->orphans), JB("whole", x->in.end != NULL)));
		return;
	}
	printf("%u checkpoint%s, %s received into %s; %u were there\n", x->received,
	       x->received == 1 ? "" : "s", zns_format_size(x->bytes, size, sizeof(size)),
	       x->to.path, x->there);
	if (x->refused)
		printf("%u were refused: %s\n", x->refused, x->why);
	if (x->orphans)
		printf("%u are pinned: what they were made for is gone, and a sweep would remove them\n",
		       x->orphans);
	if (x->claimed || x->rules_left)
		printf("%u of them count in no rule, and %u rules were left out: --trusted takes a "
		       "stream of your own as it is\n",
		       x->claimed, x->rules_left);
}

static int cmd_receive(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct receive x = { .s = ZNS_SESSION_INIT, .timeout_s = TIMEOUT_S };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_FLAG("trusted", &x.trusted),
					CTL_DURATION("timeout", &x.timeout_s, 0), CTL_DEV,
					CTL_OPTS_END };
	int ret;

	x.v.s = &x.s;
	x.in.io = from_stdin;
	x.in.arg = &x;
	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	if (isatty(STDIN_FILENO))
		return ctl_usage(cmd, "it reads the stream of `znsctl send` from standard input");
	ret = run(&x, args.dev, &err);
	if (x.target && x.in.begin)
		print(&x, args.json);
	if (ret)
		ctl_fail(cmd, &err);
	zns_stream_fini(&x.in);
	if (x.target)
		zns_pb__response__free_unpacked(x.target, NULL);
	return ret || x.refused ? CTL_FAILED : CTL_OK;
}

const struct ctl_cmd transfer_receive = {
	"receive",
	"[DEV] [--trusted] [--timeout S]",
	"the checkpoints of a stream of `znsctl send`, from standard input",
	"what is there already is left out; each is there once all of it has come\n"
	"  --trusted       the stream is of a store of yours: its rules replace those\n"
	"                  that are here, and its checkpoints count in them; otherwise\n"
	"                  neither\n"
	"  --timeout S     give up when the sender is silent for so long, or sends under\n"
	"                  64 KiB/s (60; 0: never)\n" CTL_DEV_HELP,
	cmd_receive,
};
