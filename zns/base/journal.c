/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/journal.h. A field of the protocol is "NAME=value\n". If the value contains a newline, it
 * is "NAME\n", the value's length in 8 bytes (little-endian), the value, "\n". */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "zns/journal.h"
#include "zns/util.h"

static void put(struct zns_journal *j, const void *p, size_t len)
{
	memcpy(j->data + j->len, p, len);
	j->len += len;
}

void zns_journal_text(struct zns_journal *j, const char *name, const char *value)
{
	size_t n = strlen(name), len = value ? strlen(value) : 0;
	uint64_t le = htole64(len);

	/* the longer form needs room for the name, two newlines and the length */
	if (!len || len > sizeof(j->data) || j->len + n + len + 2 + sizeof(le) > sizeof(j->data))
		return;
	put(j, name, n);
	if (memchr(value, '\n', len)) {
		put(j, "\n", 1);
		put(j, &le, sizeof(le));
	} else {
		put(j, "=", 1);
	}
	put(j, value, len);
	put(j, "\n", 1);
}

void zns_journal_number(struct zns_journal *j, const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	zns_journal_text(j, name, text);
}

void zns_journal_begin(struct zns_journal *j, const char *program, int priority,
		       const char *message)
{
	j->len = 0;
	zns_journal_text(j, "MESSAGE", message);
	zns_journal_number(j, "PRIORITY", (uint64_t)priority);
	zns_journal_text(j, "SYSLOG_IDENTIFIER", program);
}

int zns_journal_send(const struct zns_journal *j)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = ZNS_JOURNAL_SOCKET };
	cleanup_close int sk = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (sk < 0)
		return -errno;
	return sendto(sk, j->data, j->len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
		      sizeof(to)) < 0 ?
		       -errno :
		       0;
}

bool zns_journal_owns(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	char end;

	return stream && sscanf(stream, "%llu:%llu%c", &dev, &ino, &end) == 2 && !fstat(fd, &st) &&
	       st.st_dev == dev && st.st_ino == ino;
}
