/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics: all registered devices and memory contexts in Prometheus' text format or as JSON, to
 * standard output or a file */
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include "metrics.h"
#include "zns/process.h"

#define ASKED (VIEW_STATUS | VIEW_LS | VIEW_ZONES | VIEW_PROFILE | VIEW_HISTORY)

static int render(const struct metrics *m, const char *path, bool json, struct zns_err *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int ret;

	if (!f)
		return zns_fail(err, -ENOMEM, "out of memory");
	if (json) {
		ctl_write_json(f, metrics_json(m));
	} else {
		metrics_devices(f, m);
		metrics_all_containers(f, m);
		metrics_contexts(f, m);
	}
	if (fclose(f))
		return zns_fail(err, -ENOMEM, "out of memory");
	if (!path) {
		fwrite(text, 1, len, stdout); /* ctl_end() reports a write error */
		return 0;
	}
	/* replace the file atomically: the collector must never see a part of it */
	ret = zns_replace_file(AT_FDCWD, path, text, len, 0644);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

/*
 * Collects the figures. It is an error only if all of them are missing; an unreachable device is
 * reported as a value (zns_up).
 */
static int look(struct metrics *m, struct memory_look *contexts, struct zns_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < m->nr; i++) {
		struct ctl_view *v = &m->dev[i].v;

		ctl_view_ask(v, ASKED);
		if (!ctl_view_up(v))
			fprintf(stderr, "znsctl metrics: %s: %s\n", v->reg.path, v->away.msg);
		else if (metrics_containers(&m->dev[i]))
			ret = zns_fail(err, -ENOMEM, "out of memory");
	}
	if (!ret)
		ret = memory_look_take(contexts, err);
	m->context = contexts->a;
	m->nr_contexts = contexts->nr;
	return ret;
}

static int cmd_metrics(const struct ctl_cmd *cmd, int argc, char **argv)
{
	cleanup_free struct zns_registered *regs = NULL;
	struct memory_look contexts = { 0 };
	struct metrics m = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *path = NULL;
	/* needed for --output: the collector owns the directory */
	static const int keep[] = { CAP_DAC_OVERRIDE };
	size_t nr = 0;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("output", &path), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		return ctl_usage(cmd, "this takes no argument");
	ret = zns_registered_list(&regs, &nr, &err);
	m.dev = calloc(nr + 1, sizeof(*m.dev));
	if (!ret && !m.dev)
		ret = zns_fail(&err, -ENOMEM, "out of memory");
	for (; !ret && m.nr < nr; m.nr++)
		ctl_view_open(&regs[m.nr], &m.dev[m.nr].v);
	/*
	 * All brokers run now, including those that we had to start. From here on we read names
	 * that containers chose, so drop the network.
	 */
	if (!ret)
		zns_process_no_network();
	if (!ret)
		ret = zns_process_keep_caps(keep, path ? 1 : 0, &err);
	if (!ret)
		ret = look(&m, &contexts, &err);
	if (!ret)
		ret = render(&m, path, args.json, &err);
	memory_look_free(&contexts);
	for (size_t i = 0; i < m.nr; i++) {
		ctl_view_close(&m.dev[i].v);
		free(m.dev[i].containers);
	}
	free(m.dev);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

const struct ctl_cmd report_cmd_metrics = {
	"metrics",
	"[--output FILE]",
	"figures of all devices and memory contexts, for Prometheus",
	"  --output FILE   replace a file, for the node exporter's textfile collector\n",
	cmd_metrics,
};
