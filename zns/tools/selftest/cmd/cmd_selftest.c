/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-selftest, the program that `znsctl selftest` executes. */
#include <string.h>
#include <unistd.h>

#include "../../../ctl/lib/ctl.h"
#include "../conform.h"
#include "selftest.h"
#include "zns/store.h"

static void said(void *arg, const char *name, enum conform_verdict v, double seconds,
		 const char *text)
{
	static const enum st_result result[] = { ST_OK, ST_FAILED, ST_NOT_RUN };
	char what[128];

	snprintf(what, sizeof(what), "conformance, %s", name);
	st_say(arg, result[v], what, "%s", text);
}

/* Tests the device without a store; it must not contain data that anybody needs. */
static void conform(struct selftest *s)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (conform_open(s->spec, NULL, &err)) {
		st_say(s, ST_FAILED, "conformance", "%s", err.msg);
		return;
	}
	conform_run(data_cases, NULL, said, s);
	conform_run(zone_cases, NULL, said, s);
	conform_run(limit_cases, NULL, said, s);
	conform_run(share_cases, NULL, said, s);
	if (conform_reset(&err))
		st_say(s, ST_FAILED, "reset of all zones", "%s", err.msg);
	conform_close();
}

enum content { NOTHING, A_STORE, UNREADABLE };

static enum content content_of(struct zns_dev *d, size_t *checkpoints, struct zns_err *err)
{
	struct zns_store *store;
	int ret = zns_store_open(d, ZNS_STORE_RDONLY, &store, err);

	*checkpoints = 0;
	if (ret)
		return ret == -ENOMEDIUM ? NOTHING : UNREADABLE;
	*checkpoints = zns_store_nr_checkpoints(store);
	zns_store_close(store);
	return A_STORE;
}

/* Refuses to destroy data, as `znsctl format` does. */
static int may_destroy(struct zns_dev *d, struct zns_err *err)
{
	cleanup_free struct zns_zone *z = calloc(d->geo.nr_zones + 1, sizeof(*z));
	struct zns_err why = ZNS_ERR_INIT;
	size_t checkpoints;
	uint32_t written = 0;

	switch (content_of(d, &checkpoints, &why)) {
	case A_STORE:
		return checkpoints ? zns_fail(err, -EEXIST,
					      "%s holds %zu checkpoint%s; --force destroys %s",
					      d->path, checkpoints, checkpoints == 1 ? "" : "s",
					      checkpoints == 1 ? "it" : "them") :
				     0;
	case UNREADABLE:
		return zns_fail(err, -EEXIST,
				"the store on %s cannot be read; --force destroys it (%s)", d->path,
				why.msg);
	default:
		break;
	}
	if (!z || zns_dev_report(d, 0, d->geo.nr_zones, z, &why))
		return 0; /* the checks will report this */
	for (uint32_t i = 0; i < d->geo.nr_zones; i++)
		written += z[i].conventional || z[i].state != ZNS_ZONE_EMPTY;
	return written ? zns_fail(err, -EEXIST,
				  "%u zones of %s are not empty; --force destroys what they hold",
				  written, d->path) :
			 0;
}

static int raw(struct selftest *s, struct zns_err *err)
{
	cleanup_close int lock = -1;
	struct zns_resv resv = { 0 };
	struct zns_dev *d = NULL;
	int ret = ctl_claim_device(s->spec, &lock, err);

	if (!ret)
		ret = zns_dev_open(s->spec, 0, &d, err);
	if (!ret)
		ret = ctl_reserve(d, false, &resv, err);
	if (!ret) {
		conform(s);
		st_rates(s, d);
	}
	zns_resv_leave(&resv, NULL);
	zns_dev_close(d);
	return ret;
}

