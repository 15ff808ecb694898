/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics: all registered devices in Prometheus' text format or as JSON, to standard output or a
 * file */
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include "ctl.h"
#include "zns/process.h"

struct last {
	const ZnsPb__Checkpoint *c;
	size_t nr;
	uint64_t bytes;
};

struct device {
	char id[ZNS_UUID_STR];
	struct zns_registered reg;
	struct zns_broker broker;
	struct zns_err away; /* why the broker could not be asked */
	ZnsPb__Response *status, *ls; /* NULL: it did not answer */
	struct last *last; /* per container */
	size_t nr_last;
};

static void label(FILE *f, const char *key, const char *value)
{
	fprintf(f, "%s=\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		if (*value == '\n')
			fputs("\\n", f);
		else
			fputc(*value, f);
	}
	fputc('"', f);
}

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void line(FILE *f, const char *name, const struct device *d, const char *key,
		 const char *value, double v)
{
	fprintf(f, "%s{", name);
	label(f, "device", d->id);
	if (key) {
		fputc(',', f);
		label(f, key, value);
	}
	fprintf(f, "} %.17g\n", v);
}

static void container_line(FILE *f, const char *name, const struct device *d, const struct last *l,
			   double v)
{
	const ZnsPb__Origin *o = l->c->origin;

	fprintf(f, "%s{", name);
	label(f, "device", d->id);
	fputc(',', f);
	label(f, "container", l->c->container);
	fputc(',', f);
	label(f, "container_id", o && o->container_id ? o->container_id : "");
	fputc(',', f);
	label(f, "image", o && o->image ? o->image : "");
	fputc(',', f);
	label(f, "origin", o && o->kind ? o->kind : "");
	fprintf(f, "} %.17g\n", v);
}

/* The catalogue has the order of commit, so the last one is the newest. */
static int find_last(struct device *d)
{
	size_t i, k;

	d->last = calloc(d->ls->n_checkpoints + 1, sizeof(*d->last));
	if (!d->last)
		return -ENOMEM;
	for (i = 0; i < d->ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = d->ls->checkpoints[i];

		for (k = 0; k < d->nr_last; k++)
			if (!strcmp(d->last[k].c->container, c->container))
				break;
		d->nr_last += k == d->nr_last;
		d->last[k].c = c;
		d->last[k].nr++;
		d->last[k].bytes += c->bytes;
	}
	return 0;
}

static int ask(struct device *d, struct zns_err *err)
{
	ZnsPb__Request status = ZNS_PB__REQUEST__INIT, ls = ZNS_PB__REQUEST__INIT;
	int ret;

	if (d->away.code) {
		*err = d->away;
		return err->code;
	}
	status.has_status = status.status = 1;
	ls.has_ls = ls.ls = 1;
	ret = zns_broker_call(&d->broker, &status, &d->status, err);
	if (!ret)
		ret = zns_broker_call(&d->broker, &ls, &d->ls, err);
	if (!ret && (!d->status->status || find_last(d)))
		ret = zns_fail(err, -EPROTO, "the broker's answer has no status");
	return ret;
}

static double d_live(const struct device *d)
{
	return (double)d->status->status->bytes_live;
}
static double d_free(const struct device *d)
{
	return (double)d->status->status->bytes_free;
}
static double d_wasted(const struct device *d)
{
	return (double)d->status->status->bytes_wasted;
}
static double d_checkpoints(const struct device *d)
{
	return (double)d->ls->n_checkpoints;
}
static double d_leases(const struct device *d)
{
	return (double)d->status->status->n_leases;
}
static double d_waiting(const struct device *d)
{
	return d->status->status->nr_waiting;
}

