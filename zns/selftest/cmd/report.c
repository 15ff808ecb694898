/* SPDX-License-Identifier: GPL-2.0-only */
/* Lines as they come, and the report that an owner of a drive can send in: it names no
 * host and no serial number. */
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#include "selftest.h"
#include "zns-version.h"

static const char *const word[ST_RESULTS] = { "ok", "FAILED", "doubt", "not run" };

/* A name of the device may have its serial number in it (/dev/disk/by-id). */
static void hide(const char *name, char *text)
{
	size_t n = strlen(name);
	char *at;

	while (n && (at = strstr(text, name))) {
		memmove(at + 3, at + n, strlen(at + n) + 1);
		for (int i = 0; i < 3; i++)
			at[i] = "DEV"[i];
	}
}

/* "/dev/nvme1n1" and "/dev/ng1n1" belong to the controller nvme1. */
void st_model(struct selftest *s)
{
	static const char *const attribute[] = { "model", "firmware_rev" };
	char *out[] = { s->model, s->firmware };
	char node[PATH_MAX], path[128];
	unsigned int nr;
	const char *base;

	if (!realpath(s->spec, node))
		return;
	base = strrchr(node, '/') + 1;
	if (sscanf(base, "nvme%u", &nr) != 1 && sscanf(base, "ng%u", &nr) != 1)
		return;
	for (int i = 0; i < 2; i++) {
		cleanup_free uint8_t *text = NULL;
		size_t len;

		snprintf(path, sizeof(path), "/sys/class/nvme/nvme%u/%s", nr, attribute[i]);
		if (zns_read_file(AT_FDCWD, path, 4096, &text, &len))
			continue;
		snprintf(out[i], sizeof(s->model), "%.*s", (int)sizeof(s->model) - 1, (char *)text);
		for (len = strlen(out[i]); len && strchr(" \n", out[i][len - 1]);)
			out[i][--len] = '\0';
	}
}

void st_say(struct selftest *s, enum st_result r, const char *what, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (strlen(s->spec) > 3)
		hide(s->spec, text);
	st_saying(what);
	s->count[r]++;
	fprintf(s->json ? stderr : stdout, "%-8s %s%s%s\n", word[r], ctl_text(what),
		*text ? ": " : "", ctl_text(text));
	fflush(stdout);
	if (s->json)
		json_object_array_add(s->checks, ctl_obj(J("check", what), J("result", word[r]),
							 J("text", (const char *)text)));
	st_said();
}

int st_end(struct selftest *s)
{
	const struct zns_geometry *geo = &s->geo;
	struct utsname u = { 0 };

	st_saying("the end");
	uname(&u);
	if (s->json)
		ctl_print_json(ctl_obj(
			J("version", ZNS_VERSION), J("kernel", (const char *)u.release),
			J("machine", (const char *)u.machine),
			J("backend", (const char *)s->backend), J("model", (const char *)s->model),
			J("firmware", (const char *)s->firmware), J("zones", geo->nr_zones),
			J("zone_size", geo->zone_size), J("zone_capacity", geo->zone_capacity),
			J("block_size", geo->block_size), J("max_open", geo->max_open),
			J("max_active", geo->max_active), J("max_io", geo->max_io_bytes),
			J("zone_write_mibps", s->zone_write_mibps),
			J("zone_read_mibps", s->zone_read_mibps), J("destroy", s->destroy),
			J("ok", s->count[ST_OK]), J("failed", s->count[ST_FAILED]),
			J("doubt", s->count[ST_DOUBT]), J("not_run", s->count[ST_NOT_RUN]),
			J("checks", s->checks)));
	else
		printf("%u ok, %u failed, %u in doubt, %u not run\n", s->count[ST_OK],
		       s->count[ST_FAILED], s->count[ST_DOUBT], s->count[ST_NOT_RUN]);
	return s->count[ST_FAILED] || !s->count[ST_OK] ? CTL_FAILED : CTL_OK;
}
