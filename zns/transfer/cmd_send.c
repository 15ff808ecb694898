/* SPDX-License-Identifier: GPL-2.0-only */
/* send: writes checkpoints without a change to standard output, as one stream (zns/stream.h) */
#include <string.h>
#include "as_is.h"
#include "patience.h"
#include "zns/chain.h"
#include "zns/grow.h"
#include "zns/stream.h"

#define TIMEOUT_S 600

struct send {
	struct ctl_pick pick;
	struct zns_stream out;
	const char *have; /* name of the file of --have */
	uint8_t (*held)[ZNS_UUID_LEN]; /* ids of checkpoints that the receiver has, sorted */
	size_t nr_held, max_held;
	bool *wanted; /* by index in the list: send this checkpoint */
	struct ctl_patience patience;
	uint64_t timeout_s;
	struct ctl_progress prog;
	uint32_t refused;
	char why[ZNS_ERR_MAX]; /* why the first one that failed could not be sent */
};

static int to_stdout(void *arg, void *buf, size_t len, struct zns_err *err)
{
	struct send *x = arg;
	int ret = ctl_patience_write(&x->patience, STDOUT_FILENO, buf, len, err);

	if (ret == -ETIMEDOUT)
		return ctl_patience_fail(&x->patience, "the receiver took", err);
	if (ret == -EPIPE && !err->code)
		return zns_fail(err, ret,
				"the receiver ended before the stream did, and says why itself");
	return ret && !err->code ? zns_fail_sys(err, ret, "cannot write the stream") : ret;
}

/* ---- choosing what is sent ---- */

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, ZNS_UUID_LEN);
}

/*
 * Reads the ids at the start of lines, as `znsctl ls -v` prints them. Other lines are skipped, such
 * as headings.
 */
static int read_held(struct send *x, struct zns_err *err)
{
	bool is_stdin = x->have && !strcmp(x->have, "-");
	cleanup_file FILE *own = x->have && !is_stdin ? fopen(x->have, "re") : NULL;
	FILE *f = is_stdin ? stdin : own;
	uint8_t id[ZNS_UUID_LEN];
	char line[4096];

	if (!x->have)
		return 0;
	if (!f)
		return zns_fail_sys(err, -errno, "cannot open %s", x->have);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, " \t\n")] = 0;
		if (zns_uuid_parse(line, id))
			continue;
		if (zns_grow(x->held, x->nr_held, x->max_held))
			return zns_fail(err, -ENOMEM, "no memory for a list of ids");
		memcpy(x->held[x->nr_held++], id, ZNS_UUID_LEN);
	}
	if (ferror(f))
		return zns_fail_sys(err, -errno, "cannot read %s", x->have);
	qsort(x->held, x->nr_held, sizeof(*x->held), by_id);
	return 0;
}

static bool is_held(const struct send *x, const ZnsPb__Checkpoint *c)
{
	return x->nr_held && bsearch(c->id.data, x->held, x->nr_held, sizeof(*x->held), by_id);
}

static bool want(struct send *x, const uint8_t *id)
{
	for (size_t i = 0; i < x->pick.ls->n_checkpoints; i++)
		if (!memcmp(x->pick.ls->checkpoints[i]->id.data, id, ZNS_UUID_LEN))
			return x->wanted[i] = true;
	return false;
}

/*
 * Chooses the selected checkpoints and their parents, except those that the receiver has. Parents
 * come first in the list.
 */
static int choose(struct send *x, struct zns_err *err)
{
	const ZnsPb__Response *ls = x->pick.ls;
	char id[ZNS_UUID_STR];

	x->wanted = calloc(ls->n_checkpoints + 1, sizeof(*x->wanted));
	if (!x->wanted)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	for (size_t i = 0; i < x->pick.nr; i++)
		if (!want(x, x->pick.ids[i]))
			return zns_fail(err, -ENOENT, "%s has no checkpoint %s", x->pick.reg.path,
					zns_uuid_format(x->pick.ids[i], id));
	for (size_t i = ls->n_checkpoints; i-- > 0;) {
		x->wanted[i] = x->wanted[i] && !is_held(x, ls->checkpoints[i]);
		if (!x->wanted[i])
			continue;
		x->prog.total += ls->checkpoints[i]->bytes;
		if (ls->checkpoints[i]->has_parent)
			want(x, ls->checkpoints[i]->parent.data);
	}
	return 0;
}

/* ---- sending ---- */

static int send_images(struct send *x, const struct as_is *from, struct zns_err *why,
		       struct zns_err *err)
{
	int ret = 0;

	for (uint32_t n = 0; n < from->m->n_images && !ret; n++) {
		const ZnsPb__Image *pb = from->m->images[n];

		for (uint64_t off = 0; !pb->map && off < pb->size && !ret; off += ZNS_STREAM_DATA) {
			size_t len = zns_min(ZNS_STREAM_DATA, pb->size - off);

			ret = zns_rimage_read(zns_reader_image(zns_chain_reader(from->chain), n),
					      off, zns_stream_room(&x->out), len, why);
			if (ret)
				return 0;
			ret = zns_stream_data(&x->out, len, err);
			if (!ret)
				ret = ctl_caught(err);
			ctl_progress_add(&x->prog, len);
		}
	}
	return ret;
}

