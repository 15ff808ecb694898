/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes the systemd unit of `docker schedule`. Its words come from the environment and the command
 * line, so they are quoted.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "docker.h"
#include "zns/config.h"

/*
 * Quotes a word for a unit file, without specifiers. @exec: the word is part of a command line, in
 * which systemd expands variables too.
 */
static char *quoted(const char *s, bool exec)
{
	char *out = malloc(2 * strlen(s) + 3), *p = out;

	if (!out)
		return NULL;
	*p++ = '"';
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			*p++ = '\\';
		else if (*s == '%' || (exec && *s == '$'))
			*p++ = *s;
		*p++ = *s;
	}
	*p++ = '"';
	*p = 0;
	return out;
}

static bool one_line(const char *s)
{
	for (; s && *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

int docker_unit_service(const char *container, const char *self, const char *host, unsigned keep,
			char **out, struct zns_err *err)
{
	char conf_line[PATH_MAX + 16], run_line[PATH_MAX + 16];
	cleanup_free char *conf = NULL, *run = NULL, *exe = quoted(self, true);
	cleanup_free char *name = quoted(container, true), *at = quoted(host ? host : "", true);

	if (!one_line(self) || !one_line(host) || !one_line(container) ||
	    !one_line(zns_config_dir()) || !one_line(zns_run_dir()))
		return zns_fail(err, -EINVAL,
				"a name with a control character cannot be in a unit");
	snprintf(conf_line, sizeof(conf_line), "ZNS_CONFIG=%s", zns_config_dir());
	snprintf(run_line, sizeof(run_line), "ZNS_RUN=%s", zns_run_dir());
	conf = quoted(conf_line, false);
	run = quoted(run_line, false);
	if (!conf || !run || !exe || !name || !at ||
	    asprintf(
		    out,
		    "[Unit]\nDescription=Checkpoint of container %s on zones\nAfter=docker.service\n\n"
		    "[Service]\nType=oneshot\nEnvironment=%s %s\nExecStart=%s checkpoint --keep %u%s%s %s\n",
		    container, conf, run, exe, keep, host ? " --host " : "", host ? at : "",
		    name) < 0)
		return zns_fail(err, -ENOMEM, "out of memory");
	return 0;
}
