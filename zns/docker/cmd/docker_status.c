/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker status: is everything installed that a checkpoint needs, and what can this daemon not do?
 */
#include <string.h>
#include "docker_cmd.h"
#include "zns/track.h"

struct look {
	const char *config, *name, *host;
	struct json_object *file; /* our runtime in the configuration file; NULL: none */
	struct json_object *running; /* our runtime in the running daemon; NULL: none */
	struct docker_daemon d;
	bool daemon;
	struct zns_err no_daemon, no_device;
	struct zns_registered reg;
	bool device;
	struct zns_track_kernel kernel; /* for live dumps */
};

/* The directory in which the runtime looks for containers. NULL: the runtime is not registered. */
static const char *root_of(struct json_object *runtime)
{
	struct json_object *args = zns_json_get(runtime, "runtimeArgs");
	const char *word, *root = runtime ? DOCKER_DEFAULT_ROOT : NULL;

	for (size_t i = 0; i + 1 < zns_json_len(args); i++) {
		word = json_object_get_string(json_object_array_get_idx(args, i));
		if (word && !strcmp(word, "--zns-docker-root"))
			root = json_object_get_string(json_object_array_get_idx(args, i + 1));
	}
	return root;
}

/* The value of the running daemon or, if the daemon does not show arguments, of the file. */
static const char *runtime_root(const struct look *l)
{
	bool said = l->running && zns_json_get(l->running, "runtimeArgs");

	return root_of(said || !l->file ? l->running : l->file);
}

static bool same_root(const struct look *l)
{
	const char *root = runtime_root(l);

	return root && !strcmp(root, l->d.root);
}

static bool complete(const struct look *l)
{
	return l->running && l->d.experimental && l->device && same_root(l);
}

static void line(const char *label, const char *text)
{
	printf("%-14s %s\n", label, text);
}

static void print_text(const struct look *l, struct json_object *limits)
{
	const char *root = runtime_root(l);

	line("config", l->config);
	if (l->file)
		line("runtime", zns_json_str(l->file, "path"));
	else if (l->running)
		printf("%-14s %s (not from this file: the daemon reads another one)\n", "runtime",
		       zns_json_str(l->running, "path"));
	else
		line("runtime", "not registered: znsctl docker install");
	line("daemon", l->daemon ? l->d.version : l->no_daemon.msg);
	if (l->daemon) {
		line("data root", l->d.root);
		line("", l->running ? "it knows the runtime" :
			 l->file    ? "it does not know the runtime yet: restart it" :
				      "it does not know the runtime");
		if (root && !same_root(l))
			printf("%-14s the runtime looks in %s: znsctl docker install --data-root %s, then restart the daemon\n",
			       "", root, l->d.root);
		if (!l->d.experimental)
			line("",
			     "it is not experimental, so it takes no checkpoints: restart it after install");
	}
	line("device", l->device ? l->reg.path : l->no_device.msg);
	printf("%-14s tracker %s%s%s\n", "live", zns_tracker_name(l->kernel.tracker),
	       *l->kernel.why ? ": " : "", l->kernel.why);
	for (size_t i = 0; i < json_object_array_length(limits); i++)
		line(i ? "" : "limits",
		     json_object_get_string(json_object_array_get_idx(limits, i)));
}

static void print_json(const struct look *l, struct json_object *limits)
{
	struct json_object *rt = l->file ? l->file : l->running, *j;
	const char *root = runtime_root(l);

	j = ctl_obj(J("config", l->config), J("runtime", zns_json_str(rt, "path")),
		    JB("registered", l->file || l->running), JB("in_config", l->file),
		    J("daemon_version", l->daemon ? l->d.version : NULL));
	if (l->daemon)
		json_object_object_add(j, "root", ctl_j_text(l->d.root));
	ctl_print_json(ctl_json_join(
		j, ctl_obj(J("runtime_root", root), JB("daemon_knows_runtime", l->running),
			   J("experimental", l->d.experimental),
			   J("device", l->device ? l->reg.path : NULL),
			   J("live_tracker", zns_tracker_name(l->kernel.tracker)),
			   J("ready", complete(l)), J("limits", json_object_get(limits)))));
}

int docker_status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct look l = { .config = DOCKER_CONFIG, .name = "zns" };
	struct json_object *o = NULL, *limits;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct ctl_fold fold;
	bool ready;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("config", &l.config), CTL_TEXT("name", &l.name),
					CTL_TEXT("host", &l.host), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		return ctl_usage(cmd, "no argument is taken");
	ret = zns_json_read(l.config, &o, &err);
	if (ret && ret != -ENOENT)
		return ctl_fail(cmd, &err);
	l.file = zns_json_get(zns_json_get(o, "runtimes"), l.name);
	if (!docker_runtime_is_ours(l.file))
		l.file = NULL;
	l.daemon = !docker_daemon_open(&l.d, l.host, &l.no_daemon);
	/*
	 * The running daemon decides: it may read another file, or get its runtimes from its
	 * command line.
	 */
	l.running = zns_json_get(zns_json_get(l.d.info, "Runtimes"), l.name);
	if (!l.daemon || !docker_runtime_is_ours(l.running))
		l.running = NULL;
	l.device = !zns_resolve_device(NULL, &l.reg, &l.no_device);
	if (zns_track_kernel(&l.kernel, &err))
		snprintf(l.kernel.why, sizeof(l.kernel.why), "%.150s", err.msg);
	ready = complete(&l);
	limits = l.daemon ? docker_limits(l.d.version) : json_object_new_array();
	ctl_fold_begin(&fold);
	if (!args.json)
		print_text(&l, limits);
	ctl_fold_end(&fold, 15);
	if (args.json)
		print_json(&l, limits);
	json_object_put(limits);
	json_object_put(o);
	docker_daemon_close(&l.d);
	return ready ? CTL_OK : CTL_FAILED;
}
