/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Identifies this machine and its present boot, for the mount record (zns/store.h). */
#include <fcntl.h>
#include <string.h>

#include "config_priv.h"
#include "zns/config.h"
#include "zns/util.h"

#define MACHINE_LEN 32

/* Reads the first word of a small file. */
static int read_word(const char *path, char *out, size_t len)
{
	cleanup_free uint8_t *buf = NULL;
	size_t n;
	int ret = zns_read_file(AT_FDCWD, path, 4096, &buf, &n);

	if (ret)
		return ret;
	n = strcspn((char *)buf, " \t\r\n");
	if (!n || n >= len)
		return -EINVAL;
	memcpy(out, buf, n);
	out[n] = 0;
	return 0;
}

static int read_machine(const char *path, char out[ZNS_MACHINE_STR])
{
	int ret = read_word(path, out, ZNS_MACHINE_STR);

	/* The file contains "uninitialized" while an image of the system is being built. */
	return !ret && (strlen(out) != MACHINE_LEN ||
			strspn(out, "0123456789abcdef") != MACHINE_LEN) ?
		       -EINVAL :
		       ret;
}

int zns_machine_id(char out[ZNS_MACHINE_STR], struct zns_err *err)
{
	uint8_t id[ZNS_UUID_LEN];
	char path[4096], line[ZNS_MACHINE_STR + 1];
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/machine-id", zns_config_dir()) >= sizeof(path))
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the configuration directory is too long: set ZNS_CONFIG to another one");
	if (!read_machine(path, out) || !read_machine("/etc/machine-id", out))
		return 0;
	/* The machine has no id, as is usual in containers: generate one and store it. */
	ret = zns_uuid_generate(id);
	for (size_t i = 0; i < ZNS_UUID_LEN; i++)
		snprintf(out + 2 * i, 3, "%02x", id[i]);
	snprintf(line, sizeof(line), "%s\n", out);
	if (ret)
		return zns_fail_sys(err, ret, "no random machine id can be made");
	/* the configuration directory may not exist yet, if no device was registered before */
	ret = conf_mkdirs(zns_config_dir(), err);
	if (ret)
		return ret;
	ret = zns_replace_file(AT_FDCWD, path, line, strlen(line), 0644);
	return ret ? zns_fail_sys(err, ret,
				  "%s: this machine has no machine id, and none can be stored",
				  path) :
		     0;
}

int zns_boot_id(char out[ZNS_UUID_STR], struct zns_err *err)
{
	int ret = read_word("/proc/sys/kernel/random/boot_id", out, ZNS_UUID_STR);

	return ret ? zns_fail_sys(err, ret, "the kernel's boot id cannot be read") : 0;
}