static void device_metrics(FILE *f, const struct device *dev, size_t nr)
{
	static const struct {
		const char *name, *help;
		double (*value)(const struct device *); /* NULL: one value per state */
	} m[] = {
		{ "zns_bytes_live", "Bytes of committed checkpoints.", d_live },
		{ "zns_bytes_free", "Bytes that can be written now.", d_free },
		{ "zns_bytes_wasted", "Bytes written that are neither live nor reset yet.",
		  d_wasted },
		{ "zns_zones", "Zones by state.", NULL },
		{ "zns_checkpoints", "Checkpoints on the device.", d_checkpoints },
		{ "zns_leases", "Dumps and restores that run now.", d_leases },
		{ "zns_waiting", "Dumps that wait for admission.", d_waiting },
	};
	static const enum zns_zone_state states[] = { ZNS_ZONE_EMPTY,     ZNS_ZONE_IMP_OPEN,
						      ZNS_ZONE_CLOSED,    ZNS_ZONE_FULL,
						      ZNS_ZONE_READ_ONLY, ZNS_ZONE_OFFLINE };

	head(f, "zns_up", "gauge", "1 if the device answered.");
	for (size_t i = 0; i < nr; i++)
		line(f, "zns_up", &dev[i], "path", dev[i].reg.path, dev[i].ls != NULL);
	for (size_t k = 0; k < ZNS_ARRAY_SIZE(m); k++) {
		head(f, m[k].name, "gauge", m[k].help);
		for (const struct device *d = dev; d < dev + nr; d++) {
			if (d->ls && m[k].value)
				line(f, m[k].name, d, NULL, NULL, m[k].value(d));
			for (size_t s = 0; d->ls && !m[k].value && s < ZNS_ARRAY_SIZE(states); s++)
				line(f, m[k].name, d, "state", zns_zone_state_name(states[s]),
				     ctl_zones_in(d->status->status, states[s]));
		}
	}
}

static double v_count(const struct last *l)
{
	return (double)l->nr;
}
static double v_all(const struct last *l)
{
	return (double)l->bytes;
}
static double v_bytes(const struct last *l)
{
	return (double)l->c->bytes;
}
static double v_time(const struct last *l)
{
	return (double)l->c->created_ns / 1e9;
}
static double v_asked(const struct last *l)
{
	return l->c->qos_requested_mibps * (double)MIB(1);
}
static double v_got(const struct last *l)
{
	return l->c->has_qos_achieved_mibps ? l->c->qos_achieved_mibps * (double)MIB(1) : -1;
}
static double v_data(const struct last *l)
{
	return l->c->has_data_phase_us ? (double)l->c->data_phase_us / 1e6 : -1;
}
static double v_frozen(const struct last *l)
{
	return l->c->has_frozen_us ? (double)l->c->frozen_us / 1e6 : -1;
}

/* A negative value is unknown and is left out. */
static void container_metrics(FILE *f, const struct device *dev, size_t nr)
{
	static const struct {
		const char *name, *help;
		double (*value)(const struct last *);
	} m[] = {
		{ "checkpoints", "Checkpoints of the container.", v_count },
		{ "bytes", "Bytes of all its checkpoints.", v_all },
		{ "last_checkpoint_bytes", "Bytes of its last checkpoint.", v_bytes },
		{ "last_checkpoint_timestamp_seconds", "When its last checkpoint was committed.",
		  v_time },
		{ "last_checkpoint_requested_bytes_per_second",
		  "Bandwidth that its last checkpoint asked for; 0: none.", v_asked },
		{ "last_checkpoint_achieved_bytes_per_second",
		  "Bandwidth that it got; absent if too short to rate.", v_got },
		{ "last_checkpoint_data_seconds",
		  "From the first write of page data to the last completion.", v_data },
		{ "last_checkpoint_frozen_seconds", "How long criu kept the tasks frozen.",
		  v_frozen },
	};
	char name[80];

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(m); k++) {
		snprintf(name, sizeof(name), "zns_container_%s", m[k].name);
		head(f, name, "gauge", m[k].help);
		for (size_t i = 0; i < nr; i++)
			for (const struct last *l = dev[i].last; l < dev[i].last + dev[i].nr_last;
			     l++)
				if (m[k].value(l) >= 0)
					container_line(f, name, &dev[i], l, m[k].value(l));
	}
}

/* The same figures, with the names of the other commands' JSON. */
static struct json_object *container_json(const struct last *l)
{
	const ZnsPb__Origin *o = l->c->origin;

	return ctl_obj(J("container", l->c->container),
		       J("container_id", o ? o->container_id : NULL),
		       J("image", o ? o->image : NULL), J("origin", o ? o->kind : NULL),
		       J("checkpoints", l->nr), J("bytes", l->bytes),
		       J("last", ctl_json_checkpoint(l->c)));
}

