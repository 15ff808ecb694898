// SPDX-License-Identifier: GPL-2.0-only
/* Log, memory and names. */
#include <string.h>
#include "znsd.h"

#define CONTAINER_MAX 200

void znsd_log(const char *fmt, ...)
{
	char when[32], line[ZNS_ERR_MAX + 256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* One write per line, so that lines of two brokers do not mix. */
	dprintf(STDERR_FILENO, "%s znsd[%d]: %s\n", zns_format_time(zns_now_ns(), when, sizeof(when)), (int)getpid(),
		line);
}

void *znsd_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p) {
		znsd_log("out of memory");
		_exit(1);
	}
	return p;
}

char *znsd_strdup(const char *s)
{
	size_t len = strlen(s) + 1;

	return memcpy(znsd_alloc(len), s, len);
}

void *reply_alloc(struct reply *rep, size_t len)
{
	/* Grows by powers of two; the count says when. */
	if (!(rep->nr_mem & (rep->nr_mem - 1))) {
		void **mem = znsd_alloc((rep->nr_mem ? rep->nr_mem * 2 : 1) * sizeof(*mem));

		if (rep->nr_mem)
			memcpy(mem, rep->mem, rep->nr_mem * sizeof(*mem));
		free(rep->mem);
		rep->mem = mem;
	}
	return rep->mem[rep->nr_mem++] = znsd_alloc(len);
}

char *reply_printf(struct reply *rep, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	n = zns_min(n, (int)sizeof(buf) - 1);
	return memcpy(reply_alloc(rep, n + 1), buf, n + 1);
}

void reply_free(struct reply *rep)
{
	size_t i;

	for (i = 0; i < rep->nr_mem; i++)
		free(rep->mem[i]);
	free(rep->mem);
	rep->mem = NULL;
	rep->nr_mem = 0;
}

/* Length of the printable UTF-8 character at @p, 0 if it is none. */
static int printable(const unsigned char *p)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
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
	if (c < least[n] || c < 0xa0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || c == 0x2028 || c == 0x2029)
		return 0;
	return n;
}

int znsd_check_container(const char *name, struct zns_err *err)
{
	const unsigned char *p = (const unsigned char *)name;
	int n;

	if (!*p)
		return zns_fail(err, -EINVAL, "the container's name is empty");
	if (strlen(name) > CONTAINER_MAX)
		return zns_fail(err, -EINVAL, "the container's name is longer than %d bytes", CONTAINER_MAX);
	while (*p) {
		n = printable(p);
		if (!n)
			return zns_fail(err, -EINVAL, "the container's name has a character that cannot be printed (0x%02x)",
					*p);
		p += n;
	}
	return 0;
}
