/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cleans text from outside (names, paths, records of a device) before it is printed to a terminal
 * or a log: characters that are not printable could move the cursor, change the window's title or
 * reverse the direction of the line. */
#include <string.h>

#include "zns/util.h"

char *zns_clean(char *s)
{
	for (char *p = s; *p;) {
		size_t n = (size_t)zns_printable(p);

		if (!n)
			*p = (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : '?';
		p += n ? n : 1;
	}
	return s;
}

bool zns_is_printable(const char *s)
{
	for (size_t n; *s; s += n) {
		n = (size_t)zns_printable(s);
		if (!n)
			return false;
	}
	return true;
}

char *zns_escape(const char *s, char *buf, size_t len)
{
	size_t at = 0;

	while (*s && at + 5 < len) {
		size_t n = (size_t)zns_printable(s);

		if (n && *s != '\\') {
			memcpy(buf + at, s, n);
			at += n;
			s += n;
			continue;
		}
		at += (size_t)snprintf(buf + at, len - at, *s == '\\' ? "\\\\" : "\\x%02x",
				       (unsigned char)*s);
		s++;
	}
	buf[at] = 0;
	return buf;
}
