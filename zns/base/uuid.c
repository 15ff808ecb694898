/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes, prints and reads RFC 4122 identifiers. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "zns/util.h"

int zns_uuid_generate(uint8_t out[ZNS_UUID_LEN])
{
	size_t have = 0;

	while (have < ZNS_UUID_LEN) {
		ssize_t n = getrandom(out + have, ZNS_UUID_LEN - have, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		have += n;
	}
	out[6] = (out[6] & 0x0f) | 0x40; /* version 4 (random) */
	out[8] = (out[8] & 0x3f) | 0x80; /* RFC 4122 variant */
	return 0;
}

static int dash_after(size_t byte)
{
	return byte == 3 || byte == 5 || byte == 7 || byte == 9;
}

char *zns_uuid_format(const uint8_t uuid[ZNS_UUID_LEN], char out[ZNS_UUID_STR])
{
	static const char hex[] = "0123456789abcdef";
	char *p = out;

	for (size_t i = 0; i < ZNS_UUID_LEN; i++) {
		*p++ = hex[uuid[i] >> 4];
		*p++ = hex[uuid[i] & 15];
		if (dash_after(i))
			*p++ = '-';
	}
	*p = '\0';
	return out;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int zns_uuid_parse(const char *s, uint8_t out[ZNS_UUID_LEN])
{
	uint8_t tmp[ZNS_UUID_LEN];

	if (!s || strnlen(s, ZNS_UUID_STR) != ZNS_UUID_STR - 1)
		return -EINVAL;
	for (size_t i = 0; i < ZNS_UUID_LEN; i++) {
		int hi = nibble(s[0]), lo = nibble(s[1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		tmp[i] = hi << 4 | lo;
		s += 2;
		if (dash_after(i) && *s++ != '-')
			return -EINVAL;
	}
	memcpy(out, tmp, sizeof(tmp));
	return 0;
}
