/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks the names of containers. They appear on terminals, in messages, and between quotes in
 * criu's configuration file. So all characters must be printable, and none may end or escape a
 * quoted word.
 */
#include <string.h>

#include "zns/util.h"
#include "zns/err.h"

/* Characters that change how the others are displayed: line separators and direction marks. */
static bool turns(uint32_t c)
{
	return (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

int zns_printable(const char *s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *p = (const unsigned char *)s;
	uint32_t c;
	int n, i;

	if (p[0] < 0x80)
		return p[0] >= 0x20 && p[0] != 0x7f;
	if ((p[0] & 0xe0) == 0xc0)
		n = 2;
	else if ((p[0] & 0xf0) == 0xe0)
		n = 3;
	else if ((p[0] & 0xf8) == 0xf0)
		n = 4;
	else
		return 0;
	c = p[0] & (0xff >> (n + 1));
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c < 0xa0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || turns(c))
		return 0;
	return n;
}

int zns_check_container(const char *name, struct zns_err *err)
{
	const char *p = name;
	int n;

	if (!*p)
		return zns_fail(err, -EINVAL, "the container's name is empty");
	if (strlen(name) > ZNS_NAME_MAX)
		return zns_fail(err, -EINVAL, "the container's name is longer than %d bytes",
				ZNS_NAME_MAX);
	for (; *p; p += n) {
		n = zns_printable(p);
		if (!n)
			return zns_fail(
				err, -EINVAL,
				"the container's name has a character that cannot be printed (0x%02x)",
				(unsigned char)*p);
		if (*p == '"' || *p == '\\')
			return zns_fail(err, -EINVAL,
					"the container's name has a %c, which no name may have",
					*p);
	}
	return 0;
}

int zns_check_memory(const char *name, struct zns_err *err)
{
	int ret = zns_check_container(name, err);

	if (!ret && (*name == '.' || strchr(name, '/')))
		ret = zns_fail(err, -EINVAL,
			       "a memory context's name may not have a / or begin with a dot");
	return ret;
}
