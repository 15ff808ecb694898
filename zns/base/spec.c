/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gives device specs a canonical spelling: "file:/abs", "emu:/abs", "zonefs:/abs" or "/abs". */
#include <limits.h>
#include <string.h>

#include "zns/config.h"

const char *zns_spec_path(const char *spec)
{
	size_t n = strspn(spec, "abcdefghijklmnopqrstuvwxyz");

	return n && spec[n] == ':' ? spec + n + 1 : spec;
}

bool zns_spec_on_disk(const char *spec)
{
	return !strncmp(spec, "file:", 5);
}

bool zns_spec_in_file(const char *spec)
{
	return !strncmp(spec, "emu:", 4) || zns_spec_on_disk(spec);
}

bool zns_spec_named(const char *spec)
{
	return zns_spec_in_file(spec) || !strncmp(spec, "zonefs:", 7) || !strncmp(spec, "/dev/", 5);
}

/* Removes "//", "." and "x/.." from an absolute path textually, without looking at the file
 * system. */
static void squeeze(char *path)
{
	char *out = path;

	for (char *p = path; *p;) {
		size_t n;

		while (*p == '/')
			p++;
		n = strcspn(p, "/");
		if (!n)
			break;
		if (n == 2 && !memcmp(p, "..", 2)) {
			while (out > path && *--out != '/')
				;
		} else if (n != 1 || *p != '.') {
			*out++ = '/';
			memmove(out, p, n);
			out += n;
		}
		p += n;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
}

/* Resolves the part of @path that exists with realpath() and appends the rest as text. Both buffers
 * have PATH_MAX bytes. */
static int resolve_existing(const char *path, char *out)
{
	char head[PATH_MAX], real[PATH_MAX];
	size_t cut = strlen(path);

	memcpy(head, path, cut + 1);
	for (;;) {
		if (realpath(cut ? head : "/", real))
			break;
		if (errno != ENOENT && errno != ENOTDIR)
			return -errno;
		if (!cut)
			return -ENOENT;
		while (cut && path[cut - 1] == '/')
			cut--;
		while (cut && path[cut - 1] != '/')
			cut--;
		head[cut] = '\0';
	}
	if (snprintf(out, PATH_MAX, "%s/%s", real, path + cut) >= PATH_MAX)
		return -ENAMETOOLONG;
	squeeze(out);
	return 0;
}

int zns_canonical_spec(const char *spec, char *out, size_t len, struct zns_err *err)
{
	char path[PATH_MAX], real[PATH_MAX], cwd[PATH_MAX] = "";
	const char *name = zns_spec_path(spec);
	int prefix = (int)(name - spec);
	int ret;

	if (!*name)
		return zns_fail(
			err, -EINVAL,
			"\"%s\" names no device: give file:PATH, /dev/…, zonefs:DIR or emu:PATH",
			spec);
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return zns_fail(err, -EINVAL, "device path \"%s\" has control characters",
					spec);
	if (*name != '/' && !getcwd(cwd, sizeof(cwd)))
		return zns_fail_sys(err, -errno,
				    "cannot tell the current directory, give an absolute path");
	if (*name != '/' && *cwd != '/')
		return zns_fail(err, -ENOENT,
				"the current directory is unreachable, give an absolute path");
	if (snprintf(path, sizeof(path), "%s%s%s", cwd, *cwd ? "/" : "", name) >= (int)sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "device path \"%.64s…\" is too long", spec);
	if (!strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9)) {
		/* keep the stable link that the administrator gave (/dev/disk/by-id/…), because
		 * names like /dev/nvme0n1 change between boots */
		memcpy(real, path, strlen(path) + 1);
		squeeze(real);
	} else {
		ret = resolve_existing(path, real);
		if (ret)
			return zns_fail_sys(err, ret, "cannot resolve device path \"%.128s\"",
					    spec);
	}
	if (snprintf(path, sizeof(path), "%.*s%s", prefix, spec, real) >=
	    (int)zns_min(len, sizeof(path)))
		return zns_fail(err, -ENAMETOOLONG,
				"device path \"%.64s…\" is too long (at most %zu bytes)", spec,
				len - 1);
	memcpy(out, path, strlen(path) + 1);
	return 0;
}
