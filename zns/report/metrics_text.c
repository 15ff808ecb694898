/* SPDX-License-Identifier: GPL-2.0-only */
/* Prometheus' text format. */
#include <stdarg.h>
#include <string.h>
#include "metrics.h"

#define LABEL_MAX 1024
#define KEPT 480 /* bytes that are kept of a longer value */

void metrics_head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/*
 * Two different values must stay different: a series that occurs twice makes the whole scrape fail.
 */
static const char *plain(const char *s, char *buf, size_t len)
{
	size_t n = strlen(s);
	char cut[KEPT + 1];

	if (n <= KEPT / 2)
		return zns_escape(s, buf, len);
	snprintf(cut, sizeof(cut), "%.*s", KEPT / 2, s);
	/* do not cut within a character, since its bytes would be escaped */
	for (size_t k = strlen(cut); k && ((unsigned char)cut[k - 1] & 0xc0) == 0x80; k--)
		cut[k - 1] = 0;
	if (*cut && (unsigned char)cut[strlen(cut) - 1] >= 0xc0)
		cut[strlen(cut) - 1] = 0;
	zns_escape(cut, buf, len - 32);
	snprintf(buf + strlen(buf), 32, "…%016llx", (unsigned long long)zns_hash(s, n));
	return buf;
}

static void label(FILE *f, const char *key, const char *value)
{
	char buf[LABEL_MAX];

	fprintf(f, "%s=\"", key);
	for (const char *s = plain(value, buf, sizeof(buf)); *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		fputc(*s, f);
	}
	fputc('"', f);
}

void metrics_line(FILE *f, const char *name, double value, ...)
{
	const char *key, *sep = "{";
	va_list ap;

	fputs(name, f);
	va_start(ap, value);
	while ((key = va_arg(ap, const char *))) {
		const char *text = va_arg(ap, const char *);

		fputs(sep, f);
		label(f, key, text ? text : "");
		sep = ",";
	}
	va_end(ap);
	fprintf(f, "%s %.17g\n", *sep == ',' ? "}" : "", value);
}
