/* SPDX-License-Identifier: GPL-2.0-only */
/* zns_frame_parse never reads beyond its buffer; a frame that it accepts is packed to the same
 * bytes. */
#include <stdlib.h>
#include <string.h>
#include "zns/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_frame f;
	uint8_t *again;

	if (zns_frame_parse(data, size, &f, NULL))
		return 0;
	again = malloc(zns_frame_size(f.len, 1));
	zns_frame_pack(&f, 1, again);
	if (memcmp(again, data, zns_frame_size(f.len, 1)))
		abort();
	free(again);
	return 0;
}
