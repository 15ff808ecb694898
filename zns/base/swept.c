/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records in a file of the runtime directory when `znsctl gc` last ran on a device, by
 * CLOCK_MONOTONIC. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "zns/broker.h"
#include "zns/util.h"

#define TEXT_MAX 32

void zns_swept_note(const uint8_t device[ZNS_UUID_LEN])
{
	char path[PATH_MAX], text[TEXT_MAX];
	cleanup_close int fd = -1;

	if (zns_broker_path(device, "swept", path, sizeof(path)))
		return;
	snprintf(text, sizeof(text), "%020llu", (unsigned long long)zns_mono_ns());
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		/* a failed write is ignored: the next run writes the file again */
		zns_write_all(fd, text, strlen(text));
}

uint64_t zns_swept_last(const uint8_t device[ZNS_UUID_LEN])
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX];
	uint64_t ns = 0;
	size_t len;

	if (zns_broker_path(device, "swept", path, sizeof(path)) ||
	    zns_read_file(AT_FDCWD, path, TEXT_MAX, &text, &len))
		return 0;
	return zns_parse_number((char *)text, 1, UINT64_MAX, &ns) ? 0 : ns;
}
