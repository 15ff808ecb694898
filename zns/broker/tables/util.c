// SPDX-License-Identifier: GPL-2.0-only
/* Log and memory. */
#include <string.h>
#include "../znsd.h"

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