static void refuse(struct send *x, const struct zns_err *why)
{
	if (!x->refused++)
		snprintf(x->why, sizeof(x->why), "%s", why->msg);
}

/* Sends a checkpoint. @why: the reason if only this checkpoint cannot be sent. */
static int send_one(struct send *x, const ZnsPb__Checkpoint *c, struct zns_err *why,
		    struct zns_err *err)
{
	struct as_is from = AS_IS_INIT;
	uint32_t items = x->out.items;
	int ret = as_is_open(&from, x->pick.reg.path, c->id.data, err);

	if (!ret)
		ret = zns_stream_put(&x->out, from.c, from.m, ctl_pinned(x->pick.ls, c), err);
	if (ret && x->out.items == items && (as_is_goes_on(ret) || ret == -ESTALE)) {
		*why = *err;
		ret = 0;
	} else if (!ret) {
		ret = send_images(x, &from, why, err);
		if (!ret)
			ret = why->code ? zns_stream_drop(&x->out, why->msg, err) :
					  zns_stream_done(&x->out, err);
	}
	as_is_close(&from);
	return ret;
}

/* Sends the rules of the containers whose checkpoints were sent, and ends the stream. */
static int finish(struct send *x, struct zns_err *err)
{
	const ZnsPb__Response *ls = x->pick.ls;
	cleanup_free ZnsPb__Retention **rules = calloc(ls->n_retentions + 1, sizeof(*rules));
	size_t nr = 0;

	if (!rules)
		return zns_fail(err, -ENOMEM, "no memory for a list of rules");
	for (size_t i = 0; i < ls->n_retentions; i++)
		for (size_t k = 0; k < ls->n_checkpoints; k++)
			if (x->wanted[k] &&
			    !strcmp(ls->retentions[i]->container, ls->checkpoints[k]->container)) {
				rules[nr++] = ls->retentions[i];
				break;
			}
	return zns_stream_finish(&x->out, rules, nr, err);
}

static int run(struct send *x, struct zns_err *err)
{
	const ZnsPb__Response *ls = x->pick.ls;
	int ret = read_held(x, err);

	if (!ret)
		ret = choose(x, err);
	if (ret)
		return ret;
	ctl_catch_signals();
	ctl_patience_start(&x->patience, x->timeout_s);
	ctl_progress_start(&x->prog, "sending", x->prog.total);
	ret = zns_stream_start(&x->out, x->pick.reg.uuid, err);
	for (size_t i = 0; i < ls->n_checkpoints && !ret; i++) {
		struct zns_err why = ZNS_ERR_INIT;

		if (!x->wanted[i])
			continue;
		ret = send_one(x, ls->checkpoints[i], &why, err);
		if (why.code)
			refuse(x, &why);
	}
	if (!ret)
		ret = finish(x, err);
	if (!ret && fsync(STDOUT_FILENO) && errno != EINVAL && errno != EROFS)
		ret = zns_fail_sys(err, -errno, "cannot write the stream");
	ctl_progress_end(&x->prog);
	return ret;
}

static int cmd_send(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct send x = { .out.io = to_stdout, .timeout_s = TIMEOUT_S };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_PICKS(&x.pick), CTL_TEXT("have", &x.have),
					CTL_DURATION("timeout", &x.timeout_s, 0), CTL_DEV,
					CTL_OPTS_END };
	int ret;

	x.out.arg = &x;
	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.json || isatty(STDOUT_FILENO))
		return ctl_usage(cmd,
				 "it writes to standard output: redirect it, and leave out --json");
	ctl_take_dev(&args);
	x.pick.all |= !args.argc && !x.pick.container && !x.pick.pattern;
	ret = ctl_pick_open(cmd, &args, &x.pick, INT32_MAX);
	if (!ret) {
		/* close this connection, since each checkpoint is read on one of its own */
		zns_broker_close(&x.pick.broker);
		ret = run(&x, &err) ? ctl_fail(cmd, &err) : CTL_OK;
		if (x.refused)
			fprintf(stderr, "znsctl send: %u could not be sent: %s\n", x.refused,
				x.why);
	}
	zns_stream_fini(&x.out);
	ctl_pick_end(&x.pick);
	free(x.wanted);
	free(x.held);
	return ret || x.refused ? (ret ? ret : CTL_FAILED) : CTL_OK;
}

const struct ctl_cmd transfer_send = {
	"send",
	"[DEV] [" CTL_PICK "] [--have FILE|-] [--timeout S]",
	"checkpoints as one stream on standard output, as they are",
	CTL_PICK_HELP "  --have FILE     leave out those whose ids begin lines of FILE, as the\n"
		      "                  receiver's `znsctl ls -v` prints; - is standard input\n"
		      "  --timeout S     give up when the receiver takes nothing for so long,\n"
		      "                  or under 64 KiB/s (600; 0: never)\n"
		      "  Parents are sent too. `znsctl receive` reads it.\n" CTL_DEV_HELP,
	cmd_send,
};
