/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds our own programs, installed or in the build directory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "zns/safeopen.h"
#include "zns/util.h"

static int try_dir(const char *dir, const char *sub, const char *name, char *out, size_t len)
{
	char path[PATH_MAX];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s%s/%s", dir, sub, name);

	if (n < 0 || (size_t)n >= sizeof(path) || (size_t)n >= len)
		return -ENOENT;
	if (stat(path, &st) || !S_ISREG(st.st_mode) || access(path, X_OK))
		return -ENOENT;
	memcpy(out, path, n + 1);
	return 0;
}

int zns_own_program(const char *name, char *out, size_t len)
{
	char dir[PATH_MAX], *slash;

	if (!*name || strchr(name, '/'))
		return -ENOENT;
	if (zns_read_link(AT_FDCWD, "/proc/self/exe", dir, sizeof(dir)) <= 0)
		return -ENOENT;
	slash = strrchr(dir, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	if (!try_dir(dir, "", name, out, len))
		return 0;
	return try_dir(dir, "/../libexec/zns-criu", name, out, len);
}

int zns_find_program(const char *name, char *out, size_t len)
{
	const char *env = secure_getenv("ZNS_LIBEXEC");

	if (*name && !strchr(name, '/') && env && *env && !try_dir(env, "", name, out, len))
		return 0;
	return zns_own_program(name, out, len);
}

int zns_need_program(const char *what, const char *name, char *out, size_t len, struct zns_err *err)
{
	int ret = zns_find_program(name, out, len);

	return ret ? zns_fail(
			     err, ret,
			     "%s %s is not installed beside this program nor in ../libexec/zns-criu: install package zns-criu or run make",
			     what, name) :
		     0;
}

int zns_find_znsctl(char *out, size_t len)
{
	char helper[PATH_MAX];
	int ret = zns_find_program("znsctl", out, len);

	if (!ret || zns_find_program("zns-helper", helper, sizeof(helper)))
		return ret;
	/* the installed paths are PREFIX/libexec/zns-criu/zns-helper and PREFIX/bin/znsctl */
	*strrchr(helper, '/') = 0;
	if ((size_t)snprintf(out, len, "%s/../../bin/znsctl", helper) >= len)
		return -ENAMETOOLONG;
	return access(out, X_OK) ? -errno : 0;
}
