/* SPDX-License-Identifier: GPL-2.0-only */
/* The administrator's files: the input as the configuration, and as a device's registration. */
#include <stdlib.h>
#include <string.h>
#include "files.h"
#include "zns/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_registered reg, *list = NULL;
	static bool ready;
	char value[256];
	size_t nr = 0;

	if (!ready) {
		files_begin();
		if (setenv("ZNS_CONFIG", files_dir, 1))
			abort();
		files_mkdir("devices.d");
		ready = true;
	}
	files_put("zns.conf", data, size);
	files_put("devices.d/11111111-2222-4333-8444-555555555555", data, size);
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