static struct json_object *device_json(const struct device *d)
{
	struct json_object *j, *list = json_object_new_array();
	const ZnsPb__Status *s = d->ls ? d->status->status : NULL;

	j = ctl_obj(J("device", (const char *)d->id), J("path", (const char *)d->reg.path),
		    JB("up", s));
	ctl_json_add(j, &zns_pb__status__descriptor, s,
		     "bytes_live bytes_free bytes_wasted zones_by_state= checkpoints= leases= "
		     "waiting=nr_waiting!");
	if (s) {
		json_object_object_add(j, "zones_by_state", ctl_json_zones(s));
		json_object_object_add(j, "checkpoints", ctl_j_uint(d->ls->n_checkpoints));
		json_object_object_add(j, "leases", ctl_j_uint(s->n_leases));
	}
	for (size_t i = 0; s && i < d->nr_last; i++)
		json_object_array_add(list, container_json(&d->last[i]));
	json_object_object_add(j, "containers", list);
	return j;
}

static void write_json(FILE *f, const struct device *dev, size_t nr)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < nr; i++)
		json_object_array_add(list, device_json(&dev[i]));
	ctl_write_json(f, ctl_obj(J("devices", list)));
}

static int render(const struct device *dev, size_t nr, const char *path, bool json,
		  struct zns_err *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int ret;

	if (!f)
		return zns_fail(err, -ENOMEM, "out of memory");
	if (json) {
		write_json(f, dev, nr);
	} else {
		device_metrics(f, dev, nr);
		container_metrics(f, dev, nr);
	}
	if (fclose(f))
		return zns_fail(err, -ENOMEM, "out of memory");
	if (!path) {
		fwrite(text, 1, len, stdout); /* main reports a write error */
		return 0;
	}
	/* The collector must never see half a file. */
	ret = zns_replace_file(AT_FDCWD, path, text, len, 0644);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

static int cmd_metrics(const struct ctl_cmd *cmd, int argc, char **argv)
{
	cleanup_free struct zns_registered *regs = NULL;
	cleanup_free struct device *dev = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *path = NULL;
	/* for --output: the collector owns the directory */
	static const int keep[] = { CAP_DAC_OVERRIDE };
	size_t nr = 0, i;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("output", &path), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		return ctl_usage(cmd, "no argument is taken");
	ret = zns_registered_list(&regs, &nr, &err);
	dev = calloc(nr + 1, sizeof(*dev));
	if (!ret && !dev)
		ret = zns_fail(&err, -ENOMEM, "out of memory");
	/* An unreachable device is a value (zns_up), not a failure. */
	for (i = 0; !ret && i < nr; i++) {
		dev[i].reg = regs[i];
		zns_uuid_format(regs[i].uuid, dev[i].id);
		if (zns_broker_connect(&regs[i], &dev[i].broker, &dev[i].away) && !dev[i].away.code)
			dev[i].away.code = -EIO;
	}
	/* All brokers run now, including those we had to start. From here on we read names that
	 * containers chose. */
	if (!ret)
		zns_process_no_network();
	if (!ret)
		ret = zns_process_keep_caps(keep, path ? 1 : 0, &err);
	for (i = 0; !ret && i < nr; i++) {
		if (ask(&dev[i], &err)) {
			fprintf(stderr, "znsctl metrics: %s: %s\n", regs[i].path, err.msg);
			if (dev[i].ls)
				zns_pb__response__free_unpacked(dev[i].ls, NULL);
			dev[i].ls = NULL;
		}
	}
	if (!ret)
		ret = render(dev, nr, path, args.json, &err);
	for (i = 0; dev && i < nr; i++) {
		if (dev[i].status)
			zns_pb__response__free_unpacked(dev[i].status, NULL);
		if (dev[i].ls)
			zns_pb__response__free_unpacked(dev[i].ls, NULL);
		free(dev[i].last);
		if (!dev[i].away.code)
			zns_broker_close(&dev[i].broker);
	}
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

const struct ctl_cmd command_metrics = {
	"metrics",
	"[--output FILE]",
	"figures of all registered devices, for Prometheus or as JSON",
	"  --output FILE   replace a file, for the node exporter's textfile collector\n",
	cmd_metrics,
};
