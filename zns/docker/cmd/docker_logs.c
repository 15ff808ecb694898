/* SPDX-License-Identifier: GPL-2.0-only */
/* docker logs: criu's log of a dump, from the device, or of a restore, from the run directory */
#include <string.h>
#include "docker_cmd.h"
#include "zns/reader.h"

#define LOG_NAME "dump.log"

/* Finds a checkpoint. The name or id of a container means its last checkpoint. */
static int resolve(const char *dev, const char *what, char id[ZNS_UUID_STR], struct zns_err *err)
{
	cleanup_answer ZnsPb__Response *r = NULL;
	size_t i;
	int ret;

	ret = ctl_list(dev, &r, err);
	if (ret)
		return ret;
	*id = 0;
	for (i = 0; i < r->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = r->checkpoints[i];

		if (c->id.len == ZNS_UUID_LEN && ctl_is_of(c, what))
			zns_uuid_format(c->id.data, id);
	}
	return 0;
}

int docker_image(struct ctl_hold *h, const char *name, size_t max, const char *absent, char **out,
		 size_t *len, struct zns_err *err)
{
	struct zns_reader_params p = { .dev = h->s.dev, .workers = 1 };
	struct zns_reader *r = NULL;
	struct zns_rimage *img;
	int ret = ctl_hold_key(h, err);

	p.crypt = h->crypt;
	if (!ret)
		ret = zns_reader_new(&p, h->m, &r, err);
	if (ret)
		return ret;
	img = zns_reader_find(r, name);
	*len = img ? zns_rimage_size(img) : 0;
	*out = img && *len <= max ? malloc(*len + 1) : NULL;
	if (!img || *len > max)
		ret = zns_fail(err, -ENOENT, "%s", absent);
	else if (!*out)
		ret = zns_fail(err, -ENOMEM, "no memory for %s", name);
	else
		ret = zns_rimage_read(img, 0, *out, *len, err);
	zns_reader_free(r);
	return ret;
}

static int show(struct ctl_hold *h, struct zns_err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int ret = docker_image(h, LOG_NAME, SIZE_MAX,
			       "no log was kept with this checkpoint: it was not made by a runtime",
			       &text, &len, err);

	if (!ret)
		fwrite(text, 1, len, stdout); /* ctl_end() reports a write error */
	return ret;
}

/*
 * Shows the log of a restore. A restored container, such as a clone, may have no checkpoint. Then
 * Docker is asked for the container of this name, or the name is taken as an id.
 */
static int show_restore(const struct ctl_args *args, const char *host, struct zns_err *err)
{
	struct zns_err ignored = ZNS_ERR_INIT;
	cleanup_free uint8_t *text = NULL;
	const char *id = args->argv[0];
	struct docker_target t;
	struct docker_daemon d;
	bool daemon, target;
	size_t len;
	int ret;

	daemon = !docker_daemon_open(&d, host, &ignored);
	target = daemon && !docker_target_open(&d, id, &t, &ignored);
	if (host && !daemon)
		return zns_fail(err, ignored.code, "%s", ignored.msg);
	ret = docker_restore_log(target ? t.c.id : id, &text, &len, err);
	if (!ret)
		fwrite(text, 1, len, stdout); /* ctl_end() reports a write error */
	if (target)
		docker_target_close(&t);
	if (daemon)
		docker_daemon_close(&d);
	return ret;
}

int docker_logs(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	char id[ZNS_UUID_STR];
	const char *host = NULL;
	struct ctl_hold h;
	bool restore = false;
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("restore", &restore), CTL_TEXT("host", &host),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "one checkpoint's id or one container is wanted");
	if (restore)
		return show_restore(&args, host, &err) ? ctl_fail(cmd, &err) : CTL_OK;
	ret = resolve(args.dev, args.argv[0], id, &err);
	if (!ret)
		ret = ctl_hold_open(&h, args.dev, *id ? id : args.argv[0], &err);
	if (ret)
		return ctl_fail(cmd, &err);
	ret = show(&h, &err);
	ctl_hold_close(&h);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
