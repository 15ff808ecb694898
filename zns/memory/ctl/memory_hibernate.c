/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * memory hibernate, memory wake: requests the state from the pager, then waits until the context is
 * in it.
 */
#include <string.h>
#include <time.h>
#include "memory.h"

#define LOOK_MS 5

static int tell(const char *name, ZnsPb__MemoryOp op, struct zns_err *err)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;

	q.op = op;
	return memory_call(name, &q, NULL, err);
}

/*
 * Waits until the context is in that state, also if its pager dies and a successor continues.
 * -ECANCELED: another state was requested meanwhile.
 */
static int await(const char *name, ZnsPb__MemoryState state, struct zns_err *err)
{
	long ms = LOOK_MS;

	for (;; ms = zns_min(ms * 5 / 4 + 1, 200L)) {
		struct zns_err no = ZNS_ERR_INIT;
		ZnsPb__MemoryAnswer *r;
		bool there, over;
		int ret = memory_status(name, &r, &no);

		if (ret && ret != -EPIPE && ret != -ENOENT && ret != -ETIMEDOUT) {
			*err = no;
			return ret;
		}
		if (ret == -ENOENT && ms >= 200)
			return zns_fail(err, ret, "%s has ended meanwhile", ctl_text(name));
		if (!ret) {
			there = r->status->state == state;
			over = r->status->wanted != state;
			zns_pb__memory_answer__free_unpacked(r, NULL);
			if (there)
				return 0;
			if (over)
				return zns_fail(
					err, -ECANCELED,
					"%s got another command meanwhile (wake, detach or limit), which counts",
					ctl_text(name));
		}
		nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
	}
}

static int warned(const char *name, struct zns_err *err)
{
	ZnsPb__MemoryAnswer *r;
	int ret = memory_status(name, &r, err);

	if (ret)
		return ret;
	if (r->status->warning && *r->status->warning)
		ret = zns_fail(err, -EAGAIN, "%s: %s", ctl_text(name),
			       ctl_text(r->status->warning));
	zns_pb__memory_answer__free_unpacked(r, NULL);
	return ret;
}

int memory_cmd_hibernate(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct memory_wish w = { 0 };
	struct zns_err err = ZNS_ERR_INIT, none = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool no_wait = false;
	const struct ctl_opt opts[] = { CTL_TEXT("dram", &w.dram), CTL_FLAG("no-wait", &no_wait),
					CTL_DEV, CTL_OPTS_END };
	char name[MEMORY_NAME];
	int ret;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one context, PID or container");
	w.what = args.argv[0];
	w.dev = args.dev;
	ret = memory_find(w.what, name, sizeof(name), &none);
	if (ret == -ENOENT)
		ret = memory_attach(&w, name, sizeof(name), &err);
	else if (ret)
		err = none;
	if (!ret)
		ret = tell(name, ZNS_PB__MEMORY_OP__MEMORY_HIBERNATE, &err);
	if (!ret && !no_wait)
		ret = await(name, ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED, &err);
	if (!ret && !no_wait)
		ret = warned(name, &err);
	return ret ? ctl_fail(cmd, &err) : memory_show(cmd, name, args.json);
}

int memory_cmd_wake(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_OPTS_END };
	char name[MEMORY_NAME];

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one context: its name, or a PID");
	if (memory_find(args.argv[0], name, sizeof(name), &err) ||
	    tell(name, ZNS_PB__MEMORY_OP__MEMORY_WAKE, &err) ||
	    await(name, ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE, &err))
		return ctl_fail(cmd, &err);
	return memory_show(cmd, name, args.json);
}
