/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer.h"
#include "zns/util.h"

static size_t command_bytes(const struct zns_dev *dev, struct zns_bucket *bucket, size_t most)
{
	size_t block = dev->geo.block_size;

	if (dev->geo.max_io_bytes)
		most = zns_min(most, (size_t)dev->geo.max_io_bytes);
	most = zns_min(most, zns_bucket_slice(bucket));
	return zns_max(zns_align_down(most, block), block);
}

int transfer_read(struct zns_dev *dev, struct zns_bucket *bucket, bool urgent, uint32_t zone,
		  uint64_t off, uint8_t *buf, size_t len, struct zns_err *err)
{
	size_t max = command_bytes(dev, bucket, len), n;
	int ret = 0;

	for (size_t done = 0; done < len && !ret; done += n) {
		n = zns_min(max, len - done);
		zns_bucket_take(bucket, n, urgent);
		ret = zns_dev_read(dev, zone, off + done, buf + done, n, err);
	}
	return ret;
}

int transfer_write(struct zns_dev *dev, struct zns_bucket *bucket, size_t most, uint32_t zone,
		   uint64_t off, const uint8_t *buf, size_t len, uint64_t *ns, struct zns_err *err)
{
	size_t max = command_bytes(dev, bucket, most ? most : len), n;
	int ret = 0;

	for (size_t done = 0; done < len && !ret; done += n) {
		uint64_t start;

		n = zns_min(max, len - done);
		zns_bucket_take(bucket, n, false);
		start = zns_mono_ns();
		ret = zns_dev_write(dev, zone, off + done, buf + done, n, err);
		if (ns)
			*ns += zns_mono_ns() - start;
	}
	return ret;
}
