/* SPDX-License-Identifier: GPL-2.0-only */
/* Log and memory. */
#include <string.h>
#include "tables.h"

void znsd_log(const char *fmt, ...)
{
	char when[32], line[ZNS_ERR_MAX + 256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* One write per line: lines of two brokers do not mix. */
	dprintf(STDERR_FILENO, "%s znsd[%d]: %s\n",
		zns_format_time(zns_now_ns(), when, sizeof(when)), (int)getpid(), line);
}

void znsd_enough(int ret)
{
	if (!ret)
		return;
	znsd_log("out of memory");
	_exit(1);
}

void *znsd_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	znsd_enough(p ? 0 : -ENOMEM);
	return p;
}

char *znsd_strdup(const char *s)
{
	size_t len = strlen(s) + 1;

	return memcpy(znsd_alloc(len), s, len);
}
