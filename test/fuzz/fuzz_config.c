/* SPDX-License-Identifier: GPL-2.0-only */
/* The administrator's files: the input as the configuration, and as a device's registration. */
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "zns/config.h"
#include "zns/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/fuzz-config-XXXXXX";

static void end(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (system(cmd))
		return;
}

static void put(const char *name, const uint8_t *data, size_t size)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || zns_write_all(fd, data, size))
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_registered reg, *list = NULL;
	static bool ready;
	char value[256], sub[64];
	size_t nr = 0;

	if (!ready) {
		if (!mkdtemp(dir) || setenv("ZNS_CONFIG", dir, 1))
			abort();
		snprintf(sub, sizeof(sub), "%s/devices.d", dir);
		if (mkdir(sub, 0700))
			abort();
		atexit(end);
		ready = true;
	}
	put("zns.conf", data, size);
	put("devices.d/11111111-2222-4333-8444-555555555555", data, size);
	zns_config_get("default-device", value, sizeof(value), NULL);
	zns_config_set("default-device", "emu:/x", NULL);
	zns_resolve_device(NULL, &reg, NULL);
	if (!zns_registered_list(&list, &nr, NULL))
		for (size_t i = 0; i < nr; i++)
			if (strnlen(list[i].path, sizeof(list[i].path)) == sizeof(list[i].path))
				abort();
	free(list);
	return 0;
}
