// SPDX-License-Identifier: GPL-2.0-only
/* Just enough of tar (POSIX ustar, with pax headers where a name or a size needs one) for regular files. */
#include <string.h>
#include "ctl.h"
#include "tar.h"

#define USTAR_NAME_MAX 100
#define USTAR_SIZE_MAX 077777777777ull	/* 8 GiB - 1 */

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], chksum[8], typeflag, linkname[100], magic[6],
		version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

static int put_header(int fd, const char *name, char type, const char *to, uint64_t size, int64_t mtime_s)
{
	struct header h = { .typeflag = type, .magic = "ustar", .version = { '0', '0' } };
	unsigned sum = 0;

	memcpy(h.name, name, strnlen(name, sizeof(h.name)));
	memcpy(h.linkname, to, strnlen(to, sizeof(h.linkname)));
	snprintf(h.mode, sizeof(h.mode), "%07o", 0600);
	snprintf(h.uid, sizeof(h.uid), "%07o", 0);
	snprintf(h.gid, sizeof(h.gid), "%07o", 0);
	snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)size);
	snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)(mtime_s > 0 ? mtime_s : 0) & USTAR_SIZE_MAX);
	memset(h.chksum, ' ', sizeof(h.chksum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((unsigned char *)&h)[i];
	snprintf(h.chksum, sizeof(h.chksum), "%06o", sum & 0777777);
	return zns_write_all(fd, &h, sizeof(h));
}

/* "LENGTH key=value\n", where LENGTH counts itself. */
static size_t pax_record(char *out, size_t max, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
	char digits[24];

	while ((size_t)snprintf(digits, sizeof(digits), "%zu", len) + body != len)
		len++;
	return (size_t)snprintf(out, max, "%zu %s=%s\n", len, key, value);
}

int tar_begin_file(int fd, const char *name, uint64_t size, int64_t mtime_s)
{
	char pax[TAR_BLOCK] = "", number[24];
	size_t n = 0;
	int ret = 0;

	if (strlen(name) > USTAR_NAME_MAX)
		n += pax_record(pax, sizeof(pax), "path", name);
	if (size > USTAR_SIZE_MAX) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)size);
		n += pax_record(pax + n, sizeof(pax) - n, "size", number);
	}
	if (n >= sizeof(pax))
		return -ENAMETOOLONG;
	if (n)
		ret = put_header(fd, "pax", 'x', "", n, mtime_s);
	if (n && !ret)
		ret = zns_write_all(fd, pax, sizeof(pax));
	return ret ? ret : put_header(fd, name, '0', "", size > USTAR_SIZE_MAX ? 0 : size, mtime_s);
}

int tar_end_file(int fd, uint64_t size)
{
	static const char zero[TAR_BLOCK];
	size_t pad = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;

	return pad ? zns_write_all(fd, zero, pad) : 0;
}

int tar_symlink(int fd, const char *name, const char *to, int64_t mtime_s)
{
	if (strlen(name) > USTAR_NAME_MAX || strlen(to) > USTAR_NAME_MAX)
		return -ENAMETOOLONG;
	return put_header(fd, name, '2', to, 0, mtime_s);
}

int tar_end(int fd)
{
	static const char zero[2 * TAR_BLOCK];

	return zns_write_all(fd, zero, sizeof(zero));
}
