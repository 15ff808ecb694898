/* SPDX-License-Identifier: GPL-2.0-only */
/* report: a device as one HTML page without external files, or its figures as JSON */
#include <fcntl.h>
#include <linux/capability.h>
#include "report.h"
#include "zns/process.h"

#define ASKED (VIEW_STATUS | VIEW_LS | VIEW_ZONES | VIEW_PROFILE | VIEW_HISTORY)

static int by_bytes(const void *a, const void *b)
{
	const struct metrics_container *x = a, *y = b;

	return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) :
				      (x->c->created_ns > y->c->created_ns) -
					      (x->c->created_ns < y->c->created_ns);
}

static int look(struct report *r, struct zns_err *err)
{
	ctl_view_ask(&r->d.v, ASKED);
	if (!ctl_view_up(&r->d.v)) {
		*err = r->d.v.away;
		return err->code;
	}
	if (metrics_containers(&r->d))
		return zns_fail(err, -ENOMEM, "no memory for the report");
	qsort(r->d.containers, r->d.nr_containers, sizeof(*r->d.containers), by_bytes);
	r->now_ns = zns_now_ns();
	return 0;
}

static struct json_object *json(const struct report *r)
{
	const ZnsPb__History *h = r->d.v.history->history;
	struct json_object *samples = json_object_new_array();

	for (size_t i = 0; i < h->n_samples; i++) {
		struct json_object *s = ctl_json(h->samples[i], "end=end_ns:time ms");

		json_object_array_add(samples, ctl_json_join(s, ctl_json(h->samples[i]->counts,
									 CTL_COUNTERS)));
	}
	return ctl_json_join(metrics_device_json(&r->d),
			     ctl_obj(J("counted_since", ctl_json_time(h->since_ns)),
				     J("samples", samples)));
}

static void page(FILE *f, const struct report *r)
{
	report_head(f, r);
	report_zones(f, r);
	report_space(f, r);
	if (!zns_spec_on_disk(report_status(r)->path))
		report_groups(f, r);
	report_rates(f, r);
	report_work(f, r);
	fputs("<footer>Made by <code>znsctl report</code>. Times are UTC. This file loads nothing and runs no scripts.</footer>\n"
	      "</main></body></html>\n",
	      f);
}

static int write_out(const struct report *r, const char *path, bool as_json, struct zns_err *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int ret;

	if (!f)
		return zns_fail(err, -ENOMEM, "no memory for the report");
	if (as_json)
		ctl_write_json(f, json(r));
	else
		page(f, r);
	if (fclose(f))
		return zns_fail(err, -ENOMEM, "no memory for the report");
	if (!path) {
		fwrite(text, 1, len, stdout); /* ctl_end() reports a write error */
		return 0;
	}
	ret = zns_replace_file(AT_FDCWD, path, text, len, 0644);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

static int cmd_report(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_registered reg;
	struct report r = { .d.v.broker.fd = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *path = NULL;
	static const int keep[] = { CAP_DAC_OVERRIDE };
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("output", &path), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	if (!path && !args.json && isatty(STDOUT_FILENO))
		return ctl_usage(cmd, "give --output FILE: HTML is not for terminals");
	ret = zns_resolve_device(args.dev, &reg, &err);
	if (!ret) {
		ctl_view_open(&reg, &r.d.v);
		/* from here on we read names that containers chose, so drop the network */
		zns_process_no_network();
		ret = zns_process_keep_caps(keep, path ? 1 : 0, &err);
	}
	if (!ret)
		ret = look(&r, &err);
	if (!ret)
		ret = write_out(&r, path, args.json, &err);
	ctl_view_close(&r.d.v);
	free(r.d.containers);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

const struct ctl_cmd report_cmd_report = {
	"report",
	"[DEV] --output FILE",
	"a page of HTML: zones, containers, groups, wear, rates over time",
	"  --output FILE   replaced as a whole; without it the page goes to stdout\n" CTL_DEV_HELP,
	cmd_report,
};
