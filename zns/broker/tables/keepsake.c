/* SPDX-License-Identifier: GPL-2.0-only */
/* Figures that outlive the idle broker, and end with the boot: files of the runtime directory. */
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
	if (!m) /* these are statistics only: the next ones are written to a new file */
		znsd_warn("%s cannot be read: earlier figures are lost", path);
	return m;
}

/* A reader sees the whole file or none. No sync: it ends with the boot anyway, and criu waits. */
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