/* Finds out what is on the device, and whether the test may go on. */
static int begin(struct selftest *s, bool force, enum content *content, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	size_t checkpoints;
	struct zns_dev *d;
	int ret = zns_dev_open(s->spec, ZNS_DEV_RDONLY, &d, err);

	if (!ret && s->destroy && !force)
		ret = may_destroy(d, err);
	if (ret) {
		zns_dev_close(d);
		return ret;
	}
	s->geo = d->geo;
	snprintf(s->backend, sizeof(s->backend), "%s", d->ops->name);
	zns_dev_drive("/sys", s->spec, &s->drive);
	st_geometry(s, d);
	*content = content_of(d, &checkpoints, &why);
	if (!s->destroy && *content == UNREADABLE)
		st_say(s, ST_FAILED, "store", "%s", why.msg);
	zns_dev_close(d);
	return 0;
}

static int run(struct selftest *s, bool force, struct zns_err *err)
{
	enum content content;
	int ret = begin(s, force, &content, err);

	if (!ret && s->destroy)
		ret = raw(s, err);
	if (ret)
		return ret;
	if (s->destroy) {
		st_encrypted(s);
		if (!st_format(s, "format", NULL))
			return 0;
		st_say(s, ST_OK, "format", "%s", "");
	} else {
		st_say(s, ST_NOT_RUN, "conformance", "it writes to all zones: --destroy");
		st_say(s, ST_NOT_RUN, "rates and flush",
		       "they take a device of their own: --destroy");
		st_say(s, ST_NOT_RUN, "dump and restore, encrypted",
		       "it formats the device: --destroy");
		if (content != A_STORE) {
			st_say(s, ST_NOT_RUN, "map, dumps and restores",
			       content == NOTHING ?
				       "the device is not formatted: znsctl format, or --destroy" :
				       "the store cannot be read");
			return 0;
		}
	}
	st_probe(s, s->destroy);
	st_kinds(s);
	return 0;
}

static int cmd_selftest(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct selftest s = { .cmd = cmd, .limit_s = 1800 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct zns_registered reg;
	bool force = false;
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("destroy", &s.destroy),
					CTL_FLAG("force", &force),
					CTL_DURATION("limit", &s.limit_s, 1),
					CTL_FLAG("serial", &s.serial),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (!args.dev && args.argc == 1)
		args.dev = *args.argv++, args.argc--;
	if (!args.dev || args.argc)
		return ctl_usage(cmd, "give one device");
	if (force && !s.destroy)
		return ctl_usage(cmd, "--force goes with --destroy");
	/* by its UUID or name; a new device is not registered */
	s.spec = !zns_resolve_device(args.dev, &reg, &err) ? reg.path : args.dev;
	err = (struct zns_err)ZNS_ERR_INIT;
	s.json = args.json;
	s.checks = s.json ? json_object_new_array() : NULL;
	snprintf(s.dir, sizeof(s.dir), "/var/tmp/zns-selftest-XXXXXX");
	if (!mkdtemp(s.dir)) {
		zns_fail_sys(&err, -errno, "cannot make a directory in /var/tmp");
		return ctl_fail(cmd, &err);
	}
	ret = st_watch(&s);
	if (ret)
		zns_fail_sys(&err, ret, "no thread");
	else
		ret = run(&s, force, &err);
	st_tidy(&s);
	if (ret) {
		json_object_put(s.checks);
		return ctl_fail(cmd, &err);
	}
	return st_end(&s);
}

static const struct ctl_cmd command = {
	"selftest",
	"DEV [OPTIONS]",
	"find out whether a drive does what this product needs of it",
	"  --destroy       all of it: writes to all zones, formats the device; what it\n"
	"                  holds is lost\n"
	"  --force         even if it holds checkpoints or something else\n"
	"  --limit TIME    a check that takes longer has failed (30m)\n"
	"  --serial        the report has the drive's serial number, too\n",
	cmd_selftest,
};

int main(int argc, char **argv)
{
	char name[] = "znsctl selftest";

	if (ctl_begin())
		return CTL_FAILED;
	argv[0] = name;
	return ctl_end(name, cmd_selftest(&command, argc, argv));
}
