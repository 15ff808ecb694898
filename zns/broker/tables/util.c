/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory allocation. */
#include <string.h>
#include "tables.h"

void znsd_enough(int ret)
{
	if (!ret)
		return;
	znsd_say(LOG_CRIT, NULL, "out of memory");
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
