/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prints the results line by line, and makes the report that an owner of a drive can send in. The
 * report names no host, and a serial number only if the user asks for it.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#include "selftest.h"
#include "zns-version.h"

static const char *const word[ST_RESULTS] = { "ok", "FAILED", "doubt", "not run" };

/* Hides a name of the device, which may contain its serial number (/dev/disk/by-id). */
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
	bool shown = s->serial && *s->drive.serial;
	struct utsname u = { 0 };

	st_saying("the end");
	uname(&u);
	if (s->json)
		ctl_print_json(
			ctl_obj(J("version", ZNS_VERSION), J("kernel", (const char *)u.release),
				J("machine", (const char *)u.machine),
				J("backend", (const char *)s->backend),
				J("model", (const char *)s->drive.model),
				J("firmware", (const char *)s->drive.firmware),
				J("serial", s->serial ? (const char *)s->drive.serial : NULL),
				J("zones", geo->nr_zones), J("zone_size", geo->zone_size),
				J("zone_capacity", geo->zone_capacity),
				J("block_size", geo->block_size), J("max_open", geo->max_open),
				J("max_active", geo->max_active), J("max_io", geo->max_io_bytes),
				J("zone_write_mibps", s->zone_write_mibps),
				J("zone_read_mibps", s->zone_read_mibps), J("destroy", s->destroy),
				J("ok", s->count[ST_OK]), J("failed", s->count[ST_FAILED]),
				J("doubt", s->count[ST_DOUBT]), J("not_run", s->count[ST_NOT_RUN]),
				J("checks", s->checks)));
	else
		printf("znsctl %s, Linux %s, %s%s%s%s%s%s%s\n%u ok, %u failed, %u in doubt, %u not run\n",
		       ZNS_VERSION, u.release, u.machine, *s->drive.model ? ", " : "",
		       ctl_text(s->drive.model), *s->drive.firmware ? ", firmware " : "",
		       ctl_text(s->drive.firmware), shown ? ", serial number " : "",
		       shown ? ctl_text(s->drive.serial) : "", s->count[ST_OK], s->count[ST_FAILED],
		       s->count[ST_DOUBT], s->count[ST_NOT_RUN]);
	return s->count[ST_FAILED] || !s->count[ST_OK] ? CTL_FAILED : CTL_OK;
}
