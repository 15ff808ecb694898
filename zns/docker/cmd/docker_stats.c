/* SPDX-License-Identifier: GPL-2.0-only */
/* docker stats: the last checkpoint and restore of each container (Docker deletes criu's
 * figures) */
#include <string.h>
#include "docker_cmd.h"

struct row {
	const ZnsPb__Checkpoint *last;
	const ZnsPb__RestoreStat *restore; /* the last restore; NULL: none is known */
	size_t nr;
	uint64_t bytes;
};

/* Does the checkpoint belong to a container of any engine: Docker, Podman or CRI? */
static bool has_container(const ZnsPb__Checkpoint *c)
{
	return c->origin && c->origin->kind && c->origin->container_id && *c->origin->container_id;
}

/* The list is in the order of commits, so the last one is the newest. */
static size_t rows(const ZnsPb__Response *r, const char *name, struct row *out)
{
	size_t i, k, nr = 0;

	for (i = 0; i < r->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = r->checkpoints[i];

		if (!has_container(c) || (name && !ctl_is_of(c, name)))
			continue;
		for (k = 0; k < nr; k++)
			if (!strcmp(out[k].last->origin->container_id, c->origin->container_id))
				break;
		if (k == nr)
			memset(&out[nr++], 0, sizeof(*out));
		out[k].last = c;
		out[k].nr++;
		out[k].bytes += c->bytes;
	}
	return nr;
}

static void add_restores(struct row *w, size_t nr, const ZnsPb__Status *s)
{
	size_t i, k;

	for (i = 0; s && i < nr; i++)
		for (k = 0; k < s->n_restores; k++)
			if (!strcmp(s->restores[k]->container, w[i].last->container))
				w[i].restore = s->restores[k];
}

static struct json_object *row_json(const struct row *w)
{
	struct json_object *j = ctl_json_checkpoint(w->last);

	json_object_object_add(j, "checkpoints", ctl_j_uint(w->nr));
	json_object_object_add(j, "bytes_all", ctl_j_uint(w->bytes));
	json_object_object_add(j, "last_restore",
			       w->restore ? ctl_json(w->restore, ctl_restore_fields) : NULL);
	return j;
}

static void row_text(const struct row *w)
{
	const ZnsPb__Checkpoint *c = w->last;
	char size[16], all[16], when[32], asked[16] = "-", got[16] = "-", frozen[24] = "-",
					  restored[32] = "-";

	if (c->has_qos_requested_mibps && c->qos_requested_mibps)
		snprintf(asked, sizeof(asked), "%u", c->qos_requested_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f", c->qos_achieved_mibps);
	if (c->has_frozen_us)
		snprintf(frozen, sizeof(frozen), "%.1f ms%s", (double)c->frozen_us / 1000,
			 c->live ? " live" : "");
	if (w->restore)
		zns_format_time(w->restore->ended_ns, restored, sizeof(restored));
	printf("%-20s %.12s  %s  %11s  %6s/%-8s %16s  %5zu  %11s  %s\n", ctl_text(c->container),
	       ctl_text(c->origin->container_id),
	       zns_format_time(c->created_ns, when, sizeof(when)),
	       zns_format_size(c->bytes, size, sizeof(size)), asked, got, frozen, w->nr,
	       zns_format_size(w->bytes, all, sizeof(all)), restored);
}

static int one_device(const char *dev, const char *name, struct json_object *list, bool json,
		      bool *head, struct zns_err *err)
{
	cleanup_free struct row *w = NULL;
	ZnsPb__Request ask = ZNS_PB__REQUEST__INIT;
	cleanup_answer ZnsPb__Response *r = NULL, *state = NULL;
	size_t i, nr;
	int ret;

	ret = ctl_list(dev, &r, err);
	if (ret)
		return ret;
	w = calloc(r->n_checkpoints + 1, sizeof(*w));
	nr = w ? rows(r, name, w) : 0;
	ask.has_status = ask.status = 1;
	ret = nr ? ctl_call(dev, &ask, &state, err) : 0;
	if (ret)
		return ret;
	if (state)
		add_restores(w, nr, state->status);
	for (i = 0; i < nr; i++) {
		if (json) {
			json_object_array_add(list, row_json(&w[i]));
			continue;
		}
		if (!*head)
			printf("%-20s %-12s  %-20s  %11s  MiB/s asked/got %16s  count  %11s  %s\n",
			       "container", "id", "last checkpoint", "size", "frozen",
			       "all of them", "last restore");
		*head = true;
		row_text(&w[i]);
	}
	return w ? 0 : zns_fail(err, -ENOMEM, "out of memory");
}

int docker_stats(const struct ctl_cmd *cmd, int argc, char **argv)
{
	cleanup_free struct zns_registered *regs = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct json_object *list;
	char dev[ZNS_UUID_STR];
	const char *host = NULL; /* every sub-command accepts this option; it is not used here */
	struct ctl_fold fold;
	bool head = false;
	size_t nr = 0, i;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("host", &host), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		return ctl_usage(cmd, "one container at most");
	ret = zns_registered_list(&regs, &nr, &err);
	list = json_object_new_array();
	ctl_fold_begin(&fold);
	/* if a device is unreachable, the others are still shown */
	for (i = 0; !ret && i < nr; i++)
		if (one_device(zns_uuid_format(regs[i].uuid, dev), args.argc ? args.argv[0] : NULL,
			       list, args.json, &head, &err))
			fprintf(stderr, "znsctl docker stats: %s: %s\n", regs[i].path, err.msg);
	ctl_fold_end(&fold, 4);
	if (ret) {
		json_object_put(list);
		return ctl_fail(cmd, &err);
	}
	if (args.json) {
		ctl_print_list("containers", list);
	} else {
		json_object_put(list);
		if (!head)
			printf("no checkpoints of containers\n");
	}
	return CTL_OK;
}
