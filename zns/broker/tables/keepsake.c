/* SPDX-License-Identifier: GPL-2.0-only */
/* Stores figures in files of the runtime directory, so that they are kept when an idle broker
 * exits. After a reboot they are gone. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include "zns/broker.h"
#include "tables.h"

#define FILE_MAX MIB(4)

ProtobufCMessage *keepsake_load(const struct znsd *d, const char *suffix,
				const ProtobufCMessageDescriptor *what)
{
	cleanup_free uint8_t *buf = NULL;
	ProtobufCMessage *m = NULL;
	char path[PATH_MAX];
	size_t len = 0;
	int ret = zns_broker_path(d->reg.uuid, suffix, path, sizeof(path));

	if (!ret)
		ret = zns_read_file(AT_FDCWD, path, FILE_MAX, &buf, &len);
	if (ret == -ENOENT)
		return NULL;
	if (!ret)
		m = protobuf_c_message_unpack(what, NULL, len, buf);
	/* an error is ignored, since these are only statistics; the next ones are written to a new
	 * file */
	if (!m)
		znsd_warn("%s cannot be read: earlier figures are lost", path);
	return m;
}

/* Replaces the file in one step, so that a reader sees a complete file or none. There is no sync:
 * after a reboot the file is gone anyway, and criu would have to wait. */
void keepsake_save(const struct znsd *d, const char *suffix, const ProtobufCMessage *m)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	cleanup_free uint8_t *buf = znsd_alloc(len);
	char path[PATH_MAX], tmp[PATH_MAX + 8];
	cleanup_close int fd = -1;
	int ret = zns_broker_path(d->reg.uuid, suffix, path, sizeof(path));

	protobuf_c_message_pack(m, buf);
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	if (!ret) {
		fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		ret = fd < 0 ? -errno : zns_write_all(fd, buf, len);
	}
	if (!ret && rename(tmp, path))
		ret = -errno;
	if (ret)
		znsd_warn("%s: %s", path, strerror(-ret));
}
