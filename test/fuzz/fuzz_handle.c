/* SPDX-License-Identifier: GPL-2.0-only */
/* Handles: the input as a file and, since no fuzzer finds a hash, as the payload of a good frame.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/frame.h"
#include "zns/handle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try(const uint8_t *buf, size_t len)
{
	ZnsPb__Handle *h;

	if (zns_handle_parse(buf, len, &h, NULL))
		return;
	for (size_t i = 0; i < h->n_copies; i++)
		if (strchr(h->copies[i]->name, '/') || h->copies[i]->size > ZNS_HANDLE_COPY_MAX)
			abort();
	zns_pb__handle__free_unpacked(h, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_frame f = { .type = ZNS_FRAME_HANDLE, .payload = data, .len = size };
	uint8_t *buf = malloc(zns_frame_size(size, 1));

	try(data, size);
	zns_frame_pack(&f, 1, buf);
	try(buf, zns_frame_size(size, 1));
	free(buf);
	return 0;
}
